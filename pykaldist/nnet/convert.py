"""Conversion of networks to nnet1 files, and back.

A recurrent layer is <LstmProjected> or <BlstmProjected>, with zeros for peepholes and an identity for the projection where it has none;
these become what they were when read back.

A CNN is <ConvolutionalComponent>, <MaxPoolingComponent> and activations, then as a DNN. The format has convolution over frequency alone:
the filters of the first layer are to see all frames. Batch normalisation goes out as <Rescale> <AddShift>, and does not come back.

A DNN is <AffineTransform> and <Sigmoid>, <Tanh> or <ParametricRelu> (slope 1 above zero, 0 below) by turns, with <Dropout> behind each of
these where there is dropout, and a bottleneck as <LinearTransform>; then <Softmax>, unless it was trained on target features. Its feature
transform is <Splice> <AddShift> <Rescale>, with shift = -mean and scale = 1 / standard deviation.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch

from pykaldist.errors import UserError
from pykaldist.nnet.cnn import CnnOptions
from pykaldist.nnet.components import ACTIVATIONS, Affine, Component, Dropout, Linear
from pykaldist.nnet.convolution import BatchNorm, Convolution, MaxPooling
from pykaldist.nnet.dnn import DnnOptions
from pykaldist.nnet.kinds import make_nnet
from pykaldist.nnet.lstm import BlstmOptions, LstmOptions, RecurrentOptions
from pykaldist.nnet.network import FeatureTransform, Network
from pykaldist.nnet.nnet1 import LAYOUTS, Nnet1, Nnet1Component
from pykaldist.nnet.recurrent import Blstm, Lstm

ACTIVATION_MARKERS = {"sigmoid": "Sigmoid", "tanh": "Tanh", "relu": "ParametricRelu"}
MARKERS: dict[type[Component], str] = {ACTIVATIONS[name]: marker for name, marker in ACTIVATION_MARKERS.items()}
# Exactly these, no class derived from them.
WRITTEN: tuple[type, ...] = (Affine, Linear, Dropout, Lstm, Blstm, Convolution, MaxPooling, BatchNorm, *MARKERS)
RECURRENT_MARKERS: dict[str, type[RecurrentOptions]] = {"LstmProjected": LstmOptions, "BlstmProjected": BlstmOptions}


def to_component(marker: str, output_dim: int, input_dim: int, **arrays: np.ndarray) -> Nnet1Component:
    """Make a component of the format with its options at their defaults."""
    return Nnet1Component(marker, output_dim, input_dim, dict(LAYOUTS[marker].options), arrays)


def unrepresentable(network: Network) -> str:
    """A sentence that says what the network has that the format has not; empty where there is nothing."""
    components = network.model.components
    if any(c.time != c.shape[0] for c in components if isinstance(c, Convolution)):
        return ("the network has convolution over time, which nnet1's files do not have; train with filters of all frames (--conv "
                "0x8x64/3).")
    unknown = [type(c).__name__ for c in components if type(c) not in WRITTEN]
    if unknown:
        return (f"the network has a {unknown[0]}, which nnet1's files do not have; what can be written: "
                f"{', '.join(c.__name__ for c in WRITTEN)}.")
    return ""


def to_nnet1(network: Network) -> tuple[Nnet1, Nnet1]:
    """Convert a network to (final.nnet, final.feature_transform); raises UserError where the format lacks one of its components."""
    lacking = unrepresentable(network)
    if lacking:
        raise UserError(lacking)
    components = []
    for component in network.model.components:
        dim = component.output_dim
        if isinstance(component, Affine):
            made = to_component("AffineTransform", dim, component.input_dim, linearity=component.weight.cpu().numpy(),
                              bias=component.bias.cpu().numpy())
            made.options.update(LearnRateCoef=component.map.learn_rate_coef, BiasLearnRateCoef=component.map.bias_learn_rate_coef)
        elif isinstance(component, Linear):
            made = to_component("LinearTransform", dim, component.input_dim, linearity=component.weight.cpu().numpy())
            made.options.update(LearnRateCoef=component.map.learn_rate_coef)
        elif isinstance(component, Dropout):
            made = to_component("Dropout", dim, dim)
            made.options.update(DropoutRate=component.rate)
        elif isinstance(component, (Lstm, Blstm)):
            made = _from_recurrent(component)
        elif isinstance(component, Convolution):
            made = _from_convolution(component)
        elif isinstance(component, MaxPooling):
            bands, maps = component.output_shape[1] * component.size, component.shape[2]
            if bands < component.shape[1]:
                kept = to_component("Copy", bands * maps, component.input_dim, copy_from_indices=np.arange(bands * maps, dtype=np.int32))
                components.append(kept)
            made = to_component("MaxPoolingComponent", dim, bands * maps)
            made.options.update(PoolSize=component.size, PoolStep=component.size, PoolStride=maps)
        elif isinstance(component, BatchNorm):
            scale, shift = component.in_use()
            components.append(to_component("Rescale", dim, dim, scale=scale.cpu().repeat(component.places).numpy()))
            made = to_component("AddShift", dim, dim, shift=shift.cpu().repeat(component.places).numpy())
        else:
            marker = MARKERS[type(component)]
            slopes = {"alpha": np.ones(dim, np.float32), "beta": np.zeros(dim, np.float32)} if marker == "ParametricRelu" else {}
            made = to_component(marker, dim, dim, **slopes)
        components.append(made)
    if network.counts is not None:
        components.append(to_component("Softmax", network.model.output_dim, network.model.output_dim))
    return Nnet1(components), to_feature_transform(network.transform)


def _from_convolution(component: Convolution) -> Nnet1Component:
    """Convert a convolution. Inside, where channels are neighbours, a patch is so many bands of all channels in one piece."""
    filters, (_, width, channels) = component.weight, component.shape
    if not component.outer:
        filters = filters.view(-1, channels, component.bands).transpose(1, 2).reshape(len(filters), -1)
    unit = 1 if component.outer else channels
    made = to_component("ConvolutionalComponent", component.output_dim, component.input_dim, Filters=filters.cpu().numpy(),
                        Bias=component.bias.cpu().numpy())
    made.options.update(PatchDim=component.bands * unit, PatchStep=unit, PatchStride=width * unit,
                        LearnRateCoef=component.map.learn_rate_coef, BiasLearnRateCoef=component.map.bias_learn_rate_coef)
    return made


def _from_recurrent(component: Lstm | Blstm) -> Nnet1Component:
    shape, blstm = component.shape, isinstance(component, Blstm)
    arrays: dict[str, np.ndarray] = {}
    for prefix, direction in zip(("f_", "b_") if blstm else ("",), component.directions, strict=True):
        peepholes = direction.peepholes or [torch.zeros(shape.cell_dim)] * 3
        projection = torch.eye(shape.cell_dim) if direction.w_p is None else direction.w_p
        parts = {"w_gifo_x": direction.w_x, "w_gifo_r": direction.w_r, "bias": direction.bias, "peephole_i_c": peepholes[0],
                 "peephole_f_c": peepholes[1], "peephole_o_c": peepholes[2], "w_r_m": projection}
        arrays |= {prefix + name: part.cpu().contiguous().numpy() for name, part in parts.items()}
    made = to_component("BlstmProjected" if blstm else "LstmProjected", component.output_dim, component.input_dim, **arrays)
    gates = component.maps[0]
    made.options.update(CellDim=shape.cell_dim, LearnRateCoef=gates.learn_rate_coef, BiasLearnRateCoef=gates.bias_learn_rate_coef,
                        CellClip=shape.cell_clip, DiffClip=shape.diff_clip, GradClip=0.0)
    return made


def to_feature_transform(transform: FeatureTransform) -> Nnet1:
    """Convert a feature transform to final.feature_transform."""
    spliced = len(transform.shift)
    components = [to_component("Splice", spliced, spliced // len(transform.splice), frame_offsets=np.array(transform.splice, np.int32)),
                  to_component("AddShift", spliced, spliced, shift=-transform.shift.numpy()),
                  to_component("Rescale", spliced, spliced, scale=transform.scale.numpy())]
    for fixed in components[1:]:
        fixed.options["LearnRateCoef"] = 0.0
    return Nnet1(components)


def from_feature_transform(nnet: Nnet1) -> FeatureTransform:
    """Convert a final.feature_transform: <Splice>, or none, then <AddShift> and <Rescale> in any order and number.

    Raises UserError where it has other components.
    """
    components, dim = nnet.components, nnet.output_dim
    splice = [0]
    if components[0].marker == "Splice":
        splice, components = components[0].arrays["frame_offsets"].tolist(), components[1:]
    if any(c.marker not in ("AddShift", "Rescale") for c in components):
        raise UserError(f"the feature transform is {_markers(nnet.components)}; expected <Splice> <AddShift> <Rescale>.")
    if [c.marker for c in components] == ["AddShift", "Rescale"]:
        return FeatureTransform(splice, torch.from_numpy(-components[0].arrays["shift"]), torch.from_numpy(components[1].arrays["scale"]))
    scale, offset = np.ones(dim), np.zeros(dim)  # of x scale + offset
    for c in components:
        if c.marker == "AddShift":
            offset += c.arrays["shift"]
        else:
            scale, offset = scale * c.arrays["scale"], offset * c.arrays["scale"]
    if not scale.all():
        raise UserError("the feature transform has <Rescale> by 0; leave such features out.")
    return FeatureTransform(splice, torch.from_numpy(-(offset / scale)).float(), torch.from_numpy(scale).float())


def read_feature_transform(path: str | os.PathLike[str]) -> FeatureTransform:
    """Read a final.feature_transform; raises UserError, naming the file, where it has other components than pykaldist trains behind."""
    nnet = Nnet1.read(path)
    try:
        return from_feature_transform(nnet)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def from_nnet1(nnet: Nnet1, transform: Nnet1, counts: np.ndarray | None) -> Network:
    """Make a network from nnet1 files, `counts` None where its outputs are no pdfs.

    Raises UserError for networks of other shapes than pykaldist trains.
    """
    splice = len(from_feature_transform(transform).splice)
    options, components = options_of(nnet, splice)
    model = make_nnet(options, nnet.input_dim, nnet.output_dim, splice)
    for ours, theirs in zip(model.components, components, strict=True):
        if isinstance(ours, Convolution):
            filters = torch.from_numpy(theirs.arrays["Filters"])
            if not ours.outer:
                filters = filters.view(len(filters), ours.bands, -1).transpose(1, 2).reshape(len(filters), -1)
            ours.weight.copy_(filters)
            ours.bias.copy_(torch.from_numpy(theirs.arrays["Bias"]))
        if isinstance(ours, (Lstm, Blstm)):
            _to_recurrent(ours, theirs)
        elif isinstance(ours, (Affine, Linear)):
            ours.weight.copy_(torch.from_numpy(theirs.arrays["linearity"]))
        if isinstance(ours, Affine):
            ours.bias.copy_(torch.from_numpy(theirs.arrays["bias"]))
    if counts is not None and len(counts) != nnet.output_dim:
        raise UserError(f"the class counts have {len(counts)} pdfs, the network {nnet.output_dim}.")
    return Network(options, model, from_feature_transform(transform), None if counts is None else torch.from_numpy(counts))


def options_of(nnet: Nnet1, splice: int) -> tuple[Any, list[Nnet1Component]]:
    """The options of the network in a file whose inputs are so many frames, and its components that have their likes in ours.

    Raises UserError for networks of other shapes than pykaldist trains.
    """
    components = nnet.components[:-1] if nnet.components[-1].marker == "Softmax" else nnet.components
    if components[0].marker in RECURRENT_MARKERS:
        return _recurrent_options(components), components
    if components[0].marker == "ConvolutionalComponent":
        components = [c for c in components if c.marker != "Copy"]
        return _cnn_options(components, splice), components
    return _options(components), components


def _to_recurrent(ours: Lstm | Blstm, theirs: Nnet1Component) -> None:
    for prefix, direction in zip(("f_", "b_") if isinstance(ours, Blstm) else ("",), ours.directions, strict=True):
        parts = {"w_gifo_x": direction.w_x, "w_gifo_r": direction.w_r, "bias": direction.bias, "w_r_m": direction.w_p,
                 **dict(zip(("peephole_i_c", "peephole_f_c", "peephole_o_c"), direction.peepholes, strict=False))}
        for name, part in parts.items():
            if part is not None:
                part.copy_(torch.from_numpy(theirs.arrays[prefix + name]))


def _cnn_options(components: list[Nnet1Component], splice: int) -> CnnOptions:
    """The options of a CNN from its components, the softmax left out, and the bands that are not pooled."""
    last = max(i for i, c in enumerate(components) if c.marker == "ConvolutionalComponent")
    behind = next(i for i, c in enumerate(components) if i > last and c.marker in ACTIVATION_MARKERS.values()) + 1
    layers, expected, unit = [], [], 1
    for i, c in enumerate(components[:behind]):
        if c.marker != "ConvolutionalComponent":
            continue
        pool = components[i + 1] if components[i + 1].marker == "MaxPoolingComponent" else None
        size, filters = int(pool.options["PoolSize"]) if pool else 1, len(c.arrays["Bias"])
        sound = int(c.options["PatchStep"]) == unit and (pool is None or int(pool.options["PoolStep"]) == size)
        sound = sound and (unit == 1 or int(c.options["PatchStride"]) == c.input_dim)
        sound = sound and (pool is None or pool.options["PoolStride"] == filters)
        if not sound:
            raise UserError("the network has patches or pools that are not next to each other, which are not trained here.")
        layers.append(f"0x{int(c.options['PatchDim']) // unit}x{filters}" + f"/{size}" * (size > 1))
        expected += [c.marker, *["MaxPoolingComponent"] * (size > 1), components[behind - 1].marker]
        unit = filters
    if [c.marker for c in components[:behind]] != expected:
        raise UserError(f"the network is {_markers(components)}; expected convolution, pooling and one kind of activation by turns, then "
                        "affine transforms.")
    stride = int(components[0].options["PatchStride"])
    rest = _options(components[behind:])
    kind = {marker: name for name, marker in ACTIVATION_MARKERS.items()}[components[behind - 1].marker]
    if rest.bottleneck_dim or rest.activation not in (kind, "sigmoid" if not rest.hid_layers else kind) \
            or components[0].input_dim % (stride * splice):
        raise UserError(f"the network is {_markers(components)} of {splice} spliced frames, which is not trained here.")
    return CnnOptions(conv=",".join(layers), channels=components[0].input_dim // (stride * splice), hid_layers=rest.hid_layers,
                      hid_dim=rest.hid_dim, activation=kind, dropout=rest.dropout)


def _recurrent_options(components: list[Nnet1Component]) -> RecurrentOptions:
    """The options of a recurrent network from its components, the softmax left out."""
    marker = components[0].marker
    layers = [c for c in components if c.marker == marker]
    dropout = [float(c.options["DropoutRate"]) for c in components if c.marker == "Dropout"]
    linear = [c.output_dim for c in components if c.marker == "LinearTransform"]
    expected = [marker, *["Dropout"] * bool(dropout)] * len(layers) + ["LinearTransform"] * bool(linear) + ["AffineTransform"]
    shapes = {(c.output_dim, *(c.options[name] for name in ("CellDim", "CellClip", "DiffClip"))) for c in layers}
    if [c.marker for c in components] != expected or len(shapes) > 1 or len(set(dropout)) > 1:
        raise UserError(f"the network is {_markers(components)}; expected layers of one kind and size, dropout of one rate behind each, at "
                        "most one linear transform, and an affine one.")
    output_dim, cells, cell_clip, diff_clip = map(float, shapes.pop())
    directions = RECURRENT_MARKERS[marker].directions
    arrays = {name: [c.arrays[prefix + name] for c in layers for prefix in (("f_", "b_") if directions == 2 else ("",))]
              for name in ("w_r_m", "peephole_i_c", "peephole_f_c", "peephole_o_c")}
    plain = all(m.shape[0] == m.shape[1] and np.array_equal(m, np.eye(len(m))) for m in arrays.pop("w_r_m"))
    return RECURRENT_MARKERS[marker](hid_layers=len(layers), hid_dim=directions * int(cells),
                                     projection_dim=0 if plain else int(output_dim),
                                     peepholes=any(part.any() for parts in arrays.values() for part in parts),
                                     cell_clip=cell_clip, diff_clip=diff_clip, dropout=dropout[0] if dropout else 0.0,
                                     bottleneck_dim=linear[0] if linear else 0)


def _markers(components: list[Nnet1Component]) -> str:
    return " ".join(f"<{c.marker}>" for c in components)


def _options(components: list[Nnet1Component]) -> DnnOptions:
    """The options of a DNN from its components, the softmax left out."""
    names = {marker: name for name, marker in ACTIVATION_MARKERS.items()}
    activations = [c for c in components if c.marker in names]
    affine = [c for c in components if c.marker == "AffineTransform"]
    linear = [i for i, c in enumerate(components) if c.marker == "LinearTransform"]
    dropout = [c.options["DropoutRate"] for c in components if c.marker == "Dropout"]
    kinds, dims = {c.marker for c in activations}, {c.output_dim for c in affine[:-1]}
    expected = []
    for c in affine[:-1]:
        expected += ["LinearTransform"] * bool(linear and c is affine[-2])
        expected += ["AffineTransform", *kinds, *["Dropout"] * bool(dropout)]
    if [c.marker for c in components] != [*expected, "AffineTransform"] or len(kinds) > 1 or len(dims) > 1 or len(set(dropout)) > 1:
        raise UserError(f"the network is {_markers(components)}; expected affine transforms of one width, sigmoid, tanh or ReLU between "
                        "them, dropout of one rate behind each, and at most one linear transform, before the last hidden layer.")
    if kinds == {"ParametricRelu"} and any((c.arrays["alpha"] != 1).any() or (c.arrays["beta"] != 0).any() for c in activations):
        raise UserError("the network has <ParametricRelu> slopes other than 1 and 0, which are not trained here.")
    biases = {float(c.options["BiasLearnRateCoef"]) / float(c.options["LearnRateCoef"] or 1) for c in affine}
    if len(biases) > 1:
        raise UserError("the network has rates of biases that are not in one ratio to those of their weights, which are not trained "
                        "here.")
    coefs = [float(c.options["LearnRateCoef"]) for c in components if "linearity" in c.arrays]
    return DnnOptions(len(activations), dims.pop() if dims else 1, names[kinds.pop()] if kinds else "sigmoid",
                      float(dropout[0]) if dropout else 0.0, components[linear[0]].output_dim if linear else 0,
                      "" if set(coefs) == {1.0} else ",".join(f"{c:.9g}" for c in coefs), biases.pop())
