"""Layers of convolutions over time and height: a frame is an image's column of `height` points, each with its filters side by side."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import ClassVar

from pykaldist.nnet.nnet3.xconfig.layer import Default, Layer, component, node, sequence

PASSED: dict[str, Default] = {  # fields of a convolution that layers pass on
    "param-stddev": "", "bias-stddev": "", "use-natural-gradient": "", "max-change": 0.75, "rank-in": "", "rank-out": "",
    "num-minibatches-history": "", "alpha-in": "", "alpha-out": "", "l2-regularize": ""}
THRESHOLDS: dict[str, Default] = {f"self-repair-lower-threshold{n}": 0.05 for n in (1, 2, 3)}
TYPE = "TimeHeightConvolutionComponent"


def _relu(height: int, filters: int, scale: float, threshold: float) -> tuple[str, str]:
    return "RectifiedLinearComponent", (f"dim={height * filters} block-dim={filters} self-repair-scale={scale} "
                                        f"self-repair-lower-threshold={threshold}")


def _per_filter(height: int, filters: int) -> str:
    return f"dim={height * filters} block-dim={filters}"


def _batchnorm(name: str, height: int, filters: int, source: str, rest: str = "") -> list[str]:
    return [f"component name={name}  type=BatchNormComponent {_per_filter(height, filters)}{rest}", node(name, source)]


def _whole(text: str) -> bool:
    """Whether a text is integers with commas between them, each above the one before."""
    try:
        numbers = [int(word) for word in text.split(",")]
    except ValueError:
        return False
    return all(a < b for a, b in pairwise(numbers))


class ConvolutionLayer(Layer):
    """A convolution, with what the words of its kind say before it and behind it."""

    kinds = ("relu-conv-layer", "conv-layer", "conv-relu-layer", "conv-renorm-layer", "relu-conv-renorm-layer", "batchnorm-conv-layer",
             "conv-relu-renorm-layer", "batchnorm-conv-relu-layer", "relu-batchnorm-conv-layer", "relu-batchnorm-noconv-layer",
             "relu-noconv-layer", "conv-relu-batchnorm-layer", "conv-relu-batchnorm-so-layer", "conv-relu-batchnorm-dropout-layer",
             "conv-relu-dropout-layer")
    fields: ClassVar[Mapping[str, Default]] = {
        "input": "[-1]", "height-in": -1, "height-subsample-out": 1, "height-out": -1, "height-offsets": "", "num-filters-out": -1,
        "time-offsets": "", "required-time-offsets": "", "target-rms": 1.0, "self-repair-scale": 2e-5, "self-repair-lower-threshold": 0.05,
        "learning-rate-factor": "", "dropout-proportion": 0.5, **PASSED}

    @property
    def operations(self) -> list[str]:
        return [word for word in self.kind.split("-")[:-1] if word != "noconv"]

    def derive(self) -> None:
        height = self.values["height-in"]
        self.require(height > 0 and self.input.dim % height == 0, "height-in", f"a divisor of the input's {self.input.dim}")
        self.values["num-filters-in"] = self.input.dim // height

    def check(self) -> None:
        values = self.values
        for key in ("height-subsample-out", "height-out", "target-rms"):
            self.require(values[key] > 0, key, "a number above 0")
        if "conv" in self.operations:
            self.require(values["num-filters-out"] > 0, "num-filters-out", "a number above 0")
            for key in ("height-offsets", "time-offsets", "required-time-offsets"):
                self.require(_whole(values[key]) or (key.startswith("required") and not values[key]), key,
                             "integers with commas between them, in order")
        heights, rows = values["height-out"] * values["height-subsample-out"], len(values["height-offsets"].split(","))
        self.require(values["height-in"] - rows <= heights <= values["height-in"], "height-out",
                     f"that height-out x height-subsample-out is from {values['height-in'] - rows} to height-in={values['height-in']}")

    def output(self, other: str = "") -> str:
        return f"{self.name}.{self.operations[-1]}"

    def dim(self, other: str = "") -> int:
        return self.values["num-filters-out"] * self.values["height-out"]

    def lines(self) -> list[str]:
        values, source, lines = self.values, self.input.nodes, list[str]()
        filters, height = values["num-filters-in"], values["height-in"]
        for operation in self.operations:
            name = f"{self.name}.{operation}"
            match operation:
                case "conv":
                    keys = (*list(PASSED)[:9], "num-filters-in", "num-filters-out", "height-in", "height-out", "height-subsample-out",
                            "height-offsets", "time-offsets", "required-time-offsets", "learning-rate-factor", "l2-regularize")
                    step = TYPE, self.options(*keys).strip()
                    filters, height = values["num-filters-out"], values["height-out"]
                case "relu":
                    step = _relu(height, filters, values["self-repair-scale"], values["self-repair-lower-threshold"])
                case "renorm":
                    step = "NormalizeComponent", f"dim={height * filters} target-rms={values['target-rms']}"
                case "dropout":
                    step = "DropoutComponent", f"dim={height * filters} dropout-proportion={values['dropout-proportion']}"
                case "so":
                    step = "ScaleAndOffsetComponent", _per_filter(height, filters)
                case _:  # batchnorm
                    step = "", ""
                    lines += _batchnorm(name, height, filters, source, f" target-rms={values['target-rms']}")
            if step[0]:
                lines += [component(name, *step), node(name, source)]
            source = name
        return lines


class _Block(Layer):
    """What residual blocks have: two convolutions, or three where `num-bottleneck-filters` says so."""

    def check(self) -> None:
        self.require(self.values["num-bottleneck-filters"] != 0, "num-bottleneck-filters", "a number above 0, or left out")

    @property
    def _convolutions(self) -> int:
        return 3 if self.values["num-bottleneck-filters"] > 0 else 2

    def _required(self) -> str:
        return "required-time-offsets=0" if self.values["allow-zero-padding"] else ""

    def _passed(self) -> str:
        return self.options(*PASSED).strip()


class ResBlock(_Block):
    """A residual block: ReLU, batch normalisation and convolution, twice or (with a bottleneck) three times, added to the input."""

    kinds = ("res-block",)
    fields: ClassVar[Mapping[str, Default]] = {
        "input": "[-1]", "height": -1, "num-filters": -1, "num-bottleneck-filters": -1, "time-period": 1, "height-period": 1,
        "self-repair-scale": 2e-5, "allow-zero-padding": True, "bypass-source": "noop", **THRESHOLDS, **PASSED}

    def derive(self) -> None:
        height = self.values["height"]
        self.require(height > 0 and self.input.dim % height == 0, "height", f"a divisor of the input's {self.input.dim}")
        if self.values["num-filters"] == -1:
            self.values["num-filters"] = self.input.dim // height
        self.require(self.values["num-filters"] * height == self.input.dim, "num-filters", f"{self.input.dim // height}, so that it "
                     f"makes the input's {self.input.dim} with height={height}")

    def check(self) -> None:
        super().check()
        self.require(self.values["bypass-source"] in ("input", "noop", "relu", "batchnorm"), "bypass-source",
                     "input, noop, relu or batchnorm")

    def output(self, other: str = "") -> str:
        bypass, last = self.values["bypass-source"], f"{self.name}.conv{self._convolutions}"
        if bypass == "noop":
            return f"{self.name}.noop"
        return f"Sum({last}, {self.input.nodes if bypass == 'input' else f'{self.name}.{bypass}1'})"

    def dim(self, other: str = "") -> int:
        return self.input.dim

    def lines(self) -> list[str]:
        values, name, height, source, lines = self.values, self.name, self.values["height"], self.input.nodes, list[str]()
        filters, count = values["num-filters"], self._convolutions
        for n in range(1, count + 1):
            lines += sequence(name, source, [(f"relu{n}", *_relu(height, filters, values["self-repair-scale"],
                                                                 values[f"self-repair-lower-threshold{n}"]))])
            lines += _batchnorm(f"{name}.batchnorm{n}", height, filters, f"{name}.relu{n}")
            square = count == 2 or n == 2  # the others of a bottleneck are of one point
            heights = f"-{values['height-period']},0,{values['height-period']}" if square else "0"
            times = f"-{values['time-period']},0,{values['time-period']}" if square else "0"
            behind = values["num-bottleneck-filters"] if count == 3 and n < 3 else values["num-filters"]
            lines += sequence(name, f"{name}.batchnorm{n}", [
                (f"conv{n}", TYPE, f"height-in={height} height-out={height} height-offsets={heights} time-offsets={times} "
                                   f"num-filters-in={filters} num-filters-out={behind} {self._required()} {self._passed()}")])
            filters, source = behind, f"{name}.conv{n}"
        if values["bypass-source"] == "noop":
            lines += [f"component name={name}.noop dim={self.input.dim} type=NoOpComponent",
                      node(f"{name}.noop", f"Sum({self.input.nodes}, {source})")]
        return lines


class Res2Block(_Block):
    """A residual block of convolution, batch normalisation, scale and offset, and ReLU, which can halve the height."""

    kinds = ("res2-block",)
    fields: ClassVar[Mapping[str, Default]] = {
        "input": "[-1]", "height": -1, "height-in": -1, "height-out": -1, "num-filters": -1, "num-bottleneck-filters": -1,
        "time-period": 1, "self-repair-scale": 2e-5, "allow-zero-padding": True, **THRESHOLDS, **PASSED}

    def derive(self) -> None:
        values = self.values
        if values["height"] > 0 and values["height-in"] == values["height-out"] == -1:
            values["height-in"] = values["height-out"] = values["height"]
        for key in ("height-in", "height-out"):
            self.require(values[key] > 0, key, "height=, or both of height-in= and height-out=")
        self.require(self.input.dim % values["height-in"] == 0, "height-in", f"a divisor of the input's {self.input.dim}")

    def check(self) -> None:
        super().check()
        values = self.values
        self.require(values["num-filters"] > 0, "num-filters", "a number above 0")
        halved = values["height-out"] != values["height-in"]
        self.require(not halved or abs(values["height-out"] - values["height-in"] / 2) <= 1, "height-out",
                     f"height-in={values['height-in']}, or about half of it")
        self.require(not halved or self._convolutions == 3 or values["time-period"] % 2 == 0, "time-period",
                     "an even number, where the height is halved")

    def output(self, other: str = "") -> str:
        return f"{self.name}.relu{self._convolutions}"

    def dim(self, other: str = "") -> int:
        return self.values["height-out"] * self.values["num-filters"]

    def lines(self) -> list[str]:
        values, name, source, lines = self.values, self.name, self.input.nodes, list[str]()
        height, height_out, period, count = values["height-in"], values["height-out"], values["time-period"], self._convolutions
        subsampled = 1 if height == height_out else 2
        filters_in, filters_out = self.input.dim // height, values["num-filters"]
        plain = subsampled == 1 and filters_in == filters_out
        bypass = self.input.nodes if plain else f"{name}.conv_bypass"
        filters = filters_in
        for n in range(1, count + 1):
            heights = "-1,0,1" if count == 2 or n == 2 else "0"
            step = period // 2 if count == 2 and n == 1 and subsampled == 2 else period
            times = f"-{step},0,{step}" if count == 2 or n == 2 else "0"
            behind = filters_out if n == count or count == 2 else values["num-bottleneck-filters"]
            own = subsampled if n == 1 else 1
            shape, ends = f"height-in={height} height-out={height_out} height-offsets={heights}", f"{self._required()} {self._passed()}"
            sizes = f"num-filters-in={filters} num-filters-out={behind}"
            rest = (f"{shape} height-subsample-out={own} time-offsets={times} {sizes} {ends}" if count == 2 else
                    f"{shape} time-offsets={times} {sizes} height-subsample-out={own} {ends}")
            lines += sequence(name, source, [(f"conv{n}", TYPE, rest)])
            filters, height = behind, height_out
            lines += _batchnorm(f"{name}.batchnorm{n}", height, filters, f"{name}.conv{n}")
            shifted = f"{name}.scaleoffset{n}"
            lines += [f"component name={shifted}  type=ScaleAndOffsetComponent {_per_filter(height, filters)}",
                      node(shifted, f"{name}.batchnorm{n}")]
            lines += sequence(name, f"Sum({shifted}, {bypass})" if n == count else shifted, [
                (f"relu{n}", *_relu(height, filters, values["self-repair-scale"], values[f"self-repair-lower-threshold{n}"]))])
            source = f"{name}.relu{n}"
        if not plain:
            lines += sequence(name, self.input.nodes, [
                ("conv_bypass", TYPE, f"height-in={values['height-in']} height-out={height_out} height-offsets=0 time-offsets=0 "
                                      f"height-subsample-out={subsampled} num-filters-in={filters_in} num-filters-out={filters_out} "
                                      f"{self._passed()}")])
        return lines
