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

import torch
from torch import Tensor

from pykaldist.errors import UserError


@dataclass
class Normalised:
    """A minibatch that was normalised: its outputs, and what its derivatives need."""

    y: Tensor  # (n, dim)
    mean: Tensor  # (dim,)
    variance: Tensor  # (dim,), without epsilon
    scale: Tensor  # (dim,)


class BatchNorm:
    """Batch normalisation of `dim` dimensions: `forward`, `backward` and `store` in training, `test` with the statistics stored."""

    def __init__(self, dim: int, target_rms: float = 1.0, epsilon: float = 1e-3) -> None:
        self.target_rms, self.epsilon = target_rms, epsilon
        self.count = 0.0
        self.sum, self.sum_of_squares = torch.zeros(dim, dtype=torch.float64), torch.zeros(dim, dtype=torch.float64)

    def forward(self, x: Tensor) -> Normalised:
        """Normalise the rows of x (n, dim) by their own mean and variance."""
        mean = x.mean(0)
        centred = x - mean
        variance = centred.square().mean(0)
        scale = self.target_rms * (variance + self.epsilon).rsqrt()
        return Normalised(centred * scale, mean, variance, scale)

    def backward(self, one: Normalised, dy: Tensor) -> Tensor:
        """The derivatives with respect to the inputs (n, dim) of those with respect to the outputs."""
        inner = (dy * one.y).mean(0) / self.target_rms**2
        return one.scale * (dy - dy.mean(0) - one.y * inner)

    def store(self, one: Normalised) -> None:
        """Add a minibatch to the statistics."""
        rows, mean = len(one.y), one.mean.double().cpu()
        self.count += rows
        self.sum += rows * mean
        self.sum_of_squares += rows * (one.variance.double().cpu() + mean.square())

    def scale_statistics(self, factor: float) -> None:
        """Scale the statistics, whose weight against those of minibatches to come is so changed."""
        self.count *= factor
        self.sum *= factor
        self.sum_of_squares *= factor

    def test_scale_offset(self) -> tuple[Tensor, Tensor]:
        """The scale and the offset (dim,) that normalisation by the statistics comes to; raises UserError where there are none."""
        if self.count <= 0:
            raise UserError("batch normalisation has no statistics yet; train the network.")
        mean = self.sum / self.count
        variance = (self.sum_of_squares / self.count - mean.square()).clamp_min(0)
        scale = self.target_rms * (variance + self.epsilon).rsqrt()
        return scale.float(), (-mean * scale).float()
