"""Kaldi tables (`ark`, `scp`) of matrices and of integer vectors, over kaldiio.

Archives are written under a temporary name and appear whole. `.gz` archives are opened with gzip. A pipe (`... |`) in an
rspecifier or scp is refused: shell commands run only from the `wav.scp` of a data directory the user named.
"""

from __future__ import annotations

import gzip
import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import kaldiio
import numpy as np

from pykaldist.errors import UserError
from pykaldist.io.atomic import atomic_open, write_text


def read_lines(path: str | os.PathLike[str]) -> list[str]:
    """Lines of a UTF-8 text file without their ends; raises UserError where it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text (byte {error.start}); convert it with iconv.") from error


def read_map(path: str | os.PathLike[str]) -> dict[str, str]:
    """A two-column text file (`key value with spaces`) as a dict in file order; a repeated key is an error."""
    table: dict[str, str] = {}
    for number, line in enumerate(read_lines(path), 1):
        fields = line.split(maxsplit=1)
        if not fields:
            raise UserError(f"{path}, line {number}: empty line; remove it.")
        if fields[0] in table:
            raise UserError(f"{path}, line {number}: {fields[0]} appears twice; keep one.")
        table[fields[0]] = fields[1].strip() if len(fields) > 1 else ""
    return table


class MatrixReader(Mapping[str, np.ndarray]):
    """Random access to the matrices (or vectors) of an scp file; a matrix is read when asked for."""

    def __init__(self, scp: str | os.PathLike[str]) -> None:
        self.path = Path(scp)
        self._where = read_map(scp)
        for key, where in self._where.items():
            if where.endswith("|") or where.startswith("|"):
                raise UserError(f"{scp}, {key}: a pipe is not read here; write the matrices to an archive.")

    def __getitem__(self, key: str) -> np.ndarray:
        where = self._where[key]
        try:
            return np.asarray(kaldiio.load_mat(where))
        except FileNotFoundError as error:
            raise UserError(f"{self.path}, {key}: archive {where} does not exist; make the features again.") from error
        except (ValueError, AssertionError, struct.error, EOFError, RuntimeError, MemoryError) as error:
            raise UserError(f"{self.path}, {key}: {where} is no readable matrix ({error or type(error).__name__}); "
                            "make the features again.") from error

    def __iter__(self) -> Iterator[str]:
        return iter(self._where)

    def __len__(self) -> int:
        return len(self._where)


def open_archive(path: str | os.PathLike[str]) -> IO[bytes]:
    """A possibly gzipped archive, for reading."""
    return gzip.open(path, "rb") if str(path).endswith(".gz") else open(path, "rb")


def read_archive(path: str | os.PathLike[str]) -> Iterator[tuple[str, np.ndarray]]:
    """(key, matrix | vector | int32 vector) for each entry of an archive, text or binary, gzipped if it ends in `.gz`."""
    count = 0
    try:
        with open_archive(path) as stream:
            for key, value in kaldiio.load_ark(stream):
                count += 1
                yield key, np.asarray(value)
    except (ValueError, AssertionError, struct.error, EOFError, RuntimeError, gzip.BadGzipFile, UnicodeDecodeError,
            MemoryError) as error:
        raise UserError(f"{path} is no readable archive: entry {count + 1} is damaged or truncated "
                        f"({error or type(error).__name__}); make it again.") from error


class MatrixWriter:
    """Write matrices to `ark` with an index `scp`; both appear only when the block ends without an exception.

    `compression_method` as in Kaldi's copy-feats (0 none; 2 one byte a value with per-column headers).
    """

    def __init__(self, ark: str | os.PathLike[str], scp: str | os.PathLike[str], compression_method: int = 0) -> None:
        self.ark, self.scp = Path(os.path.abspath(ark)), Path(scp)
        self.compression_method = compression_method
        self._lines: list[str] = []

    def __enter__(self) -> MatrixWriter:
        self._context = atomic_open(self.ark, "wb")
        self._stream = self._context.__enter__()
        return self

    def write(self, key: str, matrix: np.ndarray) -> None:
        """Append one entry; float64 stays float64."""
        self._stream.write(key.encode("utf-8") + b" ")
        self._lines.append(f"{key} {self.ark}:{self._stream.tell()}\n")
        kaldiio.save_mat(self._stream, matrix, compression_method=self.compression_method or None)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> Any:
        result = self._context.__exit__(kind, error, trace)
        if kind is None:
            write_text(self.scp, "".join(self._lines))
        return result


def write_int_vectors(path: str | os.PathLike[str], items: Iterable[tuple[str, np.ndarray]]) -> int:
    """Write an archive of int32 vectors as Kaldi's `ali.*.gz` (gzip where the name says so); returns the count."""
    count = 0
    with atomic_open(path, "wb") as raw:
        stream = gzip.GzipFile(fileobj=raw, mode="wb", mtime=0, filename="") if str(path).endswith(".gz") else raw
        for key, vector in items:
            stream.write(key.encode("utf-8") + b" \0B" + int_vector_bytes(vector))
            count += 1
        if stream is not raw:
            stream.close()
    return count


def int_vector_bytes(vector: np.ndarray) -> bytes:
    """Kaldi's archive form of vector<int32>: sized count, then a size byte and an int32 for each element."""
    elements = np.empty(len(vector), dtype=np.dtype([("size", "i1"), ("value", "<i4")]))
    elements["size"], elements["value"] = 4, vector
    return b"\4" + struct.pack("<i", len(vector)) + elements.tobytes()
