"""Networks in the format of Kaldi's nnet1, binary and text, read and written byte for byte.

A file is `<Nnet>`, components, `</Nnet>`. A component is its marker, output dimension, input dimension, then options (a token and a number
each, read in any order), then arrays, then `<!EndOfComponent>`, which older files lack. What each marker has is in `LAYOUTS`. Files put
behind each other (nnet-concat's way) read as one network. Source: src/nnet of Kaldi, whose names the arrays have.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO

import numpy as np

from pykaldist.errors import UserError
from pykaldist.io.atomic import atomic_open
from pykaldist.io.kaldi import KaldiReader, KaldiWriter

Shape = tuple[int, ...] | None  # None: any
MAX_DIM = 1 << 24


@dataclass(frozen=True)
class Layout:
    """The layout of a component in a file: options with their defaults, and arrays with their shapes.

    The shapes follow from the dimensions.
    """

    options: dict[str, float | int | str] = field(default_factory=dict)
    shapes: Callable[[int, int, dict[str, float | int | str]], dict[str, Shape]] = lambda out, into, options: {}
    named: bool = False  # each array stands behind a token of its own
    same_dims: bool = False  # output and input dimension are equal
    end_line: bool = True  # in text, arrays begin on a line of their own


RATES: dict[str, float | int | str] = {"LearnRateCoef": 1.0, "BiasLearnRateCoef": 1.0}


def _lstm(cells: int, into: int, projection: int, prefix: str = "") -> dict[str, Shape]:
    """The layout of one direction of an LSTM, whose gates are in the order g, i, f, o."""
    names = {"w_gifo_x": (4 * cells, into), "w_gifo_r": (4 * cells, projection), "bias": (4 * cells,), "peephole_i_c": (cells,),
             "peephole_f_c": (cells,), "peephole_o_c": (cells,), "w_r_m": (projection, cells)}
    return {prefix + name: shape for name, shape in names.items()}


def _convolution(out: int, into: int, options: dict[str, float | int | str]) -> dict[str, Shape]:
    dim, step, stride = (int(options[k]) for k in ("PatchDim", "PatchStep", "PatchStride"))
    if min(dim, step, stride) < 1 or into % stride or (stride - dim) % step or out % (patches := 1 + (stride - dim) // step):
        raise ValueError(f"patches of {dim}, step {step}, stride {stride} do not tile inputs of {into}")
    return {"Filters": (out // patches, into // stride * dim), "Bias": (out // patches,)}


LSTM_OPTIONS = {"CellDim": 0, **RATES, "CellClip": 50.0, "DiffClip": 1.0, "CellDiffClip": 0.0, "GradClip": 250.0}
POOLING = Layout({"PoolSize": 0, "PoolStep": 0, "PoolStride": 0}, end_line=False)

LAYOUTS: dict[str, Layout] = {
    "AffineTransform": Layout({**RATES, "MaxNorm": 0.0}, lambda out, into, o: {"linearity": (out, into), "bias": (out,)}),
    "LinearTransform": Layout({"LearnRateCoef": 1.0}, lambda out, into, o: {"linearity": (out, into)}),
    "Sigmoid": Layout(same_dims=True), "Tanh": Layout(same_dims=True), "Softmax": Layout(same_dims=True),
    "HiddenSoftmax": Layout(same_dims=True),
    "ParametricRelu": Layout({"BiasLearnRateCoef": 1.0, "LearnRateCoef": 1.0, "ClipGradient": 0.0},
                             lambda out, into, o: {"alpha": (out,), "beta": (out,)}, same_dims=True),
    "Dropout": Layout({"DropoutRate": 0.5}, same_dims=True, end_line=False),
    "Splice": Layout(shapes=lambda out, into, o: {"frame_offsets": (out // into,)}, end_line=False),
    "Copy": Layout(shapes=lambda out, into, o: {"copy_from_indices": (out,)}, end_line=False),
    "AddShift": Layout({"LearnRateCoef": 1.0}, lambda out, into, o: {"shift": (out,)}, same_dims=True, end_line=False),
    "Rescale": Layout({"LearnRateCoef": 1.0}, lambda out, into, o: {"scale": (out,)}, same_dims=True, end_line=False),
    "ConvolutionalComponent": Layout({"PatchDim": 0, "PatchStep": 0, "PatchStride": 0, **RATES, "MaxNorm": 0.0}, _convolution,
                                     named=True, end_line=False),
    "MaxPoolingComponent": POOLING,
    "AveragePoolingComponent": POOLING,
    "LstmProjected": Layout(LSTM_OPTIONS, lambda out, into, o: _lstm(int(o["CellDim"]), into, out)),
    "BlstmProjected": Layout(LSTM_OPTIONS, lambda out, into, o: {**_lstm(int(o["CellDim"]), into, out // 2, "f_"),
                                                                 **_lstm(int(o["CellDim"]), into, out // 2, "b_")}),
    "Rbm": Layout({"vis_type": "bern", "hid_type": "bern"},
                  lambda out, into, o: {"vis_hid": (out, into), "vis_bias": (into,), "hid_bias": (out,)}, end_line=False),
}
OLD_NAMES = {"LstmProjectedStreams": "LstmProjected", "BlstmProjectedStreams": "BlstmProjected", "ClipGradient": "GradClip"}
INTEGERS = {"frame_offsets", "copy_from_indices"}


@dataclass
class Nnet1Component:
    """A component of an nnet1 file: options by token (without brackets), arrays by Kaldi's member names."""

    marker: str
    output_dim: int
    input_dim: int
    options: dict[str, float | int | str] = field(default_factory=dict)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def num_params(self) -> int:
        if self.marker in ("Splice", "Copy", "AddShift", "Rescale"):
            return 0
        return sum(a.size for a in self.arrays.values())

    def check(self) -> None:
        """Raise ValueError where dimensions, options and arrays do not fit each other."""
        layout = LAYOUTS[self.marker]
        if layout.same_dims and self.output_dim != self.input_dim:
            raise ValueError(f"<{self.marker}> has output dimension {self.output_dim}, input dimension {self.input_dim}")
        for name, shape in layout.shapes(self.output_dim, self.input_dim, self.options).items():
            found = self.arrays[name].shape
            if shape is not None and found != shape:
                raise ValueError(f"<{self.marker}> has {name} of {found}, expected {shape}")

    @classmethod
    def read(cls, reader: KaldiReader, marker: str) -> Nnet1Component:
        name = marker.strip("<>")
        name = OLD_NAMES.get(name, name)
        if name not in LAYOUTS or not marker.startswith("<"):
            raise reader.error(f"expected a component, found {marker!r}")
        layout = LAYOUTS[name]
        dims = [reader.integer(), reader.integer()]
        if not all(0 < d <= MAX_DIM for d in dims):
            raise reader.error(f"expected the dimensions of <{name}>, found {dims[0]} and {dims[1]}")
        component = cls(name, dims[0], dims[1], dict(layout.options))
        if name == "Rbm":
            component._read_unit_types(reader)
        else:
            component._read_options(reader)
        try:
            shapes = layout.shapes(component.output_dim, component.input_dim, component.options)
            for array in shapes:
                component.arrays[array] = component._read_array(reader, array, layout.named)
            component.check()
        except ValueError as error:
            raise reader.error(str(error)) from error
        return component

    def _read_options(self, reader: KaldiReader) -> None:
        names = {a.lower(): a for a in self.options}
        while not reader.at_end() and reader.peek_token().startswith("<"):
            token = reader.peek_token().strip("<>")
            token = OLD_NAMES.get(token, token) if token not in self.options else token
            if token.lower() not in names:
                return  # the next component, the end, or an array's name
            reader.token()
            key = names[token.lower()]
            self.options[key] = reader.integer() if isinstance(self.options[key], int) else reader.floating()

    def _read_unit_types(self, reader: KaldiReader) -> None:
        for key in self.options:
            self.options[key] = kind = reader.token()
            if kind not in ("bern", "gauss"):
                raise reader.error(f"expected the units of an RBM, bern or gauss, found {kind!r}")

    def _read_array(self, reader: KaldiReader, name: str, named: bool) -> np.ndarray:
        if named:
            reader.expect(f"<{name}>")
        if name in INTEGERS:
            return reader.int_vector()
        shapes = LAYOUTS[self.marker].shapes(self.output_dim, self.input_dim, self.options)
        return reader.matrix() if len(shapes[name] or ()) == 2 else reader.vector()

    def write(self, writer: KaldiWriter) -> None:
        layout = LAYOUTS[self.marker]
        self.check()
        writer.token(f"<{self.marker}>")
        writer.integer(self.output_dim)
        writer.integer(self.input_dim)
        writer.end_line()
        for key, default in layout.options.items():
            value = self.options[key]
            if isinstance(default, str):
                writer.token(str(value))
                continue
            writer.token(f"<{key}>")
            if isinstance(default, int):
                writer.integer(int(value))
            else:
                writer.floating(float(value))
        if layout.end_line and layout.options:
            writer.end_line()
        for name, shape in layout.shapes(self.output_dim, self.input_dim, self.options).items():
            if layout.named:
                writer.token(f"<{name}>")
            array = self.arrays[name]
            if name in INTEGERS:
                writer.int_vector(array)
            elif len(shape or ()) == 2:
                writer.matrix(array)
            else:
                writer.vector(array)
        writer.token("<!EndOfComponent>")
        writer.end_line()


@dataclass
class Nnet1:
    """An nnet1 network: a list of components. `read` raises UserError where the file is damaged or its dimensions do not fit."""

    components: list[Nnet1Component]

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Nnet1:
        return cls.parse(KaldiReader.open(path), str(path))

    @classmethod
    def parse(cls, reader: KaldiReader, path: str) -> Nnet1:
        """Read the network that a reader stands at; `path` is its name in messages."""
        components: list[Nnet1Component] = []
        inside = False
        while not reader.at_end():
            token = reader.token()
            if token == "<Nnet>":
                inside = True
            elif token == "</Nnet>":
                inside = False
            elif token == "\0B<Nnet>":  # files put behind each other
                inside = True
            elif inside and token != "<!EndOfComponent>":
                component = Nnet1Component.read(reader, token)
                if components and components[-1].output_dim != component.input_dim:
                    raise reader.error(f"<{component.marker}> takes {component.input_dim} inputs, the component before it has "
                                       f"{components[-1].output_dim} outputs")
                components.append(component)
            elif not inside:
                raise reader.error(f"expected <Nnet>, found {token!r}")
        if inside:
            raise reader.error("expected </Nnet>, found the end of the file")
        if not components:
            raise UserError(f"{path} has no components; it is no nnet1 network.")
        return cls(components)

    def write(self, path: str | os.PathLike[str], binary: bool = True) -> None:
        with atomic_open(path, "wb") as stream:
            self.write_to(stream, binary)

    def write_to(self, stream: IO[bytes], binary: bool = True) -> None:
        """Write the network to a stream."""
        writer = KaldiWriter(stream, binary)
        writer.token("<Nnet>")
        writer.end_line()
        for component in self.components:
            component.write(writer)
        writer.token("</Nnet>")
        writer.end_line()

    @property
    def input_dim(self) -> int:
        return self.components[0].input_dim

    @property
    def output_dim(self) -> int:
        return self.components[-1].output_dim
