"""Kaldi's tables by rspecifier and wspecifier, as its programs take them on their command lines: archives, scp files, pipes.

    for key, value in read_table("ark:gunzip -c ali.1.gz |", read_value): ...
    with TableWriter("ark,scp:out.ark,out.scp", write_value) as out: out.write(key, value)

What a value is, and its form, is in two functions: one reads it from a stream that stands behind the key, the other writes it. Sources and
targets are those of `xfilenames`. Also, `ark:` takes wildcards (`ark:exp/mono/ali.*.gz`), and a plain name is that of an archive.
"""

from __future__ import annotations

import contextlib
import glob
import io
import os
import re
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import IO, TYPE_CHECKING, Generic, TypeVar

from pykaldist.errors import AGAIN, UserError
from pykaldist.io.entries import DAMAGE, cut, location, read_key, reason
from pykaldist.io.sums import SUFFIX, Sums, forget_sums, read_at
from pykaldist.io.xfilenames import is_pipe, open_rxfilename, open_wxfilename

if TYPE_CHECKING:
    import numpy as np

T = TypeVar("T")
Read = Callable[[io.BufferedReader], T]
Write = Callable[[IO[bytes], T, bool], None]

_TABLE = re.compile(r"(ark|scp)((?:,\w+)*):(.*)", re.DOTALL)
_READ = {"o", "no", "s", "ns", "cs", "ncs", "p", "np", "bg", "t", "b"}
_WRITE = {"t", "b", "f", "nf", "p"}


def is_table(specifier: str) -> bool:
    """Whether an argument is an rspecifier or wspecifier of a table, and not the name of one object's file."""
    return _TABLE.fullmatch(specifier) is not None


def _split(specifier: str, known: set[str], example: str) -> tuple[list[str], set[str], str]:
    match = _TABLE.fullmatch(specifier.strip())
    if match is None and not re.match(r"(ark|scp)[,:]", specifier) and specifier:
        return ["ark"], set(), specifier  # a plain name is that of an archive
    words = [match[1], *match[2].split(",")[1:]] if match else []
    kinds = [word for word in words if word in ("ark", "scp")]
    options = {word for word in words if word not in ("ark", "scp")}
    if match is None or not options <= known:
        raise UserError(f"{specifier!r} is no table; expected such as {example}.")
    return kinds, options, match[3]


def read_table(rspecifier: str, read: Read[T]) -> Iterator[tuple[str, T]]:
    """Iterate over the (key, value) of a table, in its order; raises UserError, naming source and entry, for damage.

    With the option `p` (permissive) entries of an scp file that cannot be read are left out, and damage ends an archive.
    """
    kinds, options, source = _split(rspecifier, _READ, "ark:FILE, ark:- or scp:FILE")
    permissive = "p" in options
    if kinds == ["scp"]:
        sums: dict[str, Sums | None] = {}
        for key, where in _scp_entries(source):
            try:
                value = _value_at(where, read, sums, f"{source}, {key}")
            except (UserError, OSError):
                if not permissive:
                    raise
                continue
            yield key, value
        return
    for name in _sources(source):
        yield from _read_archive(name, read, permissive)


def read_scp(rspecifier: str) -> list[tuple[str, str]]:
    """The (key, rxfilename) of an scp file that an rspecifier names; raises UserError where it names an archive."""
    kinds, _, source = _split(rspecifier, _READ, "scp:FILE")
    if kinds != ["scp"]:
        raise UserError(f"{rspecifier!r}: expected an scp file, scp:FILE.")
    return list(_scp_entries(source))


def archive_sources(rspecifier: str) -> list[str] | None:
    """The rxfilenames of an archive, or None where an rspecifier is of an scp file; for readers of whole archives."""
    kinds, _, source = _split(rspecifier, _READ, "ark:FILE, ark:- or scp:FILE")
    return None if kinds == ["scp"] else _sources(source)


def _sources(source: str) -> list[str]:
    """The files of a name with wildcards, in the order of the numbers in them; any other name alone."""
    if is_pipe(source) or os.path.exists(source) or not glob.has_magic(source):
        return [source]
    found = [name for name in glob.glob(source) if not name.endswith(SUFFIX)]
    if not found:
        raise UserError(f"{source} does not exist; check the path.")
    return sorted(found, key=lambda path: [int(x) if x.isdecimal() else x for x in re.split(r"(\d+)", path)])


def _read_archive(name: str, read: Read[T], permissive: bool) -> Iterator[tuple[str, T]]:
    key: str | None = None
    count = 0
    try:
        with open_rxfilename(name) as stream:
            while (key := read_key(stream)) is not None:
                count += 1
                yield key, read(stream)
    except DAMAGE as error:
        if permissive:
            return
        raise UserError(f"{name} is no readable archive: entry {count + (key is None)}{f' ({key})' if key else ''} is damaged or truncated "
                        f"({reason(error)}); {AGAIN}.") from error


def _scp_entries(source: str) -> Iterator[tuple[str, str]]:
    with open_rxfilename(source) as stream:
        lines = stream.read().decode("utf-8").split("\n")
    for number, line in enumerate(lines, 1):
        if line.strip():
            key, *rest = line.split(maxsplit=1)
            if not rest:
                raise UserError(f"{source}, line {number}: {key} has no value; expected `key FILE` or `key FILE:OFFSET`.")
            yield key, rest[0].strip()


def _value_at(where: str, read: Read[T], sums: dict[str, Sums | None], entry: str) -> T:
    """The value that an scp entry points to. What an scp file says is not run: a pipe is refused, but for the readers of sound."""
    if is_pipe(where):
        raise UserError(f"{entry}: a pipe in an scp file is not run but for sound; write the values to an archive.")
    try:
        path, offset, ranges = location(where)
        value = read_at(path, offset, read, sums)
        return cut(value, ranges) if ranges else value
    except FileNotFoundError as error:
        raise UserError(f"{entry}: {where} does not exist; {AGAIN}.") from error
    except (*DAMAGE, IsADirectoryError) as error:
        raise UserError(f"{entry}: {where} is not readable ({reason(error)}); {AGAIN}.") from error


class RandomAccess(Generic[T]):
    """Values of a table by their keys: an scp file's are read when asked for, an archive is read on as far as needed, and kept.

    With the options `s` and `cs` (sorted, and asked for in that order) nothing is kept that comes before the key asked for. `utt2spk`, the
    rspecifier or file of a map, has keys replaced by what they map to.
    """

    def __init__(self, rspecifier: str, read: Read[T], utt2spk: str = "") -> None:
        kinds, options, source = _split(rspecifier, _READ, "ark:FILE or scp:FILE")
        self._map = dict(read_table(utt2spk, read_token)) if utt2spk else None
        self._utt2spk, self._read = utt2spk, read
        self._where = dict(_scp_entries(source)) if kinds == ["scp"] else None
        self._source, self._forget = source, {"s", "cs"} <= options
        self._items = read_table(rspecifier, read) if self._where is None else iter(())
        self._kept: dict[str, T] = {}
        self._last = ""
        self._sums: dict[str, Sums | None] = {}

    def get(self, key: str) -> T | None:
        """The value of a key, or of what `utt2spk` makes of it; None where there is none."""
        if self._map is not None:
            if key not in self._map:
                raise UserError(f"{self._utt2spk} has no {key}; make it for these utterances (utils/fix_data_dir.sh).")
            key = self._map[key]
        if self._where is not None:
            if key not in self._where:
                return None
            if key not in self._kept:
                self._kept = {key: _value_at(self._where[key], self._read, self._sums, f"{self._source}, {key}")}
            return self._kept[key]
        if self._forget:
            self._kept = {k: v for k, v in self._kept.items() if k >= key}
        while key not in self._kept and not (self._forget and self._last > key):
            item = next(self._items, None)
            if item is None:
                break
            self._last = item[0]
            self._kept[item[0]] = item[1]
        return self._kept.get(key)


class TableWriter(Generic[T]):
    """Writer of a table by a wspecifier: `ark:`, `ark,t:`, `ark,scp:A,B`, or `scp:FILE`, which names a file for each key.

    Files appear only if the block ends without an exception.
    """

    def __init__(self, wspecifier: str, write: Write[T]) -> None:
        kinds, options, target = _split(wspecifier, _WRITE, "ark:FILE, ark,t:- or ark,scp:FILE,FILE")
        self._write, self._binary, self._flush = write, "t" not in options, "f" in options
        self._places: dict[str, str] | None = None
        self._ark, self._scp = target, ""
        if kinds == ["scp"]:
            from pykaldist.io.tables import read_map  # here and below not above: programs that need no numpy start faster without it

            self._places = read_map(target)
        elif kinds == ["ark", "scp"]:
            self._ark, comma, self._scp = target.partition(",")
            if not comma or not self._scp:
                raise UserError(f"{wspecifier!r}: expected ark,scp:ARCHIVE,SCP.")
        elif kinds != ["ark"]:
            raise UserError(f"{wspecifier!r} is no table to write; expected such as ark:FILE, ark,t:- or ark,scp:FILE,FILE.")
        self.count = 0

    def __enter__(self) -> TableWriter[T]:
        self._open = contextlib.ExitStack()
        if self._places is None:
            self._stream = self._open.enter_context(open_wxfilename(self._ark))
            self._index = self._open.enter_context(open_wxfilename(self._scp)) if self._scp else None
            self._at = 0
        return self

    def write(self, key: str, value: T) -> None:
        """Append one entry."""
        self.count += 1
        content = io.BytesIO()
        self._write(content, value, self._binary)
        if self._places is not None:
            if key not in self._places:
                raise UserError(f"the scp file to write by has no place for {key}.")
            with open_wxfilename(self._places[key]) as stream:
                stream.write(content.getbuffer())
            return
        head = key.encode("utf-8") + b" "
        self._stream.write(head)
        if self._index is not None:
            self._index.write(f"{key} {self._ark}:{self._at + len(head)}\n".encode())
        self._at += len(head) + content.tell()
        self._stream.write(content.getbuffer())
        if self._flush:
            self._stream.flush()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None and not is_pipe(self._ark) and os.path.isfile(self._ark):
            forget_sums(self._ark)
        self._open.__exit__(kind, error, trace)


def write_value(stream: IO[bytes], value: np.ndarray, binary: bool) -> None:
    """Write a matrix, a vector, or a vector of integers."""
    from pykaldist.io.kaldi import KaldiWriter
    from pykaldist.io.tables import int_vector_bytes

    if value.dtype == "int32":
        stream.write(b"\0B" + int_vector_bytes(value) if binary else b"".join(b"%d " % v for v in value.tolist()) + b"\n")
        return
    writer = KaldiWriter(stream, binary)
    (writer.matrix if value.ndim == 2 else writer.vector)(value)


def compressing(method: int) -> Write[np.ndarray]:
    """A writer of matrices by one of Kaldi's compression methods; as text they are whole."""
    from pykaldist.io.tables import write_matrix

    def write(stream: IO[bytes], value: np.ndarray, binary: bool) -> None:
        if binary and value.ndim == 2:
            write_matrix(stream, value, method)
        else:
            write_value(stream, value, binary)
    return write


def read_ints(stream: io.BufferedReader) -> np.ndarray:
    """Read a vector of integers; raises ValueError for values of another kind."""
    from pykaldist.io.archive import read_value

    value = read_value(stream)
    if value.dtype != "int32":
        raise ValueError(f"expected a vector of integers, found {'a matrix' if value.ndim == 2 else 'other numbers'}")
    return value


def read_token(stream: io.BufferedReader) -> str:
    """Read the rest of a line: one word, or several (the values of utt2spk and text)."""
    return stream.readline().decode("utf-8").strip()


def write_token(stream: IO[bytes], value: object, binary: bool) -> None:
    """Write a word, or a number, as text."""
    stream.write(f"{value}\n".encode())


def read_object(rxfilename: str, read: Read[T]) -> T:
    """Read one object; raises UserError, with the name, for damage."""
    try:
        with open_rxfilename(rxfilename) as stream:
            return read(stream)
    except DAMAGE as error:
        raise UserError(f"{rxfilename} is not readable ({reason(error)}); check that it is what is expected, or {AGAIN}.") from error
