"""Components of nnet3 networks as they stand in a file: what each type has, read and written in Kaldi's order.

A component is `<Type>`, fields (a token and its value each), `</Type>`. `LAYOUTS` has the fields of each type. Fields are read in any
order; those marked `?` may be missing, as Kaldi leaves them out where they say nothing. Source: src/nnet3 of Kaldi 5.5.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from pykaldist.io.kaldi import KaldiReader, KaldiWriter

Value = int | float | bool | list[int] | list[float] | list[tuple[int, int]] | np.ndarray

UPDATABLE = "LearningRateFactor:float? IsGradient:bool? MaxChange:float? L2Regularize:float? LearningRate:float "
NONLINEAR = ("Dim:int BlockDim:int? ValueAvg:vector DerivAvg:vector Count:double OderivRms:vector? OderivCount:double? "
             "NumDimsSelfRepaired:double? NumDimsProcessed:double? SelfRepairLowerThreshold:float? SelfRepairUpperThreshold:float? "
             "SelfRepairScale:float?")
AFFINE = UPDATABLE + "LinearParams:matrix BiasParams:vector "
OF_GRUS = "ValueAvg:vector DerivAvg:vector SelfRepairTotal:double Count:double SelfRepairThreshold:float SelfRepairScale:float "
DIMS = "InputDim:int OutputDim:int "
TYPES = {
    "FixedAffineComponent": "LinearParams:matrix BiasParams:vector",
    "FixedBiasComponent": "Bias:vector",
    "FixedScaleComponent": "Scales:vector",
    "AffineComponent": AFFINE + "OrthonormalConstraint:float?",
    "NaturalGradientAffineComponent": AFFINE + "RankIn:int RankOut:int OrthonormalConstraint:float? UpdatePeriod:int "
                                               "NumSamplesHistory:float Alpha:float",
    "LinearComponent": UPDATABLE + "Params:matrix OrthonormalConstraint:float? UseNaturalGradient:bool RankInOut:ints2 Alpha:float "
                                   "NumSamplesHistory:float UpdatePeriod:int",
    "TdnnComponent": UPDATABLE + "TimeOffsets:ints LinearParams:matrix BiasParams:vector OrthonormalConstraint:float "
                                 "UseNaturalGradient:bool NumSamplesHistory:float AlphaInOut:floats2 RankInOut:ints2",
    "TimeHeightConvolutionComponent": UPDATABLE + "Model:flag ConvolutionModel:flag NumFiltersIn:int NumFiltersOut:int HeightIn:int "
                                                  "HeightOut:int HeightSubsampleOut:int Offsets:pairs RequiredTimeOffsets:ints "
                                                  "/ConvolutionModel:flag LinearParams:matrix BiasParams:vector MaxMemoryMb:float "
                                                  "UseNaturalGradient:bool NumMinibatchesHistory:float AlphaInOut:floats2 "
                                                  "RankInOut:ints2",
    "ScaleAndOffsetComponent": UPDATABLE + "Dim:int Scales:vector Offsets:vector UseNaturalGradient:bool Rank:int",
    "PerElementScaleComponent": UPDATABLE + "Params:vector",
    "NaturalGradientPerElementScaleComponent": UPDATABLE.replace("IsGradient:bool? ", "") + "Params:vector IsGradient:bool Rank:int "
                                               "UpdatePeriod:int NumSamplesHistory:float Alpha:float",
    "PerElementOffsetComponent": UPDATABLE + "Offsets:vector Dim:int UseNaturalGradient:bool",
    "LstmNonlinearityComponent": UPDATABLE + "Params:matrix ValueAvg:matrix DerivAvg:matrix SelfRepairConfig:vector "
                                             "SelfRepairProb:vector UseDropout:bool? Count:double",
    "OutputGruNonlinearityComponent": UPDATABLE + "CellDim:int w_h:vector " + OF_GRUS + "Alpha:float Rank:int UpdatePeriod:int",
    "GruNonlinearityComponent": UPDATABLE + "CellDim:int RecurrentDim:int w_h:matrix " + OF_GRUS + "Alpha:float RankInOut:ints2 "
                                                                                                   "UpdatePeriod:int",
    "RectifiedLinearComponent": NONLINEAR,
    "SigmoidComponent": NONLINEAR,
    "TanhComponent": NONLINEAR,
    "SoftmaxComponent": NONLINEAR,
    "LogSoftmaxComponent": NONLINEAR,
    "BatchNormComponent": "Dim:int BlockDim:int Epsilon:float TargetRms:float TestMode:bool Count:double StatsMean:vector StatsVar:vector",
    "NormalizeComponent": "InputDim:int BlockDim:int? TargetRms:float AddLogStddev:bool",
    "PnormComponent": DIMS,
    "DropoutComponent": "Dim:int DropoutProportion:float DropoutPerFrame:bool TestMode:bool",
    "GeneralDropoutComponent": "Dim:int BlockDim:int TimePeriod:int DropoutProportion:float SpecAugmentMaxProportion:float? "
                               "SpecAugmentMaxRegions:int? TestMode:flag? Continuous:flag?",
    "DropoutMaskComponent": "OutputDim:int DropoutProportion:float TestMode:bool Continuous:flag?",
    "SpecAugmentTimeMaskComponent": "Dim:int ZeroedProportion:float TimeMaskMaxFrames:int TestMode:flag?",
    "NoOpComponent": "Dim:int BackpropScale:float",
    "PermuteComponent": "ColumnMap:ints",
    "SumBlockComponent": DIMS + "Scale:float",
    "ElementwiseProductComponent": DIMS,
    "BackpropTruncationComponent": "Dim:int Scale:float ClippingThreshold:float ZeroingThreshold:float ZeroingInterval:int "
                                   "RecurrenceInterval:int NumElementsClipped:double NumElementsZeroed:double "
                                   "NumElementsProcessed:double NumZeroingBoundaries:double",
    "RestrictedAttentionComponent": "NumHeads:int KeyDim:int ValueDim:int NumLeftInputs:int NumRightInputs:int TimeStride:int "
                                    "NumLeftInputsRequired:int NumRightInputsRequired:int OutputContext:bool KeyScale:float "
                                    "StatsCount:double EntropyStats:vector PosteriorStats:matrix",
    "StatisticsExtractionComponent": "InputDim:int InputPeriod:int OutputPeriod:int IncludeVarinance:bool",  # Kaldi's spelling
    "StatisticsPoolingComponent": "InputDim:int InputPeriod:int LeftContext:int RightContext:int NumLogCountFeatures:int "
                                  "OutputStddevs:bool VarianceFloor:float",
}
LAYOUTS: dict[str, dict[str, str]] = {name: dict(cast(tuple[str, str], tuple(f.split(":"))) for f in fields.split())
                                      for name, fields in TYPES.items()}
#: what training changes, in types that have a learning rate
PARAMETERS = ("LinearParams", "BiasParams", "Params", "Scales", "Offsets", "w_h")


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

    def integer(self, token: str) -> int:
        return int(cast(int, self.values[token]))

    @property
    def linear(self) -> np.ndarray:
        """The matrix of a component that multiplies by one."""
        return self.array("Params" if self.type == "LinearComponent" else "LinearParams")

    @property
    def time_offsets(self) -> list[int]:
        """The frames, counted from that of the output, whose inputs the component takes."""
        match self.type:
            case "TdnnComponent":
                return cast("list[int]", self.values["TimeOffsets"])
            case "TimeHeightConvolutionComponent":
                return sorted({time for time, _ in self.offsets})
            case "RestrictedAttentionComponent":
                stride = self.integer("TimeStride")
                return list(range(-stride * self.integer("NumLeftInputs"), stride * self.integer("NumRightInputs") + 1, stride))
            case _:
                return [0]

    @property
    def offsets(self) -> list[tuple[int, int]]:
        """The offsets in time and height of the inputs of a convolution."""
        return cast("list[tuple[int, int]]", self.values["Offsets"])

    @property
    def input_dim(self) -> int:
        return self._dims[0]

    @property
    def output_dim(self) -> int:
        return self._dims[1]

    @property
    def _dims(self) -> tuple[int, int]:
        """The dimensions of input and output."""
        match self.type:
            case "FixedBiasComponent" | "FixedScaleComponent":
                dim = len(self.array("Bias" if self.type == "FixedBiasComponent" else "Scales"))
                return dim, dim
            case "PerElementScaleComponent" | "NaturalGradientPerElementScaleComponent":
                return len(self.array("Params")), len(self.array("Params"))
            case "NormalizeComponent":
                dim = self.integer("InputDim")
                blocks = dim // max(1, self.integer("BlockDim") if "BlockDim" in self.values else dim)
                return dim, dim + (blocks if self.values["AddLogStddev"] else 0)
            case "PermuteComponent":
                dim = len(cast("list[int]", self.values["ColumnMap"]))
                return dim, dim
            case "DropoutMaskComponent":
                return self.integer("OutputDim"), self.integer("OutputDim")
            case "TimeHeightConvolutionComponent":
                return (self.integer("NumFiltersIn") * self.integer("HeightIn"), self.integer("NumFiltersOut") * self.integer("HeightOut"))
            case "RestrictedAttentionComponent":
                heads, key, value = self.integer("NumHeads"), self.integer("KeyDim"), self.integer("ValueDim")
                frames = self.integer("NumLeftInputs") + 1 + self.integer("NumRightInputs")
                return heads * (2 * key + value + frames), heads * (value + (frames if self.values["OutputContext"] else 0))
            case "StatisticsExtractionComponent":
                dim = self.integer("InputDim")
                return dim, 1 + dim * (2 if self.values["IncludeVarinance"] else 1)
            case "StatisticsPoolingComponent":
                return self.integer("InputDim"), self.integer("InputDim") + self.integer("NumLogCountFeatures") - 1
            case "LstmNonlinearityComponent":
                cells = self.array("Params").shape[1]
                return 5 * cells + (3 if self.values.get("UseDropout") else 0), 2 * cells
            case "OutputGruNonlinearityComponent":
                return 3 * self.integer("CellDim"), 2 * self.integer("CellDim")
            case "GruNonlinearityComponent":
                cells, recurrent = self.integer("CellDim"), self.integer("RecurrentDim")
                return 4 * cells if recurrent == cells else 3 * cells + 2 * recurrent, 2 * cells
        if "OutputDim" in self.values:
            return self.integer("InputDim"), self.integer("OutputDim")
        if "Dim" in self.values:
            return self.integer("Dim"), self.integer("Dim")
        return self.linear.shape[1] // len(self.time_offsets), self.linear.shape[0]

    @property
    def parameters(self) -> dict[str, np.ndarray]:
        """The arrays that training changes, by their tokens."""
        if "LearningRate" not in LAYOUTS[self.type]:
            return {}
        return {token: value for token in PARAMETERS if isinstance(value := self.values.get(token), np.ndarray)}

    @property
    def num_params(self) -> int:
        """The number of its parameters that training changes."""
        return sum(array.size for array in self.parameters.values())

    def check(self) -> None:
        """Raise ValueError where fields are missing or do not fit each other."""
        missing = [f"<{token}>" for token, kind in LAYOUTS[self.type].items() if not kind.endswith("?") and token not in self.values]
        if missing:
            raise ValueError(f"{self.type} {self.name} has no {' '.join(missing)}")
        if self.type == "TimeHeightConvolutionComponent":
            self._check_convolution()
        if self.type == "TdnnComponent" and not (self.time_offsets and self.linear.shape[1] % len(self.time_offsets) == 0):
            raise ValueError(f"{self.type} {self.name} has {self.linear.shape[1]} columns for {len(self.time_offsets)} time offsets")
        if min(self.input_dim, self.output_dim) < 1:
            raise ValueError(f"{self.type} {self.name} has input dimension {self.input_dim}, output dimension {self.output_dim}")
        dim = self.output_dim
        lengths = {"BiasParams": [len(self.linear)] if "LinearParams" in self.values else [dim],
                   **{token: [0, dim] for token in ("ValueAvg", "DerivAvg", "OderivRms")}}
        if self.type == "TdnnComponent":
            lengths["BiasParams"].insert(0, 0)
        if self.type == "BatchNormComponent":
            block = self.integer("BlockDim")
            lengths.update({token: [block] if self.number("Count") > 0 else [0, block] for token in ("StatsMean", "StatsVar")})
        if self.type == "ScaleAndOffsetComponent":
            lengths["Offsets"] = [len(self.array("Scales"))]
        if self.type == "LstmNonlinearityComponent":
            lengths = {}
        if self.type == "GruNonlinearityComponent" and self.array("w_h").shape[1] != self.integer("RecurrentDim"):
            raise ValueError(f"{self.type} {self.name} has <w_h> of {self.array('w_h').shape[1]} columns, expected <RecurrentDim>, "
                             f"{self.integer('RecurrentDim')}")
        if self.type in ("GruNonlinearityComponent", "OutputGruNonlinearityComponent"):
            lengths = {token: [self.integer("CellDim")] for token in ("w_h", "ValueAvg", "DerivAvg")}
        self._check_blocks()
        for token, allowed in lengths.items():
            found = len(self.array(token)) if token in self.values else allowed[-1]
            if found not in allowed:
                raise ValueError(f"{self.type} {self.name} has <{token}> of {found}, expected {allowed[-1]}")

    def _check_blocks(self) -> None:
        """Raise ValueError where the parts that an input consists of do not make it."""
        dim = self.input_dim
        blocks = {token: self.integer(token) for token in ("BlockDim",) if token in self.values}
        if self.type in ("ScaleAndOffsetComponent", "PerElementOffsetComponent"):
            blocks["Offsets"] = len(self.array("Offsets"))
        if self.type in ("ElementwiseProductComponent", "SumBlockComponent", "PnormComponent"):
            blocks["OutputDim"] = self.output_dim
        for token, block in blocks.items():
            if block < 1 or dim % block:
                raise ValueError(f"{self.type} {self.name} has blocks of {block} (<{token}>) in {dim} dimensions")
        if self.type == "PermuteComponent" and sorted(cast("list[int]", self.values["ColumnMap"])) != list(range(dim)):
            raise ValueError(f"{self.type} {self.name} has columns in <ColumnMap> that are no permutation of 0 to {dim - 1}")

    def _check_convolution(self) -> None:
        filters, columns = self.integer("NumFiltersOut"), self.integer("NumFiltersIn") * len(self.offsets)
        if self.linear.shape != (filters, columns):
            raise ValueError(f"{self.type} {self.name} has parameters {self.linear.shape[0]} x {self.linear.shape[1]}, expected "
                             f"{filters} x {columns}")
        required = cast("list[int]", self.values["RequiredTimeOffsets"])
        if self.offsets != sorted(set(self.offsets)) or not required or not set(required) <= set(self.time_offsets):
            raise ValueError(f"{self.type} {self.name} has offsets {self.offsets}, of which the times {required} are required")

    @classmethod
    def read(cls, reader: KaldiReader) -> Nnet3Component:
        """Read `<ComponentName> name <Type> ... </Type>`; raises UserError that names a type which is not known."""
        reader.expect("<ComponentName>")
        name, marker = reader.token(), reader.token()
        type_ = marker.strip("<>")
        if marker != f"<{type_}>" or type_ not in LAYOUTS:
            nearest = difflib.get_close_matches(type_, LAYOUTS, 1)
            raise reader.error(f"component {name!r:.60} is of the type {marker!r:.60}, which is not known here"
                               + (f"; the nearest that is known is <{nearest[0]}>" if nearest else ""))
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
        case "pairs":
            return reader.pair_list()
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
        case "pairs":
            writer.pair_list(cast("list[tuple[int, int]]", value))
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
