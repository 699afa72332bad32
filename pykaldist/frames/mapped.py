"""Files of arrays that are mapped into memory, with checksums in a manifest beside them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from pykaldist.errors import UserError, named
from pykaldist.progress import Progress


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


def mapped(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
    """Map a file as an array; raises UserError where it has not the size that its manifest says."""
    expected = dtype.itemsize * int(np.prod(shape))
    found = path.stat().st_size if path.is_file() else 0
    if found != expected:
        raise UserError(f"{path} has {found} bytes, its manifest says {expected}; pack the store again.")
    with named(path):  # copy-on-write: torch wants it writable, the file stays as it is
        return np.memmap(path, dtype=dtype, mode="c", shape=shape) if expected else np.zeros(shape, dtype)


def verify(folder: Path, checksums: Mapping[str, str]) -> None:
    """Compare every file of a folder with its checksum; raises UserError at the first that differs."""
    for name, expected in checksums.items():
        size = (folder / name).stat().st_size >> 20
        with open(folder / name, "rb") as stream, Progress(f"checking {folder / name}", size, "MiB") as bar:
            digest = hashlib.blake2b(digest_size=16)
            while chunk := stream.read(1 << 24):
                digest.update(chunk)
                bar.update(len(chunk) >> 20)
        if digest.hexdigest() != expected:
            raise UserError(f"{folder / name} does not match its checksum: it was changed or is damaged; pack the store again.")
