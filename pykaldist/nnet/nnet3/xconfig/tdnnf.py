"""Layers of factorised TDNNs: Povey et al. (2018), "Semi-orthogonal low-rank matrix factorization for deep neural networks"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pykaldist.nnet.nnet3.xconfig.layer import Default, Layer, component, node, sequence


class TdnnfLayer(Layer):
    """A linear map to `bottleneck-dim` of frames `time-stride` apart, an affine one back, ReLU, batch normalisation; the input is added."""

    kinds = ("tdnnf-layer",)
    fields: ClassVar[Mapping[str, Default]] = {
        "input": "[-1]", "dim": -1, "bottleneck-dim": -1, "bypass-scale": 0.66, "dropout-proportion": -1.0, "time-stride": 1,
        "l2-regularize": 0.0, "max-change": 0.75, "self-repair-scale": 1e-5, "context": "default"}

    def derive(self) -> None:
        pass

    def check(self) -> None:
        values = self.values
        self.require(0 < values["bottleneck-dim"] < values["dim"], "bottleneck-dim", f"above 0 and below dim={values['dim']}")
        self.require(values["dropout-proportion"] == -1 or 0 <= values["dropout-proportion"] < 1, "dropout-proportion",
                     "at least 0 and below 1, or left out")
        self.require(abs(values["bypass-scale"]) <= 1, "bypass-scale", "at most 1")
        self.require(values["bypass-scale"] == 0 or values["dim"] == self.input.dim, "dim",
                     f"the input's dimension, {self.input.dim}, or bypass-scale=0")
        self.require(values["context"] in ("default", "left-only", "shift-left", "none"), "context",
                     "default, left-only, shift-left or none")

    def output(self, other: str = "") -> str:
        last = "noop" if self.values["bypass-scale"] else self._before_bypass
        return f"{self.name}.{last}"

    @property
    def _before_bypass(self) -> str:
        return "batchnorm" if self.values["dropout-proportion"] == -1 else "dropout"

    def _time_offsets(self) -> tuple[str, str]:
        """The frames that the linear and the affine map take."""
        stride, context = self.values["time-stride"], self.values["context"]
        if stride == 0 or context == "none":
            return "0", "0"
        return f"{-stride},0", {"default": f"0,{stride}", "shift-left": f"{-stride},0", "left-only": "0"}[context]

    def lines(self) -> list[str]:
        values, name = self.values, self.name
        dim, bottleneck = values["dim"], values["bottleneck-dim"]
        training = f"l2-regularize={values['l2-regularize']} max-change={values['max-change']}"
        before, behind = self._time_offsets()
        steps = [
            ("linear", "TdnnComponent", f"input-dim={self.input.dim} output-dim={bottleneck} {training} use-bias=false "
                                        f"time-offsets={before} orthonormal-constraint=-1.0"),
            ("affine", "TdnnComponent", f"input-dim={bottleneck} output-dim={dim} {training} time-offsets={behind}"),
            ("relu", "RectifiedLinearComponent", f"dim={dim} self-repair-scale={values['self-repair-scale']}"),
            ("batchnorm", "BatchNormComponent", f"dim={dim}")]
        if self._before_bypass == "dropout":
            dropout = f"dropout-proportion={values['dropout-proportion']} continuous=true"
            steps.append(("dropout", "GeneralDropoutComponent", f"dim={dim} {dropout}"))
        lines = sequence(name, self.input.nodes, steps)
        if values["bypass-scale"]:
            bypass = f"Sum(Scale({values['bypass-scale']}, {self.input.nodes}), {name}.{self._before_bypass})"
            lines += [component(f"{name}.noop", "NoOpComponent", f"dim={dim}"), node(f"{name}.noop", bypass)]
        return lines


class PrefinalLayer(Layer):
    """What stands before an output: an affine map to `big-dim`, ReLU, batch normalisation, a linear map to `small-dim`, normalised too."""

    kinds = ("prefinal-layer",)
    fields: ClassVar[Mapping[str, Default]] = {"input": "[-1]", "big-dim": -1, "small-dim": -1, "l2-regularize": 0.0, "max-change": 0.75,
                                               "self-repair-scale": 1e-5}

    def check(self) -> None:
        big = self.values["big-dim"]
        self.require(0 < self.values["small-dim"] < big, "small-dim", f"above 0 and below big-dim={big}")

    def output(self, other: str = "") -> str:
        return f"{self.name}.batchnorm2"

    def dim(self, other: str = "") -> int:
        return self.values["small-dim"]

    def lines(self) -> list[str]:
        values = self.values
        big, small = values["big-dim"], values["small-dim"]
        training = f"l2-regularize={values['l2-regularize']} max-change={values['max-change']}"
        return sequence(self.name, self.input.nodes, [
            ("affine", "NaturalGradientAffineComponent", f"input-dim={self.input.dim} output-dim={big} {training}"),
            ("relu", "RectifiedLinearComponent", f"dim={big} self-repair-scale={values['self-repair-scale']}"),
            ("batchnorm1", "BatchNormComponent", f"dim={big}"),
            ("linear", "LinearComponent", f"input-dim={big} output-dim={small} {training} orthonormal-constraint=-1 "),
            ("batchnorm2", "BatchNormComponent", f"dim={small}")])
