"""A network of nnet3 made from its config lines, with random parameters drawn as Kaldi draws them.

A line is `component name=tdnn1.affine type=NaturalGradientAffineComponent input-dim=120 output-dim=32`, or that of a node (`config.py`).
Affine and linear maps start with weights normal(0, 1 / sqrt(inputs)), of which none is orthogonal yet, and biases normal(0, 1), unless
`param-stddev` and `bias-stddev` say otherwise. Source: InitFromConfig of the components in src/nnet3 of Kaldi 5.5.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import torch

from pykaldist.errors import UserError
from pykaldist.io.kaldi import KaldiReader
from pykaldist.nnet.nnet3.components import LAYOUTS, Nnet3Component, Value
from pykaldist.nnet.nnet3.config import KINDS, ConfigLine, Node, nearest, parse_node
from pykaldist.nnet.nnet3.model import Nnet3

LEARNING_RATE = 0.001  # Kaldi's, of a component whose line gives none
TINY = 1e-30  # the least of what must be above 0


class ComponentLine(ConfigLine):
    """The fields of a component's line, and the sources of its parameters."""

    def __init__(self, text: str, generator: torch.Generator, folder: Path) -> None:
        super().__init__(text)
        self._generator, self._folder = generator, folder

    def normal(self, *shape: int, stddev: float = 1.0, mean: float = 0.0) -> np.ndarray:
        """An array drawn from a normal distribution."""
        return (torch.randn(shape, generator=self._generator) * stddev + mean).numpy()

    def _path(self, key: str) -> Path | None:
        """The file that a field names; None where the line has no such field."""
        if not self.has(key):
            return None
        path = self._folder / self.text(key)
        if not path.is_file():
            raise UserError(f"{path}, which the config names, is not there; make it first, or run in the folder from which its path goes.")
        return path

    def matrix(self) -> np.ndarray | None:
        """Read the file that `matrix=` names."""
        path = self._path("matrix")
        return None if path is None else KaldiReader.only_matrix(path).astype(np.float32)

    def vector(self, key: str) -> np.ndarray | None:
        """Read the file that a field names, of a vector or of a matrix with one row."""
        path = self._path(key)
        return None if path is None else KaldiReader.only_vector(path).astype(np.float32)


Values = dict[str, Value]


def _updatable(line: ComponentLine) -> Values:
    """The fields of all components that training changes; what says nothing is left out, as in Kaldi's files."""
    values: Values = {"LearningRate": line.number("learning-rate", LEARNING_RATE, 0.0)}
    for token, key, default in (("LearningRateFactor", "learning-rate-factor", 1.0), ("MaxChange", "max-change", 0.0),
                                ("L2Regularize", "l2-regularize", 0.0)):
        if (value := line.number(key, default, 0.0)) != default:
            values[token] = value
    return values


def _weights(line: ComponentLine, bias: bool, splice: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Weights (out, in x splice) and biases (out,) of an affine map, drawn or read; without `bias` none."""
    matrix = line.matrix()
    if matrix is not None:
        weights, biases = (matrix[:, :-1], matrix[:, -1]) if bias else (matrix, np.zeros(0, np.float32))
        for key, found in (("input-dim", weights.shape[1]), ("output-dim", len(weights))):
            if line.integer(key, found) != found or not found:
                raise ValueError(f"its matrix makes {key}={found}")
        return np.ascontiguousarray(weights), np.ascontiguousarray(biases)
    columns, rows = line.integer("input-dim") * splice, line.integer("output-dim")
    weights = line.normal(rows, columns, stddev=_stddev(line, columns))
    if not bias:
        return weights, np.zeros(0, np.float32)
    return weights, line.normal(rows, stddev=line.number("bias-stddev", 1.0, 0.0), mean=line.number("bias-mean", 0.0))


def _stddev(line: ComponentLine, inputs: int) -> float:
    """The standard deviation of weights of so many inputs; below 0 stands for the default."""
    value = line.number("param-stddev", -1.0)
    return value if value >= 0 else 1 / math.sqrt(inputs)


def _ranks(line: ComponentLine, inputs: int, outputs: int, most_in: int = 20) -> tuple[int, int]:
    """The ranks of natural gradient for the two sides."""
    ranks = line.integer("rank-in", -1), line.integer("rank-out", -1)
    return tuple(rank if rank > 0 else min(most, (dim + 1) // 2)  # type: ignore[return-value]  # two of them
                 for rank, most, dim in zip(ranks, (most_in, 80), (inputs, outputs), strict=True))


def _orthonormal(line: ComponentLine) -> Values:
    constraint = line.number("orthonormal-constraint", 0.0)
    return {"OrthonormalConstraint": constraint} if constraint else {}


def _natural_affine(line: ComponentLine) -> Values:
    weights, biases = _weights(line, bias=True)
    rank_in, rank_out = _ranks(line, weights.shape[1], len(weights))
    return _updatable(line) | _orthonormal(line) | {
        "LinearParams": weights, "BiasParams": biases, "RankIn": rank_in, "RankOut": rank_out,
        "UpdatePeriod": line.integer("update-period", 4), "NumSamplesHistory": line.number("num-samples-history", 2000.0, 1.0),
        "Alpha": line.number("alpha", 4.0, 0.0)}


def _affine(line: ComponentLine) -> Values:
    weights, biases = _weights(line, bias=True)
    return _updatable(line) | _orthonormal(line) | {"LinearParams": weights, "BiasParams": biases}


def _linear(line: ComponentLine) -> Values:
    weights, _ = _weights(line, bias=False)
    return _updatable(line) | _orthonormal(line) | {
        "Params": weights, "UseNaturalGradient": line.boolean("use-natural-gradient", True),
        "RankInOut": list(_ranks(line, weights.shape[1], len(weights))), "Alpha": line.number("alpha", 4.0, 0.0),
        "NumSamplesHistory": line.number("num-samples-history", 2000.0, 1.0), "UpdatePeriod": line.integer("update-period", 4)}


def _tdnn(line: ComponentLine) -> Values:
    offsets = line.integers("time-offsets")
    weights, biases = _weights(line, line.boolean("use-bias", True), len(offsets))
    return _updatable(line) | {
        "TimeOffsets": offsets, "LinearParams": weights, "BiasParams": biases,
        "OrthonormalConstraint": line.number("orthonormal-constraint", 0.0),
        "UseNaturalGradient": line.boolean("use-natural-gradient", True),
        "NumSamplesHistory": line.number("num-samples-history", 2000.0, 1.0),
        "AlphaInOut": [line.number("alpha-in", 4.0, 0.0), line.number("alpha-out", 4.0, 0.0)],
        "RankInOut": list(_ranks(line, weights.shape[1], len(weights)))}


def _fixed_affine(line: ComponentLine) -> Values:
    matrix = line.matrix()
    if matrix is None:  # a stand-in of the same dimensions, of which only the context is asked
        matrix = line.normal(line.integer("output-dim"), line.integer("input-dim") + 1)
    return {"LinearParams": np.ascontiguousarray(matrix[:, :-1]), "BiasParams": np.ascontiguousarray(matrix[:, -1])}


def _blocks(line: ComponentLine) -> tuple[int, int]:
    """The dimension, and that of the blocks which share their statistics or parameters."""
    dim = line.integer("dim")
    block = line.integer("block-dim", dim)
    if dim % block:
        raise ValueError(f"block-dim={block} does not divide dim={dim}")
    return dim, block


def _nonlinear(line: ComponentLine) -> Values:
    dim, block = _blocks(line)
    none = np.zeros(0, np.float32)
    values: Values = {"Dim": dim, "ValueAvg": none, "DerivAvg": none, "Count": 0.0, "OderivRms": none, "OderivCount": 0.0,
                      "NumDimsSelfRepaired": 0.0, "NumDimsProcessed": 0.0}
    if block != dim:
        values["BlockDim"] = block
    for key in ("self-repair-lower-threshold", "self-repair-upper-threshold"):
        if line.has(key):
            values[_token(key)] = line.number(key, 0.0)
    if scale := line.number("self-repair-scale", 0.0):
        values["SelfRepairScale"] = scale
    return values


def _token(key: str) -> str:
    """The token of a field in a file: SelfRepairScale of self-repair-scale."""
    return "".join(word.capitalize() for word in key.split("-"))


def _batchnorm(line: ComponentLine) -> Values:
    dim, block = _blocks(line)
    return {"Dim": dim, "BlockDim": block, "Epsilon": line.number("epsilon", 1e-3, TINY),
            "TargetRms": line.number("target-rms", 1.0, TINY), "TestMode": line.boolean("test-mode", False), "Count": 0.0,
            "StatsMean": np.zeros(block, np.float32), "StatsVar": np.zeros(block, np.float32)}


def _general_dropout(line: ComponentLine) -> Values:
    dim, block = _blocks(line)
    values: Values = {"Dim": dim, "BlockDim": block, "TimePeriod": line.integer("time-period", 0, 0),
                      "DropoutProportion": line.number("dropout-proportion", 0.5, 0.0)}
    proportion, regions = line.number("specaugment-max-proportion", 0.0, 0.0), line.integer("specaugment-max-regions", 1)
    if proportion:
        values |= {"SpecAugmentMaxProportion": proportion} | ({"SpecAugmentMaxRegions": regions} if regions != 1 else {})
    for token, key in (("TestMode", "test-mode"), ("Continuous", "continuous")):
        if line.boolean(key, False):
            values[token] = True
    return values


def _spec_augment(line: ComponentLine) -> Values:
    return {"Dim": line.integer("dim"), "ZeroedProportion": line.number("zeroed-proportion", 0.25, 0.0),
            "TimeMaskMaxFrames": line.integer("time-mask-max-frames", 10, 2)}


def _dropout(line: ComponentLine) -> Values:
    return {"Dim": line.integer("dim"), "DropoutProportion": line.number("dropout-proportion", 0.0, 0.0),
            "DropoutPerFrame": line.boolean("dropout-per-frame", False), "TestMode": line.boolean("test-mode", False)}


def _dropout_mask(line: ComponentLine) -> Values:
    values: Values = {"OutputDim": line.integer("output-dim"), "DropoutProportion": line.number("dropout-proportion", 0.5, 0.0),
                      "TestMode": line.boolean("test-mode", False)}
    return values | ({"Continuous": True} if line.boolean("continuous", False) else {})


def _no_op(line: ComponentLine) -> Values:
    return {"Dim": line.integer("dim"), "BackpropScale": line.number("backprop-scale", 1.0)}


def _normalize(line: ComponentLine) -> Values:
    dim = line.integer("input-dim" if line.has("input-dim") else "dim")
    block = line.integer("block-dim", dim)
    return {"InputDim": dim, "TargetRms": line.number("target-rms", 1.0, TINY), "AddLogStddev": line.boolean("add-log-stddev", False),
            **({"BlockDim": block} if block != dim else {})}


def _permute(line: ComponentLine) -> Values:
    return {"ColumnMap": line.integers("column-map")}


def _blocks_of_output(line: ComponentLine) -> Values:
    return {"InputDim": line.integer("input-dim"), "OutputDim": line.integer("output-dim")}


def _sum_block(line: ComponentLine) -> Values:
    return {**_blocks_of_output(line), "Scale": line.number("scale", 1.0)}


def _scale_and_offset(line: ComponentLine) -> Values:
    dim, block = _blocks(line)
    return _updatable(line) | {"Dim": dim, "Scales": np.ones(block, np.float32), "Offsets": np.zeros(block, np.float32),
                               "UseNaturalGradient": line.boolean("use-natural-gradient", True), "Rank": line.integer("rank", 20)}


def _element_vector(line: ComponentLine, key: str, mean: float, dim: int | None = None) -> np.ndarray:
    """A number for each dimension: from the file that `key=` names, or drawn."""
    vector = line.vector(key)
    if vector is None:
        dim = line.integer("dim") if dim is None else dim
        vector = line.normal(dim, stddev=line.number("param-stddev", 0.0, 0.0), mean=line.number("param-mean", mean))
    return vector


def _element_scale(line: ComponentLine) -> Values:
    return _updatable(line) | {"Params": _element_vector(line, "vector", 1.0)}


def _natural_element_scale(line: ComponentLine) -> Values:
    return _updatable(line) | {
        "Params": _element_vector(line, "scales", 1.0), "IsGradient": False, "Rank": line.integer("rank", 8),
        "UpdatePeriod": line.integer("update-period", 10), "NumSamplesHistory": line.number("num-samples-history", 2000.0, 1.0),
        "Alpha": line.number("alpha", 4.0, 0.0)}


def _element_offset(line: ComponentLine) -> Values:
    dim, block = _blocks(line)
    return _updatable(line) | {"Offsets": _element_vector(line, "vector", 0.0, block), "Dim": dim,
                               "UseNaturalGradient": line.boolean("use-natural-gradient", True)}


def _fixed_scale(line: ComponentLine) -> Values:
    vector = line.vector("scales")
    if vector is None:
        dim = line.integer("dim")
        vector = np.full(dim, line.number("scale", 1.0), np.float32) if line.has("scale") else line.normal(dim)
    return {"Scales": vector}


def _convolution(line: ComponentLine) -> Values:
    filters_in, filters_out = line.integer("num-filters-in"), line.integer("num-filters-out")
    if line.has("offsets"):
        words = [word.split(",") for word in line.text("offsets").split(";")]
        if not all(len(word) == 2 and all(part.lstrip("-").isdecimal() for part in word) for word in words):
            raise ValueError("expected pairs of time and height in offsets=, such as -1,0;0,0;1,0")
        offsets = sorted((int(time), int(height)) for time, height in words)
    else:
        times, heights = line.integers("time-offsets"), line.integers("height-offsets")
        if times != sorted(times) or heights != sorted(heights):
            raise ValueError("expected numbers in order in time-offsets= and height-offsets=")
        offsets = [(time, height) for time in times for height in heights]
    columns = filters_in * len(offsets)
    weights = line.normal(filters_out, columns, stddev=_stddev(line, columns))
    if line.boolean("init-unit", False):
        if filters_in != filters_out or (0, 0) not in offsets:
            raise ValueError("init-unit=true takes as many filters out as in, and the offset 0,0")
        weights[:] = 0
        weights[:, offsets.index((0, 0)) * filters_in:][:, :filters_in] = np.eye(filters_in)
    rank_in, rank_out = _ranks(line, columns + 1, filters_out, most_in=80)
    return _updatable(line) | {
        "Model": True, "ConvolutionModel": True, "/ConvolutionModel": True, "NumFiltersIn": filters_in, "NumFiltersOut": filters_out,
        "HeightIn": line.integer("height-in"), "HeightOut": line.integer("height-out"),
        "HeightSubsampleOut": line.integer("height-subsample-out", 1), "Offsets": offsets,
        "RequiredTimeOffsets": line.integers("required-time-offsets", sorted({time for time, _ in offsets})),
        "LinearParams": weights, "BiasParams": line.normal(filters_out, stddev=line.number("bias-stddev", 0.0, 0.0)),
        "MaxMemoryMb": line.number("max-memory-mb", 200.0, TINY), "UseNaturalGradient": line.boolean("use-natural-gradient", True),
        "NumMinibatchesHistory": line.number("num-minibatches-history", 4.0, 1.0),
        "AlphaInOut": [line.number("alpha-in", 4.0, 0.0), line.number("alpha-out", 4.0, 0.0)], "RankInOut": [rank_in, rank_out]}


def _truncation(line: ComponentLine) -> Values:
    return {"Dim": line.integer("dim"), "Scale": line.number("scale", 1.0),
            "ClippingThreshold": line.number("clipping-threshold", 30.0, 0.0),
            "ZeroingThreshold": line.number("zeroing-threshold", 15.0, 0.0), "ZeroingInterval": line.integer("zeroing-interval", 20),
            "RecurrenceInterval": line.integer("recurrence-interval", 1), "NumElementsClipped": 0.0, "NumElementsZeroed": 0.0,
            "NumElementsProcessed": 0.0, "NumZeroingBoundaries": 0.0}


def _lstm(line: ComponentLine) -> Values:
    cells, scale = line.integer("cell-dim"), line.number("self-repair-scale", 1e-5, 0.0)
    sigmoid, tanh = line.number("sigmoid-self-repair-threshold", 0.05, 0.0), line.number("tanh-self-repair-threshold", 0.2, 0.0)
    values = _updatable(line) | {
        "Params": line.normal(3, cells, stddev=line.number("param-stddev", 1.0, 0.0)), "ValueAvg": np.zeros((5, cells), np.float32),
        "DerivAvg": np.zeros((5, cells), np.float32), "Count": 0.0,  # of input, forget, cell and output gates, and the output
        "SelfRepairConfig": np.array([sigmoid, sigmoid, tanh, sigmoid, tanh, *[scale] * 5], np.float32),
        "SelfRepairProb": np.zeros(5, np.float32)}
    return values | ({"UseDropout": True} if line.boolean("use-dropout", False) else {})


def _gru_statistics(line: ComponentLine, cells: int) -> Values:
    return {"ValueAvg": np.zeros(cells, np.float32), "DerivAvg": np.zeros(cells, np.float32), "SelfRepairTotal": 0.0, "Count": 0.0,
            "SelfRepairThreshold": line.number("self-repair-threshold", 0.2), "SelfRepairScale": line.number("self-repair-scale", 1e-5),
            "Alpha": line.number("alpha", 4.0, 0.0)}


def _output_gru(line: ComponentLine) -> Values:
    cells = line.integer("cell-dim")
    return _updatable(line) | _gru_statistics(line, cells) | {
        "CellDim": cells, "w_h": line.normal(cells, stddev=line.number("param-stddev", 1.0, 0.0), mean=line.number("param-mean", 0.0)),
        "Rank": line.integer("rank", 8), "UpdatePeriod": line.integer("update-period", 10)}


def _gru(line: ComponentLine) -> Values:
    cells = line.integer("cell-dim")
    recurrent = line.integer("recurrent-dim", cells)
    if recurrent > cells:
        raise ValueError(f"recurrent-dim={recurrent} is above cell-dim={cells}")
    stddev = line.number("param-stddev", 1 / math.sqrt(cells), 0.0)
    return _updatable(line) | _gru_statistics(line, cells) | {
        "CellDim": cells, "RecurrentDim": recurrent, "w_h": line.normal(cells, recurrent, stddev=stddev),
        "RankInOut": [line.integer("rank-in", 20), line.integer("rank-out", 80)], "UpdatePeriod": line.integer("update-period", 4)}


def _attention(line: ComponentLine) -> Values:
    key, left, right = line.integer("key-dim"), line.integer("num-left-inputs", None, 0), line.integer("num-right-inputs", None, 0)
    scale = line.number("key-scale", -1.0)
    required = [line.integer("num-left-inputs-required", -1, 0), line.integer("num-right-inputs-required", -1, 0)]
    return {"NumHeads": line.integer("num-heads", 1), "KeyDim": key, "ValueDim": line.integer("value-dim"), "NumLeftInputs": left,
            "NumRightInputs": right, "TimeStride": line.integer("time-stride", 1),
            "NumLeftInputsRequired": required[0] if required[0] >= 0 else left,
            "NumRightInputsRequired": required[1] if required[1] >= 0 else right,
            "OutputContext": line.boolean("output-context", True), "KeyScale": scale if scale >= 0 else 1 / math.sqrt(key),
            "StatsCount": 0.0, "EntropyStats": np.zeros(0), "PosteriorStats": np.zeros((0, 0))}


def _statistics_extraction(line: ComponentLine) -> Values:
    return {"InputDim": line.integer("input-dim"), "InputPeriod": line.integer("input-period", 1),
            "OutputPeriod": line.integer("output-period", 1), "IncludeVarinance": line.boolean("include-variance", True)}


def _statistics_pooling(line: ComponentLine) -> Values:
    return {"InputDim": line.integer("input-dim"), "InputPeriod": line.integer("input-period", 1),
            "LeftContext": line.integer("left-context", -1, 0), "RightContext": line.integer("right-context", -1, 0),
            "NumLogCountFeatures": line.integer("num-log-count-features", 0, 0),
            "OutputStddevs": line.boolean("output-stddevs", False), "VarianceFloor": line.number("variance-floor", 1e-10, TINY)}


MAKERS: dict[str, Callable[[ComponentLine], Values]] = {
    "NaturalGradientAffineComponent": _natural_affine, "AffineComponent": _affine, "LinearComponent": _linear, "TdnnComponent": _tdnn,
    "TimeHeightConvolutionComponent": _convolution, "ScaleAndOffsetComponent": _scale_and_offset,
    "PerElementScaleComponent": _element_scale, "NaturalGradientPerElementScaleComponent": _natural_element_scale,
    "PerElementOffsetComponent": _element_offset, "FixedAffineComponent": _fixed_affine, "FixedScaleComponent": _fixed_scale,
    "RectifiedLinearComponent": _nonlinear, "SigmoidComponent": _nonlinear, "TanhComponent": _nonlinear, "SoftmaxComponent": _nonlinear,
    "LogSoftmaxComponent": _nonlinear, "BatchNormComponent": _batchnorm, "NormalizeComponent": _normalize,
    "PnormComponent": _blocks_of_output,
    "DropoutComponent": _dropout, "GeneralDropoutComponent": _general_dropout, "DropoutMaskComponent": _dropout_mask,
    "SpecAugmentTimeMaskComponent": _spec_augment, "NoOpComponent": _no_op, "PermuteComponent": _permute, "SumBlockComponent": _sum_block,
    "ElementwiseProductComponent": _blocks_of_output, "BackpropTruncationComponent": _truncation, "LstmNonlinearityComponent": _lstm,
    "OutputGruNonlinearityComponent": _output_gru, "GruNonlinearityComponent": _gru,
    "RestrictedAttentionComponent": _attention, "StatisticsExtractionComponent": _statistics_extraction,
    "StatisticsPoolingComponent": _statistics_pooling,
}


def initialised_component(text: str, generator: torch.Generator, folder: str | os.PathLike[str] = ".") -> Nnet3Component:
    """Make the component of a config line; raises ValueError that says what is wrong with it."""
    line = ComponentLine(text, generator, Path(folder))
    name, type_ = line.text("name"), line.text("type")
    if type_ not in MAKERS:
        raise ValueError(f"components of the type {type_} are not made here; {nearest(type_, MAKERS)}")
    values = MAKERS[type_](line)
    line.refuse_rest()
    component = Nnet3Component(name, type_, {token: values[token] for token in LAYOUTS[type_] if token in values})
    component.check()
    return component


def initialised(config_lines: Iterable[str], generator: torch.Generator, folder: str | os.PathLike[str] = ".", source: str = "the config",
                existing: Nnet3 | None = None) -> Nnet3:
    """Make the network of the lines of a config; matrices are read from `folder`, `source` is what messages call the config.

    An `existing` network is added to: nodes and components of the same names take the place of its own. Raises UserError, with the number
    of the line, for what is no component or node, or does not fit.
    """
    nodes: dict[str, Node] = dict(existing.nodes) if existing else {}
    components: dict[str, Nnet3Component] = dict(existing.components) if existing else {}
    made: set[tuple[bool, str]] = set()
    for number, text in enumerate(config_lines, 1):
        line = text.partition("#")[0].strip()
        if not line:
            continue
        try:
            one = initialised_component(line, generator, folder) if line.startswith("component ") else _node(line)
            key = (isinstance(one, Node), one.name)
            if key in made:
                raise ValueError(f"{'node' if key[0] else 'component'} {one.name} is there twice")
        except ValueError as error:
            raise UserError(f"{source}, line {number} ({line[:60]}): {error}.") from error
        made.add(key)
        if isinstance(one, Node):
            nodes.pop(one.name, None)  # a node that is replaced stands where its new line does
            nodes[one.name] = one
        else:
            components[one.name] = one
    nnet = Nnet3(nodes, components)
    try:
        if not nodes:
            raise ValueError("it has no nodes")
        nnet.check()
    except ValueError as error:
        raise UserError(f"{source}: {error}.") from error
    return nnet


def _node(line: str) -> Node:
    kind = line.split()[0]
    if kind not in KINDS:
        raise ValueError(f"expected component or {', '.join(KINDS)}, found {kind[:40]!r}")
    node = parse_node(line)
    if kind == "output-node":
        node.values.setdefault("objective", "linear")
    return node
