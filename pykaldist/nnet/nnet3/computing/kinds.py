"""The layers that train components, by the components' types."""

from __future__ import annotations

from pykaldist.errors import UserError
from pykaldist.nnet.nnet3.components import Nnet3Component
from pykaldist.nnet.nnet3.computing.elementwise import FUNCTIONS
from pykaldist.nnet.nnet3.computing.more_layers import (
    Attended,
    Convolution,
    Elementwise,
    FixedScale,
    FrequencyMasked,
    PlainDropout,
    ScalesAndOffsets,
    Squashed,
    TimeMasked,
)
from pykaldist.nnet.nnet3.computing.recurrent_layers import DropoutMask, GruCells, LstmCells, Truncated
from pykaldist.nnet.nnet3.layers import LAYERS as BASIC
from pykaldist.nnet.nnet3.layers import Affine, Layer, Same

LAYERS: dict[str, type[Layer]] = {
    **BASIC, **dict.fromkeys(FUNCTIONS, Elementwise), "SigmoidComponent": Squashed, "TanhComponent": Squashed,
    "TimeHeightConvolutionComponent": Convolution, "ScaleAndOffsetComponent": ScalesAndOffsets,
    "PerElementScaleComponent": ScalesAndOffsets, "NaturalGradientPerElementScaleComponent": ScalesAndOffsets,
    "PerElementOffsetComponent": ScalesAndOffsets, "FixedScaleComponent": FixedScale, "DropoutComponent": PlainDropout,
    "SpecAugmentTimeMaskComponent": TimeMasked, "LstmNonlinearityComponent": LstmCells, "OutputGruNonlinearityComponent": GruCells,
    "GruNonlinearityComponent": GruCells,    "BackpropTruncationComponent": Truncated,
    "DropoutMaskComponent": DropoutMask, "RestrictedAttentionComponent": Attended}
#: those that compute some frames of a minibatch as they compute all of them, of which loops are made
IN_LOOPS = (Affine, LstmCells, GruCells, Truncated, DropoutMask, ScalesAndOffsets, Squashed, Elementwise, PlainDropout, Same)


def layer_of(component: Nnet3Component) -> Layer:
    """The layer that trains a component; raises UserError for a type that is not trained here."""
    if component.type not in LAYERS:
        raise UserError(f"component {component.name} is of the type {component.type}, which is not trained here; trained are "
                        f"{', '.join(LAYERS)}.")
    kind = FrequencyMasked if component.values.get("SpecAugmentMaxProportion") else LAYERS[component.type]
    return kind(component)
