"""Memory that processes of one machine share: a buffer is written once, and read, or answered, where it lies.

A process lends slots: anonymous files in memory (memfd), mapped by it and by whoever opens /proc/<pid>/fd/<fd>, which the processes of one
user on one machine can. `multiprocessing.shared_memory` is not used. Its segments have names: when a process was killed by SIGKILL with
all of its group, as schedulers do, its segment was still in /dev/shm afterwards. It adds a process to each that makes one
(the resource tracker), which before Python 3.13 also deletes segments of others. And containers often limit /dev/shm to 64 MB.

A slot is lent again when nobody refers to it any more: its owner to the tensor over it, nor those to whom that was granted to theirs.
Behind the bytes of a slot is a number for each process, in which that counts what it has given back; the owner knows what it has
granted. So no message has to be sent, and nobody waits for one.
"""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

COUNT = np.dtype(np.int64)
SMALL = 4096  # bytes


@dataclass
class Slot:
    """`returned[r]`: how often process r has given it back, of `granted[r]` times. `tensor`: over it, of its owner. The last two are not
    used in another's slot."""

    bytes: Tensor
    returned: np.ndarray
    granted: list[int]
    tensor: weakref.ref[Tensor] | None = None

    @classmethod
    def over(cls, memory: mmap.mmap, size: int, processes: int) -> Slot:
        returned = np.frombuffer(memory, COUNT, processes, _counts_offset(size))
        return cls(torch.frombuffer(memory, dtype=torch.uint8, count=_capacity(size)), returned, [0] * processes)

    @property
    def tensor_now(self) -> Tensor | None:
        """The one that its owner refers to."""
        return None if self.tensor is None else self.tensor()

    def fits(self, size: int) -> bool:
        """Whether it can be lent for so many bytes."""
        return len(self.bytes) == _capacity(size) and self.tensor_now is None and self.returned.tolist() == self.granted


class Slots:
    """The slots that process `rank` of `size` lends, and those of others that it has mapped."""

    def __init__(self, rank: int, size: int) -> None:
        self._rank, self._size = rank, size
        self._mine: dict[int, Slot] = {}  # by file
        self._lent: dict[int, int] = {}  # where a slot begins -> its file
        self._elsewhere: weakref.WeakValueDictionary[int, Tensor] = weakref.WeakValueDictionary()  # lent on a device, by where they begin
        self._others: dict[tuple[int, int], Slot] = {}  # process, file -> slot
        self._borrowed: dict[weakref.ref[Tensor], Slot] = {}
        self._lock = threading.RLock()  # tensors end anywhere

    def lend(self, like: Tensor, device: torch.device) -> Tensor:
        """A tensor of `like`'s length and type: over a slot, or on a device that shares no memory."""
        if device.type != "cpu":
            tensor = torch.empty_like(like, device=device)
            self._elsewhere[tensor.data_ptr()] = tensor
            return tensor
        size = like.numel() * like.itemsize
        with self._lock:
            slot = next((slot for slot in self._mine.values() if slot.fits(size)), None) or self._make(size)
            tensor = slot.bytes[:size].view(like.dtype)
            slot.tensor = weakref.ref(tensor)
        return tensor

    def _make(self, size: int) -> Slot:
        whole = _counts_offset(size) + self._size * COUNT.itemsize
        file = make(whole)
        slot = self._mine[file] = Slot.over(mmap.mmap(file, whole), size, self._size)
        self._lent[slot.bytes.data_ptr()] = file
        return slot

    def is_lent(self, tensor: Tensor) -> bool:
        """Whether it is what `lend` has returned, and not a part of that."""
        return self._file(tensor) is not None or self._elsewhere.get(tensor.data_ptr()) is tensor

    def _file(self, tensor: Tensor) -> int | None:
        """Of the slot that was lent as this tensor."""
        file = self._lent.get(tensor.data_ptr())
        return file if file is not None and self._mine[file].tensor_now is tensor else None

    def grant(self, tensor: Tensor, reader: int) -> int | None:
        """The file by which another process can map what is lent, until it gives it back; None where it cannot."""
        with self._lock:
            file = self._file(tensor)
            if file is not None:
                self._mine[file].granted[reader] += 1
            return file

    def forget(self, reader: int) -> None:
        """A process that has ended gives nothing back."""
        with self._lock:
            for slot in self._mine.values():
                slot.granted[reader] = int(slot.returned[reader])

    def borrow(self, pid: int, file: int, size: int, dtype: torch.dtype) -> Tensor:
        """The slot that another process has granted, of `size` bytes, given back when this tensor is not referred to any more; raises
        OSError where it cannot be opened."""
        with self._lock:
            if (pid, file) not in self._others:
                memory = mapped(pid, file, _counts_offset(size) + self._size * COUNT.itemsize)
                self._others[pid, file] = Slot.over(memory, size, self._size)
            slot = self._others[pid, file]
            tensor = slot.bytes[:size].view(dtype)
            self._borrowed[weakref.ref(tensor, self._give_back)] = slot
        return tensor

    def _give_back(self, tensor: weakref.ref[Tensor]) -> None:
        with self._lock:
            self._borrowed.pop(tensor).returned[self._rank] += 1


def _capacity(size: int) -> int:
    """The bytes of a slot that is lent for `size` of them: small ones are all alike."""
    return max(size, SMALL)


def _counts_offset(size: int) -> int:
    """Where the counts begin in a slot that is lent for so many bytes."""
    return -(-_capacity(size) // COUNT.itemsize) * COUNT.itemsize


def make(size: int) -> int:
    """A file of zeros in memory."""
    file = os.memfd_create("pykaldist", os.MFD_CLOEXEC)
    os.posix_fallocate(file, 0, size)
    return file


def mapped(pid: int, file: int, size: int) -> mmap.mmap:
    """A process's file; raises OSError where it cannot be opened."""
    opened = os.open(f"/proc/{pid}/fd/{file}", os.O_RDWR)
    try:
        return mmap.mmap(opened, size)
    finally:
        os.close(opened)
