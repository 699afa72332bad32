"""Muon: hidden layers' weights move by the nearest orthogonal matrix of their momentum, everything else by Adam.

Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024; the scale is of Liu et al., "Muon is scalable for LLM
training", 2025, equation 4. For a weight matrix W (out, in) of a hidden layer, with G the mean of the gradient over the minibatch's frames:
    B <- m B + G,   W <- W - lr 0.2 sqrt(max(out, in)) O,   O ~ U V^T  for the singular value decomposition  G + m B = U S V^T.
All directions of W move alike, where SGD moves most along the largest singular values: what Shampoo's step is when it has no memory
(Bernstein & Newhouse, 2024), and what NG-SGD reaches by Fisher matrices of inputs and derivatives. O is made by five steps of
    X <- a X + (b A + c A^2) X,   A = X X^T,   from X = (G + m B) / |G + m B|,    a, b, c = 3.4445, -4.7750, 2.0315,
which bring every singular value near 1 (0.7 to 1.2) without a decomposition. An entry of O has about the size of Adam's u / 5, so that one
learning rate does for both. The output layer's weights and all biases take Adam's step, as the authors advise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pykaldist.errors import UserError
from pykaldist.nnet.learner import Learner
from pykaldist.optim.adam import Adam, AdamOptions
from pykaldist.optim.optimizer import between
from pykaldist.options import option

STEPS = 5
A, B, C = 3.4445, -4.7750, 2.0315
SCALE = 0.2
TINY = 1e-7


@dataclass
class MuonOptions(AdamOptions):
    """The options of Muon, and of the Adam of what it leaves to that."""

    muon_momentum: float = option(0.95, "momentum m of hidden layers' weights")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 <= self.muon_momentum < 1.0:
            raise UserError(f"--muon-momentum {self.muon_momentum} is outside [0, 1).")


class Muon(Adam):
    """The optimiser Muon. The momentum of hidden layers' weights lies in the first of `means`, at their place."""

    name = "muon"

    def __init__(self, learner: Learner, options: Any) -> None:
        super().__init__(learner, options)
        self._hidden = [(slice(part.start, part.start + map.output_dim * map.input_dim), (map.output_dim, map.input_dim))
                        for map, part in zip(self.model.maps[:-1], self.model.map_slices()[:-1], strict=True)]
        self._others = between([part for part, _ in self._hidden], len(self.model.params))

    def _to_direction(self, gradient: Tensor) -> None:
        for part in self._others:
            self._direction_of(gradient, part)
        momentum = self.options.muon_momentum
        for part, shape in self._hidden:
            own = gradient[part].view(shape)
            velocity = self.means[0, part].view(shape).mul_(momentum).add_(own)
            own.copy_(orthogonal(own.add_(velocity, alpha=momentum), self.model.compute)).mul_(SCALE * math.sqrt(max(shape)))


def orthogonal(matrix: Tensor, compute: torch.dtype) -> Tensor:
    """Nearly the orthogonal matrix U V^T of a matrix U S V^T (out, in): singular values between 0.7 and 1.2. `compute`: of its products."""
    wide = matrix.shape[0] <= matrix.shape[1]
    x = matrix if wide else matrix.mT
    x = (x / torch.linalg.vector_norm(x).clamp_min(TINY)).to(compute)
    for _ in range(STEPS):
        gram = x @ x.mT
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=B, alpha=C), x, beta=A)
    return x if wide else x.mT
