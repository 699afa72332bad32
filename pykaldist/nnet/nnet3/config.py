"""The nodes of an nnet3 network: the lines of its config, and the descriptors that say what a node takes as input.

A line is the kind of a node and `key=value` pairs: `component-node name=tdnn1.relu component=tdnn1.relu input=tdnn1.affine`. A descriptor
is the name of a node, or a function of descriptors: `Append(Offset(input, -1), input)`. Offsets are in frames. Source: the documentation
of Kaldi's nnet3 ("Data types in the nnet3 setup").
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

MOST_LEVELS = 50  # of functions in functions, in a file that is not damaged
WORD = re.compile(r"\s*([A-Za-z_][\w.\-]*|[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[(),])")
PAIR = re.compile(r"""\s+([A-Za-z][\w-]*)=("[^"]*"|'[^']*'|\S*)""")
NAME = re.compile(r"[A-Za-z_][\w.\-]*")
# arguments: d a descriptor, i an integer, f a number, v a variable (t or x); + one or more, ? at most one
FUNCTIONS = {"Append": "d+", "Sum": "d+", "Failover": "dd", "IfDefined": "d", "Offset": "dii?", "Switch": "d+", "Round": "di",
             "ReplaceIndex": "dvi", "Scale": "fd", "Const": "fi"}
KINDS = {"input-node": ("dim",), "component-node": ("component", "input"), "output-node": ("input",),
         "dim-range-node": ("input-node", "dim-offset", "dim")}


@dataclass(frozen=True)
class Descriptor:
    """A descriptor: `function` of `parts` (descriptors) and `numbers`; without a function, the node `node`."""

    node: str = ""
    function: str = ""
    parts: tuple[Descriptor, ...] = ()
    numbers: tuple[float, ...] = ()
    variable: str = ""

    def __str__(self) -> str:
        if not self.function:
            return self.node
        numbers = [f"{n:g}" for n in self.numbers]
        parts = [str(p) for p in self.parts]
        if self.function in ("Scale", "Const"):
            return f"{self.function}({', '.join([numbers[0], *parts, *numbers[1:]])})"
        return f"{self.function}({', '.join([*parts, *([self.variable] if self.variable else []), *numbers])})"

    def nodes(self) -> Iterator[str]:
        """The names of the nodes in it, in their order; one that stands there twice comes twice."""
        if not self.function:
            yield self.node
        for part in self.parts:
            yield from part.nodes()


def parse_descriptor(text: str) -> Descriptor:
    """Parse a descriptor; raises ValueError that says what stands where something else was expected."""
    words, pos = [], 0
    while pos < len(text.rstrip()):
        match = WORD.match(text, pos)
        if not match:
            raise ValueError(f"expected a descriptor, found {text[pos:pos + 40]!r}")
        words.append(match[1])
        pos = match.end()
    descriptor, rest = _parse(words, 0, 0)
    if rest != len(words):
        raise ValueError(f"expected the end of the descriptor {text!r}, found {words[rest]!r}")
    return descriptor


def _parse(words: list[str], pos: int, level: int) -> tuple[Descriptor, int]:
    word = words[pos] if pos < len(words) else "the end"
    if pos == len(words) or not NAME.fullmatch(word) or level > MOST_LEVELS:
        raise ValueError(f"expected a descriptor, found {word!r}")
    if words[pos + 1:pos + 2] != ["("]:
        return Descriptor(word), pos + 1
    if word not in FUNCTIONS:
        raise ValueError(f"expected one of {', '.join(FUNCTIONS)}, found {word!r}")
    shape, parts, numbers, variable, given = FUNCTIONS[word], [], [], "", 0
    kinds = shape.replace("?", "").replace("+", "")
    pos += 1
    while words[pos] != ")":
        pos += 1
        kind = kinds[given] if given < len(kinds) else "d" if shape.endswith("+") else ""
        if kind == "d":
            part, pos = _parse(words, pos, level + 1)
            parts.append(part)
        else:
            argument = words[pos] if pos < len(words) else "the end"
            if kind == "v" and argument in ("t", "x"):
                variable = argument
            elif kind in ("i", "f") and re.fullmatch(r"[-+]?\d+" if kind == "i" else r"[-+]?[\d.].*", argument):
                numbers.append(float(argument))
            else:
                raise ValueError(f"expected the arguments of {word}, found {argument!r}")
            pos += 1
        given += 1
        if words[pos:pos + 1] not in ([","], [")"]):
            raise ValueError(f"expected ',' or ')' in {word}, found {words[pos] if pos < len(words) else 'the end'!r}")
    if given < len(kinds) - shape.count("?"):
        raise ValueError(f"{word} has {given} arguments, too few")
    return Descriptor("", word, tuple(parts), tuple(numbers), variable), pos + 1


@dataclass
class Node:
    """A node: its kind, its name, its descriptor (of component and output nodes), and all else that its line says."""

    kind: str
    name: str
    input: Descriptor | None = None
    values: dict[str, str] = field(default_factory=dict)

    @property
    def component(self) -> str:
        return self.values["component"]

    def __str__(self) -> str:
        words = []
        for key, value in self.values.items():
            words.append(f"{key}={self.input if key == 'input' else value}")
        return " ".join([self.kind, f"name={self.name}", *words])


def parse_node(line: str) -> Node:
    """Parse the line of a node; raises ValueError that names what is wrong with it."""
    kind, *pairs = re.split(r"\s+([a-z][a-z-]*)=", line.strip())
    values = dict(zip(pairs[::2], (value.strip() for value in pairs[1::2]), strict=True))
    if kind not in KINDS:
        raise ValueError(f"expected {', '.join(KINDS)}, found {kind[:40]!r}")
    name = values.pop("name", "")
    if not NAME.fullmatch(name):
        raise ValueError(f"{kind} has the name {name!r}, expected letters, digits, '_', '.' and '-'")
    for key in KINDS[kind]:
        if key not in values:
            raise ValueError(f"{kind} {name} has no {key}=")
        if key.startswith("dim") and not (values[key].isdecimal() and int(values[key]) < 1 << 24):
            raise ValueError(f"{kind} {name} has {key}={values[key]}, expected a number of dimensions")
    descriptor = None
    if kind == "dim-range-node":
        descriptor = Descriptor(values["input-node"])
    elif "input" in values:
        try:
            descriptor = parse_descriptor(values["input"])
        except ValueError as error:
            raise ValueError(f"{kind} {name}, input: {error}") from error
    return Node(kind, name, descriptor, values)


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of a message about a word that is not known: which it may have been."""
    names = list(known)
    near = difflib.get_close_matches(word, names, 3)
    return f"the nearest {'are' if len(near) > 1 else 'is'} {', '.join(near)}" if near else f"known are {', '.join(names)}"


class ConfigLine:
    """A line of config, `kind key=value ...`: its kind, and its fields, from which each is taken once."""

    def __init__(self, text: str) -> None:
        self.kind = text.split()[0]
        self._fields = {key: value.strip("\"'") for key, value in PAIR.findall(text)}
        self._known: list[str] = []
        rest = PAIR.sub("", text.removeprefix(self.kind)).strip()
        if rest:
            raise ValueError(f"expected fields as key=value, found {rest[:40]!r}")

    def has(self, key: str) -> bool:
        self._known.append(key)
        return key in self._fields

    def text(self, key: str, default: str | None = None) -> str:
        """Take a field; raises ValueError where it is missing and has no default."""
        self._known.append(key)
        value = self._fields.pop(key, default)
        if value is None:
            raise ValueError(f"it has no {key}=")
        return value

    def integer(self, key: str, default: int | None = None, least: int = 1) -> int:
        text = self.text(key, None if default is None else str(default))
        if not re.fullmatch(r"[-+]?\d+", text) or (int(text) < least and int(text) != default):
            raise ValueError(f"expected an integer of at least {least} in {key}=, found {text!r}")
        return int(text)

    def number(self, key: str, default: float | None = None, least: float = -math.inf) -> float:
        text = self.text(key, None if default is None else repr(default))
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and (value >= least or value == default)):
            raise ValueError(f"expected a number{'' if least == -math.inf else f' of at least {least:g}'} in {key}=, found {text!r}")
        return value

    def boolean(self, key: str, default: bool) -> bool:
        text = self.text(key, str(default))
        if text[:1].lower() not in ("t", "f"):
            raise ValueError(f"expected true or false in {key}=, found {text!r}")
        return text[0].lower() == "t"

    def integers(self, key: str, default: list[int] | None = None) -> list[int]:
        """Take numbers with commas between them, none of them twice."""
        text = self.text(key, None if default is None else ",".join(map(str, default)))
        parts = text.split(",")
        if not all(re.fullmatch(r"[-+]?\d+", part) for part in parts) or len(set(parts)) < len(parts):
            raise ValueError(f"expected different integers with commas between them in {key}=, found {text!r}")
        return [int(part) for part in parts]

    def refuse_rest(self) -> None:
        """Raise ValueError that names a field which nothing has taken, and the nearest that is known."""
        for key in self._fields:
            raise ValueError(f"there is no field {key}=; {nearest(key, self._known)}")
