"""A network of nnet3 made from its config lines, with random parameters drawn as Kaldi draws them.

A line is `component name=tdnn1.affine type=NaturalGradientAffineComponent input-dim=120 output-dim=32`, or that of a node (`config.py`).
Affine and linear maps start with weights normal(0, 1 / sqrt(inputs)), of which none is orthogonal yet, and biases normal(0, 1), unless
`param-stddev` and `bias-stddev` say otherwise. Source: InitFromConfig of the components in src/nnet3 of Kaldi 5.5.
"""

from __future__ import annotations

import difflib
import math
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import torch

from pykaldist.errors import UserError
from pykaldist.io.kaldi import KaldiReader
from pykaldist.nnet.nnet3.components import LAYOUTS, Nnet3Component, Value
from pykaldist.nnet.nnet3.config import KINDS, Node, parse_node
from pykaldist.nnet.nnet3.model import Nnet3

LEARNING_RATE = 0.001  # Kaldi's, of a component whose line gives none
TINY = 1e-30  # the least of what must be above 0
PAIR = re.compile(r"""\s+([A-Za-z][\w-]*)=("[^"]*"|'[^']*'|\S*)""")


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of a message about a word that is not known: which it may have been."""
    names = list(known)
    near = difflib.get_close_matches(word, names, 3)
    return f"the nearest {'are' if len(near) > 1 else 'is'} {', '.join(near)}" if near else f"known are {', '.join(names)}"


class ComponentLine:
    """The fields of a component's line, from which each is taken once, and the sources of its parameters."""

    def __init__(self, text: str, generator: torch.Generator, folder: Path) -> None:
        self._fields = {key: value.strip("\"'") for key, value in PAIR.findall(text)}
        self._known: list[str] = []
        self._generator, self._folder = generator, folder
        rest = PAIR.sub("", text.removeprefix("component")).strip()
        if rest:
            raise ValueError(f"expected fields as key=value, found {rest[:40]!r}")

    def has(self, key: str) -> bool:
        self._known.append(key)
        return key in self._fields

    def text(self, key: str, default: str | None = None) -> str:
        """Take a field; raises ValueError where it is missing and has no default."""
        self._known.append(key)
        value = self._fields.pop(key, default)
        if value is None:
            raise ValueError(f"it has no {key}=")
        return value

    def integer(self, key: str, default: int | None = None, least: int = 1) -> int:
        text = self.text(key, None if default is None else str(default))
        if not re.fullmatch(r"[-+]?\d+", text) or (int(text) < least and int(text) != default):
            raise ValueError(f"expected an integer of at least {least} in {key}=, found {text!r}")
        return int(text)

    def number(self, key: str, default: float, least: float = -math.inf) -> float:
        text = self.text(key, repr(default))
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and (value >= least or value == default)):
            raise ValueError(f"expected a number{'' if least == -math.inf else f' of at least {least:g}'} in {key}=, found {text!r}")
        return value

    def boolean(self, key: str, default: bool) -> bool:
        text = self.text(key, str(default))
        if text[:1].lower() not in ("t", "f"):
            raise ValueError(f"expected true or false in {key}=, found {text!r}")
        return text[0].lower() == "t"

    def integers(self, key: str, default: list[int] | None = None) -> list[int]:
        """Take numbers with commas between them, none of them twice."""
        text = self.text(key, None if default is None else ",".join(map(str, default)))
        parts = text.split(",")
        if not all(re.fullmatch(r"[-+]?\d+", part) for part in parts) or len(set(parts)) < len(parts):
            raise ValueError(f"expected different integers with commas between them in {key}=, found {text!r}")
        return [int(part) for part in parts]

    def normal(self, *shape: int, stddev: float = 1.0, mean: float = 0.0) -> np.ndarray:
        """An array drawn from a normal distribution."""
        return (torch.randn(shape, generator=self._generator) * stddev + mean).numpy()

    def matrix(self) -> np.ndarray | None:
        """Read the file that `matrix=` names; None where the line has none."""
        if not self.has("matrix"):
            return None
        path = self._folder / self.text("matrix")
        if not path.is_file():
            raise UserError(f"{path}, which the config names, is not there; make it first, or run in the folder from which its path goes.")
        return KaldiReader.only_matrix(path).astype(np.float32)

    def refuse_rest(self) -> None:
        """Raise ValueError that names a field which nothing has taken, and the nearest that is known."""
        for key in self._fields:
            raise ValueError(f"there is no field {key}=; {nearest(key, self._known)}")


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


def _no_op(line: ComponentLine) -> Values:
    return {"Dim": line.integer("dim"), "BackpropScale": line.number("backprop-scale", 1.0)}


MAKERS: dict[str, Callable[[ComponentLine], Values]] = {
    "NaturalGradientAffineComponent": _natural_affine, "AffineComponent": _affine, "LinearComponent": _linear, "TdnnComponent": _tdnn,
    "FixedAffineComponent": _fixed_affine, "RectifiedLinearComponent": _nonlinear, "LogSoftmaxComponent": _nonlinear,
    "BatchNormComponent": _batchnorm, "GeneralDropoutComponent": _general_dropout, "NoOpComponent": _no_op,
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
