"""Inputs, outputs, and layers of one affine map with what follows it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

from pykaldist.nnet.nnet3.xconfig.layer import Default, Layer, component, node, sequence


class InputLayer(Layer):
    """An input of the network, of `dim` dimensions."""

    kinds = ("input",)
    fields: ClassVar[Mapping[str, Default]] = {"dim": -1}

    def check(self) -> None:
        self.require(self.values["dim"] > 0, "dim", "the dimension of the input")

    def configs(self) -> dict[str, list[str]]:
        lines = [f"input-node name={self.name} dim={self.values['dim']}"]
        return {"init": lines, "ref": lines, "final": lines}


def _objective(layer: Layer) -> None:
    layer.require(layer.values["objective-type"] in ("linear", "quadratic"), "objective-type", "linear or quadratic")


def _output_node(layer: Layer, source: str) -> str:
    delay = layer.values["output-delay"]
    source = f"Offset({source}, {delay})" if delay else source
    return f"output-node name={layer.name} input={source} objective={layer.values['objective-type']}"


class TrivialOutputLayer(Layer):
    """An output of the network without a layer of its own."""

    kinds = ("output",)
    fields: ClassVar[Mapping[str, Default]] = {"input": "[-1]", "dim": -1, "objective-type": "linear", "output-delay": 0}

    def check(self) -> None:
        _objective(self)

    def dim(self, other: str = "") -> int:
        return self.input.dim

    def lines(self) -> list[str]:
        return [_output_node(self, self.input.nodes)]


class OutputLayer(Layer):
    """An output with an affine map, which starts at zero, and a log-softmax; with `bottleneck-dim` the map is a product of two."""

    kinds = ("output-layer",)
    fields: ClassVar[Mapping[str, Default]] = {
        "input": "[-1]", "dim": -1, "bottleneck-dim": -1, "orthonormal-constraint": 1.0, "include-log-softmax": True,
        "objective-type": "linear", "output-delay": 0, "ng-affine-options": "", "ng-linear-options": "", "learning-rate-factor": "",
        "l2-regularize": "", "max-change": 1.5, "param-stddev": 0.0, "bias-stddev": 0.0}
    other_outputs = ("affine", "log-softmax")

    def check(self) -> None:
        _objective(self)
        self.require(self.values["orthonormal-constraint"] > 0, "orthonormal-constraint", "a number above 0; a floating constraint takes "
                     "a linear-component and a batchnorm-component before this layer")
        bottleneck = self.values["bottleneck-dim"]
        self.require(bottleneck < min(self.input.dim, self.values["dim"]) and bottleneck != 0, "bottleneck-dim",
                     "less than the dimensions of input and output")

    def output(self, other: str = "") -> str:
        if not other or (other == "log-softmax" and not self.values["include-log-softmax"]):
            raise ValueError(f"{self.name} is an output layer, from which none can take input; name the layer before it, "
                             f"or {self.name}.affine")
        return f"{self.name}.{other}"

    def lines(self) -> list[str]:
        dim, source, lines = self.input.dim, self.input.nodes, []
        if self.values["bottleneck-dim"] > 0:
            constraint, bottleneck = self.values["orthonormal-constraint"], self.values["bottleneck-dim"]
            options = self.values["ng-linear-options"] + self.options("learning-rate-factor", "l2-regularize", "max-change")
            lines = sequence(self.name, source, [
                ("linear", "LinearComponent", f"orthonormal-constraint={constraint} param-stddev={constraint / math.sqrt(dim)} "
                                              f"input-dim={dim} output-dim={bottleneck} max-change=0.75 {options}")])
            dim, source = bottleneck, f"{self.name}.linear"
        options = self.values["ng-affine-options"] + self.options("learning-rate-factor", "l2-regularize", "max-change", "param-stddev",
                                                                  "bias-stddev")
        steps = [("affine", "NaturalGradientAffineComponent", f"input-dim={dim} output-dim={self.values['dim']} {options}")]
        if self.values["include-log-softmax"]:
            steps.append(("log-softmax", "LogSoftmaxComponent", f"dim={self.values['dim']}"))
        return [*lines, *sequence(self.name, source, steps), _output_node(self, f"{self.name}.{steps[-1][0]}")]


class BasicLayer(Layer):
    """An affine map, and behind it what the words of its kind say."""

    kinds = ("relu-layer", "relu-renorm-layer", "relu-batchnorm-dropout-layer", "relu-dropout-layer", "relu-batchnorm-layer",
             "relu-batchnorm-so-layer", "batchnorm-so-relu-layer", "batchnorm-layer", "sigmoid-layer", "tanh-layer")
    fields: ClassVar[Mapping[str, Default]] = {
        "input": "[-1]", "dim": -1, "bottleneck-dim": -1, "self-repair-scale": 1e-5, "target-rms": 1.0, "ng-affine-options": "",
        "ng-linear-options": "", "dropout-proportion": 0.5, "dropout-per-dim": False, "dropout-per-dim-continuous": False,
        "add-log-stddev": False, "bias-stddev": "", "l2-regularize": "", "learning-rate-factor": "", "max-change": 0.75}

    @property
    def operations(self) -> list[str]:
        return self.kind.split("-")[:-1]

    def check(self) -> None:
        bottleneck = self.values["bottleneck-dim"]
        self.require(bottleneck < self.values["dim"] and bottleneck != 0, "bottleneck-dim", f"less than dim={self.values['dim']}")
        self.require(0 <= self.values["self-repair-scale"] <= 1, "self-repair-scale", "a number from 0 to 1")
        self.require(self.values["target-rms"] >= 0, "target-rms", "a number of at least 0")
        self.require(not self.values["add-log-stddev"] or self.operations[-1] == "renorm", "add-log-stddev",
                     "false, unless the layer ends in renorm")

    def output(self, other: str = "") -> str:
        return f"{self.name}.{self.operations[-1]}"

    def lines(self) -> list[str]:
        dim = self.values["dim"] - self.values["add-log-stddev"]  # renorm appends that dimension
        inputs, source, lines = self.input.dim, self.input.nodes, []
        if self.values["bottleneck-dim"] > 0:
            bottleneck = self.values["bottleneck-dim"]
            options = self.values["ng-linear-options"] + self.options("max-change", "learning-rate-factor")
            lines = sequence(self.name, source, [
                ("linear", "LinearComponent", f"input-dim={inputs} orthonormal-constraint=1.0 output-dim={bottleneck} {options}")])
            inputs, source = bottleneck, f"{self.name}.linear"
        options = self.values["ng-affine-options"] + self.options("max-change", "learning-rate-factor", "bias-stddev", "l2-regularize")
        steps = [("affine", "NaturalGradientAffineComponent", f"input-dim={inputs} output-dim={dim} {options}")]
        steps += [(operation, *self._operation(operation, dim, last=operation == self.operations[-1])) for operation in self.operations]
        return [*lines, *sequence(self.name, source, steps)]

    def _operation(self, operation: str, dim: int, last: bool) -> tuple[str, str]:
        """The type and the fields of the component of an operation."""
        values = self.values
        match operation:
            case "relu" | "sigmoid" | "tanh":
                type_ = {"relu": "RectifiedLinear", "sigmoid": "Sigmoid", "tanh": "Tanh"}[operation]
                return f"{type_}Component", f"dim={dim} self-repair-scale={values['self-repair-scale']}"
            case "renorm":
                log_stddev = str(last and values["add-log-stddev"]).lower()
                return "NormalizeComponent", f"dim={dim} target-rms={values['target-rms']} add-log-stddev={log_stddev}"
            case "batchnorm":
                return "BatchNormComponent", f"dim={dim} target-rms={values['target-rms']}"
            case "so":
                return "ScaleAndOffsetComponent", f"dim={dim} max-change=0.5 "
            case _:  # dropout
                shared = values["dropout-per-dim"] or values["dropout-per-dim-continuous"]
                kept = f"dim={dim} dropout-proportion={values['dropout-proportion']}"
                continuous = " continuous=true" if values["dropout-per-dim-continuous"] else " "
                return ("GeneralDropoutComponent", kept + continuous) if shared else ("DropoutComponent", kept)


class AffineLayer(Layer):
    """An affine map alone, with all that says how it starts."""

    kinds = ("affine-layer",)
    fields: ClassVar[Mapping[str, Default]] = {
        "input": "[-1]", "dim": -1, "param-stddev": -1.0, "bias-stddev": 1.0, "bias-mean": 0.0, "max-change": 0.75, "l2-regularize": 0.0,
        "learning-rate-factor": 1.0, "ng-affine-options": ""}

    def derive(self) -> None:
        super().derive()
        if self.values["param-stddev"] < 0:
            self.values["param-stddev"] = 1 / math.sqrt(self.input.dim)

    def lines(self) -> list[str]:
        options = self.options("param-stddev", "bias-stddev", "bias-mean", "max-change", "l2-regularize") + self.values["ng-affine-options"]
        dims = f"input-dim={self.input.dim} output-dim={self.values['dim']}"
        return [component(self.name, "NaturalGradientAffineComponent", f"{dims} {options}"), node(self.name, self.input.nodes)]
