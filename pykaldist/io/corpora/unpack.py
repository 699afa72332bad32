"""Unpacking tarballs and Debian packages, by their content, without the system's tools."""

from __future__ import annotations

import contextlib
import lzma
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Literal

AR_MAGIC = b"!<arch>\n"
AR_HEADER = 60


class UnsoundArchive(Exception):
    """An archive that is damaged, or is none."""


def unpack(archive: Path, folder: Path) -> None:
    """Regular files of a tarball, or of the data in a Debian package (deb(5)), none of them outside of `folder`.

    Raises UnsoundArchive.
    """
    try:
        with _tar(archive) as tar:
            for member in tar:
                path = Path(member.name)
                if member.isfile() and not path.is_absolute() and ".." not in path.parts:
                    (folder / path).parent.mkdir(parents=True, exist_ok=True)
                    with open(folder / path, "wb") as stream:
                        shutil.copyfileobj(tar.extractfile(member), stream)  # type: ignore[arg-type]  # a regular file has content
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, ValueError) as error:
        raise UnsoundArchive(str(error) or type(error).__name__) from error


@contextlib.contextmanager
def _tar(archive: Path) -> Iterator[tarfile.TarFile]:
    with open(archive, "rb") as stream:
        if stream.read(len(AR_MAGIC)) == AR_MAGIC:
            _seek_data(stream)
            with tarfile.open(fileobj=stream, mode=_mode(stream)) as tar:  # as a stream: something may follow it
                yield tar
        else:
            with tarfile.open(archive) as tar:
                yield tar


def _seek_data(stream: IO[bytes]) -> None:
    """Go to the content of the member data.tar.* of an ar archive, behind whose magic `stream` is."""
    while header := stream.read(AR_HEADER):
        name, size = header[:16].decode("ascii").rstrip(" /"), int(header[48:58])
        if name.startswith("data.tar"):
            return
        stream.seek(size + size % 2, 1)
    raise UnsoundArchive("it has no data.tar")


def _mode(stream: IO[bytes]) -> Literal["r|xz", "r|gz", "r|"]:
    """How to open the tarball that `stream` is at the start of, by its compression."""
    start = stream.read(6)
    stream.seek(-len(start), 1)
    return "r|xz" if start == b"\xfd7zXZ\0" else "r|gz" if start[:2] == b"\x1f\x8b" else "r|"
