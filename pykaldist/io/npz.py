"""Numpy's archives of arrays (.npz), written and read a few rows at a time: an array that lies in a file need not fit into memory."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Protocol, cast

import numpy as np

from pykaldist.io.scratch import release, scratch_array

PIECE = 1 << 24  # bytes that are written or read together; an array of no more is in memory


class Rows(Protocol):
    """An array whose rows lie in several files."""

    dtype: np.dtype

    @property
    def shape(self) -> tuple[int, ...]: ...

    def pieces(self) -> Iterator[np.ndarray]:
        """Iterate over the rows, some at a time, in their order."""
        ...


def write_npz(stream: IO[bytes], arrays: Mapping[str, np.ndarray | Rows]) -> None:
    """Write arrays by their names, as numpy.savez; memory lets go of what was written of a scratch array (io/scratch.py)."""
    with zipfile.ZipFile(stream, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                header = {"descr": np.lib.format.dtype_to_descr(array.dtype), "fortran_order": False, "shape": array.shape}
                np.lib.format.write_array_header_1_0(member, header)
                for rows in _pieces(array) if isinstance(array, np.ndarray) else array.pieces():
                    member.write(np.ascontiguousarray(rows).data)


def read_npz(path: Path, folder: Path | None) -> dict[str, np.ndarray]:
    """Read all arrays of an archive; those of more than 16 MB are scratch arrays in `folder`, where one is given.

    Raises one of `entries.numpy_damage` where it is damaged, or has Python objects.
    """
    with zipfile.ZipFile(path) as archive:
        return {name.removesuffix(".npy"): _read(archive, name, folder) for name in archive.namelist()}


def _read(archive: zipfile.ZipFile, name: str, folder: Path | None) -> np.ndarray:
    with cast("zipfile.ZipExtFile", archive.open(name)) as member:
        if np.lib.format.read_magic(member) != (1, 0):
            raise ValueError(f"{name} has a header of another version")
        shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(member)
        if dtype.hasobject or fortran_order:
            raise ValueError(f"{name} is no array of numbers or of text, row by row")
        found, expected = archive.getinfo(name).file_size - member.tell(), math.prod(shape) * dtype.itemsize
        if found != expected:
            raise ValueError(f"{name} has {found} bytes behind its header, not {expected}")
        array = scratch_array(shape, dtype, PIECE // _row_bytes(shape, dtype), folder) if shape else np.zeros(shape, dtype)
        for rows in _pieces(array):
            content = rows.reshape(-1).view(np.uint8).data if rows.size else memoryview(b"")
            while content:
                count = member.readinto(content)
                if not count:
                    raise EOFError(f"{name} ends within its rows")
                content = content[count:]
        member.read(1)  # the end, where zipfile looks at the checksum
    return array


def _pieces(array: np.ndarray) -> Iterator[np.ndarray]:
    """The rows of an array, some at a time; memory lets go of them, where they lie in a file, when the next ones are asked for."""
    if not array.shape:
        yield array
        return
    step = max(1, PIECE // _row_bytes(array.shape, array.dtype))
    for first in range(0, len(array), step):
        yield array[first:first + step]
        release(array[first:first + step])


def _row_bytes(shape: tuple[int, ...], dtype: np.dtype) -> int:
    return max(1, math.prod(shape[1:]) * dtype.itemsize)
