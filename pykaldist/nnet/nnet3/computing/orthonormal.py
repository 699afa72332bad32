"""The semi-orthogonal constraint of TDNN-F: a step that brings the rows of a matrix closer to being orthogonal and of one length.

Povey et al. (2018), "Semi-orthogonal low-rank matrix factorization for deep neural networks", section 2. With P = M M^T the step goes down
the gradient of |P - a^2 I|^2:
    M <- M - 4 (nu / a^2) (P - a^2 I) M.
Close to the constraint nu = 1/8 makes convergence quadratic. With a floating scale a^2 = tr(P P^T) / tr(P), which makes the step orthogonal
to M; there P's eigenvalues can differ much, and nu is halved where tr(P P^T) rows / tr(P)^2 (1 at the constraint) is above 1.02, and again
above 1.1, as Kaldi does.
"""

from __future__ import annotations

import torch
from torch import Tensor

SPEED = 0.125
SLOW, SLOWER = 1.02, 1.1  # of tr(P P^T) rows / tr(P)^2
TINY = 1e-15


def constrain_orthonormal(matrix: Tensor, constraint: float) -> None:
    """Make one step, in place, on `matrix`; of one with more rows than columns the columns become orthogonal.

    `constraint` is the length a of the rows; below 0: whatever it is (floating), 0: no step is made.
    """
    if constraint == 0:
        return
    m = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.t()
    p = m @ m.t()
    if constraint < 0:
        trace, energy = p.trace(), p.square().sum()
        square, ratio = energy / trace, energy * len(p) / trace**2
        speed = SPEED * (1.0 - 0.5 * (ratio > SLOW).to(p.dtype)) * (1.0 - 0.5 * (ratio > SLOWER).to(p.dtype))
        factor = torch.where(energy.isfinite() & (trace > TINY), 4 * speed / square, 0.0)  # 0 has no rows to turn, infinity is lost
        square = torch.where(trace > TINY, square, 0.0)
    else:
        square = p.new_full((), constraint * constraint)
        factor = 4 * SPEED / square
    p -= square * torch.eye(len(p), dtype=p.dtype, device=p.device)
    m.sub_(factor * (p @ m))
