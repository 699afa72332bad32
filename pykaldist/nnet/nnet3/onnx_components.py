"""The components of nnet3 networks as ONNX operators on matrices with a row a frame."""

from __future__ import annotations

from typing import cast

import numpy as np

from pykaldist.errors import UserError
from pykaldist.nnet.nnet3.components import Nnet3Component
from pykaldist.nnet.nnet3.computing.attention import Attention
from pykaldist.nnet.nnet3.computing.elementwise import NORM_FLOOR
from pykaldist.nnet.nnet3.computing.gru import GruFunction
from pykaldist.nnet.nnet3.onnx_graph import OnnxGraph
from pykaldist.nnet.nnet3.run import MAPS, parameters

SIMPLE = {"RectifiedLinearComponent": "Relu", "SigmoidComponent": "Sigmoid", "TanhComponent": "Tanh", "GeneralDropoutComponent": "Identity",
          "SpecAugmentTimeMaskComponent": "Identity", "NoOpComponent": "Identity"}
BY_ROW = {"LogSoftmaxComponent": "LogSoftmax", "SoftmaxComponent": "Softmax"}


def component_output(graph: OnnxGraph, component: Nnet3Component, x: str, name: str) -> str:
    """The output `name` of a component for the input x, time offsets side by side; raises UserError for a type that is not exported."""
    values = parameters(component)

    def constant(key: str) -> str:
        return graph.constant(f"{component.name}.{key}", values[key].astype(np.float32))

    match component.type:
        case type_ if type_ in SIMPLE:
            return graph.op(SIMPLE[type_], [x], name)
        case type_ if type_ in BY_ROW:
            return graph.op(BY_ROW[type_], [x], name, axis=1)
        case type_ if type_ in MAPS:
            return graph.op("Gemm", [x, *map(constant, values)], name, transB=1)
        case "LstmNonlinearityComponent":
            return _lstm(graph, component, x, name)
        case "OutputGruNonlinearityComponent" | "GruNonlinearityComponent":
            return _gru(graph, component, x, name)
        case "ElementwiseProductComponent":
            total, *rest = graph.columns(x, [component.output_dim] * (component.input_dim // component.output_dim), name)
            for n, part in enumerate(rest):
                total = graph.op("Mul", [total, part], name if n == len(rest) - 1 else f"{name}.product{n}")
            return total
        case "PermuteComponent":
            columns = np.array(cast("list[int]", component.values["ColumnMap"]), np.int64)
            return graph.op("Gather", [x, graph.constant(f"{component.name}.columns", columns)], name, axis=1)
        case "NormalizeComponent" if not component.values["AddLogStddev"] and component.output_dim == component.values.get(
                "BlockDim", component.output_dim):
            return _normalised(graph, component.number("TargetRms"), x, name)
        case _ if values.keys() <= {"scale", "offset"} and (values or component.type == "BackpropTruncationComponent"):
            if "scale" in values:
                x = graph.op("Mul", [x, constant("scale")], f"{name}.scaled" if "offset" in values else name)
            if "offset" in values:
                return graph.op("Add", [x, constant("offset")], name)
            return x if "scale" in values else graph.op("Identity", [x], name)
        case _:
            raise UserError(f"the network has a {component.type}, which is not exported to ONNX so far.")


def _normalised(graph: OnnxGraph, rms: float, x: str, name: str) -> str:
    """Rows of the root mean square `rms`."""
    mean = graph.op("ReduceMean", [graph.op("Mul", [x, x], f"{name}.squares")], f"{name}.mean", axes=[1], keepdims=1)
    limits = [graph.constant(f"{name}.{key}", np.array(value, np.float32)) for key, value in (("square", rms**2), ("floor", NORM_FLOOR))]
    ratio = graph.op("Max", [graph.op("Div", [mean, limits[0]], f"{name}.ratio"), limits[1]], f"{name}.floored")
    return graph.op("Div", [x, graph.op("Sqrt", [ratio], f"{name}.rms")], name)


def _lstm(graph: OnnxGraph, component: Nnet3Component, x: str, name: str) -> str:
    """Gates and cells, as computing/lstm.py has them."""
    peepholes = component.array("Params").astype(np.float32)
    cells, masked = peepholes.shape[1], component.input_dim > 5 * peepholes.shape[1]
    a_i, a_f, a_c, a_o, before, *masks = graph.columns(x, [cells] * 5 + [1] * 3 * masked, name)

    def gate(which: str, a: str, row: int, cell: str) -> str:
        weights = graph.constant(f"{component.name}.{which}", peepholes[row])
        peeped = graph.op("Add", [a, graph.op("Mul", [cell, weights], f"{name}.{which}.cell")], f"{name}.{which}.in")
        return graph.op("Sigmoid", [peeped], f"{name}.{which}")

    def times(which: str, one: str, other: str, mask: int) -> str:
        product = graph.op("Mul", [one, other], f"{name}.{which}")
        return graph.op("Mul", [product, masks[mask]], f"{name}.{which}.masked") if masked else product

    new = times("new", gate("i", a_i, 0, before), graph.op("Tanh", [a_c], f"{name}.g"), 0)
    kept = times("kept", gate("f", a_f, 1, before), before, 1)
    c = graph.op("Add", [new, kept], f"{name}.c")
    m = times("m", gate("o", a_o, 2, c), graph.op("Tanh", [c], f"{name}.h"), 2)
    return graph.op("Concat", [c, m], name, axis=1)


def _gru(graph: OnnxGraph, component: Nnet3Component, x: str, name: str) -> str:
    """Candidates and cells, as computing/gru.py has them."""
    function, weights = GruFunction(component), component.array("w_h").astype(np.float32)
    cells, recurrent = function.cells, function.recurrent
    if function.resets:
        z, gate, a, before, *back = graph.columns(x, [cells, recurrent, cells, cells, *[recurrent] * function.projected], name)
        u = graph.op("Mul", [gate, back[0] if back else before], f"{name}.u")
        v = graph.op("MatMul", [u, graph.constant(f"{component.name}.weights", weights.T)], f"{name}.v")
    else:
        z, a, before = graph.columns(x, [cells] * 3, name)
        v = graph.op("Mul", [before, graph.constant(f"{component.name}.weights", weights)], f"{name}.v")
    h = graph.op("Tanh", [graph.op("Add", [a, v], f"{name}.in")], f"{name}.h")
    change = graph.op("Mul", [z, graph.op("Sub", [before, h], f"{name}.change")], f"{name}.kept")
    return graph.op("Concat", [h, graph.op("Add", [h, change], f"{name}.c")], name, axis=1)


def attention_output(graph: OnnxGraph, attention: Attention, parts: list[str], name: str) -> str:
    """The output of attention for its inputs at each of its offsets, as computing/attention.py has it."""
    widths = [attention.key, attention.value, attention.key, len(attention.offsets)]
    shape = graph.integers(0, attention.heads, sum(widths))  # the frames stay
    split = [graph.columns(graph.op("Reshape", [part, shape], f"{name}.heads{o}"), widths, f"{name}.{o}", axis=2)
             for o, part in enumerate(parts)]
    _, _, query, scores = split[attention.offsets.index(0)]
    products = [graph.op("ReduceSum", [graph.op("Mul", [query, keys], f"{name}.by{o}"), graph.integer(2)], f"{name}.product{o}")
                for o, (keys, *_) in enumerate(split)]
    scale = graph.constant(f"{name}.scale", np.array(attention.scale, np.float32))
    scaled = graph.op("Mul", [graph.op("Concat", products, f"{name}.products", axis=2), scale], f"{name}.scaled")
    weights = graph.op("Softmax", [graph.op("Add", [scaled, scores], f"{name}.scores")], f"{name}.weights", axis=2)
    of_offset = graph.columns(weights, [1] * len(parts), f"{name}.weight", axis=2)
    mean = graph.op("Sum", [graph.op("Mul", [weight, values], f"{name}.weighted{o}")
                            for o, (weight, (_, values, *_)) in enumerate(zip(of_offset, split, strict=True))], f"{name}.mean")
    out = graph.op("Concat", [mean, weights], f"{name}.both", axis=2) if attention.with_weights else mean
    width = attention.heads * (attention.value + (len(parts) if attention.with_weights else 0))
    return graph.op("Reshape", [out, graph.integers(0, width)], name)
