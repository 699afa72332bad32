"""Descriptors as they stand in xconfig files, where layers are named, and abbreviations allowed.

`[-1]` is the layer before, `[-2]` the one before that; `layer@-3` is Offset(layer, -3); a number in the place of a layer is an offset of
the layer before: `Append(-3, 0, 3)`. `layer.name` is an output of a layer beside its main one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from pykaldist.nnet.nnet3.config import FUNCTIONS, Descriptor, parse_descriptor

WORD = re.compile(r"[A-Za-z_][\w.\-]*|[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|\S")
INTEGER = re.compile(r"[-+]?\d+")
BEFORE = re.compile(r"\[\s*([-+]?\d+)\s*\]")
SHIFTED = re.compile(r"([A-Za-z_][\w.\-]*)\s*@\s*([-+]?\d+)")


def parse_xconfig_descriptor(text: str, before: Sequence[str]) -> Descriptor:
    """Parse a descriptor, of which the names are those of layers; `before` are the layers that stand before its own.

    Raises ValueError that says what stands where something else was expected.
    """
    return parse_descriptor(_written_out(text, before))


def _written_out(text: str, before: Sequence[str]) -> str:
    """The descriptor without abbreviations."""
    text = BEFORE.sub(lambda match: _layer_before(int(match[1]), before), text)
    text = SHIFTED.sub(lambda match: _offset(match[1], match[2]), text)
    words = WORD.findall(text)
    functions: list[tuple[str, int]] = []  # those that are open, each with the number of its argument at hand
    for pos, word in enumerate(words):
        if word == "(":
            functions.append((words[pos - 1] if pos else "", 0))
        elif word == "," and functions:
            functions[-1] = (functions[-1][0], functions[-1][1] + 1)
        elif word == ")" and functions:
            functions.pop()
        elif INTEGER.fullmatch(word) and _takes_layer(functions):
            words[pos] = _offset(_layer_before(-1, before), word)
    return " ".join(words)


def _layer_before(number: int, before: Sequence[str]) -> str:
    if number >= 0 or -number > len(before):
        raise ValueError(f"there is no layer [{number}]; {len(before)} stand before this one")
    return before[number]


def _takes_layer(functions: list[tuple[str, int]]) -> bool:
    """Whether the argument at hand of the innermost function is a descriptor."""
    name, argument = functions[-1] if functions else ("Append", 0)
    kinds = FUNCTIONS.get(name, "d").replace("?", "").replace("+", "")
    return kinds[min(argument, len(kinds) - 1)] == "d"


def _offset(layer: str, frames: str) -> str:
    return f"Offset({layer}, {int(frames)})" if int(frames) else layer


def text_of(descriptor: Descriptor, named: Callable[[str], str] = str) -> str:
    """The text of a descriptor, as Kaldi's xconfig code writes it (scales with their decimal point); `named` names its layers."""
    if not descriptor.function:
        return named(descriptor.node)
    parts = [text_of(part, named) for part in descriptor.parts]
    if descriptor.function in ("Scale", "Const"):
        words = [str(descriptor.numbers[0]), *parts, *(f"{n:g}" for n in descriptor.numbers[1:])]
    else:
        words = [*parts, *([descriptor.variable] if descriptor.variable else []), *(str(int(n)) for n in descriptor.numbers)]
    return f"{descriptor.function}({', '.join(words)})"


def dim_of(descriptor: Descriptor, dim: Callable[[str], int]) -> int:
    """The dimension of a descriptor, where `dim` is that of a layer; raises ValueError where parts do not fit."""
    if not descriptor.function:
        return dim(descriptor.node)
    if descriptor.function == "Const":
        return int(descriptor.numbers[1])
    dims = [dim_of(part, dim) for part in descriptor.parts]
    if descriptor.function == "Append":
        return sum(dims)
    if len(set(dims)) > 1:
        raise ValueError(f"{text_of(descriptor)} has parts of dimensions {', '.join(map(str, dims))}")
    return dims[0]
