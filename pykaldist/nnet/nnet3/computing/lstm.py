"""The cells of an LSTM with peephole connections in one function, forward and backward, as Kaldi's LstmNonlinearityComponent has it.

A row of the input has the parts a_i, a_f, a_c, a_o (C each) of the gates and of the candidate, the cells c' of an earlier frame, and, where
gates have dropout, three numbers d_i, d_f, d_o, else 1. With the peepholes w (3, C) and s for the sigmoid,
    i = s(a_i + w_i c'),   f = s(a_f + w_f c'),   g = tanh(a_c),   c = d_f f c' + d_i i g,
    o = s(a_o + w_o c),    h = tanh(c),           m = d_o o h,
and the output is c, m. Backward goes through this from the end; d_i, d_f and d_o have no derivative. Units whose mean slope is small are
*repaired*: 2 s - 1 of a sigmoid, or a tanh, times a constant are added to the derivatives of their inputs, for a loss, which is to fall.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

GATES = ("i", "f", "g", "o", "h")  # the sigmoids and tanhs, in the order of Kaldi's statistics


@dataclass
class GatesAndCells:
    """What one forward computes: the five sigmoids and tanhs, the cells, and those of before; `masks` are d_i, d_f and d_o (rows, 1)."""

    i: Tensor
    f: Tensor
    g: Tensor
    o: Tensor
    h: Tensor
    c: Tensor
    before: Tensor
    masks: tuple[Tensor, ...]

    def outputs(self) -> Tensor:
        """The cells and the outputs (rows, 2 C)."""
        m = self.o * self.h
        return torch.cat([self.c, m * self.masks[2] if self.masks else m], 1)

    def slope(self, gate: str) -> Tensor:
        """The derivative of one of the sigmoids and tanhs at its input."""
        value: Tensor = getattr(self, gate)
        return 1 - value * value if gate in "gh" else value * (1 - value)


def gates_and_cells(x: Tensor, peepholes: Tensor) -> GatesAndCells:
    """Compute the gates and cells of rows."""
    cells = peepholes.shape[1]
    a_i, a_f, a_c, a_o, before = x[:, :5 * cells].split(cells, 1)
    masks = x[:, 5 * cells:5 * cells + 3].split(1, 1) if x.shape[1] >= 5 * cells + 3 else ()
    i, f, g = (a_i + peepholes[0] * before).sigmoid(), (a_f + peepholes[1] * before).sigmoid(), a_c.tanh()
    kept, new = f * before, i * g
    c = kept * masks[1] + new * masks[0] if masks else kept + new
    o = (a_o + peepholes[2] * c).sigmoid()
    return GatesAndCells(i, f, g, o, c.tanh(), c, before, masks)


def backward(found: GatesAndCells, peepholes: Tensor, dy: Tensor, repair: Tensor | None = None) -> tuple[Tensor, ...]:
    """The derivatives of a_i, a_f, a_c, a_o and of the cells before, of those of the outputs; `repair` (5, C) are the constants."""
    masks = found.masks or (1.0, 1.0, 1.0)
    dc, dm = dy.split(peepholes.shape[1], 1)
    p_o = found.slope("o") * (found.h * dm * masks[2])
    dh = found.slope("h") * (found.o * dm * masks[2])
    if repair is not None:
        p_o, dh = p_o + repair[3] * (2 * found.o - 1), dh + repair[4] * found.h
    dc = dc + dh + p_o * peepholes[2]
    p_f, p_i = found.slope("f") * (dc * masks[1] * found.before), found.slope("i") * (dc * masks[0] * found.g)
    p_c = found.slope("g") * (dc * masks[0] * found.i)
    if repair is not None:
        p_i, p_f = p_i + repair[0] * (2 * found.i - 1), p_f + repair[1] * (2 * found.f - 1)
        p_c = p_c + repair[2] * found.g
    return p_i, p_f, p_c, p_o, peepholes[0] * p_i + peepholes[1] * p_f + found.f * masks[1] * dc
