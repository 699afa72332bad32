"""The cells of a gated recurrent unit in one function, as Kaldi's OutputGruNonlinearityComponent and GruNonlinearityComponent have it.

A row of the input has the parts z of the gate and a of the candidate (C each), and the cells c' of an earlier frame. With a reset gate it
has its r behind z, and what goes back, s', behind c' (R each; where R is C, c' is s', and stands there once). Then

    h = tanh(a + v),   c = (1 - z) h + z c',   v = w c' (w (C,)), or with a reset gate v = W u, u = r s' (W (C, R)),

and the output is h, c. Backward, with p the derivative with respect to a and v, and du that with respect to c' or u through v:

    p = (1 - h^2) (dh + (1 - z) dc),   dz = (c' - h) dc,   da = p,   dc' = z dc,   du = w p or W^T p,   dr = s' du,   ds' = r du.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pykaldist.nnet.nnet3.components import Nnet3Component


class GruFunction:
    """The function of a component; `weights` are w as a row, or W."""

    def __init__(self, component: Nnet3Component) -> None:
        self.cells, self.resets = component.integer("CellDim"), component.type == "GruNonlinearityComponent"
        self.recurrent = component.integer("RecurrentDim") if self.resets else self.cells
        self.projected = self.recurrent != self.cells

    def sources(self, x: Tensor) -> Tensor:
        """What the weights multiply: c', or u."""
        return self._gate(x) * self._back(x) if self.resets else self._before(x)

    def forward(self, x: Tensor, weights: Tensor) -> Tensor:
        """The candidates and the cells (rows, 2 C) of rows."""
        u = self.sources(x)
        h = torch.tanh(self._candidate(x) + (u @ weights.t() if self.resets else u * weights))
        return torch.cat([h, h + x[:, :self.cells] * (self._before(x) - h)], 1)

    def backward(self, x: Tensor, y: Tensor, weights: Tensor, dy: Tensor, repair: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The derivatives with respect to x of those with respect to y, and p; `repair` (C,), times h, is added to p."""
        z, (h, _), (dh, dc) = x[:, :self.cells], y.chunk(2, 1), dy.chunk(2, 1)
        p = (1 - h * h) * (dh + (1 - z) * dc)
        if repair is not None:
            p = p + repair * h
        dz, d_before, du = (self._before(x) - h) * dc, z * dc, p @ weights if self.resets else p * weights
        if not self.resets:
            return torch.cat([dz, p, d_before + du], 1), p
        d_gate, d_back = self._back(x) * du, self._gate(x) * du
        return torch.cat([dz, d_gate, p, *((d_before, d_back) if self.projected else (d_before + d_back,))], 1), p

    def _gate(self, x: Tensor) -> Tensor:
        return x[:, self.cells:self.cells + self.recurrent]

    def _candidate(self, x: Tensor) -> Tensor:
        begin = self.cells + (self.recurrent if self.resets else 0)
        return x[:, begin:begin + self.cells]

    def _before(self, x: Tensor) -> Tensor:
        begin = 2 * self.cells + (self.recurrent if self.resets else 0)
        return x[:, begin:begin + self.cells]

    def _back(self, x: Tensor) -> Tensor:
        return x[:, -self.recurrent:]
