"""Files of arrays that are mapped into memory, with checksums in a manifest beside them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
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
        if not (folder / name).is_file():
            raise UserError(f"{folder / name} does not exist, the manifest has a checksum of it; pack the store again.")
        size = (folder / name).stat().st_size >> 20
        with open(folder / name, "rb") as stream, Progress(f"checking {folder / name}", size, "MiB") as bar:
            digest = hashlib.blake2b(digest_size=16)
            while chunk := stream.read(1 << 24):
                digest.update(chunk)
                bar.update(len(chunk) >> 20)
        if digest.hexdigest() != expected:
            raise UserError(f"{folder / name} does not match its checksum: it was changed or is damaged; pack the store again.")
