"""Kaldi tables (`ark`, `scp`) of matrices and of integer vectors.

Archives are written under a temporary name and appear whole. `.gz` archives are opened with gzip. A pipe (`... |`) in an
rspecifier or scp is refused: shell commands run only from the `wav.scp` of a data directory the user named.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, cast

import numpy as np

from pykaldist.errors import AGAIN, FEATURES, UserError, named, quoted, to_utf8
from pykaldist.io.archive import read_value, shape_of
from pykaldist.io.atomic import atomic_open
from pykaldist.io.compressed import compressed
from pykaldist.io.entries import DAMAGE, cut, location, open_archive, read_entries, reason
from pykaldist.io.line_index import LineIndex, table_entry, text_lines
from pykaldist.io.sums import Sums, SumsWriter, checked, forget_sums, read_at

SPEECH_FEATURE = 2  # Kaldi's compression method of one byte a value, with column headers


def read_lines(path: str | os.PathLike[str]) -> list[str]:
    """The lines of a UTF-8 text file without their ends.

    Only newlines end a line, not the other characters that str.splitlines takes for ends.

    Raises UserError where it cannot be read.
    """
    try:
        with named(path):
            text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text (byte {error.start}); {to_utf8(path)}.") from error
    return text.removesuffix("\n").split("\n") if text else []


def read_whole_lines(path: str | os.PathLike[str]) -> list[str]:
    """The lines of a text file that a program wrote, as `read_lines`; raises UserError where the last has no end, as when it was cut."""
    lines = read_lines(path)
    if lines and lines[-1] and not _ends_line(path):
        raise UserError(f"{path}, line {len(lines)}: the last line has no end, as in a file that was cut; make it again, or end the line: "
                        f"echo >> {quoted(path)}.")
    return lines


def _ends_line(path: str | os.PathLike[str]) -> bool:
    with open(path, "rb") as stream:
        stream.seek(-1, os.SEEK_END)
        return stream.read() == b"\n"


def read_map(path: str | os.PathLike[str], whole: bool = False) -> dict[str, str]:
    """A two-column text file (`key value with spaces`) as a dict in file order; a repeated key is an error.

    `whole`: so is a last line without its end, which files of programs do not have.
    """
    table: dict[str, str] = {}
    for number, line in enumerate(read_whole_lines(path) if whole else text_lines(path), 1):
        key, value = table_entry(line, path, number)
        if key in table:
            raise UserError(f"{path}, line {number}: {key} appears twice; keep one.")
        table[key] = value
    return table


class MatrixReader(Mapping[str, np.ndarray]):
    """Random access to the matrices (or vectors) of an scp file; a matrix is read when asked for, and checked (sums.py)."""

    def __init__(self, scp: str | os.PathLike[str]) -> None:
        self.path = Path(scp)
        self._sums: dict[str, Sums | None] = {}
        self._where = LineIndex(scp, self._check)

    def _check(self, key: str, where: str) -> None:
        if where.endswith("|") or where.startswith("|"):
            raise UserError(f"{self.path}, {key}: a pipe is not read here; write the matrices to an archive.")

    def __getitem__(self, key: str) -> np.ndarray:
        where = self._where[key]
        with self._readable(key, where):
            return load_matrix(where, self._sums)

    def num_rows(self, key: str) -> int:
        """The number of rows of a matrix, or of elements of a vector, which is read from its header."""
        where = self._where[key]
        with self._readable(key, where):
            path, offset, ranges = location(where)
            with open_archive(path) as stream:
                stream.seek(offset)
                shape = shape_of(stream)
            return int(cut(np.broadcast_to(np.int8(0), shape), ranges).shape[0]) if ranges else shape[0]

    @contextlib.contextmanager
    def _readable(self, key: str, where: str) -> Iterator[None]:
        """Name the entry that the block cannot read."""
        try:
            yield
        except FileNotFoundError as error:
            raise UserError(f"{self.path}, {key}: archive {where} does not exist; make the features again ({FEATURES}).") from error
        except (*DAMAGE, IsADirectoryError) as error:
            raise UserError(f"{self.path}, {key}: {where} is no readable matrix ({reason(error)}); make the features again "
                            f"({FEATURES}).") from error

    def __contains__(self, key: object) -> bool:
        return key in self._where  # Mapping's own would read the matrix

    def __iter__(self) -> Iterator[str]:
        return iter(self._where)

    def __len__(self) -> int:
        return len(self._where)

    def archives(self) -> list[str]:
        """The archives that the matrices are in, each once."""
        return list(dict.fromkeys(location(where)[0] for where in self._where.values() if where))


def load_matrix(where: str, sums: dict[str, Sums | None]) -> np.ndarray:
    """Read the value at `path`, `path:offset` or `path:offset[first:last,first:last]`.

    The ranges are of rows and columns; Kaldi's ranges include the last. `sums` keeps the checksums of archives, from one call to the next.

    Raises ValueError and the like (entries.DAMAGE) where there is none.
    """
    path, offset, ranges = location(where)
    value = read_at(path, offset, read_value, sums)
    return cut(value, ranges) if ranges else value


def read_archive(path: str | os.PathLike[str]) -> Iterator[tuple[str, np.ndarray]]:
    """Iterate over (key, matrix | vector | int32 vector) of an archive, text or binary, gzipped if its name ends in `.gz`.

    Where it has checksums (sums.py), its values and their number are checked. Raises UserError, naming the entry, for damage.
    """
    sums = Sums.of(os.fspath(path))

    def read(stream: io.BufferedReader) -> np.ndarray:
        return read_value(stream if sums is None else checked(sums, stream, stream.tell()))

    count = 0
    for entry in read_entries(path, read):
        count += 1
        yield entry
    if sums is not None and count != len(sums):
        raise UserError(f"{path} has {count} entries, by {os.path.basename(sums.path)} there were {len(sums)}; {AGAIN}.")


def read_int_vectors(path: str | os.PathLike[str]) -> Iterator[tuple[str, np.ndarray]]:
    """Iterate over (key, int32 vector) of an archive, text or binary; raises UserError for values of another kind."""
    for key, value in read_archive(path):
        if value.dtype != np.int32:
            raise UserError(f"{path}, {key}: expected a vector of integers, found {'a matrix' if value.ndim == 2 else 'other numbers'}.")
        yield key, value


class MatrixWriter:
    """Writer of matrices to `ark` with an index `scp`, and checksums (sums.py); they appear only if the block ends without an exception.

    `compression_method` as in Kaldi's copy-feats (0 none; 2 one byte a value with per-column headers).
    """

    def __init__(self, ark: str | os.PathLike[str], scp: str | os.PathLike[str], compression_method: int = 0) -> None:
        self.ark, self.scp = Path(os.path.abspath(ark)), Path(scp)
        self.compression_method = compression_method
        self._sums = SumsWriter()

    def __enter__(self) -> MatrixWriter:
        with contextlib.ExitStack() as files:
            self._index = files.enter_context(atomic_open(self.scp))
            files.push(self._write_sums)  # between: the archive gets its name first, and the index last
            self._stream = files.enter_context(atomic_open(self.ark, "wb"))
            self._files = files.pop_all()
        return self

    def write(self, key: str, matrix: np.ndarray) -> None:
        """Append one entry; float64 stays float64."""
        self._stream.write(key.encode("utf-8") + b" ")
        offset, content = self._stream.tell(), io.BytesIO()
        self._index.write(f"{key} {self.ark}:{offset}\n")
        write_matrix(content, matrix, self.compression_method)
        self._sums.add(offset, content.getvalue())
        self._stream.write(content.getbuffer())

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> Any:
        if kind is None:
            forget_sums(self.ark)
        return self._files.__exit__(kind, error, trace)

    def _write_sums(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self._sums.write(self.ark)


def write_matrix(stream: IO[bytes], matrix: np.ndarray, compression_method: int = 0) -> None:
    """Write the binary form of a matrix or vector; float64 stays float64. Compression as in MatrixWriter."""
    if compression_method == SPEECH_FEATURE and matrix.ndim == 2 and matrix.size:
        stream.write(b"\0B" + compressed(matrix))
        return
    import kaldiio  # not above: programs that write nothing of this kind start faster without it

    kaldiio.save_mat(stream, matrix, compression_method=compression_method or None)


def write_int_vectors(path: str | os.PathLike[str], items: Iterable[tuple[str, np.ndarray]], binary: bool = True) -> int:
    """Write an archive of int32 vectors as Kaldi's `ali.*.gz` (gzip where the name says so); returns the count.

    As text, `binary` false, the bytes are those of Kaldi's copy-int-vector to `ark,t:`.
    """
    count = 0
    with output_archive(path) as stream:
        for key, vector in items:
            value = b"\0B" + int_vector_bytes(vector) if binary else b"".join(b"%d " % v for v in vector.tolist()) + b"\n"
            stream.write(key.encode("utf-8") + b" " + value)
            count += 1
    return count


@contextlib.contextmanager
def output_archive(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open an archive for writing; it appears under its name when it is complete.

    It is gzipped where the name says so; `-` is standard output.
    """
    if str(path) == "-":
        yield sys.stdout.buffer
        return
    with atomic_open(path, "wb") as raw:
        forget_sums(path)
        if not str(path).endswith(".gz"):
            yield raw
            return
        with gzip.GzipFile(fileobj=raw, mode="wb", mtime=0, filename="") as stream:
            yield cast("IO[bytes]", stream)


def int_vector_bytes(vector: np.ndarray) -> bytes:
    """Kaldi's archive form of vector<int32>: sized count, then a size byte and an int32 for each element."""
    elements = np.empty(len(vector), dtype=np.dtype([("size", "i1"), ("value", "<i4")]))
    elements["size"], elements["value"] = 4, vector
    return b"\4" + struct.pack("<i", len(vector)) + elements.tobytes()
