"""Networks of chain models by name, as the text of an xconfig file.

`tdnnf` is a TDNN-F of a few hours of speech (7 layers of 256, bottlenecks of 64), `tdnnf-1k` and `cnn-tdnn` are those of Kaldi's
mini_librispeech recipe (run_tdnn_1k.sh, run_cnn_tdnn_1a.sh). Input are MFCCs, as many coefficients as mel bins, and i-vectors where the
network has them. Behind all layers stand two branches: `output`, of the chain objective, and `output-xent`, of cross-entropy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pykaldist.errors import UserError
from pykaldist.nnet.nnet3.config import nearest
from pykaldist.options import option

FAR = 3  # frames between those that an upper layer takes, where the output has a third of the frames


@dataclass
class PresetOptions:
    """The options of presets; 0 stands for the preset's own."""

    hid_layers: int = option(0, "hidden layers, convolutions left out")
    hid_dim: int = option(0, "width of hidden layers")
    bottleneck_dim: int = option(0, "width of the bottlenecks between them")
    l2_regularize: float = option(0.03, "l2 of hidden layers; output layers have half of it")
    dropout: bool = option(True, "dropout, whose proportion a schedule sets in training")
    xent_regularize: float = option(0.1, "weight of the cross-entropy branch, which learns 0.5 / weight times as fast")

    def __post_init__(self) -> None:
        for name in ("hid_layers", "hid_dim", "bottleneck_dim", "l2_regularize"):
            if getattr(self, name) < 0:
                raise UserError(f"--{name.replace('_', '-')} {getattr(self, name)} is negative.")
        if self.xent_regularize <= 0:
            raise UserError(f"--xent-regularize {self.xent_regularize:g}: expected a number above 0.")

    def sizes(self, layers: int, dim: int, bottleneck: int) -> tuple[int, int, int]:
        """Layers, width and bottleneck: those that are given, else the preset's."""
        layers, dim = self.hid_layers or layers, self.hid_dim or dim
        bottleneck = self.bottleneck_dim or min(bottleneck, max(1, dim // 4))
        if layers < 2 or bottleneck >= dim:
            raise UserError(f"--hid-layers {layers} --hid-dim {dim} --bottleneck-dim {bottleneck}: expected at least two layers, and "
                            "bottlenecks narrower than layers.")
        return layers, dim, bottleneck


@dataclass
class Sides:
    """The dimensions at the two sides of a network, and the file of the matrix that its first layer reads."""

    input_dim: int
    ivector_dim: int  # 0: none
    num_pdfs: int
    idct: str = "idct.mat"


def preset(name: str, sides: Sides, options: PresetOptions) -> str:
    """Make the xconfig text of a preset; raises UserError for a name that is none."""
    if name not in PRESETS:
        raise UserError(f"--nnet {name}: there is no such preset; {nearest(name, PRESETS)}.")
    lines = [*([f"input dim={sides.ivector_dim} name=ivector"] if sides.ivector_dim else []),
             f"input dim={sides.input_dim} name=input",
             f"idct-layer name=idct input=input dim={sides.input_dim} cepstral-lifter=22 affine-transform-file={sides.idct}",
             *PRESETS[name](sides, options)]
    return "".join(f"{line}\n" for line in lines)


def _tdnnf(sides: Sides, options: PresetOptions) -> list[str]:
    layers, dim, bottleneck = options.sizes(7, 256, 64)
    spliced = "Append(-1,0,1,ReplaceIndex(ivector, t, 0))" if sides.ivector_dim else "Append(-1,0,1)"
    kind = "relu-batchnorm-dropout-layer" if options.dropout else "relu-batchnorm-layer"
    dropout = "dropout-proportion=0.0 dropout-per-dim-continuous=true " if options.dropout else ""
    return ["batchnorm-component name=batchnorm0 input=idct",
            f"{kind} name=tdnn1 input={spliced} l2-regularize={options.l2_regularize} {dropout}dim={dim}",
            *_factorised(2, layers - 1, _strides(layers), dim, bottleneck, options),
            *_outputs(sides, options, dim, bottleneck)]


def _tdnnf_1k(sides: Sides, options: PresetOptions) -> list[str]:
    layers, dim, bottleneck = options.sizes(13, 768, 96)
    ivector = ", Scale(0.4, ReplaceIndex(ivector, t, 0))" if sides.ivector_dim else ""
    return ["batchnorm-component name=batchnorm0 input=idct",
            "spec-augment-layer name=spec-augment freq-max-proportion=0.5 time-zeroed-proportion=0.2 time-mask-max-frames=20",
            "delta-layer name=delta input=spec-augment",
            f"no-op-component name=input2 input=Append(delta{ivector})",
            f"relu-batchnorm-layer name=tdnn1 l2-regularize={options.l2_regularize} dim={dim} input=input2",
            *_factorised(2, layers - 1, _strides(layers), dim, bottleneck, options),
            *_outputs(sides, options, dim, 2 * bottleneck)]


def _cnn_tdnn(sides: Sides, options: PresetOptions) -> list[str]:
    layers, dim, bottleneck = options.sizes(9, 768, 96)
    height, l2 = sides.input_dim, options.l2_regularize
    if height % 8:
        raise UserError(f"--nnet cnn-tdnn: expected features of a dimension that 8 divides, such as 40, found {height}.")
    lines = []
    if sides.ivector_dim:
        lines = [f"linear-component name=ivector-linear l2-regularize={l2} dim={5 * height} input=ReplaceIndex(ivector, t, 0)",
                 "batchnorm-component name=ivector-batchnorm target-rms=0.025"]
    lines.append("batchnorm-component name=idct-batchnorm input=idct")
    if sides.ivector_dim:
        lines.append("combine-feature-maps-layer name=combine_inputs input=Append(idct-batchnorm, ivector-batchnorm) num-filters1=1 "
                     f"num-filters2=5 height={height}")
    for number, (filters, halved) in enumerate([(48, 1), (48, 1), (64, 2), (64, 1), (64, 2), (128, 2)], 1):
        subsampled = f"height-subsample-out={halved} " if halved > 1 else ""
        slow = " learning-rate-factor=0.333 max-change=0.25" if number == 1 else ""
        lines.append(f"conv-relu-batchnorm-layer name=cnn{number} l2-regularize={l2} height-in={height} height-out={height // halved} "
                     f"{subsampled}time-offsets=-1,0,1 height-offsets=-1,0,1 num-filters-out={filters}{slow}")
        height //= halved
    return [*lines,
            *_factorised(7, 1, [0], dim, 2 * bottleneck, options, bypass=0.0),
            *_factorised(8, layers - 1, [FAR] * (layers - 1), dim, bottleneck, options),
            *_outputs(sides, options, dim, 2 * bottleneck)]


PRESETS: dict[str, Callable[[Sides, PresetOptions], list[str]]] = {"tdnnf": _tdnnf, "tdnnf-1k": _tdnnf_1k, "cnn-tdnn": _cnn_tdnn}


def _strides(layers: int) -> list[int]:
    """The strides of the TDNN-F layers behind the first one: short ones, one without, and long ones."""
    short = 2 if layers < 9 else 3
    return [*[1] * short, 0, *[FAR] * layers][:layers - 1]


def _factorised(first: int, count: int, strides: list[int], dim: int, bottleneck: int, options: PresetOptions,
                bypass: float = 0.66) -> list[str]:
    """Lines of TDNN-F layers, `first` being the number of the first one."""
    dropout = "dropout-proportion=0.0 " if options.dropout else ""
    return [f"tdnnf-layer name=tdnnf{first + n} l2-regularize={options.l2_regularize} {dropout}bypass-scale={bypass} dim={dim} "
            f"bottleneck-dim={bottleneck} time-stride={strides[n]}" for n in range(count)]


def _outputs(sides: Sides, options: PresetOptions, dim: int, small: int) -> list[str]:
    """Lines of the two branches."""
    l2, factor = options.l2_regularize, 0.5 / options.xent_regularize
    prefinal = f"input=prefinal-l l2-regularize={l2} small-dim={small} big-dim={dim}"
    return [f"linear-component name=prefinal-l l2-regularize={l2} orthonormal-constraint=-1.0 dim={small}",
            f"prefinal-layer name=prefinal-chain {prefinal}",
            f"output-layer name=output include-log-softmax=false dim={sides.num_pdfs} l2-regularize={l2 / 2}",
            f"prefinal-layer name=prefinal-xent {prefinal}",
            f"output-layer name=output-xent dim={sides.num_pdfs} learning-rate-factor={factor} l2-regularize={l2 / 2}"]
