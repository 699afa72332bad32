"""The natural-gradient updates of nnet3's affine, linear and TDNN components, as Kaldi makes them.

The gradient of y = W x + b for a minibatch is Y^T [X 1], Y the derivatives with respect to y. Its two factors are preconditioned each by
its own Fisher model (`natural_gradient.py`), and the step is learning rate x gamma_in gamma_out Yhat^T [X 1]hat. A TdnnComponent is an
affine map of the inputs at its time offsets, one behind the other. Derivatives are those of an objective that is to grow.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from pykaldist.nnet.nnet3.components import Nnet3Component
from pykaldist.optim.natural_gradient import OnlineNaturalGradient


def spliced(x: Tensor, offsets: list[int], sequences: int) -> Tensor:
    """The inputs at each time offset, one behind the other: (rows, dim) to (output rows, offsets x dim).

    Rows are frame by frame, in each the sequences; the first frame is that of the first output plus the smallest offset.
    """
    frames = x.view(-1, sequences, x.shape[1])
    first, count = min(offsets), len(frames) - (max(offsets) - min(offsets))
    return torch.cat([frames[o - first:o - first + count] for o in offsets], 2).flatten(0, 1)


def unspliced(dx: Tensor, offsets: list[int], sequences: int) -> Tensor:
    """The derivatives with respect to x of those with respect to `spliced(x, offsets, sequences)`."""
    parts = dx.view(len(dx) // sequences, sequences, -1).chunk(len(offsets), 2)
    first, count = min(offsets), len(parts[0])
    total = dx.new_zeros(count + max(offsets) - first, sequences, parts[0].shape[2])
    for o, part in zip(offsets, parts, strict=True):
        total[o - first:o - first + count] += part
    return total.flatten(0, 1)


class ComponentUpdates:
    """The updates of a component, whose parameters `linear` (out, in) and `bias` (out,) change in place."""

    def __init__(self, component: Nnet3Component) -> None:
        values, self.linear = component.values, torch.from_numpy(component.linear)
        bias = values.get("BiasParams")
        self.bias = torch.from_numpy(component.array("BiasParams")) if bias is not None and len(component.array("BiasParams")) else None
        both = cast("list[int] | None", values.get("RankInOut"))
        rank_in, rank_out = both if both else (int(component.number("RankIn")), int(component.number("RankOut")))
        alphas = cast("list[float]", values.get("AlphaInOut") or [values.get("Alpha")] * 2)
        period = int(cast(int, values.get("UpdatePeriod", 4)))  # Kaldi's of a TdnnComponent, whose files do not say it
        history = component.number("NumSamplesHistory")
        out_dim, in_dim = self.linear.shape
        self.input = OnlineNaturalGradient(in_dim + (self.bias is not None), rank_in, period, history, alphas[0])
        self.output = OnlineNaturalGradient(out_dim, rank_out, period, history, alphas[1])

    def step(self, x: Tensor, dy: Tensor, learning_rate: float) -> None:
        """Update by a minibatch: inputs (n, in; a TdnnComponent's `spliced`) and derivatives with respect to outputs (n, out)."""
        ones = [] if self.bias is None else [x.new_ones(len(x), 1)]
        x, dy = torch.cat([x, *ones], 1), dy.clone()  # both are written over
        rate = learning_rate * _precondition(self.input, x) * _precondition(self.output, dy)
        columns = self.linear.shape[1]
        self.linear.addmm_(dy.t(), x[:, :columns], alpha=rate)
        if self.bias is not None:
            self.bias.addmv_(dy.t(), x[:, columns], alpha=rate)


def _precondition(side: OnlineNaturalGradient, x: Tensor) -> float:
    """Precondition rows in place, and go on to the next minibatch; returns their factor."""
    if side.calls == 0:
        side.start(x)
    _, gamma = side.precondition(x)
    if side.collecting:
        side.finish(side.update())
    side.advance()
    return float(gamma)
