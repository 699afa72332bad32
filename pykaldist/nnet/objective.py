"""Objectives: what a minibatch's outputs are trained towards.

Softmax with cross-entropy, for logits z (n, K) and targets t: loss = -sum_i log p_i[t_i], p = softmax(z); its derivative
with respect to z is p - onehot(t). Sums over frames, as in nnet1. Nothing is read back to the host.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from pykaldist.frames.sampler import Minibatch


class Objective(ABC):
    """What a minibatch costs. `totals` are float64 sums on the device: loss, what `metrics` needs beside it, frames."""

    num_totals: int

    @abstractmethod
    def __call__(self, outputs: Tensor, minibatch: Minibatch, totals: Tensor) -> Tensor:
        """Turn `outputs` (n, K) into their derivative in place, and return it; add the minibatch to `totals`."""

    @abstractmethod
    def metrics(self, totals: list[float]) -> dict[str, float]:
        """Means a frame, the loss first, as they stand in `history.jsonl` behind `train_` and `cv_`."""


class CrossEntropy(Objective):
    """Totals: summed loss, number of frames whose target has the highest logit, frames."""

    num_totals = 3

    def __call__(self, outputs: Tensor, minibatch: Minibatch, totals: Tensor) -> Tensor:
        targets = minibatch.targets.long().unsqueeze(1)
        correct = (outputs.argmax(1, keepdim=True) == targets).sum()
        torch.softmax(outputs, 1, out=outputs)
        chosen = outputs.gather(1, targets)
        totals[0] -= chosen.clamp_min(torch.finfo(outputs.dtype).tiny).log_().sum(dtype=torch.float64)
        totals[1] += correct
        totals[2] += len(outputs)
        return outputs.scatter_add_(1, targets, chosen.new_full((1, 1), -1.0).expand_as(chosen))

    def metrics(self, totals: list[float]) -> dict[str, float]:
        loss, correct, frames = totals
        return {"loss": loss / max(frames, 1.0), "acc": correct / max(frames, 1.0)}
