"""Pinned host memory through which buffers on a GPU are exchanged, where the fabric takes none from the GPU."""

from __future__ import annotations

import torch
from torch import Tensor


class Staging:
    """A buffer in pinned host memory, which is kept from one exchange to the next, and grows."""

    def __init__(self) -> None:
        self._kept = torch.empty(0, dtype=torch.uint8)

    def room(self, size: int, dtype: torch.dtype) -> Tensor:
        """Host memory for `size` values. It is valid until the next call."""
        needed = size * dtype.itemsize
        if len(self._kept) < needed:
            self._kept = torch.empty(needed, dtype=torch.uint8, pin_memory=True)
        return self._kept[:needed].view(dtype)

    def copied(self, buffer: Tensor) -> Tensor:
        """A copy of a flat buffer in host memory. It is valid until the next call."""
        return self.room(len(buffer), buffer.dtype).copy_(buffer)
