"""The nodes of an nnet3 network: the lines of its config, and the descriptors that say what a node takes as input.

A line is the kind of a node and `key=value` pairs: `component-node name=tdnn1.relu component=tdnn1.relu input=tdnn1.affine`. A descriptor
is the name of a node, or a function of descriptors: `Append(Offset(input, -1), input)`. Offsets are in frames. Source: the documentation
of Kaldi's nnet3 ("Data types in the nnet3 setup").
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

MOST_LEVELS = 50  # of functions in functions, in a file that is not damaged
WORD = re.compile(r"\s*([A-Za-z_][\w.\-]*|[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[(),])")
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
