"""The loops of recurrent nnet3 networks in ONNX: a Scan over waves of frames, which carries the last wave of what is taken back.

A loop with the delay d computes waves of d neighbouring frames (`loops.py`); each takes what nodes were in the wave before. All that a
loop takes of other nodes is made before it, for all frames, and cut into waves, the last of which is filled up with zeros. A loop that runs
forwards begins at the first frame that can be computed, one that runs backwards at the last one. How many frames there are behind those
that the outputs need varies with the input's length: what is behind the last one that can be computed is made 0 for those that take it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper

from pykaldist.errors import UserError
from pykaldist.nnet.nnet3.config import Descriptor
from pykaldist.nnet.nnet3.loops import Loop
from pykaldist.nnet.nnet3.model import Nnet3
from pykaldist.nnet.nnet3.onnx_graph import OnnxGraph


@dataclass(frozen=True)
class Taken:
    """A part of what a node in a loop takes: a node of the loop, or a descriptor that has none of them; `offset` frames away."""

    descriptor: Descriptor
    offset: int
    inside: bool


def taken(descriptor: Descriptor, loop: Loop, offset: int = 0) -> Iterator[Taken]:
    """The parts of a descriptor in a loop, in their order."""
    if not set(descriptor.nodes()) & set(loop.nodes):
        yield Taken(descriptor, offset, False)
    elif not descriptor.function:
        yield Taken(descriptor, offset, True)
    elif descriptor.function in ("Append", "Sum", "Scale", "Offset", "IfDefined"):
        by = int(descriptor.numbers[0]) if descriptor.function == "Offset" else 0
        for part in descriptor.parts:
            yield from taken(part, loop, offset + by)
    else:
        raise UserError(f"the network's descriptor {descriptor} in a loop is not exported to ONNX so far.")


def carried(nnet: Nnet3, loop: Loop) -> list[str]:
    """The nodes of a loop that others take a wave later; raises UserError where one is taken at another distance."""
    found: dict[str, None] = {}
    for name in loop.nodes:
        descriptor = nnet.taken_by(name)
        assert descriptor is not None
        for part in taken(descriptor, loop):
            if part.inside and part.offset not in (0, -loop.delay):
                raise UserError(f"the network's node {name} takes {part.descriptor} {abs(part.offset)} frames away, others of its loop "
                                f"{abs(loop.delay)}; such loops are not exported to ONNX so far.")
            if part.inside and part.offset:
                found[part.descriptor.node] = None
    return [*found]


class ScanBody:
    """What a wave of a loop computes, in a graph whose body is being made.

    `outside` are the names of what it takes of other nodes. Values in a loop have names of their own: of a node what it is `now`, and was
    `before`.
    """

    def __init__(self, graph: OnnxGraph, nnet: Nnet3, loop: Loop, outside: dict[Taken, str]) -> None:
        self._graph, self._nnet, self._loop, self._outside = graph, nnet, loop, outside

    def input(self, name: str) -> str:
        """What a node of the loop takes."""
        descriptor = self._nnet.taken_by(name)
        assert descriptor is not None
        return self._value(descriptor, 0, f"{name}.in")

    def _value(self, descriptor: Descriptor, offset: int, name: str) -> str:
        if not set(descriptor.nodes()) & set(self._loop.nodes):
            return self._outside[Taken(descriptor, offset, False)]
        match descriptor.function:
            case "":
                return f"{descriptor.node}.before" if offset else f"{descriptor.node}.now"
            case "Append" | "Sum":
                parts = [self._value(part, offset, f"{name}.{n}") for n, part in enumerate(descriptor.parts)]
                if descriptor.function == "Append":
                    return self._graph.op("Concat", parts, name, axis=1)
                return self._graph.op("Sum", parts, name)
            case "Scale":
                scale = self._graph.constant(f"{name}.scale", np.array(descriptor.numbers[0], np.float32))
                return self._graph.op("Mul", [self._value(descriptor.parts[0], offset, f"{name}.0"), scale], name)
            case _:
                by = int(descriptor.numbers[0]) if descriptor.function == "Offset" else 0
                return self._value(descriptor.parts[0], offset + by, f"{name}.0")


class Waves:
    """Rows in waves of `width`, zeros behind them, or before them where the loop runs `backwards`; `count` names their number."""

    def __init__(self, graph: OnnxGraph, width: int, backwards: bool, count: str, name: str) -> None:
        self._graph, self._width, self._backwards, self._count, self._name = graph, width, backwards, count, name
        zero = graph.integer(0)
        self._extra = graph.op("Mod", [graph.op("Neg", [count], f"{name}.less"), graph.integer(width)], f"{name}.extra")
        ends = [self._extra, zero, zero, zero] if backwards else [zero, zero, self._extra, zero]
        self._pads = graph.op("Concat", ends, f"{name}.pads", axis=0)

    def cut(self, rows: str, dim: int, name: str) -> str:
        """The waves (waves, width, dim) of rows (n, dim)."""
        padded = self._graph.op("Pad", [rows, self._pads], f"{name}.padded")
        return self._graph.op("Reshape", [padded, self._graph.integers(-1, self._width, dim)], f"{name}.waves")

    def joined(self, waves: str, dim: int, name: str) -> str:
        """The rows of waves."""
        rows = self._graph.op("Reshape", [waves, self._graph.integers(-1, dim)], f"{name}.filled")
        begin = self._extra if self._backwards else self._graph.integer(0)
        end = self._graph.op("Add", [begin, self._count], f"{name}.end")
        return self._graph.op("Slice", [rows, begin, end, self._graph.integer(0)], name)


def scan(graph: OnnxGraph, body: list[onnx.NodeProto], states: dict[str, int], inputs: dict[str, tuple[str, int]], outputs: dict[str, int],
         width: int, backwards: bool, name: str) -> None:
    """Add a Scan of a body.

    `states` has the dimensions of nodes whose value `NODE.next` of a wave is `NODE.before` in the next; `inputs` by their names in the body
    the waves, and their dimension; `outputs` the dimensions of nodes whose `NODE.row` becomes `NODE.rows`.
    """
    def infos(values: dict[str, int]) -> list[onnx.ValueInfoProto]:
        return [helper.make_tensor_value_info(value, TensorProto.FLOAT, [width, dim]) for value, dim in values.items()]

    made = helper.make_graph(
        body, f"{name}.body",
        infos({f"{node}.before": dim for node, dim in states.items()} | {key: dim for key, (_, dim) in inputs.items()}),
        infos({f"{node}.next": dim for node, dim in states.items()} | {f"{node}.row": dim for node, dim in outputs.items()}))
    zeros = [graph.constant(f"{node}.first", np.zeros((width, dim), np.float32)) for node, dim in states.items()]
    direction = int(backwards)
    graph.ops("Scan", [*zeros, *(waves for waves, _ in inputs.values())],
              [*(f"{node}.last" for node in states), *(f"{node}.rows" for node in outputs)], body=made, num_scan_inputs=len(inputs),
              scan_input_directions=[direction] * len(inputs), scan_output_directions=[direction] * len(outputs))
