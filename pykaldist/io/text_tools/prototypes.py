"""Tools that print nnet1's prototypes of networks for nnet-initialize, and its matrices of feature transforms.

A prototype has a line for each component: its name, dimensions, and how its parameters are drawn.
"""

from __future__ import annotations

import math
import os

from pykaldist.errors import UserError
from pykaldist.io.text_tools.tool import number, tool, whole, write_file

TYPE_CHECKING = False  # the name that type checkers know; typing's own takes long to import
if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykaldist.io.text_tools.tool import Output


def _line(component: str, inputs: int, outputs: int, rest: str = "") -> str:
    return f"{component} <InputDim> {inputs} <OutputDim> {outputs} {rest}".rstrip() + "\n"


def _drawn(mean: float, spread: float, stddev: float, rest: str = "") -> str:
    """How an affine component's parameters are drawn: biases within half of `spread` about `mean`, weights with a standard deviation."""
    return f"<BiasMean> {mean:f} <BiasRange> {spread:f} <ParamStddev> {stddev:f} {rest}"


@tool("""nnet/make_nnet_proto.py [options] <feat-dim> <num-leaves> <num-hid-layers> <num-hid-neurons> > <nnet-proto>
 e.g.: utils/nnet/make_nnet_proto.py 440 1943 6 2048 > nnet.proto
Options (a value of several words has _ between them):
  --no-softmax                         # the last component is affine
  --block-softmax-dims <d1:d2:...>     # a softmax for each block of outputs
  --activation-type <component>        # <Sigmoid>, <Tanh>, <ParametricRelu> (<Sigmoid>)
  --activation-opts <opts>, --affine-opts <opts>, --dropout-opts <opts>   # more for these lines
  --hid-bias-mean <m> (-2.0), --hid-bias-range <r> (4.0)   # hidden biases are drawn from m - r/2 to m + r/2
  --param-stddev-factor <f>            # of the weights' standard deviation (0.1)
  --no-glorot-scaled-stddev            # which does not depend on the dimensions then
  --no-smaller-input-weights           # the first layer's is not divided by the root of 12
  --bottleneck-dim <n>                 # a linear bottleneck before the last hidden layer (0: none)
  --no-bottleneck-trick                # no smaller weights and learning rates about it
  --max-norm <n>                       # of a hidden unit's weights (0: none)
  --with-dropout                       # <Dropout> behind hidden layers""",
      "no-softmax block-softmax-dims= activation-type= activation-opts= affine-opts= dropout-opts= hid-bias-mean= hid-bias-range= "
      "param-stddev-factor= no-glorot-scaled-stddev no-smaller-input-weights bottleneck-dim= no-bottleneck-trick max-norm= with-dropout",
      (4, 4))
def make_nnet_proto_py(options: dict[str, str], feat_dim: str, num_leaves: str, num_layers: str, num_neurons: str) -> Output:
    """Print the prototype of a feed-forward network."""
    feats, leaves = whole(feat_dim, "<feat-dim>", 1), whole(num_leaves, "<num-leaves>", 1)
    layers, neurons = whole(num_layers, "<num-hid-layers>", 0), whole(num_neurons, "<num-hid-neurons>", 1)
    bottleneck = whole(options.get("bottleneck-dim", "0"), "--bottleneck-dim", 0)
    blocks = options.get("block-softmax-dims", "").replace(",", ":")
    if blocks and (not all(block.isdigit() for block in blocks.split(":")) or sum(map(int, blocks.split(":"))) != leaves):
        raise UserError(f"--block-softmax-dims {blocks}: expected whole numbers whose sum is {leaves}, the number of leaves.")
    return (line.encode() for line in _network(options, feats, leaves, layers, neurons, bottleneck, blocks))


def _network(options: dict[str, str], feats: int, leaves: int, layers: int, neurons: int, bottleneck: int, blocks: str) -> Iterator[str]:
    def value(name: str, default: float) -> float:
        return number(options.get(name, str(default)), f"--{name}")

    mean, spread, factor = value("hid-bias-mean", -2.0), value("hid-bias-range", 4.0), value("param-stddev-factor", 0.1)
    max_norm = f"<MaxNorm> {value('max-norm', 0.0):f}"
    affine_opts, activation_opts, dropout_opts = (options.get(f"{name}-opts", "").replace("_", " ")
                                                  for name in ("affine", "activation", "dropout"))
    plain = "no-glorot-scaled-stddev" in options

    def stddev(inputs: int, outputs: int) -> float:
        """The standard deviation of Glorot and Bengio, by Kaldi's 35 times `factor`, which makes it about `factor` for 1024 units."""
        return factor if plain else factor * 35.0 * math.sqrt(2.0 / (inputs + outputs))

    def nonlinear() -> Iterator[str]:
        yield _line(options.get("activation-type", "<Sigmoid>"), neurons, neurons, activation_opts)
        if "with-dropout" in options:
            yield _line("<Dropout>", neurons, neurons, dropout_opts)

    def hidden(inputs: int, scale: float = 1.0, rates: str = "") -> Iterator[str]:
        yield _line("<AffineTransform>", inputs, neurons,
                    _drawn(mean, spread, stddev(inputs, neurons) * scale, f"{rates}{max_norm} {affine_opts}"))
        yield from nonlinear()

    width = feats
    if layers:
        yield from hidden(feats, 1.0 if "no-smaller-input-weights" in options else math.sqrt(1.0 / 12.0))
        for _ in range(layers - 1):
            yield from hidden(neurons)
        width = neurons
    if bottleneck:
        trick = "no-bottleneck-trick" not in options
        scale = 0.75 if trick else 1.0
        rate = f" <LearnRateCoef> {0.1:f}" if trick else ""
        yield _line("<LinearTransform>", width, bottleneck, f"<ParamStddev> {stddev(width, bottleneck) * scale:f}{rate}")
        rates = f"<LearnRateCoef> {0.1:f} <BiasLearnRateCoef> {0.1:f} " if trick else ""
        yield from hidden(bottleneck, scale, rates)
        width = neurons
    rates = f"<LearnRateCoef> {1.0:f} <BiasLearnRateCoef> {0.1:f}" if width != feats or layers or bottleneck else ""
    yield _line("<AffineTransform>", width, leaves, _drawn(0.0, 0.0, stddev(width, leaves), rates))
    if "no-softmax" not in options:
        yield _line("<BlockSoftmax>", leaves, leaves, f"<BlockDims> {blocks}") if blocks else _line("<Softmax>", leaves, leaves)
    if not layers:
        yield "</NnetProto>\n"  # as Kaldi has it, who prints none else


@tool("""nnet/make_cnn_proto.py [options] <feat-dim> > <nnet-proto>
 e.g.: utils/nnet/make_cnn_proto.py --splice 5 --delta-order 2 --dir exp/cnn 1320 > nnet.proto
Prints two convolutions along frequency, the first with pooling; features are spliced filterbanks with deltas. Options:
  --activation-type <component> (<Sigmoid>)
  --num-filters1 <n> (128), --num-filters2 <n> (256), --patch-dim1 <n> (8), --patch-dim2 <n> (4), --patch-step1 <n> (1)
  --pool-size <n> (3), --pool-step <n> (3), --pool-type Max|Average (Max)
  --delta-order <n> (2), --splice <n> (5)
  --pitch-dim <n> (0)   # so many of a frame's features are pitch, and go through a network of their own: --num-pitch-neurons <n> (200)
  --dir <dir> (.)       # then gets the prototypes of both, which the printed one names""",
      "activation-type= num-filters1= num-filters2= patch-dim1= patch-dim2= patch-step1= pool-size= pool-step= pool-type= delta-order= "
      "splice= pitch-dim= num-pitch-neurons= dir=", (1, 1))
def make_cnn_proto_py(options: dict[str, str], feat_dim: str) -> Output:
    """Print the prototype of a convolutional network's first layers."""

    def value(name: str, default: int, least: int = 1) -> int:
        return whole(options.get(name, str(default)), f"--{name}", least)

    feats, pitch = whole(feat_dim, "<feat-dim>", 1), value("pitch-dim", 0, 0)
    times = (value("delta-order", 2, 0) + 1) * (2 * value("splice", 5, 0) + 1)
    filters, step, size1 = (value("num-filters1", 128), value("num-filters2", 256)), value("patch-step1", 1), value("patch-dim1", 8)
    size2, pool_size, pool_step = value("patch-dim2", 4), value("pool-size", 3), value("pool-step", 3)
    kind, activation = options.get("pool-type", "Max"), options.get("activation-type", "<Sigmoid>")
    if kind not in ("Max", "Average"):
        raise UserError(f"option --pool-type takes Max or Average, found {kind!r}.")
    bands = feats // times - pitch
    places = 1 + (bands - size1) // step
    pooled = 1 + (places - pool_size) // pool_step
    places2 = 1 + (pooled - size2) // step
    if feats % times or min(bands, places, pooled, places2) < 1:
        raise UserError(f"{feats} features are not {times} times (splicing and deltas) bands enough for these patches and pools; correct "
                        "--splice, --delta-order, or the sizes.")
    middle, last = filters[0] * pooled, filters[1] * places2

    def convolution(inputs: int, outputs: int, size: int, stride: int, drawn: str, norm: int) -> str:
        return _line("<ConvolutionalComponent>", inputs, outputs, f"<PatchDim> {size} <PatchStep> {step} <PatchStride> {stride} "
                     f"{drawn}<MaxNorm> {norm:f}")

    def behind(dim: int) -> list[str]:
        return [_line("<Rescale>", dim, dim, f"<InitParam> {1:f}"), _line("<AddShift>", dim, dim, f"<InitParam> {0:f}"),
                _line(activation, dim, dim)]

    layers = [convolution(bands * times, filters[0] * places, size1, bands, _drawn(-1.0, 2.0, 0.02), 30),
              _line(f"<{kind}PoolingComponent>", filters[0] * places, middle,
                    f"<PoolSize> {pool_size} <PoolStep> {pool_step} <PoolStride> {filters[0]}"), *behind(middle),
              convolution(middle, last, size2, pooled, _drawn(-2.0, 4.0, 0.1), 50), *behind(last)]
    if not pitch:
        return [b"<NnetProto>\n", *(line.encode() for line in layers)]  # whose end comes with the layers behind them
    neurons, folder = value("num-pitch-neurons", 200), options.get("dir", ".")
    files = [os.path.join(folder, f"nnet.proto.{name}") for name in ("convolution", "pitch")]
    pitch_layers = [line for inputs, stddev in ((pitch * times, 0.02), (neurons, 0.1)) for line in (
        _line("<AffineTransform>", inputs, neurons, _drawn(-2.0, 4.0, stddev)), _line(activation, neurons, neurons))]
    for file, lines in zip(files, (layers, pitch_layers), strict=True):
        write_file(file, [line.encode() for line in ("<NnetProto>\n", *lines, "</NnetProto>\n")])
    frame = bands + pitch
    starts = range(0, times * frame, frame)
    order = [f"{at + 1}:1:{at + bands}" for at in starts] + [f"{at + bands + 1}:1:{at + frame}" for at in starts]
    return [b"<NnetProto>\n", _line("<Copy>", feats, feats, f"<BuildVector> {' '.join(order)} </BuildVector>").encode(),
            _line("<ParallelComponent>", feats, neurons + last, f"<NestedNnetProto> {' '.join(files)} </NestedNnetProto>").encode()]


def _context(options: dict[str, str], *names: str) -> list[int]:
    """The whole numbers of options that have to be given."""
    missing = next((name for name in names if name not in options), None)
    if missing:
        raise UserError(f"option --{missing} is needed; --help shows the usage.")
    return [whole(options[name], f"--{name}", int(name != "splice")) for name in names]


@tool("""nnet/gen_splice.py --fea-dim=<n> --splice=<n> [--splice-step=<n>] > <feature-transform>
 e.g.: utils/nnet/gen_splice.py --fea-dim=40 --splice=5 > splice5.nnet
Prints nnet1's <Splice>: each frame with so many on each side, every <splice-step>-th (1).""", "fea-dim= splice= splice-step=", (0, 0))
def gen_splice_py(options: dict[str, str]) -> Output:
    """Print a splice component."""
    dim, splice = _context(options, "fea-dim", "splice")
    step = whole(options.get("splice-step", "1"), "--splice-step", 1)
    offsets = range(-splice * step, splice * step + 1, step)
    return [f"<splice> {(2 * splice + 1) * dim} {dim}\n[ {' '.join(map(str, offsets))} ]\n".encode()]


@tool("""nnet/gen_dct_mat.py --fea-dim=<n> --splice=<n> --dct-basis=<n> > <matrix>
 e.g.: utils/nnet/gen_dct_mat.py --fea-dim=23 --splice=15 --dct-basis=16 > dct.mat
Prints the matrix that replaces each feature's course over the spliced frames by so many coefficients of a cosine transform.""",
      "fea-dim= splice= dct-basis=", (0, 0))
def gen_dct_mat_py(options: dict[str, str]) -> Output:
    """Print a cosine transform along time."""
    dim, splice, basis = _context(options, "fea-dim", "splice", "dct-basis")
    frames = 2 * splice + 1
    scale = math.sqrt(2.0 / frames)
    rows = []
    for k in range(basis):
        cosine = [str(scale * math.cos(math.pi / frames * k * (n + 0.5))) for n in range(frames)]
        for feature in range(dim):
            rows.append(" ".join(cosine[n] if i == feature else "0" for n in range(frames) for i in range(dim)) + "\n")
    return [b"[\n", *(row.encode() for row in rows), b"]\n"]


@tool("""nnet/gen_hamm_mat.py --fea-dim=<n> --splice=<n> > <matrix>
 e.g.: utils/nnet/gen_hamm_mat.py --fea-dim=23 --splice=15 > hamm.mat
Prints the diagonal matrix with a Hamming window over the spliced frames.""", "fea-dim= splice=", (0, 0))
def gen_hamm_mat_py(options: dict[str, str]) -> Output:
    """Print a Hamming window along time."""
    dim, splice = _context(options, "fea-dim", "splice")
    frames = 2 * splice + 1
    if frames == 1:
        raise UserError("--splice 0: a window takes at least one frame on each side.")
    window = [str(0.54 - 0.46 * math.cos(2.0 * math.pi * n / (frames - 1))) for n in range(frames) for _ in range(dim)]
    rows = (" ".join(value if i == row else "0" for i in range(len(window))) + "\n" for row, value in enumerate(window))
    return [b"[\n", *(row.encode() for row in rows), b"]\n"]
