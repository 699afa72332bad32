"""Numbers that a step computes and multiplies matrices with.

On a device such a number is a 0-dimensional tensor: nothing waits for it, and a CUDA graph replayed reads its new value. On the host it is
a float: there a dozen kernels on single numbers, each of which finds its code evicted by the matrix product before it, cost a small
network's layer as much as several passes over its activations, and a float goes into a product without a pass of its own. Formulas that
use arithmetic operators and what stands here hold for both.
"""

from __future__ import annotations

import torch
from torch import Tensor

Factor = Tensor | float


def factor(value: Tensor) -> Factor:
    """A 0-dimensional tensor as a factor."""
    return value.item() if value.is_cpu else value


def least(a: Factor, b: Factor) -> Factor:
    """The lesser of two factors of one kind."""
    return torch.minimum(a, b) if isinstance(a, Tensor) and isinstance(b, Tensor) else min(a, b)


def taken_in(x: Tensor, by: Factor) -> tuple[Tensor, float]:
    """x times `by`, as a matrix and a float, of which the product is meant; x may be overwritten."""
    return (x.mul_(by), 1.0) if isinstance(by, Tensor) else (x, by)


def add_multiple(out: Tensor, x: Tensor, by: Factor) -> Tensor:
    """out <- out + by x."""
    return out.addcmul_(x, by) if isinstance(by, Tensor) else out.add_(x, alpha=by)
