"""Values between the processes of a stage, as files: numbers, text, arrays, lists, dictionaries, and objects of classes that are named.

A file is one of numpy's archives of arrays; the array `value` has the structure as JSON, which refers to the other arrays by their numbers.
Reading runs nothing: an object is made of its attributes, and only where the reader has named its class.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from pykaldist.errors import AGAIN, UserError
from pykaldist.io.atomic import atomic_open
from pykaldist.io.entries import numpy_damage, reason
from pykaldist.io.scratch import explain_full_disk, nameless


def write_message(path: str | os.PathLike[str], value: Any) -> None:
    """Write a value to a file. Raises TypeError for what is none of the kinds that the module names."""
    arrays: list[np.ndarray] = []
    structure = json.dumps(_encoded(value, arrays))
    named: dict[str, Any] = {f"a{n}": array for n, array in enumerate(arrays)}
    with atomic_open(path, "wb") as stream:
        np.savez(stream, value=np.frombuffer(structure.encode(), np.uint8), **named)


def read_message(path: str | os.PathLike[str], classes: Iterable[type] = ()) -> Any:
    """Read a value whose objects are of `classes`; raises UserError where the file is damaged, or has an object of another class."""
    known = {_name(one): one for one in classes}
    damage: tuple[type[Exception], ...] = (TypeError, *numpy_damage())
    try:
        with open(path, "rb") as stream:
            content = io.BytesIO(stream.read())
        with np.load(content, allow_pickle=False) as stored:
            return _decoded(json.loads(stored["value"].tobytes()), stored, known)
    except damage as error:
        raise UserError(f"{os.fspath(path)} is damaged ({reason(error)}); {AGAIN}.") from error


class StoredValue:
    """A value whose arrays lie in a nameless file in a folder until it is asked for."""

    def __init__(self, value: Any, folder: Path) -> None:
        arrays: list[np.ndarray] = []
        self._known: dict[str, type] = {}
        self._structure = _encoded(value, arrays, self._known)
        self._stream, self._begins = nameless(folder), list[int]()
        with explain_full_disk(folder, sum(array.nbytes for array in arrays)):
            for array in arrays:
                self._begins.append(self._stream.tell())
                np.save(self._stream, array, allow_pickle=False)
            self._stream.flush()

    def get(self) -> Any:
        """The value, from the file, which is gone then."""
        with self._stream:
            arrays = {}
            for number, begin in enumerate(self._begins):
                self._stream.seek(begin)
                arrays[f"a{number}"] = np.load(self._stream, allow_pickle=False)
            return _decoded(self._structure, arrays, self._known)


def array_bytes(value: Any) -> int:
    """The bytes of the arrays of a value."""
    arrays: list[np.ndarray] = []
    _encoded(value, arrays)
    return sum(array.nbytes for array in arrays)


def _name(one: type) -> str:
    return f"{one.__module__}.{one.__qualname__}"


def _encoded(value: Any, arrays: list[np.ndarray], known: dict[str, type] | None = None) -> Any:
    """The structure of a value, whose arrays are added to `arrays`, and the classes of its objects to `known`."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        arrays.append(value)
        return {"array": len(arrays) - 1}
    for kind in (list, tuple, set, frozenset):
        if type(value) is kind:
            return {kind.__name__: [_encoded(one, arrays, known) for one in value]}
    if type(value) is dict:
        return {"dict": [[_encoded(key, arrays, known), _encoded(one, arrays, known)] for key, one in value.items()]}
    if not type(value).__module__.startswith("pykaldist."):
        raise TypeError(f"{type(value)} does not go into a message")
    if known is not None:
        known[_name(type(value))] = type(value)
    return {"object": _name(type(value)), "of": _encoded(dict(vars(value)), arrays, known)}


def _decoded(value: Any, arrays: Any, known: dict[str, type]) -> Any:
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return arrays[f"a{value['array']}"]
    if "dict" in value:
        return {_decoded(key, arrays, known): _decoded(one, arrays, known) for key, one in value["dict"]}
    if "object" in value:
        made: Any = object.__new__(known[value["object"]])
        made.__dict__.update(_decoded(value["of"], arrays, known))
        return made
    for kind in (list, tuple, set, frozenset):
        if kind.__name__ in value:
            return kind(_decoded(one, arrays, known) for one in value[kind.__name__])
    raise KeyError(str(next(iter(value), "nothing")))
