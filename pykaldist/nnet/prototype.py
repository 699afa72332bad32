"""Networks made of a prototype: a line of text a component, with its dimensions and how its parameters are drawn (nnet-initialize).

    <AffineTransform> <InputDim> 440 <OutputDim> 1024 <BiasMean> -2.0 <BiasRange> 4.0 <ParamStddev> 0.037
    <Splice> <InputDim> 40 <OutputDim> 440 <BuildVector> -5:5 </BuildVector>
    <Rbm> <InputDim> 1024 <OutputDim> 1024 <VisibleType> bern <HiddenType> bern <ParamStddev> 0.1 <VisibleBiasCmvnFilename> 1.cmvn

Weights of affine and convolutional layers are Gaussian, biases uniform around their mean; those of LSTMs are uniform. An RBM's visible
biases give Bernoulli units the mean that is in a network of cmvn-to-nnet, where one is named. Names and defaults are Kaldi's (src/nnet,
InitData of each component).
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from pykaldist.errors import UserError
from pykaldist.nnet.nnet1 import LAYOUTS, Nnet1, Nnet1Component

#: what a line may say beside a component's options, with its default
_DRAWN = {
    "AffineTransform": {"ParamStddev": 0.1, "BiasMean": -2.0, "BiasRange": 2.0},
    "ConvolutionalComponent": {"ParamStddev": 0.1, "BiasMean": -2.0, "BiasRange": 2.0},
    "LinearTransform": {"ParamStddev": 0.1},
    "LstmProjected": {"ParamRange": 0.1}, "BlstmProjected": {"ParamRange": 0.1},
    "AddShift": {"InitParam": 0.0}, "Rescale": {"InitParam": 0.0},
    "ParametricRelu": {"Alpha": 1.0, "Beta": 0.0},
    "Rbm": {"ParamStddev": 0.1, "VisibleBiasMean": 0.0, "VisibleBiasRange": 0.0, "HiddenBiasMean": 0.0, "HiddenBiasRange": 0.0},
}
_UNITS = {"VisibleType": "vis_type", "HiddenType": "hid_type"}
_MEAN_FLOOR = 1e-4  # of Bernoulli units, from here to one minus this
_BIASES = ("bias", "Bias")


def build_vector(words: list[str]) -> np.ndarray:
    """Expand lists such as `-10 -5:5 1:2:9` (first, step, last) to integers.

    Raises ValueError for others.
    """
    values: list[int] = []
    for word in words:
        parts = [int(part) for part in word.split(":")]
        if len(parts) > 3:
            raise ValueError(f"expected first:last or first:step:last, found {word!r}")
        step = parts[1] if len(parts) == 3 else 1
        values += range(parts[0], parts[-1] + (1 if step > 0 else -1), step)
    return np.array(values, np.int32)


def from_prototype(text: str, name: str, rng: np.random.Generator) -> Nnet1:
    """Make the network of a prototype, its parameters drawn from `rng`; raises UserError, naming `name` and the line."""
    components: list[Nnet1Component] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0] in ("<NnetProto>", "</NnetProto>"):
            continue
        try:
            component = _component(words, rng)
            component.check()
            if components and components[-1].output_dim != component.input_dim:
                raise ValueError(f"<{component.marker}> takes {component.input_dim} inputs, the component before it has "
                                 f"{components[-1].output_dim} outputs")
        except (ValueError, IndexError, KeyError) as error:
            raise UserError(f"{name}, line {number}: {error}.") from error
        components.append(component)
    if not components:
        raise UserError(f"{name} has no components; expected lines such as <AffineTransform> <InputDim> 440 <OutputDim> 1024.")
    return Nnet1(components)


def read_prototype(path: str | os.PathLike[str], rng: np.random.Generator) -> Nnet1:
    """Make the network of a prototype's file; raises UserError, naming file and line."""
    return from_prototype(Path(path).read_text(encoding="utf-8"), str(path), rng)


def read_splice(path: str | os.PathLike[str]) -> list[int]:
    """The frame offsets of a prototype that has a <Splice> alone; raises UserError for another one."""
    nnet = read_prototype(path, np.random.default_rng(0))
    if [c.marker for c in nnet.components] != ["Splice"]:
        raise UserError(f"{path} is {' '.join(f'<{c.marker}>' for c in nnet.components)}; expected a <Splice> alone, behind which the "
                        "features are normalised.")
    offsets: list[int] = nnet.components[0].arrays["frame_offsets"].tolist()
    return offsets


def _component(words: list[str], rng: np.random.Generator) -> Nnet1Component:
    marker = words[0].strip("<>")
    if marker not in LAYOUTS:
        raise ValueError(f"there is no component {words[0]} here")
    if words[1] != "<InputDim>" or words[3] != "<OutputDim>":
        raise ValueError(f"expected {words[0]} <InputDim> number <OutputDim> number")
    component = Nnet1Component(marker, int(words[4]), int(words[2]), dict(LAYOUTS[marker].options))
    drawn = dict(_DRAWN.get(marker, {}))
    vector: np.ndarray | None = None
    means = ""
    rest = words[5:]
    while rest:
        token = rest.pop(0).strip("<>")
        if token == "BuildVector":
            end = rest.index("</BuildVector>")
            vector, rest = build_vector(rest[:end]), rest[end + 1 :]
        elif token == "ReadVector":
            end = rest.index("]")
            vector, rest = np.array(rest[1:end], np.int32), rest[end + 1 :]
        elif token in drawn:
            drawn[token] = float(rest.pop(0))
        elif marker == "Rbm" and token in _UNITS:
            component.options[_UNITS[token]] = _units(rest.pop(0))
        elif marker == "Rbm" and token == "VisibleBiasCmvnFilename":
            means = rest.pop(0)
        elif token in component.options:
            component.options[token] = type(LAYOUTS[marker].options[token])(rest.pop(0))
        else:
            raise ValueError(f"<{marker}> has no <{token}>; it has {', '.join(f'<{known}>' for known in (*drawn, *component.options))}")
    for array, shape in LAYOUTS[marker].shapes(component.output_dim, component.input_dim, component.options).items():
        component.arrays[array] = _values(marker, array, shape or (), drawn, vector, rng)
    if means:
        component.arrays["vis_bias"] = _logit_of_means(means)
    return component


def _units(kind: str) -> str:
    if kind not in ("bern", "gauss"):
        raise ValueError(f"the units of an RBM are bern or gauss, found {kind!r}")
    return kind


def _logit_of_means(path: str) -> np.ndarray:
    """The biases with which Bernoulli units have the means whose negatives are the <AddShift> of a network."""
    first = Nnet1.read(path).components[0]
    if first.marker != "AddShift":
        raise ValueError(f"{path} begins with <{first.marker}>, expected <AddShift>; make it with cmvn-to-nnet")
    means = np.clip(-first.arrays["shift"].astype(np.float64), _MEAN_FLOOR, 1 - _MEAN_FLOOR)
    return np.log(means / (1 - means)).astype(np.float32)


def _values(marker: str, array: str, shape: tuple[int, ...], drawn: dict[str, float], vector: np.ndarray | None,
            rng: np.random.Generator) -> np.ndarray:
    if array in ("frame_offsets", "copy_from_indices"):
        if vector is None:
            raise ValueError(f"<{marker}> needs <BuildVector> ... </BuildVector>")
        return vector if array == "frame_offsets" else vector - 1
    if marker in ("LstmProjected", "BlstmProjected"):
        values = rng.uniform(-drawn["ParamRange"], drawn["ParamRange"], shape)
    elif marker in ("AddShift", "Rescale"):
        values = np.full(shape, drawn["InitParam"])
    elif marker == "ParametricRelu":
        values = np.full(shape, drawn["Alpha" if array == "alpha" else "Beta"])
    elif array in ("vis_bias", "hid_bias"):
        kind = "Visible" if array == "vis_bias" else "Hidden"
        values = drawn[f"{kind}BiasMean"] + drawn[f"{kind}BiasRange"] * (rng.random(shape) - 0.5)
    elif array in _BIASES:
        values = drawn["BiasMean"] + drawn["BiasRange"] * (rng.random(shape) - 0.5)
    else:
        values = drawn["ParamStddev"] * rng.standard_normal(shape)
    return values.astype(np.float32)
