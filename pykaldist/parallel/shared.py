"""Memory that processes of one machine share: a buffer is written once, and read and answered where it lies.

A process lends slots: anonymous files in memory, mapped by it and by whoever opens /proc/<pid>/fd/<fd>, which the processes of one user on
one machine can. They have no name that could be left behind when all are gone. A slot is lent again when the tensor over it that its
owner has is no longer used.
"""

from __future__ import annotations

import mmap
import os
import weakref

import torch
from torch import Tensor


class Slots:
    """The slots that this process lends, and those of others that it has mapped. Not for several threads at once."""

    def __init__(self) -> None:
        self._mine: dict[int, Tensor] = {}  # by file: the bytes
        self._free: list[int] = []
        self._others: dict[tuple[int, int], Tensor] = {}  # process, file -> its bytes

    def lend(self, like: Tensor) -> tuple[int, Tensor]:
        """A slot's file, and a tensor of `like`'s length and type over it; the slot is free again when that is gone."""
        size = like.numel() * like.itemsize
        file = next((f for f in self._free if len(self._mine[f]) == size), -1)
        if file >= 0:
            self._free.remove(file)
        else:
            file = os.memfd_create("pykaldist", os.MFD_CLOEXEC)
            os.posix_fallocate(file, 0, size)
            self._mine[file] = torch.frombuffer(mmap.mmap(file, size), dtype=torch.uint8)
        tensor = self._mine[file].view(like.dtype)
        weakref.finalize(tensor, self._free.append, file)
        return file, tensor

    def borrow(self, pid: int, file: int, size: int, dtype: torch.dtype) -> Tensor:
        """The slot of another process, `size` bytes of it; raises OSError where it cannot be opened."""
        if (pid, file) not in self._others:
            opened = os.open(f"/proc/{pid}/fd/{file}", os.O_RDWR)
            try:
                self._others[pid, file] = torch.frombuffer(mmap.mmap(opened, size), dtype=torch.uint8)
            finally:
                os.close(opened)
        return self._others[pid, file].view(dtype)


def proof(secret: bytes) -> int:
    """A file that holds a secret, for others to prove that they can read it."""
    file = os.memfd_create("pykaldist", os.MFD_CLOEXEC)
    os.write(file, secret)
    return file


def readable(pid: int, file: int, secret: bytes) -> bool:
    """True where the process `pid` is one of this machine, and its `proof` can be opened."""
    try:
        opened = os.open(f"/proc/{pid}/fd/{file}", os.O_RDWR)
    except OSError:
        return False
    try:
        return os.pread(opened, len(secret), 0) == secret
    finally:
        os.close(opened)
