"""What is asked again and again about operations and their arguments, in less time than PyTorch's descriptions of them take."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Signature:
    """An operation: its name, the arguments that it writes to (place, name), how many results it has.

    `is_view`: its result is a part of an argument. `reshapes`: it changes the shape of an argument.
    """

    name: str
    written: tuple[tuple[int, str], ...]
    returns: int
    is_view: bool
    reshapes: bool

    def outputs(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """Those of the arguments that are written to."""
        return [args[place] if place < len(args) else kwargs[name] for place, name in self.written if place < len(args) or name in kwargs]


@functools.cache
def signature(func: Any) -> Signature:
    """The signature of an operation."""
    schema = func._schema
    name, arguments = schema.name.split("::")[1], [(argument.name, argument.alias_info) for argument in schema.arguments]
    written = tuple((place, own) for place, (own, alias) in enumerate(arguments) if alias is not None and alias.is_write)
    return Signature(name, written, len(schema.returns), not schema.is_mutable and any(alias is not None for _, alias in arguments),
                     torch.Tag.inplace_view in func.tags or name in ("set_", "resize_"))


def leaves(values: Iterable[Any]) -> Iterator[Any]:
    """The values, and those in lists and tuples among them."""
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from leaves(value)
        else:
            yield value


def changed(value: Any, change: Callable[[Any], Any]) -> Any:
    """A value with each of its leaves changed."""
    return type(value)([changed(one, change) for one in value]) if isinstance(value, (list, tuple)) else change(value)
