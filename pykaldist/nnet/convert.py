"""Our networks as nnet1 files, and back.

A DNN is <AffineTransform> and <Sigmoid>, <Tanh> or <ParametricRelu> (slope 1 above zero, 0 below) by turns, then <Softmax>; its feature
transform is <Splice> <AddShift> <Rescale>, with shift = -mean and scale = 1 / standard deviation.
"""

from __future__ import annotations

import numpy as np
import torch

from pykaldist.errors import UserError
from pykaldist.nnet.components import Affine
from pykaldist.nnet.dnn import DnnOptions, make_dnn
from pykaldist.nnet.network import FeatureTransform, Network
from pykaldist.nnet.nnet1 import LAYOUTS, Nnet1, Nnet1Component

ACTIVATION_MARKERS = {"sigmoid": "Sigmoid", "tanh": "Tanh", "relu": "ParametricRelu"}


def _component(marker: str, output_dim: int, input_dim: int, **arrays: np.ndarray) -> Nnet1Component:
    return Nnet1Component(marker, output_dim, input_dim, dict(LAYOUTS[marker].options), arrays)


def to_nnet1(network: Network) -> tuple[Nnet1, Nnet1]:
    """(final.nnet, final.feature_transform) of a network."""
    components = []
    marker = ACTIVATION_MARKERS[network.options.activation]
    for component in network.model.components:
        if isinstance(component, Affine):
            components.append(_component("AffineTransform", component.output_dim, component.input_dim,
                                         linearity=component.weight.cpu().numpy(), bias=component.bias.cpu().numpy()))
        else:
            dim = component.output_dim
            slopes = {"alpha": np.ones(dim, np.float32), "beta": np.zeros(dim, np.float32)} if marker == "ParametricRelu" else {}
            components.append(_component(marker, dim, dim, **slopes))
    components.append(_component("Softmax", network.model.output_dim, network.model.output_dim))
    t = network.transform
    spliced = len(t.shift)
    transform = Nnet1([_component("Splice", spliced, spliced // len(t.splice), frame_offsets=np.array(t.splice, np.int32)),
                       _component("AddShift", spliced, spliced, shift=-t.shift.numpy()),
                       _component("Rescale", spliced, spliced, scale=t.scale.numpy())])
    for fixed in transform.components[1:]:
        fixed.options["LearnRateCoef"] = 0.0
    return Nnet1(components), transform


def from_nnet1(nnet: Nnet1, transform: Nnet1, counts: np.ndarray) -> Network:
    """A network of ours from nnet1 files of a DNN; raises UserError for other shapes."""
    markers = [c.marker for c in nnet.components]
    if markers[-1] == "Softmax":
        markers = markers[:-1]
    affine, activations = nnet.components[: len(markers) : 2], nnet.components[1 : len(markers) : 2]
    kinds = {c.marker for c in activations}
    dims = {c.output_dim for c in affine[:-1]}
    names = {marker: name for name, marker in ACTIVATION_MARKERS.items()}
    alternating = len(markers) % 2 == 1 and {c.marker for c in affine} == {"AffineTransform"}
    if not alternating or len(kinds) > 1 or not kinds <= set(names) or len(dims) > 1:
        raise UserError(f"the network is {' '.join(f'<{m}>' for m in markers)}; expected affine transforms of one width with sigmoid, "
                        "tanh or ReLU between them.")
    if kinds == {"ParametricRelu"} and any((c.arrays["alpha"] != 1).any() or (c.arrays["beta"] != 0).any() for c in activations):
        raise UserError("the network has <ParametricRelu> slopes other than 1 and 0, which are not trained here.")
    if [c.marker for c in transform.components] != ["Splice", "AddShift", "Rescale"]:
        raise UserError(f"the feature transform is {' '.join(f'<{c.marker}>' for c in transform.components)}; expected <Splice> <AddShift> "
                        "<Rescale>.")
    if len(counts) != nnet.output_dim:
        raise UserError(f"the class counts have {len(counts)} pdfs, the network {nnet.output_dim}.")
    splice, shift, scale = transform.components
    options = DnnOptions(len(activations), dims.pop() if dims else 1, names[kinds.pop()] if kinds else "sigmoid")
    model = make_dnn(options, nnet.input_dim, nnet.output_dim)
    for ours, theirs in zip((c for c in model.components if isinstance(c, Affine)), affine, strict=True):
        ours.weight.copy_(torch.from_numpy(theirs.arrays["linearity"]))
        ours.bias.copy_(torch.from_numpy(theirs.arrays["bias"]))
    return Network(options, model, FeatureTransform(splice.arrays["frame_offsets"].tolist(), torch.from_numpy(-shift.arrays["shift"]),
                                                    torch.from_numpy(scale.arrays["scale"])), torch.from_numpy(counts))
