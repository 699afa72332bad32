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

from torch import Tensor

TINY = 1e-20


@dataclass
class Normalised:
    """A minibatch that was normalised: its outputs, and what its derivatives need."""

    y: Tensor  # (n, dim)
    mean: Tensor  # (dim,)
    variance: Tensor  # (dim,), without epsilon
    scale: Tensor  # (dim,)

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
        mean = x.mean(0)
        centred = x - mean
        variance = centred.square().mean(0)
        scale = self.target_rms * (variance + self.epsilon).rsqrt()
        return Normalised(centred * scale, mean, variance, scale)

    def backward(self, one: Normalised, dy: Tensor) -> Tensor:
        """The derivatives with respect to the inputs (n, dim) of those with respect to the outputs."""
        inner = (dy * one.y).mean(0) / self.target_rms**2
        return one.scale * (dy - dy.mean(0) - one.y * inner)

    def scale_and_offset(self, count: Tensor, total: Tensor, squares: Tensor) -> tuple[Tensor, Tensor]:
        """The scale and the offset (dim,) that normalisation by the statistics comes to; without any, those of mean and variance 0."""
        mean, variance = mean_and_variance(count, total, squares)
        scale = self.target_rms * (variance + self.epsilon).rsqrt()
        return scale, -mean * scale


def mean_and_variance(count: Tensor, total: Tensor, squares: Tensor) -> tuple[Tensor, Tensor]:
    """The mean and the variance (dim,) of count (1,), sum and sum of squares."""
    mean = total / count.clamp_min(TINY)
    return mean, (squares / count.clamp_min(TINY) - mean.square()).clamp_min(0)
