"""Schemas of JSON files: what a file has to hold is a dataclass, and a file that does not fit ends in one sentence.

    @dataclass
    class Manifest:
        num_frames: int
        dtype: str

    read_json(path, Manifest, "pack the store again", format=2)

Checked are the file's format (its key `format`, where a number is given), the keys, those that are required and those that are unknown, and
the type of every value. A value's place in the file stands in the sentence: `compute.minibatch_seconds`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from pykaldist.errors import UserError, named
from pykaldist.io.entries import reason

T = TypeVar("T")

_PLAIN: dict[Any, tuple[Any, str]] = {int: (int, "a whole number"), float: ((int, float), "a number"), bool: (bool, "true or false"),
                                      str: (str, "text")}


class Misfit(UserError):
    """The error of a value that does not fit its schema. Its place in the file is put in front while it is raised again."""


def require(good: bool, name: str, value: Any, expected: str) -> None:
    """Raise Misfit, with the name, the value and what was expected, where `good` is false."""
    if not good:
        raise Misfit(f"{name} is {value}, expected {expected}")


def build(cls: type[T], found: Any, place: str = "", extra: bool = False) -> T:
    """Make a dataclass from parsed JSON; raises Misfit where it does not fit.

    `place` is where this stands in the file, with a dot behind. With `extra`, keys that the dataclass lacks are passed over.
    """
    hints, fields = typing.get_type_hints(cls), {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]  # any dataclass
    require(isinstance(found, dict), place.rstrip(".") or "the file", type(found).__name__, "an object with " + ", ".join(fields))
    for key in found:
        require(extra or key in fields, place + key, "unknown", f"one of {', '.join(fields)}")
    for name, f in fields.items():
        needed = f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
        require(not needed or name in found, place + name, "missing", "a value")
    values = {name: _value(hints[name], found[name], place + name, extra) for name in fields if name in found}
    try:
        return cls(**values)
    except Misfit as error:
        raise Misfit(f"{place}{error}") from None


def _value(hint: Any, value: Any, place: str, extra: bool) -> Any:
    """`value` as the type of a field. Raises an error that says what is expected."""
    if hint is Any:
        return value
    if isinstance(hint, types.UnionType):
        if value is None:
            return None
        hint = next(h for h in typing.get_args(hint) if h is not type(None))
    if dataclasses.is_dataclass(hint):
        return build(typing.cast(type, hint), value, place + ".", extra)
    if typing.get_origin(hint) is dict:
        require(isinstance(value, dict), place, repr(value), "an object")
        return {key: _value(typing.get_args(hint)[1], one, f"{place}.{key}", extra) for key, one in value.items()}
    if typing.get_origin(hint) in (tuple, list):
        require(isinstance(value, list), place, repr(value), "a list")
        return typing.get_origin(hint)(_value(typing.get_args(hint)[0], one, f"{place}.{i}", extra) for i, one in enumerate(value))
    kind, expected = _PLAIN[hint]
    require(isinstance(value, kind) and (hint is bool or not isinstance(value, bool)), place, repr(value), expected)
    try:
        return hint(value)
    except OverflowError:
        raise Misfit(f"{place} is out of range, expected {expected}") from None


def read_json(path: str | os.PathLike[str], cls: type[T], cure: str, format: int | None = None, extra: bool = False) -> T:
    """Read a JSON file as a dataclass.

    Raises UserError, which ends in `cure`, where the file is no JSON, has another `format`, or does not fit the dataclass.
    """
    with _explained(path, cure):
        found = _parsed(path)
        if format is not None and isinstance(found, dict) and (other := found.get("format")) != format:
            raise UserError(f"{path} has the format {other!r}, this version reads {format}; {cure}.")
        return build(cls, found, extra=extra)


def read_json_map(path: str | os.PathLike[str], cls: type[T], cure: str) -> dict[str, T]:
    """Read a JSON file that has a dataclass for each of some names; raises UserError as `read_json` does."""
    with _explained(path, cure):
        found = _parsed(path)
        require(isinstance(found, dict), "the file", type(found).__name__, "an object")
        return {name: build(cls, one, f"{name}.") for name, one in found.items()}


def _parsed(path: str | os.PathLike[str]) -> Any:
    with named(path):
        text = Path(path).read_text(encoding="utf-8")
    return json.loads(text)


@contextlib.contextmanager
def _explained(path: str | os.PathLike[str], cure: str) -> Iterator[None]:
    """Raise what is wrong with a file as UserError, which names it and ends in `cure`."""
    try:
        yield
    except (ValueError, RecursionError) as error:  # of JSON or UTF-8
        raise UserError(f"{path} is damaged: it is not JSON ({reason(error)}); {cure}.") from error
    except Misfit as error:
        raise UserError(f"{path} is not as expected: {error}; {cure}.") from error


def read_json_lines(path: str | os.PathLike[str], cls: type, cure: str) -> list[dict[str, Any]]:
    """Read a file with a JSON object a line, each of which fits the dataclass `cls` and may have more keys; returns the objects.

    A last line that is cut, as a full disk leaves it, is left out, with a warning. Raises UserError for another line that does not fit.
    """
    with named(path):
        lines = Path(path).read_bytes().split(b"\n")
    found: list[dict[str, Any]] = []
    for number, line in enumerate(lines, 1):
        if number == len(lines) and not line:
            break
        try:
            found.append(json.loads(line.decode("utf-8")))
        except (ValueError, RecursionError) as error:
            if number == len(lines):
                print(f"WARNING: {path}, line {number}: the last line is cut, and left out", file=sys.stderr)
                break
            raise UserError(f"{path}, line {number}, is damaged: it is not JSON ({reason(error)}); {cure}.") from error
        try:
            build(cls, found[-1], extra=True)
        except Misfit as error:
            raise UserError(f"{path}, line {number}, is not as expected: {error}; {cure}.") from error
    return found


def same_form(state: Any, like: Any, place: str) -> None:
    """Check that a saved state has the form of a fresh one: the same keys in its dictionaries, and values of the same types.

    None stands for any type, and so does what is in a dictionary that is empty in the fresh one. Raises Misfit.
    """
    if isinstance(like, dict) and like:
        require(isinstance(state, dict), place, type(state).__name__, f"a dictionary with {', '.join(map(str, like))}")
        require(state.keys() == like.keys(), place, f"a dictionary with {', '.join(map(str, state)) or 'nothing'}",
                f"one with {', '.join(map(str, like))}")
        for key in like:
            same_form(state[key], like[key], f"{place}.{key}")
    elif state is not None and like is not None:
        number = isinstance(like, float) and isinstance(state, int) and not isinstance(state, bool)
        require(number or type(state) is type(like), place, f"of type {type(state).__name__}", type(like).__name__)
