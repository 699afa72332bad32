"""Cross-validation: loss and frame accuracy of a model on held-out frames."""

from __future__ import annotations

import torch

from pykaldist.errors import UserError
from pykaldist.frames.sampler import Sampler
from pykaldist.nnet.model import Model
from pykaldist.nnet.objective import cross_entropy


def evaluate(model: Model, sampler: Sampler) -> tuple[float, float]:
    """(mean loss a frame in nats, frame accuracy in [0, 1]) over every frame of the sampler's split."""
    totals = torch.zeros(2, dtype=torch.float64, device=model.device)
    for minibatch in sampler.in_order():
        cross_entropy(model.forward(minibatch.inputs), minibatch.targets, totals)
    loss, correct = (totals / sampler.frames).tolist()
    if loss != loss:
        raise UserError("the cross-validation loss is not a number; lower --learn-rate and run the same command again.")
    return loss, correct
