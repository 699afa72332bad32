"""A value comes back from a message as it was; what is not named does not come in."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from pykaldist.errors import UserError
from pykaldist.feats.splice import SpliceOptions
from pykaldist.io.messages import read_message, write_message
from pykaldist.progress import Progress

NUMBERS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
ARRAYS = arrays(st.sampled_from([np.int8, np.int32, np.float32, np.float64, np.bool_]), array_shapes(max_side=3))
KEYS = st.text() | st.integers() | st.tuples(st.integers(), st.text())
VALUES = st.recursive(NUMBERS | ARRAYS | st.frozensets(st.integers()) | st.sets(st.text()),
                      lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(KEYS, inner), max_leaves=8)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    if isinstance(one, list | tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(value, other[key]) for key, value in one.items())
    return type(one) is type(other) and one == other


@given(VALUES)
def test_a_value_comes_back(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "message"
    write_message(path, value)
    assert same(value, read_message(path))


def test_objects_come_back_where_their_class_is_named(tmp_path: Path) -> None:
    value = {"options": SpliceOptions(2, 3), "many": [SpliceOptions(1, 1)]}
    write_message(tmp_path / "message", value)
    assert read_message(tmp_path / "message", [SpliceOptions]) == value
    for classes in ([], [Progress]):
        with pytest.raises(UserError, match=r"message is damaged \(.*SpliceOptions.*make it again"):
            read_message(tmp_path / "message", classes)


@dataclass
class Stranger:
    number: int


@pytest.mark.parametrize("value", [Stranger(1), Counter("ab"), b"bytes", {1: object()}, {"x": np.array([object()])}])
def test_other_values_are_not_written(tmp_path: Path, value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        write_message(tmp_path / "message", value)
    assert not (tmp_path / "message").exists()


def test_a_damaged_message_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "message"
    write_message(path, [np.arange(100)])
    whole = path.read_bytes()
    for bad in (b"", whole[:-30], whole[:200], b"{}"):
        path.write_bytes(bad)
        with pytest.raises(UserError, match="is damaged"):
            read_message(path)
    with pytest.raises(UserError, match="is damaged"):
        read_message(tmp_path / "none")
