r"""Reader and writer of Kaldi's basic types, binary and text, which make up `final.mdl`, `tree`, `final.mat` and nnet1 files.

A binary file begins with `\0B`. A token ends with one space. A number has its size in one byte before it (negative for an
unsigned type). A vector is `FV ` or `DV ` (float, double), its sized length, and the elements; a matrix `FM ` or `DM `, sized
rows, sized columns, and the rows. A vector of integers has no token: the size of an element in one byte, an int32 length, the
elements. In a text file numbers are followed by a space, vectors stand in `[ ]`, and floats have seven significant digits.
Source: Kaldi's base/io-funcs and matrix/kaldi-{vector,matrix}.
"""

from __future__ import annotations

import gzip
import os
import struct
import zlib
from collections.abc import Sequence
from typing import IO

import numpy as np

from pykaldist.errors import AGAIN, UserError, named
from pykaldist.io.compressed import read_compressed
from pykaldist.io.entries import open_archive
from pykaldist.io.raw_values import COMPRESSED
from pykaldist.io.tokens import TokenReader


class KaldiReader(TokenReader):
    """Reads Kaldi's primitives one after another from a file that is held in memory: those of TokenReader, and arrays."""

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> KaldiReader:
        """Open a file (gzipped if its name ends in `.gz`); its first two bytes say whether it is binary or text."""
        try:
            with named(path), open_archive(path) as stream:
                data = stream.read()
        except (gzip.BadGzipFile, zlib.error, EOFError) as error:
            raise UserError(f"{path} is no readable gzip file ({error}); {AGAIN}.") from error
        if not data:
            raise UserError(f"{path} is empty; {AGAIN}.")
        return cls(data, str(path))

    @classmethod
    def only_matrix(cls, path: str | os.PathLike[str]) -> np.ndarray:
        """Read a file with one matrix, as `matrix` does; raises UserError where there is something behind it."""
        reader = cls.open(path)
        return reader._last(reader.matrix())

    @classmethod
    def only_vector(cls, path: str | os.PathLike[str]) -> np.ndarray:
        """Read a file with one vector, as `vector` does; raises UserError where there is something behind it."""
        reader = cls.open(path)
        return reader._last(reader.vector())

    def _last(self, value: np.ndarray) -> np.ndarray:
        if not self.at_end():
            raise self.error("expected the end of the file")
        return value

    def int_vector(self) -> np.ndarray:
        """Read a vector of int32 (Kaldi's WriteIntegerVector)."""
        if not self.binary:
            return self._bracketed(np.int32)[0]
        if self._take(1) != b"\4":
            self.pos -= 1
            raise self.error("expected a vector of int32")
        length = struct.unpack("<i", self._take(4))[0]
        return np.frombuffer(self._take(4 * length), dtype="<i4").astype(np.int32)

    def vector(self) -> np.ndarray:
        """Read a vector: float32, or float64 where the file has doubles; a text file gives float32."""
        if not self.binary:
            return self._bracketed(np.float32)[0]
        dtype = self._kind("V", "vector")
        length = self.count("elements", dtype.itemsize)
        return np.frombuffer(self._take(length * dtype.itemsize), dtype=dtype).astype(dtype.newbyteorder("="))

    def matrix(self) -> np.ndarray:
        """Read a matrix (rows x columns): float32, or float64 where the file has doubles.

        A text file, and a compressed matrix, give float32.
        """
        if not self.binary:
            values, widths = self._bracketed(np.float32)
            if len(set(widths)) > 1:
                raise self.error(f"expected matrix rows of equal length, found {min(widths)} and {max(widths)} columns")
            return values.reshape(len(widths), -1) if widths else values.reshape(0, 0)
        kind, end = self._word()
        if kind in COMPRESSED:
            self.pos = end + 1
            try:
                return read_compressed(kind, self._take)
            except ValueError as error:
                raise self.error(f"expected a compressed matrix, found {error}") from error
        dtype = self._kind("M", "matrix")
        rows, cols = self.integer(), self.integer()
        if rows < 0 or cols < 0 or (rows == 0) != (cols == 0):
            raise self.error(f"expected the dimensions of a matrix, found {rows} x {cols}")
        return np.frombuffer(self._take(rows * cols * dtype.itemsize), dtype=dtype).astype(dtype.newbyteorder("=")) \
            .reshape(rows, cols)

    def triangle(self, dim: int) -> np.ndarray:
        """Read a lower triangular matrix of `dim` rows (Kaldi's TpMatrix, `FP `): a square one, with zeros above the diagonal."""
        if self.binary:
            dtype = self._kind("P", "packed matrix")
            rows = self.integer()
            count = dim * (dim + 1) // 2
            values = np.frombuffer(self._take(count * dtype.itemsize), dtype=dtype) if rows == dim else np.empty(0)
        else:
            values, widths = self._bracketed(np.float32)
            rows = len(widths)
        if rows != dim or len(values) != dim * (dim + 1) // 2:
            raise self.error(f"expected a triangle of {dim} rows, found {rows}")
        result = np.zeros((dim, dim), np.float64 if values.dtype.itemsize == 8 else np.float32)
        result[np.tril_indices(dim)] = values
        return result

    def _kind(self, letter: str, what: str) -> np.dtype:
        return np.dtype(f"<f{self._width(letter, what)}")

    def _bracketed(self, dtype: type) -> tuple[np.ndarray, list[int]]:
        """The numbers between `[` and `]` of a text file, and how many each line has that has any."""
        begin = self.pos
        rows = self.bracketed()
        values = np.array([value for row in rows for value in row], dtype=np.float64)
        if dtype is np.int32 and not ((values == np.floor(values)) & (values >= -(2**31)) & (values < 2**31)).all():
            self.pos = begin
            raise self.error("expected integers in [ ]")
        with np.errstate(over="ignore"):
            return values.astype(dtype), [len(row) for row in rows]


class KaldiWriter:
    """Writes Kaldi's primitives, byte for byte as Kaldi does; `end_line` makes a new line in text files only."""

    def __init__(self, stream: IO[bytes], binary: bool = True) -> None:
        self.stream, self.binary = stream, binary
        if binary:
            stream.write(b"\0B")

    def token(self, *tokens: str) -> None:
        for token in tokens:
            self.stream.write(token.encode("ascii") + b" ")

    def end_line(self) -> None:
        if not self.binary:
            self.stream.write(b"\n")

    def integer(self, value: int, unsigned: bool = False) -> None:
        """Write an int32, or uint32."""
        if self.binary:
            self.stream.write(struct.pack("<bI", -4, value) if unsigned else struct.pack("<bi", 4, value))
        else:
            self.stream.write(b"%d " % value)

    def floating(self, value: float) -> None:
        """Write a float (four bytes)."""
        self.stream.write(struct.pack("<bf", 4, value) if self.binary else f"{np.float32(value):.7g} ".encode())

    def double(self, value: float) -> None:
        """Write a double (eight bytes)."""
        self.stream.write(struct.pack("<bd", 8, value) if self.binary else f"{value:.7g} ".encode())

    def boolean(self, value: bool) -> None:
        self.stream.write((b"T" if value else b"F") + (b"" if self.binary else b" "))

    def int_vector(self, values: np.ndarray) -> None:
        self.int_list(values.tolist())

    def int_list(self, values: Sequence[int]) -> None:
        if self.binary:
            self.stream.write(b"\4" + struct.pack(f"<i{len(values)}i", len(values), *values))
        else:
            self.stream.write(b"[ " + b"".join(b"%d " % v for v in values) + b"]\n")

    def pair_list(self, pairs: Sequence[tuple[int, int]]) -> None:
        if self.binary:
            numbers = [number for pair in pairs for number in pair]
            self.stream.write(b"\4" + struct.pack(f"<i{len(numbers)}i", len(pairs), *numbers))
        else:
            self.stream.write(b"[ " + b"".join(b"%d,%d " % pair for pair in pairs) + b"]\n")

    def vector(self, values: np.ndarray) -> None:
        """Write a vector; float64 stays double, all else is written as float."""
        if self.binary:
            values, letter = _as_float(values)
            self.stream.write(letter + b"V " + struct.pack("<bi", 4, len(values)) + values.tobytes())
        else:
            self.stream.write((" [ " + "".join(f"{v:.7g} " for v in values) + "]\n").encode())

    def matrix(self, values: np.ndarray) -> None:
        """Write a matrix; float64 stays double, all else is written as float."""
        if self.binary:
            values, letter = _as_float(values)
            self.stream.write(letter + b"M " + struct.pack("<bibi", 4, values.shape[0], 4, values.shape[1]) + values.tobytes())
        elif values.size == 0:
            self.stream.write(b" [ ]\n")
        else:
            self.stream.write((" [" + "".join("\n  " + "".join(f"{v:.7g} " for v in row) for row in values) + "]\n").encode())

    def triangle(self, values: np.ndarray) -> None:
        """Write the lower triangle of a square matrix (Kaldi's TpMatrix); float64 stays double, all else is written as float."""
        if self.binary:
            values, letter = _as_float(values)
            self.stream.write(letter + b"P " + struct.pack("<bi", 4, len(values)) + values[np.tril_indices(len(values))].tobytes())
        else:
            rows = "".join("".join(f"{v:.7g} " for v in row[:number + 1]) + "\n" for number, row in enumerate(values))
            self.stream.write(f"[\n{rows}]\n".encode())


def _as_float(values: np.ndarray) -> tuple[np.ndarray, bytes]:
    double = values.dtype == np.float64
    return np.ascontiguousarray(values, dtype="<f8" if double else "<f4"), b"D" if double else b"F"
