"""Lines of config that make a component of each type, and the networks of one component, for tests."""

from __future__ import annotations

import numpy as np
import torch

from pykaldist.nnet.nnet3.initialise import initialised
from pykaldist.nnet.nnet3.model import Nnet3

CONVOLUTION = ("type=TimeHeightConvolutionComponent num-filters-in=2 num-filters-out=3 height-in=5 height-out=3 height-subsample-out=2 "
               "height-offsets=-1,0,1 time-offsets=-2,0,1 bias-stddev=1")
#: type and fields of a component, its input dimension
LINES = {
    "affine": ("type=AffineComponent input-dim=4 output-dim=3", 4),
    "natural": ("type=NaturalGradientAffineComponent input-dim=4 output-dim=3 orthonormal-constraint=1 learning-rate-factor=2", 4),
    "linear": ("type=LinearComponent input-dim=4 output-dim=3 l2-regularize=0.1 max-change=0.5", 4),
    "tdnn": ("type=TdnnComponent input-dim=4 output-dim=3 time-offsets=-1,0,2", 4),
    "tdnn-linear": ("type=TdnnComponent input-dim=4 output-dim=3 time-offsets=0 use-bias=false", 4),
    "convolution": (CONVOLUTION, 10),
    "fixed": ("type=FixedAffineComponent input-dim=4 output-dim=3", 4),
    "fixed-scale": ("type=FixedScaleComponent dim=4", 4),
    "scale-offset": ("type=ScaleAndOffsetComponent dim=6 block-dim=3", 6),
    "scale": ("type=PerElementScaleComponent dim=4 param-stddev=1", 4),
    "natural-scale": ("type=NaturalGradientPerElementScaleComponent dim=4 param-stddev=1", 4),
    "offset": ("type=PerElementOffsetComponent dim=6 block-dim=3 param-stddev=1", 6),
    "relu": ("type=RectifiedLinearComponent dim=4", 4),
    "relu-blocks": ("type=RectifiedLinearComponent dim=6 block-dim=3 self-repair-lower-threshold=0.1", 6),
    "sigmoid": ("type=SigmoidComponent dim=4", 4),
    "tanh": ("type=TanhComponent dim=4", 4),
    "softmax": ("type=SoftmaxComponent dim=4", 4),
    "log-softmax": ("type=LogSoftmaxComponent dim=4", 4),
    "normalize": ("type=NormalizeComponent dim=4 target-rms=0.5", 4),
    "normalize-blocks": ("type=NormalizeComponent dim=6 block-dim=3 add-log-stddev=true", 6),
    "pnorm": ("type=PnormComponent input-dim=6 output-dim=2", 6),
    "permute": ("type=PermuteComponent column-map=2,0,3,1", 4),
    "sum-block": ("type=SumBlockComponent input-dim=6 output-dim=2 scale=0.3", 6),
    "product": ("type=ElementwiseProductComponent input-dim=6 output-dim=2", 6),
    "dropout": ("type=DropoutComponent dim=4 dropout-proportion=0.2", 4),
    "general-dropout": ("type=GeneralDropoutComponent dim=4 dropout-proportion=0.2 continuous=true", 4),
    "frequency-mask": ("type=GeneralDropoutComponent dim=4 specaugment-max-proportion=0.5", 4),
    "time-mask": ("type=SpecAugmentTimeMaskComponent dim=4 zeroed-proportion=0.2 time-mask-max-frames=5", 4),
    "no-op": ("type=NoOpComponent dim=4", 4),
    "attention": ("type=RestrictedAttentionComponent key-dim=2 value-dim=3 num-left-inputs=1 num-right-inputs=1 num-heads=2", 20),
    "gru": ("type=GruNonlinearityComponent cell-dim=3", 12),
    "projected-gru": ("type=GruNonlinearityComponent cell-dim=3 recurrent-dim=2", 13),
    "output-gru": ("type=OutputGruNonlinearityComponent cell-dim=3", 9),
    "batchnorm": ("type=BatchNormComponent dim=6 block-dim=3", 6),
}
#: read, written and made, but not computed
OTHER_LINES = {
    "extraction": ("type=StatisticsExtractionComponent input-dim=4 input-period=1 output-period=2", 4),
    "pooling": ("type=StatisticsPoolingComponent input-dim=9 left-context=2 right-context=2 output-stddevs=true", 9),
}


def network_of(kind: str, seed: int = 0) -> Nnet3:
    """A network of one component of LINES or OTHER_LINES, called `one`, with numbers other than those that it starts with."""
    line, dim = {**LINES, **OTHER_LINES}[kind]
    nnet = initialised([f"input-node name=input dim={dim}", f"component name=one {line}",
                        "component-node name=one component=one input=input", "output-node name=output input=one"],
                       torch.Generator().manual_seed(seed))
    rng, component = np.random.default_rng(seed), nnet.components["one"]
    for token, array in component.parameters.items():
        component.values[token] = array + 0.3 * rng.standard_normal(array.shape).astype(np.float32)
    return nnet
