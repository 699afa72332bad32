"""Kaldi's primitives: what is written is read again, the bytes are Kaldi's, and damage ends in a sentence."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pykaldist.errors import UserError
from pykaldist.io.kaldi import KaldiReader, KaldiWriter

INT32 = st.integers(-(2**31), 2**31 - 1)
FLOAT32 = st.floats(width=32, allow_nan=False)


def written(binary: bool, *calls: tuple[str, object]) -> KaldiReader:
    stream = io.BytesIO()
    writer = KaldiWriter(stream, binary)
    for method, value in calls:
        getattr(writer, method)(value)
    return KaldiReader(stream.getvalue(), "test")


@given(st.booleans(), INT32, FLOAT32, st.booleans(), hnp.arrays(np.int32, st.integers(0, 5), elements=INT32),
       hnp.arrays(np.float32, hnp.array_shapes(min_dims=2, max_dims=2, max_side=4), elements=FLOAT32))
def test_what_is_written_is_read(binary: bool, number: int, real: float, truth: bool, ints: np.ndarray, matrix: np.ndarray) -> None:
    reader = written(binary, ("token", "<A>"), ("integer", number), ("floating", real), ("boolean", truth), ("int_vector", ints),
                     ("vector", matrix[0]), ("matrix", matrix), ("token", "</A>"))
    tolerance = {"rtol": 0 if binary else 1e-6}
    assert reader.binary == binary
    assert reader.token() == "<A>"
    assert reader.integer() == number
    np.testing.assert_allclose(reader.floating(), real, **tolerance)
    assert reader.boolean() == truth
    np.testing.assert_array_equal(reader.int_vector(), ints)
    np.testing.assert_allclose(reader.vector(), matrix[0], **tolerance)
    np.testing.assert_allclose(reader.matrix(), matrix, **tolerance)
    assert reader.peek_token() == "</A>" and not reader.at_end()
    reader.expect("</A>")
    assert reader.at_end()


def test_bytes_are_kaldis() -> None:
    reader = written(True, ("token", "<T>"), ("integer", 5), ("vector", np.array([1.5], np.float32)),
                     ("matrix", np.array([[2.0]], np.float64)), ("int_vector", np.array([7])), ("boolean", True))
    assert reader.data == (b"\0B<T> \4\5\0\0\0FV \4\1\0\0\0\0\0\xc0\x3fDM \4\1\0\0\0\4\1\0\0\0" + b"\0" * 7 + b"\x40"
                           b"\4\1\0\0\0\7\0\0\0T")
    text = written(False, ("vector", np.array([1 / 3], np.float32)), ("matrix", np.array([[1, 2.5]])), ("matrix", np.empty((0, 0))))
    assert text.data == b" [ 0.3333333 ]\n [\n  1 2.5 ]\n [ ]\n"


def test_doubles_stay_doubles() -> None:
    assert written(True, ("vector", np.array([1 / 3]))).vector().dtype == np.float64


@pytest.mark.parametrize("count", [-1, 2, 2**31 - 1])
def test_lengths_beyond_the_file_are_refused(count: int) -> None:
    length = b"\4" + count.to_bytes(4, "little", signed=True)
    for head, method in ((b"FV " + length, "vector"), (b"FM " + length + length, "matrix"), (length, "int_vector")):
        reader = KaldiReader(b"\0B" + head + b"\0\0\0\0", "x.mat")
        with pytest.raises(UserError, match=r"x\.mat, byte \d+ of"):
            getattr(reader, method)()


@pytest.mark.parametrize(("data", "method", "message"), [
    (b"\0B<A> ", "integer", "size byte"), (b"\0BFM ", "vector", "expected a vector"), (b"", "token", "end of the file"),
    (b"\0BX", "boolean", "expected T or F"), (b"x ", "integer", "expected an integer"), (b"x ", "floating", "expected a number"),
    (b"[ 1 x ]", "vector", "in [ ]"), (b"[ 1 2\n 3 ]", "matrix", "equal length"), (b"[ 1 2", "vector", "in [ ]"),
    (b"a" * 200, "token", "expected a token"), (b"\0B\2", "int_vector", "vector of int32"),
])
def test_wrong_content_is_named(data: bytes, method: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        getattr(KaldiReader(data, "f"), method)()
    assert message in str(error.value)


def test_files_plain_and_gzipped(tmp_path: Path) -> None:
    (tmp_path / "v").write_bytes(b" [ 1 2 ]\n")
    (tmp_path / "v.gz").write_bytes(gzip.compress(b" [ 1 2 ]\n"))
    for name in ("v", "v.gz"):
        assert KaldiReader.open(tmp_path / name).vector().tolist() == [1, 2]
    (tmp_path / "v.gz").write_bytes(gzip.compress(b" [ 1 2 ]\n" * 99)[:-9])
    (tmp_path / "v").write_bytes(b"")
    for name in ("v", "v.gz"):
        with pytest.raises(UserError, match=r"make it again|empty"):
            KaldiReader.open(tmp_path / name)
