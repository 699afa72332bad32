"""Batch normalisation as Kaldi's BatchNormComponent trains it.

In training a minibatch's rows x are normalised by their own mean m and variance v (over all rows), to the root mean square t:
    y = s (x - m),   s = t (v + epsilon)^-1/2.
With dy the derivatives with respect to y, and <.> the mean over rows, those with respect to x are
    dx = s (dy - <dy>) - (s / t^2) y <dy y>.
Count, sum and sum of squares are gathered over minibatches, and scaled down now and then, so that they follow the model; in the test m and
v are theirs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

TINY = 1e-20


@dataclass
class Normalised:
    """A minibatch that was normalised: inputs and outputs (n, dim), and what their derivatives need (dim,).

    Statistics are of the parameters' type, rows may be of a narrower one.
    """

    x: Tensor
    y: Tensor
    mean: Tensor
    variance: Tensor  # without epsilon
    weight: Tensor  # the root mean square of the outputs
    mean_of_backward: Tensor  # as PyTorch's backward takes them
    inverse_deviation: Tensor

    def statistics(self) -> tuple[Tensor, Tensor, Tensor]:
        """The count (1,), the sum and the sum of squares (dim,) of the inputs."""
        rows = float(len(self.y))
        return self.mean.new_full((1,), rows), self.mean * rows, (self.variance + self.mean.square()) * rows


@dataclass(frozen=True)
class BatchNorm:
    """Batch normalisation to the root mean square `target_rms`; `epsilon` is added to variances."""

    target_rms: float = 1.0
    epsilon: float = 1e-3

    def forward(self, x: Tensor) -> Normalised:
        """Normalise the rows of x (n, dim) by their own mean and variance."""
        rows, dtype = len(x), torch.float32 if x.dtype == torch.bfloat16 else x.dtype
        weight, bias, mean, variance = torch.zeros(4, x.shape[1], dtype=dtype, device=x.device).unbind()
        weight += self.target_rms
        y, *for_backward = torch.native_batch_norm(x, weight, bias, mean, variance, True, 1.0, self.epsilon)
        variance = variance * ((rows - 1) / rows) if rows > 1 else bias  # PyTorch's is that of a sample
        return Normalised(x, y, mean, variance, weight, *for_backward)

    def backward(self, one: Normalised, dy: Tensor) -> Tensor:
        """The derivatives with respect to the inputs (n, dim) of those with respect to the outputs."""
        found = torch.ops.aten.native_batch_norm_backward(dy, one.x, one.weight, None, None, one.mean_of_backward, one.inverse_deviation,
                                                          True, self.epsilon, [True, False, False])
        return cast(Tensor, found[0])

    def scale_and_offset(self, count: Tensor, total: Tensor, squares: Tensor) -> tuple[Tensor, Tensor]:
        """The scale and the offset (dim,) that normalisation by the statistics comes to; without any, those of mean and variance 0."""
        mean, variance = mean_and_variance(count, total, squares)
        scale = self.target_rms * (variance + self.epsilon).rsqrt()
        return scale, -mean * scale


def mean_and_variance(count: Tensor, total: Tensor, squares: Tensor) -> tuple[Tensor, Tensor]:
    """The mean and the variance (dim,) of count (1,), sum and sum of squares."""
    mean = total / count.clamp_min(TINY)
    return mean, (squares / count.clamp_min(TINY) - mean.square()).clamp_min(0)
