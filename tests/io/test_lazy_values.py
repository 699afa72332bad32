"""Values that are not looked at: what numpy reads and writes, without numpy."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pykaldist.io.archive import read_value
from pykaldist.io.lazy_values import LazyValue, read_lazy, read_lazy_ints, write_lazy
from pykaldist.io.table_streams import read_table, write_value
from pykaldist.io.tables import MatrixWriter, read_archive

SIDES = st.integers(1, 5)
ARRAYS = st.one_of(hnp.arrays(np.int32, st.integers(0, 6)),
                   hnp.arrays(st.sampled_from([np.float32, np.float64]), st.one_of(st.tuples(st.integers(0, 5)), st.tuples(SIDES, SIDES)),
                              elements=st.floats(-100, 100, width=32)))


def stream_of(content: bytes) -> io.BufferedReader:
    return io.BufferedReader(io.BytesIO(content))


@settings(max_examples=80)
@given(ARRAYS, st.booleans())
def test_bytes_that_are_read_and_written_are_those_of_arrays(array: np.ndarray, binary: bool) -> None:
    written = io.BytesIO()
    write_value(written, array, binary)
    content = written.getvalue()
    value, same = read_lazy(stream_of(content)), read_value(stream_of(content))
    assert value.shape == same.shape and value.array().dtype == same.dtype
    np.testing.assert_array_equal(value.array(), same)
    again = io.BytesIO()
    write_lazy(again, value, binary)
    assert again.getvalue() == content
    assert LazyValue.of(same).binary() == value.binary()


@pytest.mark.parametrize("method", [2, 3, 5])
def test_compressed_matrices_have_their_size_and_are_copied_as_floats(tmp_path: Path, method: int) -> None:
    x = np.random.default_rng(method).random((7, 3)).astype(np.float32)
    with MatrixWriter(tmp_path / "a.ark", tmp_path / "a.scp", method) as writer:
        writer.write("u", x)
    (_, value), (_, numbers) = next(read_table(f"scp:{tmp_path}/a.scp", read_lazy)), next(read_archive(tmp_path / "a.ark"))
    assert value.shape == x.shape and value.kind.startswith("CM")
    np.testing.assert_array_equal(read_value(stream_of(value.binary())), numbers)
    (tmp_path / "part.scp").write_text((tmp_path / "a.scp").read_text().rstrip() + "[2:4]\n")
    assert next(read_table(f"scp:{tmp_path}/part.scp", read_lazy))[1].shape == (3, 3)


@pytest.mark.parametrize("content", [b"\0BFM \4\2\0\0\0\4\2\0\0\0 short", b"\0BXX ", b"\0B\4\1\0\0\0\5\1\0\0\0", b"\0C",
                                     b"\0BFM \4\0\0\0\0\4\2\0\0\0", b"\0BCM \0\0\0\0\0\0\0\0\xff\xff\xff\xff\1\0\0\0"])
def test_damage_is_found(content: bytes) -> None:
    with pytest.raises((ValueError, EOFError)):
        read_lazy(stream_of(content))


@pytest.mark.parametrize("content", [b"1 2.5\n", b" [ 1 2 ]\n", b"\0BFV \4\1\0\0\0\0\0\0\0", b"99999999999\n"])
def test_other_numbers_are_no_integers(content: bytes) -> None:
    with pytest.raises(ValueError, match="expected a vector of integers, found other numbers"):
        read_lazy_ints(stream_of(content))
