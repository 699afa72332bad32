"""nnet1's prototypes of networks: a line a component, with its dimensions and how its parameters are drawn.

    <AffineTransform> <InputDim> 440 <OutputDim> 1024 <BiasMean> -2.0 <BiasRange> 4.0 <ParamStddev> 0.1
    <Sigmoid> <InputDim> 1024 <OutputDim> 1024

utils/nnet/make_nnet_proto.py prints them. Defaults are nnet1's. Source: nnet-initialize.
"""

from __future__ import annotations

import os
import re
from typing import Any

import numpy as np

from pykaldist.errors import UserError
from pykaldist.io.tables import read_lines
from pykaldist.nnet.nnet1 import LAYOUTS, Nnet1, Nnet1Component

DRAWN = {"AffineTransform": {"ParamStddev": 0.1, "BiasMean": -2.0, "BiasRange": 2.0}, "LinearTransform": {"ParamStddev": 0.1}}
PLAIN = ("Sigmoid", "Tanh", "Softmax", "Dropout", "ParametricRelu")
CURE = "make the prototype with utils/nnet/make_nnet_proto.py"
SLOPES = {"Alpha": 1.0, "Beta": 0.25}


def initialize(path: str | os.PathLike[str], generator: np.random.Generator) -> Nnet1:
    """Draw the network of a prototype.

    Raises UserError, naming the line, for a component that is not drawn here and for what does not fit.
    """
    components: list[Nnet1Component] = []
    for number, line in enumerate(read_lines(path), 1):
        if not line.split() or line.strip() in ("<NnetProto>", "</NnetProto>"):
            continue
        try:
            components.append(_component(line, generator))
            if len(components) > 1 and components[-2].output_dim != components[-1].input_dim:
                raise ValueError(f"it takes {components[-1].input_dim} inputs, the component before it has {components[-2].output_dim} "
                                 "outputs")
        except (ValueError, KeyError) as error:
            raise UserError(f"{path}, line {number}: {error.args[0]}; {CURE}.") from error
    if not components:
        raise UserError(f"{path} has no components; {CURE}.")
    return Nnet1(components)


def read_splice(path: str | os.PathLike[str]) -> list[int]:
    """The frame offsets of a prototype that has a <Splice> alone; raises UserError for another one."""
    nnet = initialize(path, np.random.default_rng(0))
    if [c.marker for c in nnet.components] != ["Splice"]:
        raise UserError(f"{path} is {' '.join(f'<{c.marker}>' for c in nnet.components)}; expected a <Splice> alone, behind which the "
                        "features are normalised.")
    offsets: list[int] = nnet.components[0].arrays["frame_offsets"].tolist()
    return offsets


def _component(line: str, generator: np.random.Generator) -> Nnet1Component:
    """Draw the component of one line."""
    vector = re.search(r"<BuildVector>(.*?)</BuildVector>", line)
    fields = re.sub(r"<BuildVector>.*?</BuildVector>", " ", line).split()
    marker = fields[0].strip("<>")
    if marker not in (*DRAWN, *PLAIN, "Splice"):
        raise ValueError(f"<{marker}> is not drawn here")
    if len(fields) % 2 == 0:
        raise ValueError(f"expected names and values by turns, found {line.strip()!r}")
    values = {name.strip("<>"): value for name, value in zip(fields[1::2], fields[2::2], strict=True)}
    sizes = {name: values.pop(name) for name in ("InputDim", "OutputDim") if name in values}
    if len(sizes) < 2 or not all(size.isdecimal() and int(size) for size in sizes.values()):
        raise ValueError(f"<{marker}> has no <InputDim> and <OutputDim> that are positive")
    into, out = (int(sizes[name]) for name in ("InputDim", "OutputDim"))
    component = Nnet1Component(marker, out, into, dict(LAYOUTS[marker].options))
    drawn: dict[str, Any] = {name: float(values.pop(name, default)) for name, default in DRAWN.get(marker, {}).items()}
    slopes = {name: float(values.pop(name, default)) for name, default in SLOPES.items()} if marker == "ParametricRelu" else {}
    for name, value in values.items():
        key = next((key for key in component.options if key.lower() == name.lower()), None)
        if key is None:
            raise ValueError(f"<{marker}> has no <{name}> here")
        component.options[key] = float(value)
    if "ParamStddev" in drawn:
        component.arrays["linearity"] = _normal((out, into), drawn["ParamStddev"], generator)
    if "BiasMean" in drawn:
        spread = generator.random(out, dtype=np.float32) - 0.5
        component.arrays["bias"] = (drawn["BiasMean"] + drawn["BiasRange"] * spread).astype(np.float32)
    if slopes:
        component.arrays |= {name.lower(): np.full(out, slope, np.float32) for name, slope in slopes.items()}
    if marker == "Splice":
        if vector is None:
            raise ValueError("<Splice> has no <BuildVector>")
        component.arrays["frame_offsets"] = np.array([i for field in vector[1].split() for i in _range(field)], np.int32)
    component.check()
    return component


def _normal(shape: tuple[int, int], stddev: float, generator: np.random.Generator) -> np.ndarray:
    return stddev * generator.standard_normal(shape, dtype=np.float32)


def _range(field: str) -> range:
    """The numbers of a field of <BuildVector>: `a`, `first:last` or `first:step:last`."""
    numbers = [int(part) for part in field.split(":")]
    if len(numbers) > 3 or (len(numbers) == 3 and not numbers[1]):
        raise ValueError(f"<BuildVector> has {field!r}; expected a number, first:last or first:step:last")
    first, last, step = numbers[0], numbers[-1], numbers[1] if len(numbers) == 3 else 1
    return range(first, last + (1 if step > 0 else -1), step)
