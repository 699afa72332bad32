"""Components of nnet3 networks as they stand in a file: what each type has, read and written in Kaldi's order.

A component is `<Type>`, fields (a token and its value each), `</Type>`. `LAYOUTS` has the fields of each type. Fields are read in any
order; those marked `?` may be missing, as Kaldi leaves them out where they say nothing. Source: src/nnet3 of Kaldi 5.5.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import numpy as np

from pykaldist.io.kaldi import KaldiReader, KaldiWriter

Value = int | float | bool | list[int] | list[float] | np.ndarray

UPDATABLE = "LearningRateFactor:float? IsGradient:bool? MaxChange:float? L2Regularize:float? LearningRate:float "
NONLINEAR = ("Dim:int BlockDim:int? ValueAvg:vector DerivAvg:vector Count:double OderivRms:vector? OderivCount:double? "
             "NumDimsSelfRepaired:double? NumDimsProcessed:double? SelfRepairLowerThreshold:float? SelfRepairUpperThreshold:float? "
             "SelfRepairScale:float?")
AFFINE = UPDATABLE + "LinearParams:matrix BiasParams:vector "
TYPES = {
    "FixedAffineComponent": "LinearParams:matrix BiasParams:vector",
    "FixedBiasComponent": "Bias:vector",
    "AffineComponent": AFFINE + "OrthonormalConstraint:float?",
    "NaturalGradientAffineComponent": AFFINE + "RankIn:int RankOut:int OrthonormalConstraint:float? UpdatePeriod:int "
                                               "NumSamplesHistory:float Alpha:float",
    "LinearComponent": UPDATABLE + "Params:matrix OrthonormalConstraint:float? UseNaturalGradient:bool RankInOut:ints2 Alpha:float "
                                   "NumSamplesHistory:float UpdatePeriod:int",
    "TdnnComponent": UPDATABLE + "TimeOffsets:ints LinearParams:matrix BiasParams:vector OrthonormalConstraint:float "
                                 "UseNaturalGradient:bool NumSamplesHistory:float AlphaInOut:floats2 RankInOut:ints2",
    "RectifiedLinearComponent": NONLINEAR,
    "LogSoftmaxComponent": NONLINEAR,
    "BatchNormComponent": "Dim:int BlockDim:int Epsilon:float TargetRms:float TestMode:bool Count:double StatsMean:vector StatsVar:vector",
    "GeneralDropoutComponent": "Dim:int BlockDim:int TimePeriod:int DropoutProportion:float SpecAugmentMaxProportion:float? "
                               "SpecAugmentMaxRegions:int? TestMode:flag? Continuous:flag?",
    "NoOpComponent": "Dim:int BackpropScale:float",
}
LAYOUTS: dict[str, dict[str, str]] = {name: dict(cast(tuple[str, str], tuple(f.split(":"))) for f in fields.split())
                                      for name, fields in TYPES.items()}
OF_ONE_DIM = {"RectifiedLinearComponent", "LogSoftmaxComponent", "BatchNormComponent", "GeneralDropoutComponent", "NoOpComponent"}


@dataclass
class Nnet3Component:
    """A component: its name, its type, and the values of its fields by their tokens (without brackets)."""

    name: str
    type: str
    values: dict[str, Value] = field(default_factory=dict)

    def array(self, token: str) -> np.ndarray:
        return cast(np.ndarray, self.values[token])

    def number(self, token: str) -> float:
        return cast(float, self.values[token])

    @property
    def linear(self) -> np.ndarray:
        """The matrix of a component that multiplies by one."""
        return self.array("Params" if self.type == "LinearComponent" else "LinearParams")

    @property
    def time_offsets(self) -> list[int]:
        """The frames, counted from that of the output, whose inputs the component takes."""
        return cast("list[int]", self.values["TimeOffsets"]) if self.type == "TdnnComponent" else [0]

    @property
    def input_dim(self) -> int:
        if self.type in OF_ONE_DIM:
            return int(self.number("Dim"))
        if self.type == "FixedBiasComponent":
            return len(self.array("Bias"))
        return self.linear.shape[1] // len(self.time_offsets)

    @property
    def output_dim(self) -> int:
        return self.input_dim if self.type in OF_ONE_DIM or self.type == "FixedBiasComponent" else self.linear.shape[0]

    @property
    def num_params(self) -> int:
        """The number of its parameters that training changes."""
        if "LearningRate" not in LAYOUTS[self.type]:
            return 0
        return self.linear.size + (len(self.array("BiasParams")) if "BiasParams" in self.values else 0)

    def check(self) -> None:
        """Raise ValueError where fields are missing or do not fit each other."""
        missing = [f"<{token}>" for token, kind in LAYOUTS[self.type].items() if not kind.endswith("?") and token not in self.values]
        if missing:
            raise ValueError(f"{self.type} {self.name} has no {' '.join(missing)}")
        if self.type == "TdnnComponent" and not (self.time_offsets and self.linear.shape[1] % len(self.time_offsets) == 0):
            raise ValueError(f"{self.type} {self.name} has {self.linear.shape[1]} columns for {len(self.time_offsets)} time offsets")
        if min(self.input_dim, self.output_dim) < 1:
            raise ValueError(f"{self.type} {self.name} has input dimension {self.input_dim}, output dimension {self.output_dim}")
        dim = self.output_dim
        lengths = {"BiasParams": [0, dim] if self.type == "TdnnComponent" else [dim],
                   **{token: [0, dim] for token in ("ValueAvg", "DerivAvg", "OderivRms")}}
        if self.type == "BatchNormComponent":
            block = int(self.number("BlockDim"))
            if block < 1 or dim % block:
                raise ValueError(f"{self.type} {self.name} has blocks of {block} in {dim} dimensions")
            lengths.update({token: [block] if self.number("Count") > 0 else [0, block] for token in ("StatsMean", "StatsVar")})
        for token, allowed in lengths.items():
            found = len(self.array(token)) if token in self.values else allowed[-1]
            if found not in allowed:
                raise ValueError(f"{self.type} {self.name} has <{token}> of {found}, expected {allowed[-1]}")

    @classmethod
    def read(cls, reader: KaldiReader) -> Nnet3Component:
        """Read `<ComponentName> name <Type> ... </Type>`; raises UserError that names a type which is not known."""
        reader.expect("<ComponentName>")
        name, marker = reader.token(), reader.token()
        type_ = marker.strip("<>")
        if marker != f"<{type_}>" or type_ not in LAYOUTS:
            raise reader.error(f"component {name} is of the type {marker}, which is not known here; known are {', '.join(LAYOUTS)}")
        component, layout = cls(name, type_), LAYOUTS[type_]
        while (token := reader.token()) != f"</{type_}>":
            key = token.strip("<>")
            if token != f"<{key}>" or key not in layout or key in component.values:
                raise reader.error(f"component {name}: expected a field of <{type_}>, found {token!r}")
            component.values[key] = _read(reader, layout[key].rstrip("?"))
        try:
            component.check()
        except ValueError as error:
            raise reader.error(str(error)) from error
        for token, value in component.values.items():
            if isinstance(value, np.ndarray | float) and not np.isfinite(value).all():
                raise reader.error(f"component {name} has values in <{token}> that are not finite")
        return component

    def write(self, writer: KaldiWriter) -> None:
        """Write what `read` reads, in Kaldi's order."""
        self.check()
        writer.token("<ComponentName>", self.name, f"<{self.type}>")
        for key, kind in LAYOUTS[self.type].items():
            if key in self.values:
                writer.token(f"<{key}>")
                _write(writer, kind.rstrip("?"), self.values[key])
        writer.token(f"</{self.type}>")
        writer.end_line()


def _read(reader: KaldiReader, kind: str) -> Value:
    match kind:
        case "int":
            return reader.integer()
        case "float" | "double":
            return reader.floating()
        case "bool":
            return reader.boolean()
        case "flag":
            return True
        case "ints":
            return reader.int_list()
        case "ints2":
            return [reader.integer(), reader.integer()]
        case "floats2":
            return [reader.floating(), reader.floating()]
        case "vector":
            return reader.vector()
        case _:
            return reader.matrix()


def _write(writer: KaldiWriter, kind: str, value: Value) -> None:
    match kind:
        case "int":
            writer.integer(cast(int, value))
        case "float":
            writer.floating(cast(float, value))
        case "double":
            writer.double(cast(float, value))
        case "bool":
            writer.boolean(cast(bool, value))
        case "flag":
            pass  # its token says it
        case "ints":
            writer.int_list(cast("list[int]", value))
        case "ints2":
            for one in cast("list[int]", value):
                writer.integer(one)
        case "floats2":
            for number in cast("list[float]", value):
                writer.floating(number)
        case "vector":
            writer.vector(cast(np.ndarray, value))
        case _:
            writer.matrix(cast(np.ndarray, value))
