"""Layers that look at many frames: attention restricted to a stretch of frames, and statistics over a window."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import ClassVar

from pykaldist.nnet.nnet3.xconfig.layer import Default, Layer, component, sequence


class AttentionLayer(Layer):
    """An affine map, and behind it what the words of its kind say: attention (Povey et al., 2018) and others."""

    kinds = ("attention-renorm-layer", "attention-relu-renorm-layer", "attention-relu-batchnorm-layer", "relu-renorm-attention-layer")
    fields: ClassVar[Mapping[str, Default]] = {
        "input": "[-1]", "dim": -1, "max-change": 0.75, "self-repair-scale": 1e-5, "target-rms": 1.0, "learning-rate-factor": 1.0,
        "ng-affine-options": "", "l2-regularize": 0.0, "num-left-inputs-required": -1, "num-right-inputs-required": -1,
        "output-context": True, "time-stride": 1, "num-heads": 1, "key-dim": -1, "key-scale": 0.0, "value-dim": -1,
        "num-left-inputs": -1, "num-right-inputs": -1, "dropout-proportion": 0.5}

    def check(self) -> None:
        for key in ("value-dim", "key-dim"):
            self.require(self.values[key] > 0, key, "a number above 0")
        for key in ("num-left-inputs", "num-right-inputs"):
            self.require(self.values[key] >= 0, key, "a number of at least 0")
        self.require(self.values["learning-rate-factor"] > 0, "learning-rate-factor", "a number above 0")
        self.require(0 <= self.values["self-repair-scale"] <= 1, "self-repair-scale", "a number from 0 to 1")
        if self.values["key-scale"] == 0:
            self.values["key-scale"] = 1 / math.sqrt(self.values["key-dim"])

    @property
    def _frames(self) -> int:
        return self.values["num-left-inputs"] + 1 + self.values["num-right-inputs"]

    def output(self, other: str = "") -> str:
        return f"{self.name}.{self.kind.split('-')[-2]}"

    def dim(self, other: str = "") -> int:
        return self.values["num-heads"] * (self.values["value-dim"] + (self._frames if self.values["output-context"] else 0))

    def lines(self) -> list[str]:
        values = self.values
        dim = values["num-heads"] * (2 * values["key-dim"] + values["value-dim"] + self._frames)  # keys, queries, values, positions
        rate = f"learning-rate-factor={values['learning-rate-factor']}" if values["learning-rate-factor"] != 1 else ""
        l2 = f"l2-regularize={values['l2-regularize']} " if values["l2-regularize"] else ""
        options = f"max-change={values['max-change']} {values['ng-affine-options']} {rate} {l2}"
        steps = [("affine", "NaturalGradientAffineComponent", f"input-dim={self.input.dim} output-dim={dim} {options}")]
        for operation in self.kind.split("-")[:-1]:
            match operation:
                case "attention":
                    keys = ("value-dim", "key-dim", "num-left-inputs", "num-right-inputs", "num-left-inputs-required",
                            "num-right-inputs-required", "output-context", "time-stride", "num-heads", "key-scale")
                    steps.append((operation, "RestrictedAttentionComponent", self.options(*keys).strip()))
                    dim = self.dim()
                case "relu":
                    steps.append((operation, "RectifiedLinearComponent", f"dim={dim} self-repair-scale={values['self-repair-scale']}"))
                case _:
                    type_ = "NormalizeComponent" if operation == "renorm" else "BatchNormComponent"
                    steps.append((operation, type_, f"dim={dim} target-rms={values['target-rms']}"))
        return sequence(self.name, self.input.nodes, steps)


class StatsLayer(Layer):
    """Mean, and standard deviation where asked, over a window: `config=mean+stddev(-99:3:9:99)`, ends, steps of input and output."""

    kinds = ("stats-layer",)
    fields: ClassVar[Mapping[str, Default]] = {"input": "[-1]", "dim": -1, "config": ""}

    def derive(self) -> None:
        match = re.search(r"mean(\+stddev)?(\+count)?\((-?\d+):(-?\d+):(-?\d+):(-?\d+)\)", self.values["config"])
        self.require(match is not None, "config", "such as mean+stddev(-99:3:9:99), or mean+count")
        assert match is not None
        self._stddev, self._count = bool(match[1]), bool(match[2])
        self._left, self._step, self._period, self._right = -int(match[3]), int(match[4]), int(match[5]), int(match[6])
        dim = self.input.dim * (2 if self._stddev else 1) + self._count
        self.require(self.values["dim"] <= 0 or self.values["dim"] == dim, "dim", f"{dim}, which the input makes")
        self.values["dim"] = dim

    def check(self) -> None:
        self.require(min(self._left, self._right) >= 0 and min(self._step, self._period) > 0 and self._left % self._period == 0
                     and self._right % self._period == 0 and self._period % self._step == 0, "config",
                     "ends that are multiples of the output's step, which is one of the input's")

    def _name(self, what: str) -> str:
        return f"{self.name}-{what}-{self._left}-{self._right}"

    def output(self, other: str = "") -> str:
        return f"Round({self._name('pooling')}, {self._period})"

    def lines(self) -> list[str]:
        extraction, pooling, stddev = self._name("extraction"), self._name("pooling"), str(self._stddev).lower()
        dim = 1 + self.input.dim * (2 if self._stddev else 1)
        return [component(extraction, "StatisticsExtractionComponent", f"input-dim={self.input.dim} input-period={self._step} "
                                                                       f"output-period={self._period} include-variance={stddev} "),
                f"component-node name={extraction} component={extraction} input={self.input.nodes} ",
                component(pooling, "StatisticsPoolingComponent", f"input-dim={dim} input-period={self._period} left-context={self._left} "
                                                                 f"right-context={self._right} num-log-count-features={int(self._count)} "
                                                                 f"output-stddevs={stddev} "),
                f"component-node name={pooling} component={pooling} input={extraction} "]
