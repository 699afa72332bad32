"""Export of an nnet3 network as an ONNX graph from features, and an i-vector, to log-likelihoods, with priors inside.

Inputs `feats` (frames, dim) and, of a network that takes one, `ivector` (1, dim); output `loglikes` (frames / subsampling, rounded up;
pdfs); all float32, any number of frames. A node is a matrix whose rows are evenly spaced frames: from a first frame on, at every frame or,
where no output needs the others, at every `subsampling`-th. What a node takes of another is then a slice of its rows, and the number of
rows is a multiple of the number of outputs plus a constant. Before the first and behind the last frame the features are repeated.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from pykaldist.errors import UserError
from pykaldist.io.atomic import atomic_open
from pykaldist.nnet.nnet3.components import Nnet3Component
from pykaldist.nnet.nnet3.config import Descriptor
from pykaldist.nnet.nnet3.model import Nnet3
from pykaldist.nnet.nnet3.plan import Plan, shift
from pykaldist.nnet.nnet3.run import MAPS, parameters

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
        if self._plan.loops:
            raise UserError(f"the network is recurrent ({', '.join(self._plan.loops[0].nodes[:3])}, ...); such networks are not exported "
                            "to ONNX.")
        self._inputs = [name for name in self._plan.order if nnet.nodes[name].kind == "input-node"]
        if "input" not in self._inputs or set(self._inputs) - {"input", "ivector"}:
            raise UserError(f"the network takes {' and '.join(self._inputs)}; what is exported to ONNX takes features, as input, and an "
                            "i-vector, as ivector.")
        self._fixed = self._without_features()
        self._rows = self._find_rows()
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, onnx.TensorProto] = {}
        self._made: dict[tuple[int, int], str] = {}  # numbers a K + b

    def _without_features(self) -> set[str]:
        """The nodes that depend on the i-vector alone: one row for all frames."""
        depends = {"input"}
        for name in self._plan.order:
            descriptor = self._nnet.nodes[name].input
            if descriptor is not None and depends & set(descriptor.nodes()):
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
            if name in self._fixed:
                continue
            found[name] = Rows.holding(np.unique(np.concatenate(wanted[name])), self._subsampling)
            if (descriptor := self._nnet.nodes[name].input) is not None:
                ask(descriptor, self._input_rows(name, found[name]).times)
        return found

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

    def _constant(self, name: str, value: np.ndarray) -> str:
        self._constants[name] = numpy_helper.from_array(np.ascontiguousarray(value), name)
        return name

    def _integer(self, value: int) -> str:
        return self._constant(f"int{value}", np.array([value], np.int64))

    def _op(self, kind: str, inputs: list[str], output: str, **attributes: int | float) -> str:
        self._nodes.append(helper.make_node(kind, inputs, [output], **attributes))  # type: ignore[arg-type]  # names of attributes
        return output

    def _number(self, each: int, more: int) -> str:
        """The number `each` K + `more`, K the number of outputs."""
        if (each, more) not in self._made:
            if more:
                made = self._op("Add", [self._number(each, 0), self._integer(more)], f"outputs*{each}+{more}")
            else:
                made = self._op("Mul", ["outputs", self._integer(each)], f"outputs*{each}")
            self._made[each, more] = made
        return self._made[each, more]

    def _head(self) -> None:
        """K, and the rows of the features."""
        rows, sub = self._rows["input"], self._subsampling
        one, zero = self._integer(1), self._integer(0)
        self._op("Shape", ["feats"], "shape")
        self._op("Slice", ["shape", zero, one], "frames")
        self._op("Add", ["frames", self._integer(sub - 1)], "frames+")
        self._op("Div", ["frames+", self._integer(sub)], "outputs")
        self._op("Sub", ["frames", one], "last")
        scalar = self._constant("scalar0", np.array(0, np.int64)), self._constant("scalar1", np.array(1, np.int64))
        count = self._op("Squeeze", [self._number(rows.each, rows.more)], "rows")
        steps = self._op("Range", [scalar[0], count, scalar[1]], "steps")
        times = self._op("Add", [self._op("Mul", [steps, self._integer(rows.step)], "spaced"), self._integer(rows.first)], "times")
        clipped = self._op("Min", [self._op("Max", [times, zero], "not before"), "last"], "rows of feats")
        self._op("Gather", ["feats", clipped], "input")

    def _slice(self, source: str, have: Rows, want: Rows, name: str) -> str:
        """The rows `want` of a matrix that has the rows `have`."""
        if have == want:
            return source
        start, step = (want.first - have.first) // have.step, want.step // have.step
        end = self._number(want.each * step, start + step * (want.more - 1) + 1)
        return self._op("Slice", [source, self._integer(start), end, self._integer(0), self._integer(step)], name)

    def _value(self, descriptor: Descriptor, want: Rows | None, name: str) -> str:
        """A descriptor's matrix with the rows `want`; None: the one row of what does not depend on features."""
        match descriptor.function:
            case "":
                if want is None or descriptor.node in self._fixed:
                    return descriptor.node if want is None else self._expanded(descriptor.node, self._nnet.dim(descriptor.node), want, name)
                return self._slice(descriptor.node, self._rows[descriptor.node], want, name)
            case "Append":
                parts = [self._value(part, want, f"{name}.{i}") for i, part in enumerate(descriptor.parts)]
                return self._op("Concat", parts, name, axis=1)
            case "Sum":
                total, *rest = [self._value(part, want, f"{name}.{i}") for i, part in enumerate(descriptor.parts)]
                for i, part in enumerate(rest):
                    total = self._op("Add", [total, part], f"{name}+{i}")
                return total
            case "Scale":
                scale = self._constant(f"{name}.scale", np.array(descriptor.numbers[0], np.float32))
                return self._op("Mul", [self._value(descriptor.parts[0], want, f"{name}.0"), scale], f"{name}.scaled")
            case "Const":
                dim = int(descriptor.numbers[1])
                row = self._constant(f"{name}.row", np.full((1, dim), descriptor.numbers[0], np.float32))
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
        shape = self._op("Concat", [self._number(want.each, want.more), self._integer(dim)], f"{name}.shape", axis=0)
        return self._op("Expand", [row, shape], f"{name}.rows")

    def _component(self, name: str, component: Nnet3Component, descriptor: Descriptor) -> str:
        """The output of a component's node."""
        want = self._rows.get(name)
        if component.time_offsets == [0]:
            x = self._value(descriptor, want, f"{name}.in")
        else:
            if want is None:
                raise UserError(f"the network's {name} takes several frames of an i-vector; it is not exported to ONNX so far.")
            taken = self._input_rows(name, want)
            source = self._value(descriptor, taken, f"{name}.in")
            parts = [self._slice(source, taken, Rows(want.first + offset, want.step, want.each, want.more), f"{name}.at{offset}")
                     for offset in component.time_offsets]
            x = self._op("Concat", parts, f"{name}.taps", axis=1)
        arrays = {key: self._constant(f"{component.name}.{key}", value.astype(np.float32)) for key, value in parameters(component).items()}
        match component.type:
            case "RectifiedLinearComponent":
                return self._op("Relu", [x], name)
            case "LogSoftmaxComponent":
                return self._op("LogSoftmax", [x], name, axis=1)
            case "GeneralDropoutComponent" | "SpecAugmentTimeMaskComponent" | "NoOpComponent":
                return self._op("Identity", [x], name)
            case _ if arrays and arrays.keys() <= {"scale", "offset"}:
                if "scale" in arrays:
                    x = self._op("Mul", [x, arrays["scale"]], f"{name}.scaled" if "offset" in arrays else name)
                return self._op("Add", [x, arrays["offset"]], name) if "offset" in arrays else x
            case _ if component.type in MAPS:
                return self._op("Gemm", [x, *arrays.values()], name, transB=1)
            case _:
                raise UserError(f"the network has a {component.type}, which is not exported to ONNX so far.")

    def model(self) -> onnx.ModelProto:
        """The graph, checked."""
        self._head()
        nnet = self._nnet
        for name in self._plan.order:
            node = nnet.nodes[name]
            if node.kind == "input-node":
                continue
            assert node.input is not None  # of all other kinds
            if node.kind == "component-node":
                self._component(name, nnet.components[node.component], node.input)
                continue
            x = self._value(node.input, self._rows.get(name), f"{name}.in")
            if node.kind == "dim-range-node":
                start = int(node.values["dim-offset"])
                ends = self._integer(start), self._integer(start + int(node.values["dim"])), self._integer(1)
                self._op("Slice", [x, *ends], name)
            elif self._log_priors is not None:
                self._op("Sub", [x, self._constant("log_priors", self._log_priors.astype(np.float32))], "loglikes")
            else:
                self._op("Identity", [x], "loglikes")
        inputs = [helper.make_tensor_value_info("feats", TensorProto.FLOAT, ["frames", nnet.dim("input")])]
        if "ivector" in self._inputs:
            inputs.append(helper.make_tensor_value_info("ivector", TensorProto.FLOAT, [1, nnet.dim("ivector")]))
        output = helper.make_tensor_value_info("loglikes", TensorProto.FLOAT, ["outputs_of_frames", nnet.dim("output")])
        graph = helper.make_graph(self._nodes, "pykaldist", inputs, [output], list(self._constants.values()))
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
        quantize_dynamic(str(whole), str(small), per_channel=True, weight_type=QuantType.QInt8)
        return onnx.load(str(small))
