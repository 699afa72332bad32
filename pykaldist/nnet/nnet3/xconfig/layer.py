"""What all layers of xconfig files have: fields with defaults, inputs, and the lines of config that they become.

A field has the type of its default; one whose default is empty goes into the config as it is given, and is left out where it is not. The
lines, spaces included, are those that Kaldi's xconfig_to_configs.py writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pykaldist.nnet.nnet3.config import NAME, nearest
from pykaldist.nnet.nnet3.xconfig.descriptors import dim_of, parse_xconfig_descriptor, text_of

Default = str | int | float | bool
FILES = ("init", "ref", "final")  # for the LDA's statistics, for the context alone, and the network

MEANINGS: dict[str, str] = {}  # of fields, for the documentation; files of layers add theirs


@dataclass
class Input:
    """An input of a layer: its descriptor in terms of layers, the same in terms of nodes, and its dimension."""

    layers: str
    nodes: str
    dim: int


class Layer:
    """A layer of an xconfig file: `name`, `values` of its fields, and `input`.

    Raises ValueError, which names the field, for what does not make a layer. `before` are the layers above it in the file, those of an
    existing network first.
    """

    kinds: ClassVar[tuple[str, ...]] = ()  # the words with which its lines begin
    fields: ClassVar[Mapping[str, Default]] = {"input": "[-1]"}
    other_outputs: ClassVar[tuple[str, ...]] = ()  # beside the main one, as `layer.name`

    def __init__(self, kind: str, given: Mapping[str, str], before: Sequence[Layer]) -> None:
        self.kind, self.name = kind, given.get("name", "")
        if not NAME.fullmatch(self.name):
            raise ValueError(f"expected name= with a letter or _ first, then letters, digits, '_', '.' and '-', found {self.name!r}")
        if any(layer.name == self.name for layer in before if not isinstance(layer, ExistingLayer)):
            raise ValueError(f"there is a layer {self.name} already")
        self.values: dict[str, Any] = dict(self.fields)
        for key, text in given.items():
            if key == "name":
                continue
            if key not in self.fields:
                raise ValueError(f"{kind} has no field {key}=; {nearest(key, self.fields)}")
            self.values[key] = _converted(key, text, self.fields[key])
        self.input = self._input("input", before) if "input" in self.fields else Input("", "", 0)
        self.derive()
        self.check()

    def _input(self, key: str, before: Sequence[Layer]) -> Input:
        names = [layer.name for layer in before if not isinstance(layer, ExistingLayer)]
        descriptor = parse_xconfig_descriptor(self.values[key], names)
        found = {name: _output(name, before) for name in descriptor.nodes()}
        return Input(text_of(descriptor), text_of(descriptor, lambda name: found[name][0]),
                     dim_of(descriptor, lambda name: found[name][1]))

    def derive(self) -> None:
        """Set fields that follow from others: a dimension that is not given is that of the input."""
        if self.values.get("dim", 1) <= 0:
            self.values["dim"] = self.input.dim

    def check(self) -> None:
        """Raise ValueError where fields are out of range, or do not fit each other."""

    def output(self, other: str = "") -> str:
        """The node (or a descriptor of nodes) of the layer's main output, or that of another of its outputs."""
        return self.name

    def dim(self, other: str = "") -> int:
        """The dimension of an output."""
        return self.values.get("dim", self.input.dim)

    def lines(self) -> list[str]:
        """The config lines of the layer."""
        raise NotImplementedError

    def configs(self) -> dict[str, list[str]]:
        """The config lines by the files that they go into."""
        lines = self.lines()
        return {"init": lines if self.values.get("include-in-init") else [], "ref": lines, "final": lines}

    def options(self, *keys: str) -> str:
        """Fields that are passed on, a space before each; those that are empty are left out."""
        return "".join(f" {key}={self.values[key]}" for key in keys if self.values[key] != "")

    def require(self, holds: bool, key: str, expected: str) -> None:
        """Raise ValueError where a field does not hold what is expected."""
        if not holds:
            raise ValueError(f"{key}={self.values[key]}: expected {expected}")

    def __str__(self) -> str:
        """The layer as a line with all of its fields."""
        fields = (f'{key}="{value}"' if isinstance(value, str) and "=" in value else f"{key}={value}"
                  for key, value in sorted(self.values.items()))
        return " ".join([self.kind, f"name={self.name}", *fields])

    def name_inputs(self) -> None:
        """Write abbreviations of the input out."""
        if "input" in self.fields:
            self.values["input"] = self.input.layers


class ExistingLayer(Layer):
    """A node of an existing network, from which layers can take input."""

    def __init__(self, name: str, dim: int) -> None:
        self.kind, self.name, self.values, self.input = "existing", name, {"dim": dim}, Input("", "", 0)

    def lines(self) -> list[str]:
        return []


def _converted(key: str, text: str, default: Default) -> Default:
    """The value of a field, of its default's type."""
    try:
        if isinstance(default, bool):
            return {"true": True, "false": False}[text.lower()]
        return type(default)(text)
    except (KeyError, ValueError):
        expected = "true or false" if isinstance(default, bool) else "an integer" if isinstance(default, int) else "a number"
        raise ValueError(f"{key}={text}: expected {expected}") from None


def _output(name: str, before: Sequence[Layer]) -> tuple[str, int]:
    """The node and the dimension of a layer's output by its name in a descriptor."""
    layer_name, _, other = name.partition(".")
    for layer in before:
        if layer.name == name:
            return layer.output(), layer.dim()
        if layer.name == layer_name:
            if other not in layer.other_outputs:
                outputs = f"it has {', '.join(layer.other_outputs)}" if layer.other_outputs else "it has its main one only"
                raise ValueError(f"layer {layer_name} has no output {other}; {outputs}")
            return layer.output(other), layer.dim(other)
    raise ValueError(f"there is no layer {name} before this one; {nearest(name, [layer.name for layer in before])}")


def component(name: str, type_: str, rest: str) -> str:
    """The line of a component."""
    return f"component name={name} type={type_} {rest}"


def node(name: str, source: str) -> str:
    """The line of the node of a component of the same name."""
    return f"component-node name={name} component={name} input={source}"


def sequence(name: str, source: str, steps: Iterable[tuple[str, str, str]]) -> list[str]:
    """The lines of components one behind the other: for each the end of its name, its type and its fields."""
    lines = []
    for end, type_, rest in steps:
        lines += [component(f"{name}.{end}", type_, rest), node(f"{name}.{end}", source)]
        source = f"{name}.{end}"
    return lines
