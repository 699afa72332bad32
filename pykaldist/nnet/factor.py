"""Factors: numbers that a training step computes and multiplies matrices with, on the device or on the host.

On a GPU a factor is a 0-dimensional tensor: nothing waits for it, and a CUDA graph replayed reads its new value. On a CPU it is a float,
which goes into a product without a pass of its own. There a tensor would be slow: a dozen kernels on single numbers, each of which finds
its code evicted by the matrix product before it, cost a small network's layer as much as several passes over its activations. Formulas that
use arithmetic operators and the functions of this module hold for both.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

Factor = Tensor | float


def factor(value: Tensor) -> Factor:
    """Make a factor of a 0-dimensional tensor."""
    return value.item() if value.is_cpu else value


def least(a: Factor, b: Factor) -> Factor:
    """The lesser of two factors of one kind."""
    return torch.minimum(a, b) if isinstance(a, Tensor) and isinstance(b, Tensor) else min(a, b)


def quotient(a: Factor, b: Factor) -> Factor:
    """Divide a by b; infinity where b is 0 and a is more."""
    if isinstance(b, Tensor):
        return torch.div(a if isinstance(a, Tensor) else torch.tensor(a, dtype=b.dtype), b)  # one kernel; a / b would be two
    return a / b if b else math.inf


def root(x: Factor) -> Factor:
    """The square root of a factor."""
    return torch.sqrt(x) if isinstance(x, Tensor) else math.sqrt(x)


def exponential(x: Factor) -> Factor:
    """The exponential function of a factor."""
    return torch.exp(x) if isinstance(x, Tensor) else math.exp(x)


def taken_in(x: Tensor, by: Factor) -> tuple[Tensor, float]:
    """Multiply x by a factor, or leave that to the caller: a matrix and a float whose product is the result; x may be overwritten."""
    return (x.mul_(by), 1.0) if isinstance(by, Tensor) else (x, by)


def add_multiple(out: Tensor, x: Tensor, by: Factor) -> Tensor:
    """Add a multiple of x: out <- out + by x."""
    return out.addcmul_(x, by) if isinstance(by, Tensor) else out.add_(x, alpha=by)
