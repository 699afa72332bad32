"""Export of a network as an ONNX graph from features to scaled log-likelihoods, with splice, normalisation and priors inside.

Input `feats` (frames, dim), output `loglikes` (frames, pdfs), both float32, any number of frames; a network trained on target features
outputs those. Splicing is a gather: frame t's neighbour at offset o is row clip(t + o, 0, frames - 1).
"""

from __future__ import annotations

import os

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from pykaldist.errors import UserError
from pykaldist.io.atomic import atomic_open
from pykaldist.nnet.components import Affine, Component, Dropout, Linear, Relu, Sigmoid, Tanh
from pykaldist.nnet.convolution import BatchNorm
from pykaldist.nnet.dnn import DnnOptions
from pykaldist.nnet.kinds import kind_of
from pykaldist.nnet.network import Network
from pykaldist.nnet.priors import log_priors

OPSET = 17
NODES: dict[type[Component], str] = {Sigmoid: "Sigmoid", Tanh: "Tanh", Relu: "Relu"}  # exactly these, no class derived from them


def export_onnx(network: Network, path: str | os.PathLike[str]) -> None:
    """Write `network` as an ONNX file; onnx checks it before it gets its name.

    Raises UserError for a network that has a component which is not known here.
    """
    transform, model = network.transform, network.model
    if not isinstance(network.options, DnnOptions):
        raise UserError(f"--nnet {kind_of(network.options)} is not exported to ONNX so far, only dnn; decode it here, or as nnet1's "
                        "final.nnet.")
    unknown = [type(c).__name__ for c in model.components if type(c) not in (Affine, Linear, Dropout, BatchNorm, *NODES)]
    if unknown:
        raise UserError(f"the network has a {unknown[0]}, which is not exported to ONNX so far; what is: Affine, Linear, Dropout, "
                        f"BatchNorm, {', '.join(c.__name__ for c in NODES)}.")
    dim = model.input_dim // len(transform.splice)
    constants: list[onnx.TensorProto] = []

    def constant(name: str, value: np.ndarray) -> str:
        constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    zero, one = constant("zero", np.array(0, np.int64)), constant("one", np.array(1, np.int64))
    nodes = [
        helper.make_node("Shape", ["feats"], ["shape"]),
        helper.make_node("Gather", ["shape", zero], ["frames"]),
        helper.make_node("Sub", ["frames", one], ["last"]),
        helper.make_node("Range", [zero, "frames", one], ["t"]),
        helper.make_node("Unsqueeze", ["t", constant("axis", np.array([1], np.int64))], ["column"]),
        helper.make_node("Add", ["column", constant("splice", np.array(transform.splice, np.int64))], ["neighbours"]),
        helper.make_node("Max", ["neighbours", zero], ["not_before"]),
        helper.make_node("Min", ["not_before", "last"], ["rows"]),
        helper.make_node("Gather", ["feats", "rows"], ["stacked"]),
        helper.make_node("Reshape", ["stacked", constant("flat", np.array([-1, model.input_dim], np.int64))], ["spliced"]),
        helper.make_node("Sub", ["spliced", constant("shift", transform.shift.numpy())], ["centred"]),
        helper.make_node("Mul", ["centred", constant("scale", transform.scale.numpy())], ["x0"]),
    ]
    x = "x0"
    for i, component in enumerate(model.components, 1):
        if isinstance(component, Affine):
            weight = constant(f"weight{i}", component.weight.cpu().numpy())
            bias = constant(f"bias{i}", component.bias.cpu().numpy())
            nodes.append(helper.make_node("Gemm", [x, weight, bias], [f"x{i}"], transB=1))
        elif isinstance(component, Linear):
            nodes.append(helper.make_node("Gemm", [x, constant(f"weight{i}", component.weight.cpu().numpy())], [f"x{i}"], transB=1))
        elif isinstance(component, Dropout):
            continue  # in training only
        elif isinstance(component, BatchNorm):
            factor, term = (value.cpu().numpy() for value in component.in_use())
            nodes += [helper.make_node("Mul", [x, constant(f"factor{i}", factor)], [f"scaled{i}"]),
                      helper.make_node("Add", [f"scaled{i}", constant(f"term{i}", term)], [f"x{i}"])]
        else:
            nodes.append(helper.make_node(NODES[type(component)], [x], [f"x{i}"]))
        x = f"x{i}"
    if network.counts is None:
        output = x
    else:
        output = "loglikes"
        nodes += [helper.make_node("LogSoftmax", [x], ["log_posteriors"], axis=1),
                  helper.make_node("Sub", ["log_posteriors", constant("log_priors", log_priors(network.counts.numpy()))], [output])]
    graph = helper.make_graph(
        nodes, "pykaldist",
        [helper.make_tensor_value_info("feats", TensorProto.FLOAT, ["frames", dim])],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, ["frames", model.output_dim])], constants)
    exported = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8, producer_name="pykaldist")
    onnx.checker.check_model(exported)
    with atomic_open(path, "wb") as stream:
        stream.write(exported.SerializeToString())
