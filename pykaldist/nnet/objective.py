"""Objectives: what a minibatch's outputs are trained towards.

Softmax with cross-entropy, for logits z (n, K) and targets t: loss = -sum_i log p_i[t_i], p = softmax(z); its derivative
with respect to z is p - onehot(t). Sums over frames, as in nnet1. Nothing is read back to the host.
"""

from __future__ import annotations

import torch
from torch import Tensor


def cross_entropy(logits: Tensor, targets: Tensor, totals: Tensor) -> Tensor:
    """Turn `logits` into their derivative in place, and return it.

    Adds (summed loss, number of frames whose target has the highest logit) to `totals`, a float64 pair on the same device.
    """
    targets = targets.long().unsqueeze(1)
    correct = (logits.argmax(1, keepdim=True) == targets).sum()
    torch.softmax(logits, 1, out=logits)
    chosen = logits.gather(1, targets)
    totals[0] -= chosen.clamp_min(torch.finfo(logits.dtype).tiny).log_().sum(dtype=torch.float64)
    totals[1] += correct
    return logits.scatter_add_(1, targets, chosen.new_full((1, 1), -1.0).expand_as(chosen))
