"""The way of a buffer to the fabric: in buckets, and through pinned host memory where the fabric takes none from a GPU.

A bucket is a piece of some megabytes. While one is summed and sent, the next is copied from the GPU, and the one before goes back to it. So
the three go on side by side, and neither the host nor the GPU waits for the whole of a copy.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor


class Staging:
    """A buffer in pinned host memory, which is kept from one exchange to the next, and grows. All exchanges with it are on one stream."""

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

    def buckets(self, buffer: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The buckets of a flat buffer on a GPU, each of `size` values: (the bucket, its copy in host memory, which has arrived).

        The copies are valid until the next call. `put_back` writes what has become of them to the buffer.
        """
        host = self.room(len(buffer), buffer.dtype)
        under_way = []
        for bucket, copy in zip(buffer.split(size), host.split(size), strict=True):
            copy.copy_(bucket, non_blocking=True)
            arrived = torch.cuda.Event()
            arrived.record()
            under_way.append((bucket, copy, arrived))
        for bucket, copy, arrived in under_way:
            arrived.synchronize()
            yield bucket, copy


def in_place(buffer: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The buckets of a buffer that the fabric takes where it lies, as `Staging.buckets` gives them: each is its own copy."""
    return ((bucket, bucket) for bucket in buffer.split(size))


def put_back(bucket: Tensor, copy: Tensor) -> None:
    """Write a bucket's copy to the bucket. On a GPU its stream does it, and the host goes on."""
    if copy is not bucket:
        bucket.copy_(copy, non_blocking=True)
