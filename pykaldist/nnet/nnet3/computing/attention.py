"""Attention restricted to neighbouring frames, as Kaldi's RestrictedAttentionComponent computes it, and back.

Each of the component's heads finds in the input at frame t a key k_t, a value v_t, a query q_t and a score s_t(o) of each of the offsets o
at which it looks, which are a stride apart. Its output at frame t is the mean of the values at these frames, and behind it, where the
component says so, the weights of the mean (Povey et al., 2018, "A time-restricted self-attention layer for ASR"):

    b_t(o) = scale q_t . k_{t+o} + s_t(o),   c_t = softmax b_t,   u_t = sum_o c_t(o) v_{t+o}.

Backward, with the derivatives du_t, and dc_t with respect to the weights, both their own and those that come through u_t:

    dc_t(o) += du_t . v_{t+o},   db_t(o) = c_t(o) (dc_t(o) - sum_p c_t(p) dc_t(p)),   ds_t = db_t,
    dq_t = scale sum_o db_t(o) k_{t+o},   dk_{t+o} += scale db_t(o) q_t,   dv_{t+o} += c_t(o) du_t.

The component has no parameters; keys, values and queries are made by the affine map before it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pykaldist.errors import UserError
from pykaldist.nnet.nnet3.components import Nnet3Component


class Attention:
    """The attention of a component; raises UserError for one that puts zeros in the place of frames that cannot be computed."""

    def __init__(self, component: Nnet3Component) -> None:
        self.heads, self.key, self.value = (component.integer(token) for token in ("NumHeads", "KeyDim", "ValueDim"))
        self.offsets, self.scale = component.time_offsets, component.number("KeyScale")
        self.with_weights = bool(component.values["OutputContext"])
        for side in ("Left", "Right"):
            if component.integer(f"Num{side}InputsRequired") != component.integer(f"Num{side}Inputs"):
                raise UserError(f"component {component.name} has num-{side.lower()}-inputs-required other than num-{side.lower()}-inputs, "
                                "which is not computed here: leave that field out.")

    def forward(self, x: Tensor, frames: Sequence[Tensor | slice]) -> tuple[Tensor, Tensor]:
        """The outputs (T, S, dim) and the weights (T, S, heads, offsets) of inputs (T', S, dim).

        `frames` are of each offset the T rows of the input at which the outputs look.
        """
        keys, values, queries, scores = self._parts(x)
        middle = frames[self.offsets.index(0)]
        products = torch.stack([torch.linalg.vecdot(queries[middle], keys[rows]) for rows in frames], 3)
        weights = (products * self.scale + scores[middle]).softmax(3)
        mean = sum(weights[..., o, None] * values[rows] for o, rows in enumerate(frames))
        assert isinstance(mean, Tensor)
        return (torch.cat([mean, weights], 3) if self.with_weights else mean).flatten(2), weights

    def backward(self, x: Tensor, frames: Sequence[Tensor | slice], weights: Tensor, dy: Tensor) -> Tensor:
        """The derivatives with respect to the inputs of those with respect to the outputs `dy` (T, S, dim)."""
        keys, values, queries, _ = self._parts(x)
        middle = frames[self.offsets.index(0)]
        dy = dy.view(*weights.shape[:3], -1)
        d_mean = dy[..., :self.value]
        d_weights = torch.stack([torch.linalg.vecdot(d_mean, values[rows]) for rows in frames], 3)
        if self.with_weights:
            d_weights += dy[..., self.value:]
        d_scores = weights * (d_weights - torch.linalg.vecdot(weights, d_weights)[..., None])
        dx = torch.zeros_like(x)
        d_keys, d_values, d_queries, d_scores_in = self._parts(dx)
        _add(d_scores_in, middle, d_scores)
        d_products = d_scores * self.scale
        for o, rows in enumerate(frames):
            by = d_products[..., o, None]
            _add(d_queries, middle, by * keys[rows])
            _add(d_keys, rows, by * queries[middle])
            _add(d_values, rows, weights[..., o, None] * d_mean)
        return dx

    def _parts(self, x: Tensor) -> tuple[Tensor, ...]:
        """Keys, values, queries and scores (T', S, heads, dim), as views of the input."""
        parts = x.view(*x.shape[:2], self.heads, -1)
        return tuple(parts.split([self.key, self.value, self.key, len(self.offsets)], 3))


def _add(total: Tensor, rows: Tensor | slice, value: Tensor) -> None:
    """Add to rows that differ from each other."""
    if isinstance(rows, slice):
        total[rows] += value
    else:
        total.index_add_(0, rows, value)
