"""Unpacking tarballs and Debian packages, by their content, without the system's tools.

An archive is foreign data. Of its members only regular files are made, with the owner and the mode of any new file: no link, no device,
nothing outside of the folder. What it may become is bounded by its own size, so that a small one cannot fill a disk or the memory.
"""

from __future__ import annotations

import bz2
import errno
import gzip
import lzma
import os
import shutil
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, cast

AR_MAGIC = b"!<arch>\n"
AR_HEADER = 60
BLOCK = 1 << 18
COMPRESSIONS: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"\xfd7zXZ\0": lzma.open, b"BZh": bz2.open}  # by how a file begins
EXPANSION, ROOM = 50, 100 << 20  # an archive may become so many times its size, and so many bytes more
MOST_MEMBERS = 1 << 22
LONGEST_HEADER = 1 << 20  # bytes of what stands before a member and is read at once: a long name, say
EXTENDED = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
BAD_NAMES = (errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG)  # what the system says of a name that an archive cannot mean


class UnsoundArchive(Exception):
    """An archive that is damaged, is none, or is made to do harm."""


class _Part:
    """The next `left` bytes of a stream, as a file."""

    def __init__(self, stream: IO[bytes], left: int) -> None:
        self._stream, self._left = stream, left

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(self._left if size < 0 else min(size, self._left))
        self._left -= len(data)
        return data


class _Limited:
    """A stream, as a file of which no more than `left` bytes may be read. Raises UnsoundArchive."""

    def __init__(self, stream: IO[bytes], left: int) -> None:
        self._stream, self._left = stream, left

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise UnsoundArchive(f"it unpacks to more than {EXPANSION} times its size")
        return data


class _Member(tarfile.TarInfo):
    """A member of a tarball; a damaged header is an error, wherever it stands."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Member:
        return cls._checked(super().frombuf, buf, encoding, errors)

    @classmethod
    def _frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str, **more: Any) -> _Member:
        """What later Pythons call in the place of `frombuf`."""
        return cls._checked(super()._frombuf, buf, encoding, errors, **more)  # type: ignore[misc]  # older ones have none

    @staticmethod
    def _checked(read: Callable[..., _Member], *args: Any, **more: Any) -> _Member:
        try:
            member = read(*args, **more)
        except (tarfile.EOFHeaderError, tarfile.EmptyHeaderError):  # type: ignore[attr-defined]  # the end
            raise
        except tarfile.HeaderError as error:  # which tarfile would take for the end, too
            raise UnsoundArchive(str(error)) from error
        if member.type in EXTENDED and member.size > LONGEST_HEADER:
            raise UnsoundArchive(f"a header has {member.size} bytes")
        return member


def unpack(archive: Path, folder: Path) -> None:
    """Unpack the regular files of a tarball, or of the data in a Debian package (deb(5)), none of them outside of `folder`.

    Raises UnsoundArchive where it is damaged or no archive; where it has more than MOST_MEMBERS members; and where it, or the sizes that it
    states, exceed EXPANSION times its own size and ROOM.
    """
    allowed = ROOM + EXPANSION * archive.stat().st_size
    try:
        with open(archive, "rb") as stream:
            content = _Limited(_decompressed(stream), allowed)
            with tarfile.open(fileobj=cast("IO[bytes]", content), mode="r|", tarinfo=_Member) as tar:
                _unpack_members(tar, folder, allowed)
            while content.read(BLOCK):
                pass  # the checksum of a compressed stream stands at its end
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, ValueError, IndexError, RecursionError) as error:
        raise UnsoundArchive(str(error) or type(error).__name__) from error
    except OSError as error:
        if error.errno is None or error.errno in BAD_NAMES:  # without a number: of gzip and bz2
            raise UnsoundArchive(str(error)) from error
        raise


def _unpack_members(tar: tarfile.TarFile, folder: Path, allowed: int) -> None:
    total = count = 0
    while (member := tar.next()) is not None:
        tar.members.clear()  # type: ignore[attr-defined]  # tarfile would collect them
        total, count = total + member.size, count + 1
        if max(total, tar.offset) > allowed:  # a sparse file has less in the archive than it is long, or states so
            raise UnsoundArchive(f"its files are more than {EXPANSION} times as large as it is")
        if count > MOST_MEMBERS:
            raise UnsoundArchive(f"it has more than {MOST_MEMBERS} members")
        path = Path(member.name)
        if member.isfile() and not path.is_absolute() and ".." not in path.parts:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            with open(folder / path, "wb") as stream:
                shutil.copyfileobj(cast("IO[bytes]", tar.extractfile(member)), stream)


def _decompressed(stream: IO[bytes]) -> IO[bytes]:
    """The tarball in an archive that `stream` is at the start of: in a Debian package, the member data.tar.*."""
    size = os.fstat(stream.fileno()).st_size
    if stream.read(len(AR_MAGIC)) == AR_MAGIC:
        size = _seek_data(stream)
    else:
        stream.seek(0)
    start = stream.read(max(map(len, COMPRESSIONS)))
    stream.seek(-len(start), 1)
    part = cast("IO[bytes]", _Part(stream, size))
    return next((opened(part) for magic, opened in COMPRESSIONS.items() if start.startswith(magic)), part)


def _seek_data(stream: IO[bytes]) -> int:
    """Go to the content of the member data.tar.* of an ar archive, behind whose magic `stream` is; returns its size."""
    while header := stream.read(AR_HEADER):
        name, size = header[:16].decode("ascii").rstrip(" /"), int(header[48:58])
        if name.startswith("data.tar"):
            return size
        stream.seek(size + size % 2, 1)
    raise UnsoundArchive("it has no data.tar")
