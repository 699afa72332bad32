"""Export of an nnet3 network as an ONNX graph from features, and an i-vector, to log-likelihoods, with priors inside.

Inputs `feats` (frames, dim) and, of a network that takes one, `ivector` (1, dim); output `loglikes` (frames / subsampling, rounded up;
pdfs); all float32, any number of frames. A node is a matrix whose rows are evenly spaced frames: from a first frame on, at every frame or,
where no output needs the others, at every `subsampling`-th. What a node takes of another is then a slice of its rows, and the number of
rows is a multiple of the number of outputs plus a constant. Before the first and behind the last frame the features are repeated. Loops of
recurrent networks: `onnx_loops.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper

from pykaldist.errors import UserError
from pykaldist.io.atomic import atomic_open
from pykaldist.nnet.nnet3.components import Nnet3Component
from pykaldist.nnet.nnet3.computing.attention import Attention
from pykaldist.nnet.nnet3.config import Descriptor
from pykaldist.nnet.nnet3.loops import Loop
from pykaldist.nnet.nnet3.model import Nnet3
from pykaldist.nnet.nnet3.onnx_components import attention_output, component_output
from pykaldist.nnet.nnet3.onnx_graph import OnnxGraph
from pykaldist.nnet.nnet3.onnx_loops import ScanBody, Taken, Waves, carried, scan, taken
from pykaldist.nnet.nnet3.plan import Plan, shift
from pykaldist.nnet.nnet3.run import mask_in_test

OPSET = 17
OUTPUTS = 60  # so many outputs show where the rows of each node begin and end


@dataclass
class Rows:
    """The rows of a node for K outputs: the frames `first`, `first + step`, ..., in number `each` K + `more`."""

    first: int
    step: int
    each: int
    more: int

    @classmethod
    def holding(cls, times: np.ndarray, subsampling: int) -> Rows:
        """The rows that hold the frames `times`, which are needed for OUTPUTS outputs."""
        step = subsampling if len(times) > 1 and not (np.diff(times) % subsampling).any() else 1
        each = subsampling // step
        return cls(int(times[0]), step, each, int(times[-1] - times[0]) // step + 1 - OUTPUTS * each)

    @property
    def times(self) -> np.ndarray:
        """The frames for OUTPUTS outputs."""
        return self.first + self.step * np.arange(self.each * OUTPUTS + self.more)


class Nnet3Exporter:
    """Makes the graph of a network with `subsampling` frames of features for each output; `log_priors` are subtracted from the outputs."""

    def __init__(self, nnet: Nnet3, subsampling: int, log_priors: np.ndarray | None) -> None:
        self._nnet, self._subsampling, self._log_priors = nnet, subsampling, log_priors
        self._plan = Plan(nnet, "output", subsampling)
        self._inputs = [name for name in self._plan.order if nnet.nodes[name].kind == "input-node"]
        if "input" not in self._inputs or set(self._inputs) - {"input", "ivector"}:
            raise UserError(f"the network takes {' and '.join(self._inputs)}; what is exported to ONNX takes features, as input, and an "
                            "i-vector, as ivector.")
        self._fixed = self._without_features()
        self._leaving = set[str]()  # the nodes of loops that others take
        self._rows = self._find_rows()
        self._graph = OnnxGraph()

    def _without_features(self) -> set[str]:
        """The nodes that depend on the i-vector alone: one row for all frames."""
        depends = {"input"}
        for name in self._plan.order:
            loop = self._plan.loop_of.get(name)
            taken_by = [self._nnet.taken_by(one) for one in (loop.nodes if loop else [name])]
            if any(descriptor is not None and depends & set(descriptor.nodes()) for descriptor in taken_by):
                depends.add(name)
        return set(self._plan.order) - depends

    def _find_rows(self) -> dict[str, Rows]:
        """The rows of each node that depends on features, from the output to the input."""
        wanted: dict[str, list[np.ndarray]] = {"output": [np.arange(OUTPUTS) * self._subsampling]}
        found: dict[str, Rows] = {}

        def ask(descriptor: Descriptor, at: np.ndarray) -> None:
            if not descriptor.function:
                wanted.setdefault(descriptor.node, []).append(at)
            elif descriptor.function in ("Append", "Sum", "Scale"):
                for part in descriptor.parts:
                    ask(part, at)
            elif descriptor.function == "Offset":
                ask(descriptor.parts[0], shift(descriptor, at))
            elif descriptor.function == "ReplaceIndex" and set(descriptor.nodes()) <= self._fixed:
                pass
            elif descriptor.function != "Const":
                raise UserError(f"the network's descriptor {descriptor} is not exported to ONNX so far.")

        for name in reversed(self._plan.order):
            if name in self._fixed or name in found:
                continue
            if (loop := self._plan.loop_of.get(name)) is not None:
                self._leaving |= wanted.keys() & set(loop.nodes)
                rows = self._loop_rows(loop, np.unique(np.concatenate([at for one in loop.nodes for at in wanted.get(one, [])])))
                found.update(dict.fromkeys(loop.nodes, rows))
                for part in self._taken(loop):
                    if not part.inside:
                        ask(part.descriptor, rows.times + part.offset)
                continue
            found[name] = Rows.holding(np.unique(np.concatenate(wanted[name])), self._subsampling)
            if (descriptor := self._nnet.taken_by(name)) is not None:
                ask(descriptor, self._input_rows(name, found[name]).times)
        return found

    def _loop_rows(self, loop: Loop, asked: np.ndarray) -> Rows:
        """The rows of a loop's nodes, which others take at the frames `asked`."""
        sub, end = self._subsampling, self._begin(loop)
        step = sub if loop.delay % sub == 0 and not (np.diff(asked) % sub).any() else 1
        first = int(asked[0]) - (int(asked[0]) - end) // step * step if loop.delay > 0 else int(asked[0])
        last = int(asked[-1]) if loop.delay > 0 else end
        return Rows(first, step, sub // step, (last - first) // step + 1 - OUTPUTS * (sub // step))

    def _begin(self, loop: Loop) -> int:
        """The frame at which a loop begins: the first that can be computed of OUTPUTS times `subsampling` frames, or backwards the last."""
        plan = self._plan
        spans = plan.spans(-plan.left_context, OUTPUTS * self._subsampling - 1 + plan.right_context)
        found = {spans[name][0 if loop.delay > 0 else 1] for name in carried(self._nnet, loop)}
        if len(found) > 1:
            raise UserError(f"the nodes of the loop of {loop.nodes[0]} begin at several frames; such are not exported to ONNX so far.")
        return int(found.pop())

    def _taken(self, loop: Loop) -> list[Taken]:
        """What a loop's nodes take, each part once."""
        descriptors = (self._nnet.taken_by(name) for name in loop.nodes)
        return [*dict.fromkeys(part for one in descriptors if one is not None for part in taken(one, loop))]

    def _input_rows(self, name: str, rows: Rows) -> Rows:
        """The rows at which a node's component takes its descriptor, all time offsets together."""
        offsets = self._offsets(name)
        if offsets == [0]:
            return rows
        return Rows.holding(np.unique(np.add.outer(np.array(offsets), rows.times)), self._subsampling)

    def _offsets(self, name: str) -> list[int]:
        node = self._nnet.nodes[name]
        return self._nnet.components[node.component].time_offsets if node.kind == "component-node" else [0]

    # ---- the graph

    def _head(self) -> None:
        """K, and the rows of the features."""
        graph, rows, sub = self._graph, self._rows["input"], self._subsampling
        one, zero = graph.integer(1), graph.integer(0)
        graph.op("Shape", ["feats"], "shape")
        graph.op("Slice", ["shape", zero, one], "frames")
        graph.op("Add", ["frames", graph.integer(sub - 1)], "frames+")
        graph.op("Div", ["frames+", graph.integer(sub)], "outputs")
        graph.op("Sub", ["frames", one], "last")
        clipped = graph.op("Min", [graph.op("Max", [self._times(rows, "input"), zero], "not before"), "last"], "rows of feats")
        graph.op("Gather", ["feats", clipped], "input")

    def _times(self, rows: Rows, name: str) -> str:
        """The frames of rows."""
        graph = self._graph
        scalar = graph.constant("scalar0", np.array(0, np.int64)), graph.constant("scalar1", np.array(1, np.int64))
        count = graph.op("Squeeze", [graph.number(rows.each, rows.more)], f"{name}.count")
        steps = graph.op("Range", [scalar[0], count, scalar[1]], f"{name}.steps")
        spaced = graph.op("Mul", [steps, graph.integer(rows.step)], f"{name}.spaced")
        return graph.op("Add", [spaced, graph.integer(rows.first)], f"{name}.times")

    def _slice(self, source: str, have: Rows, want: Rows, name: str) -> str:
        """The rows `want` of a matrix that has the rows `have`."""
        if have == want:
            return source
        start, step = (want.first - have.first) // have.step, want.step // have.step
        end = self._graph.number(want.each * step, start + step * (want.more - 1) + 1)
        return self._graph.op("Slice", [source, self._graph.integer(start), end, self._graph.integer(0), self._graph.integer(step)], name)

    def _value(self, descriptor: Descriptor, want: Rows | None, name: str) -> str:
        """A descriptor's matrix with the rows `want`; None: the one row of what does not depend on features."""
        match descriptor.function:
            case "":
                if want is None or descriptor.node in self._fixed:
                    return descriptor.node if want is None else self._expanded(descriptor.node, self._nnet.dim(descriptor.node), want, name)
                return self._slice(descriptor.node, self._rows[descriptor.node], want, name)
            case "Append":
                parts = [self._value(part, want, f"{name}.{i}") for i, part in enumerate(descriptor.parts)]
                return self._graph.op("Concat", parts, name, axis=1)
            case "Sum":
                total, *rest = [self._value(part, want, f"{name}.{i}") for i, part in enumerate(descriptor.parts)]
                for i, part in enumerate(rest):
                    total = self._graph.op("Add", [total, part], f"{name}+{i}")
                return total
            case "Scale":
                scale = self._graph.constant(f"{name}.scale", np.array(descriptor.numbers[0], np.float32))
                return self._graph.op("Mul", [self._value(descriptor.parts[0], want, f"{name}.0"), scale], f"{name}.scaled")
            case "Const":
                dim = int(descriptor.numbers[1])
                row = self._graph.constant(f"{name}.row", np.full((1, dim), descriptor.numbers[0], np.float32))
                return row if want is None else self._expanded(row, dim, want, name)
            case "ReplaceIndex":
                row = self._value(descriptor.parts[0], None, f"{name}.0")
                return row if want is None else self._expanded(row, self._nnet.descriptor_dim(descriptor), want, name)
            case _:
                by = 0 if want is None else int(descriptor.numbers[0])
                moved = None if want is None else Rows(want.first + by, want.step, want.each, want.more)
                return self._value(descriptor.parts[0], moved, f"{name}.0")

    def _expanded(self, row: str, dim: int, want: Rows, name: str) -> str:
        """A row repeated for all frames."""
        shape = self._graph.op("Concat", [self._graph.number(want.each, want.more), self._graph.integer(dim)], f"{name}.shape", axis=0)
        return self._graph.op("Expand", [row, shape], f"{name}.rows")

    def _component(self, name: str, component: Nnet3Component, descriptor: Descriptor) -> str:
        """The output of a component's node."""
        want = self._rows.get(name)
        if component.time_offsets == [0]:
            x = self._value(descriptor, want, f"{name}.in")
        else:
            if want is None:
                raise UserError(f"the network's {name} takes several frames of an i-vector; it is not exported to ONNX so far.")
            looked_at = self._input_rows(name, want)
            source = self._value(descriptor, looked_at, f"{name}.in")
            parts = [self._slice(source, looked_at, Rows(want.first + offset, want.step, want.each, want.more), f"{name}.at{offset}")
                     for offset in component.time_offsets]
            if component.type == "RestrictedAttentionComponent":
                return attention_output(self._graph, Attention(component), parts, name)
            x = self._graph.op("Concat", parts, f"{name}.taps", axis=1)
        return component_output(self._graph, component, x, name)

    def _loop(self, loop: Loop) -> None:
        """The values of a loop's nodes that others take."""
        graph, nnet, rows, name = self._graph, self._nnet, self._rows[loop.nodes[0]], f"{loop.nodes[0]}.loop"
        width, backwards = abs(loop.delay) // rows.step, loop.delay < 0
        waves = Waves(graph, width, backwards, graph.number(rows.each, rows.more), name)
        inputs: dict[str, tuple[str, int]] = {}
        outside: dict[Taken, str] = {}
        for number, part in enumerate(one for one in self._taken(loop) if not one.inside):
            dim, moved = nnet.descriptor_dim(part.descriptor), Rows(rows.first + part.offset, rows.step, rows.each, rows.more)
            value = self._value(part.descriptor, moved, f"{name}.from{number}")
            outside[part] = f"{name}.now{number}"
            inputs[outside[part]] = waves.cut(value, dim, f"{name}.to{number}"), dim
        states = {node: nnet.dim(node) for node in carried(nnet, loop)}
        outputs = {node: nnet.dim(node) for node in loop.nodes if node in self._leaving}
        if backwards:
            inputs[f"{name}.there"] = waves.cut(self._can_be_computed(loop, rows, name), 1, f"{name}.mask"), 1
        with graph.body() as body:
            wave = ScanBody(graph, nnet, loop, outside)
            for node in loop.nodes:
                self._node(node, wave.input(node), f"{node}.now")
            for node in states:
                graph.op("Mul" if backwards else "Identity", [f"{node}.now", *([f"{name}.there"] if backwards else [])], f"{node}.next")
            for node in outputs:
                graph.op("Identity", [f"{node}.now"], f"{node}.row")
        scan(graph, body, states, inputs, outputs, width, backwards, name)
        for node, dim in outputs.items():
            waves.joined(f"{node}.rows", dim, node)

    def _can_be_computed(self, loop: Loop, rows: Rows, name: str) -> str:
        """A column of ones for the frames of rows at which a loop that runs backwards can be computed, and zeros behind them."""
        graph, behind = self._graph, self._begin(loop) - (OUTPUTS * self._subsampling - 1)
        last = graph.op("Add", ["last", graph.integer(behind)], f"{name}.begin")
        there = graph.op("LessOrEqual", [self._times(rows, name), last], f"{name}.defined")
        return graph.op("Unsqueeze", [graph.op("Cast", [there], f"{name}.ones", to=TensorProto.FLOAT), graph.integer(1)], f"{name}.column")

    def _node(self, name: str, x: str, output: str) -> str:
        """The value `output` of a component's node, or of one that takes some dimensions, for its input x."""
        node = self._nnet.nodes[name]
        if node.kind == "component-node":
            return component_output(self._graph, self._nnet.components[node.component], x, output)
        start, axis = int(node.values["dim-offset"]), self._graph.integer(1)
        return self._graph.op("Slice", [x, self._graph.integer(start), self._graph.integer(start + int(node.values["dim"])), axis], output)

    def model(self) -> onnx.ModelProto:
        """The graph, checked."""
        self._head()
        nnet, done = self._nnet, set[str]()
        for name in self._plan.order:
            node, descriptor, loop = nnet.nodes[name], nnet.taken_by(name), self._plan.loop_of.get(name)
            if node.kind == "input-node" or name in done:
                continue
            if loop is not None:
                self._loop(loop)
                done.update(loop.nodes)
            elif descriptor is None:
                self._graph.constant(name, np.full((1, nnet.dim(name)), mask_in_test(nnet.components[node.component]), np.float32))
            elif node.kind == "component-node":
                self._component(name, nnet.components[node.component], descriptor)
            else:
                x = self._value(descriptor, self._rows.get(name), f"{name}.in")
                if node.kind == "dim-range-node":
                    self._node(name, x, name)
                elif self._log_priors is not None:
                    self._graph.op("Sub", [x, self._graph.constant("log_priors", self._log_priors.astype(np.float32))], "loglikes")
                else:
                    self._graph.op("Identity", [x], "loglikes")
        inputs = [helper.make_tensor_value_info("feats", TensorProto.FLOAT, ["frames", nnet.dim("input")])]
        if "ivector" in self._inputs:
            inputs.append(helper.make_tensor_value_info("ivector", TensorProto.FLOAT, [1, nnet.dim("ivector")]))
        output = helper.make_tensor_value_info("loglikes", TensorProto.FLOAT, ["outputs_of_frames", nnet.dim("output")])
        graph = helper.make_graph(self._graph.nodes, "pykaldist", inputs, [output], list(self._graph.constants.values()))
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8, producer_name="pykaldist")
        onnx.checker.check_model(made)
        return made


def export_nnet3_onnx(nnet: Nnet3, path: str | os.PathLike[str], subsampling: int = 1, priors: np.ndarray | None = None,
                      change: Callable[[onnx.ModelProto], onnx.ModelProto] | None = None) -> None:
    """Write a network as an ONNX file; `priors` of its pdfs (None or empty: none); `change`, such as `quantised`, is made to the graph.

    Raises UserError for what is not exported.
    """
    made = Nnet3Exporter(nnet, subsampling, np.log(priors) if priors is not None and len(priors) else None).model()
    with atomic_open(path, "wb") as stream:
        stream.write((change(made) if change else made).SerializeToString())


def quantised(model: onnx.ModelProto) -> onnx.ModelProto:
    """The graph with its affine maps in 8-bit integers: weights once, inputs as they come (dynamic quantisation of ONNX Runtime)."""
    import tempfile
    from pathlib import Path

    from onnxruntime.quantization import QuantType, quantize_dynamic  # type: ignore[import-untyped]  # it has no types

    with tempfile.TemporaryDirectory(prefix="pykaldist-onnx-") as folder:
        whole, small = Path(folder) / "float.onnx", Path(folder) / "int8.onnx"
        onnx.save(model, str(whole))
        # Weights of 7 bits: with 8, sums of two products overflow on CPUs without VNNI.
        quantize_dynamic(str(whole), str(small), per_channel=True, reduce_range=True, weight_type=QuantType.QInt8)
        return onnx.load(str(small))
