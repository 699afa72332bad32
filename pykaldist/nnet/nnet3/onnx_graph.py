"""The parts of an ONNX graph while it is made: operators, constants, and numbers that depend on that of the outputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import onnx
from onnx import GraphProto, helper, numpy_helper

Attribute = int | float | list[int] | GraphProto


class OnnxGraph:
    """Collects nodes and constants. A value is known by its name, which no other has, not even in the body of a loop."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}
        self._made: dict[tuple[int, int], str] = {}  # numbers a K + b

    def constant(self, name: str, value: np.ndarray) -> str:
        self.constants[name] = numpy_helper.from_array(np.ascontiguousarray(value), name)
        return name

    def integer(self, value: int) -> str:
        return self.constant(f"int{value}", np.array([value], np.int64))

    def integers(self, *values: int) -> str:
        return self.constant("ints" + ",".join(map(str, values)), np.array(values, np.int64))

    def op(self, kind: str, inputs: list[str], output: str, **attributes: Attribute) -> str:
        """Add an operator with one output, whose name is returned."""
        return self.ops(kind, inputs, [output], **attributes)[0]

    def ops(self, kind: str, inputs: list[str], outputs: list[str], **attributes: Attribute) -> list[str]:
        """Add an operator with several outputs."""
        self.nodes.append(helper.make_node(kind, inputs, outputs, **attributes))  # type: ignore[arg-type]  # names of attributes
        return outputs

    def number(self, each: int, more: int) -> str:
        """The number `each` K + `more`, K the number of outputs."""
        if (each, more) not in self._made:
            if more:
                made = self.op("Add", [self.number(each, 0), self.integer(more)], f"outputs*{each}+{more}")
            else:
                made = self.op("Mul", ["outputs", self.integer(each)], f"outputs*{each}")
            self._made[each, more] = made
        return self._made[each, more]

    def columns(self, x: str, widths: Sequence[int], name: str, axis: int = 1) -> list[str]:
        """Parts of so many columns each, side by side in a value."""
        return self.ops("Split", [x, self.integers(*widths)], [f"{name}.part{n}" for n in range(len(widths))], axis=axis)

    @contextmanager
    def body(self) -> Iterator[list[onnx.NodeProto]]:
        """Collect the nodes that are added within as the body of a loop, which are given. Constants stay outside."""
        outside, self.nodes = self.nodes, []
        try:
            yield self.nodes
        finally:
            self.nodes = outside
