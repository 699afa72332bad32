"""Files that appear whole or not at all: write to a temporary name beside the target, fsync, rename."""

from __future__ import annotations

import contextlib
import errno
import os
import zlib
from collections.abc import Iterator
from typing import IO, Any

from pykaldist.errors import UserError, named

_PART = 1 << 24  # bytes copied at once


@contextlib.contextmanager
def atomic_open(path: str | os.PathLike[str], mode: str = "w") -> Iterator[IO[Any]]:
    """Open `path` for writing (`w` or `wb`); it gets its name only if the block ends without an exception."""
    path = os.fspath(path)
    folder, name = os.path.split(path)
    os.makedirs(folder or ".", exist_ok=True)
    temporary = os.path.join(folder, f".{name}.{os.getpid()}.tmp")
    try:
        with open(temporary, mode, encoding=None if "b" in mode else "utf-8") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except OSError as error:
        if error.errno is None:  # numpy's, of an array that was not written whole
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path) from error
        if error.filename in (None, temporary):  # which nobody would find
            error.filename, error.filename2 = path, None
        raise
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a whole text file atomically."""
    with atomic_open(path) as stream:
        stream.write(text)


def copy_file(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Copy the content of a file; the copy gets its name when it is complete.

    The source is read twice, for Kaldi's files have no checksums: raises UserError where that gives two contents.
    """
    with open(source, "rb", buffering=0) as stream, atomic_open(target, "wb") as copy:  # a buffer would answer twice
        crc = again = 0
        while part := _read_part(stream, source):
            copy.write(part)
            crc = zlib.crc32(part, crc)
        stream.seek(0)
        while part := _read_part(stream, source):
            again = zlib.crc32(part, again)
        if crc != again:
            raise UserError(f"{os.fspath(source)} was read twice while it was copied to {os.fspath(target)}, and was not the same; if "
                            "nothing writes it, the disk or the memory fails: run the command again, and check them.")


def copy_tree(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Copy the files of a folder and of those in it, one after the other by `copy_file`; other files in `target` stay."""
    from pathlib import Path  # not above: programs that write one file start faster without it

    for path in sorted(Path(source).rglob("*")):
        if path.is_file():
            copy_file(path, Path(target) / path.relative_to(source))


def _read_part(stream: IO[bytes], path: str | os.PathLike[str]) -> bytes:
    with named(path):
        return stream.read(_PART)
