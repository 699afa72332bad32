"""Memory that the processes of one machine share: a buffer is written once, and read, or answered, where it lies.

A process lends slots. A slot is an anonymous file in memory (memfd). Its owner maps it, and so do the processes that open
/proc/<pid>/fd/<fd>, which those of one user on one machine can. `multiprocessing.shared_memory` is not used, for three reasons. Its
segments have names: when a process was killed by SIGKILL with all of its group, as schedulers do, its segment was still in /dev/shm
afterwards. It starts one more process (the resource tracker) for each that makes a segment; before Python 3.13 this also deletes segments
of others. And containers often limit /dev/shm to 64 MB.

A slot is used again when nobody refers to it any more: neither its owner to the tensor over it, nor the processes that it was granted to,
to their tensors. Behind the bytes of a slot there is one counter for each process, in which the process counts how often it has given the
slot back. The owner counts its grants. So no message has to be sent, and nobody waits for one.
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
SMALL = 4096  # bytes of the smallest slots


@dataclass
class Slot:
    """A piece of shared memory. `returned[r]`: how often process r has given it back; `granted[r]`: how often it was granted to r.

    `tensor` refers to the owner's tensor over it. `granted` and `tensor` are not used in another process's slot.
    """

    bytes: Tensor
    returned: np.ndarray
    granted: list[int]
    tensor: weakref.ref[Tensor] | None = None

    @classmethod
    def over(cls, memory: mmap.mmap, size: int, processes: int) -> Slot:
        """A slot over mapped memory, for `size` bytes and so many processes."""
        returned = np.frombuffer(memory, COUNT, processes, _counts_offset(size))
        return cls(torch.frombuffer(memory, dtype=torch.uint8, count=_capacity(size)), returned, [0] * processes)

    @property
    def tensor_now(self) -> Tensor | None:
        """The owner's tensor over the slot, while that is referred to."""
        return None if self.tensor is None else self.tensor()

    def fits(self, size: int) -> bool:
        """True where it is free and has the right size to be lent for so many bytes."""
        return len(self.bytes) == _capacity(size) and self.tensor_now is None and self.returned.tolist() == self.granted


class Slots:
    """The slots that process `rank` of `size` lends, and those of other processes that it has mapped."""

    def __init__(self, rank: int, size: int) -> None:
        self._rank, self._size = rank, size
        self._mine: dict[int, Slot] = {}  # file -> slot
        self._lent: dict[int, int] = {}  # address of a slot -> its file
        # tensors lent on a device, by their addresses
        self._elsewhere: weakref.WeakValueDictionary[int, Tensor] = weakref.WeakValueDictionary()
        self._others: dict[tuple[int, int], Slot] = {}  # process, file -> slot
        self._borrowed: dict[weakref.ref[Tensor], Slot] = {}
        self._lock = threading.RLock()  # a tensor can be freed on any thread

    def lend(self, like: Tensor, device: torch.device) -> Tensor:
        """Return a tensor of `like`'s length and type: over a slot, or, on a GPU, a plain one."""
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
        """True for a tensor that `lend` has returned, not for a part of one."""
        return self._file(tensor) is not None or self._elsewhere.get(tensor.data_ptr()) is tensor

    def _file(self, tensor: Tensor) -> int | None:
        """The file of the slot that was lent as this tensor; None for other tensors."""
        file = self._lent.get(tensor.data_ptr())
        return file if file is not None and self._mine[file].tensor_now is tensor else None

    def grant(self, tensor: Tensor, reader: int) -> int | None:
        """Grant a lent tensor to another process, until that gives it back.

        Returns the file to map; None where the tensor is not over a slot.
        """
        with self._lock:
            file = self._file(tensor)
            if file is not None:
                self._mine[file].granted[reader] += 1
            return file

    def forget(self, reader: int) -> None:
        """Count all that was granted to a process as given back, when it has ended."""
        with self._lock:
            for slot in self._mine.values():
                slot.granted[reader] = int(slot.returned[reader])

    def borrow(self, pid: int, file: int, size: int, dtype: torch.dtype) -> Tensor:
        """Map a slot of `size` bytes that another process has granted. It is given back when nobody refers to the tensor any more.

        Raises OSError where the slot cannot be opened.
        """
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
    """The bytes of a slot that is lent for `size` bytes: small slots are all of one size."""
    return max(size, SMALL)


def _counts_offset(size: int) -> int:
    """Where the counters begin in a slot that is lent for so many bytes."""
    return -(-_capacity(size) // COUNT.itemsize) * COUNT.itemsize


def make(size: int) -> int:
    """Make an anonymous file of zeros in memory."""
    file = os.memfd_create("pykaldist", os.MFD_CLOEXEC)
    os.posix_fallocate(file, 0, size)
    return file


def mapped(pid: int, file: int, size: int) -> mmap.mmap:
    """Map a file of another process. Raises OSError where it cannot be opened."""
    opened = os.open(f"/proc/{pid}/fd/{file}", os.O_RDWR)
    try:
        return mmap.mmap(opened, size)
    finally:
        os.close(opened)
