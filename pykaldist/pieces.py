"""Passes over a minibatch's values by one thread, where they are few.

PyTorch shares out among its threads a pass over 32,768 values or more. It ends when the last thread is done; beside other busy
processes that is when Linux gives the core back to it. Such a wait, of a millisecond or so, is worth it for a matrix product, and not for a
pass of 20 microseconds, of which a small step has more than products. So these are made piece by piece, each too small for PyTorch
to share out. Each value is computed as before.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

GRAIN = 32768  # values of a pass that PyTorch shares out among threads
VALUES = 64  # of which PyTorch's loops are made; what is left over goes through others, which may round in another way
FEW = 1 << 18  # values that one thread goes through, some 50 microseconds


def pieces(*tensors: Tensor) -> Iterable[tuple[Tensor, ...]]:
    """Iterate over the rows of tensors of one length and width: (rows of the first, the same rows of the second, ...), some at a time.

    These are all rows at once where PyTorch has one thread, on a GPU, where threads pay, and where no piece is small.
    """
    first = tensors[0]
    if not first.is_cpu or not GRAIN <= first.numel() <= FEW or torch.get_num_threads() == 1:
        return (tensors,)
    columns = first.numel() // first.shape[0]
    together = VALUES // math.gcd(VALUES, columns)
    rows = (GRAIN - 1) // columns // together * together
    if rows == 0:
        return (tensors,)
    return zip(*(tensor.split(rows) for tensor in tensors), strict=True)
