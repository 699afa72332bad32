"""Files of arrays that are mapped into memory, with checksums in a manifest beside them."""

from __future__ import annotations

import ctypes
import dataclasses
import hashlib
import json
import mmap
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np

from pykaldist.errors import UserError, named
from pykaldist.io.atomic import write_text
from pykaldist.io.schema import read_json
from pykaldist.progress import Progress


@dataclasses.dataclass(kw_only=True)
class Manifest:
    """The manifest of a folder of arrays: its content and origin; `checksum` is that of all else in the manifest."""

    checksum: str = ""


M = TypeVar("M", bound=Manifest)


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Write a manifest as JSON, with its checksum."""
    manifest.checksum = _own_checksum(manifest)
    write_text(path, json.dumps(dataclasses.asdict(manifest), indent=1) + "\n")


def read_manifest(path: Path, cls: type[M], cure: str, format: int) -> M:
    """Read a manifest; raises UserError, which ends in `cure`, where it does not fit, or not its checksum."""
    manifest = read_json(path, cls, cure, format)
    if manifest.checksum != _own_checksum(manifest):
        raise UserError(f"{path} does not match the checksum in it: it was changed or is damaged; {cure}.")
    return manifest


def _own_checksum(manifest: Manifest) -> str:
    content = json.dumps({**dataclasses.asdict(manifest), "checksum": ""}, sort_keys=True)
    return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()


class Sink:
    """An append-only file with a running checksum."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream, self.digest = stream, hashlib.blake2b(digest_size=16)

    def append(self, array: np.ndarray) -> None:
        """Write an array behind what is there."""
        data = np.ascontiguousarray(array).data
        with named(self.stream.name):
            self.stream.write(data)
        self.digest.update(data)


_NO_RESERVE = 0x4000  # MAP_NORESERVE: a mapping may be larger than memory
_FIXED = 0x10  # MAP_FIXED: at this address, in place of what is mapped there
_PRIVATE = mmap.MAP_PRIVATE | _NO_RESERVE  # copy-on-write: torch wants arrays writable, the file stays as it is
_ACCESS = mmap.PROT_READ | mmap.PROT_WRITE
ALIGNMENT = 4096  # rows: whatever the bytes of a row, so many begin a page


def mapped(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
    """Map a file as an array; raises UserError where it has not the size that its manifest says."""
    expected = _checked_size(path, dtype, shape)
    if not expected:
        return np.zeros(shape, dtype)
    with named(path), open(path, "rb") as stream:
        return np.frombuffer(mmap.mmap(stream.fileno(), expected, flags=_PRIVATE, prot=_ACCESS), dtype).reshape(shape)


def mapped_together(files: Sequence[tuple[Path, int]], dtype: np.dtype[Any], row: tuple[int, ...]) -> np.ndarray:
    """Map files of so many rows each as one array, in which file i begins at row `aligned_starts(...)[i]`; rows between files are zeros.

    Raises UserError where one has not the size that its manifest says.
    """
    starts = aligned_starts([rows for _, rows in files])
    width = dtype.itemsize * int(np.prod(row))
    whole = mmap.mmap(-1, max(int(starts[-1]) * width, mmap.PAGESIZE), flags=_PRIVATE | mmap.MAP_ANONYMOUS, prot=_ACCESS)
    array = np.frombuffer(whole, dtype, int(starts[-1]) * int(np.prod(row))).reshape(-1, *row)
    for (path, rows), start in zip(files, starts.tolist(), strict=False):
        size = _checked_size(path, dtype, (rows, *row))
        with named(path), open(path, "rb") as stream:
            if size:
                _map_at(array.ctypes.data + start * width, size, stream.fileno())
    return array


def aligned_starts(rows: Sequence[int]) -> np.ndarray:
    """The row at which each of several files begins when they are mapped together, and the number of all rows, int64."""
    return np.cumsum([0, *(-(-count // ALIGNMENT) * ALIGNMENT for count in rows)], dtype=np.int64)


def _map_at(address: int, size: int, descriptor: int) -> None:
    """Map a file at an address, which goes with the mapping that is there."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype, libc.mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    if libc.mmap(address, size, _ACCESS, _PRIVATE | _FIXED, descriptor, 0) != address:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _checked_size(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...]) -> int:
    """The bytes of an array's file; raises UserError where it has another size."""
    expected = dtype.itemsize * int(np.prod(shape))
    found = path.stat().st_size if path.is_file() else 0
    if found != expected:
        raise UserError(f"{path} has {found} bytes, its manifest says {expected}; pack the store again (steps/nnet/pack.sh).")
    return expected


def verify(folder: Path, checksums: Mapping[str, str]) -> None:
    """Compare every file of a folder with its checksum; raises UserError at the first that differs."""
    for name, expected in checksums.items():
        if not (folder / name).is_file():
            raise UserError(f"{folder / name} does not exist, the manifest has a checksum of it; pack the store again "
                            "(steps/nnet/pack.sh).")
        size = (folder / name).stat().st_size >> 20
        with open(folder / name, "rb") as stream, Progress(f"checking {folder / name}", size, "MiB") as bar:
            digest = hashlib.blake2b(digest_size=16)
            while chunk := stream.read(1 << 24):
                digest.update(chunk)
                bar.update(len(chunk) >> 20)
        if digest.hexdigest() != expected:
            raise UserError(f"{folder / name} does not match its checksum: it was changed or is damaged; pack the store again "
                            "(steps/nnet/pack.sh).")
