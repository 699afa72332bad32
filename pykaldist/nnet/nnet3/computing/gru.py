"""The cells of a gated recurrent unit with an output gate in one function, as Kaldi's OutputGruNonlinearityComponent has it.

A row of the input has the parts z of the gate, a of the candidate, and the cells c' of an earlier frame, C each. With the scales w (C,),
    h = tanh(a + w c'),   c = (1 - z) h + z c',
and the output is h, c. Backward, with p the derivative with respect to a + w c':
    p = (1 - h^2) (dh + (1 - z) dc),   dz = (c' - h) dc,   da = p,   dc' = z dc + w p,   dw = sum of c' p.
"""

from __future__ import annotations

import torch
from torch import Tensor


def forward(x: Tensor, scales: Tensor) -> Tensor:
    """The candidates and the cells (rows, 2 C) of rows."""
    z, a, before = x.chunk(3, 1)
    h = torch.tanh(a + scales * before)
    return torch.cat([h, h + z * (before - h)], 1)


def backward(x: Tensor, y: Tensor, scales: Tensor, dy: Tensor, repair: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The derivatives with respect to x of those with respect to y, and p; `repair` (C,), times h, is added to p."""
    z, _, before = x.chunk(3, 1)
    (h, _), (dh, dc) = y.chunk(2, 1), dy.chunk(2, 1)
    p = (1 - h * h) * (dh + (1 - z) * dc)
    if repair is not None:
        p = p + repair * h
    return torch.cat([(before - h) * dc, p, z * dc + scales * p], 1), p
