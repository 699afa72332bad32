"""Cross-validation: a learner's metrics on held-out frames."""

from __future__ import annotations

import math

import torch

from pykaldist.errors import UserError
from pykaldist.frames.sampler import Sampler
from pykaldist.nnet.learner import Learner


def evaluate(learner: Learner, sampler: Sampler) -> dict[str, float]:
    """The learner's metrics (loss in nats a frame, frame accuracy in [0, 1], ...) over every frame of the sampler's split."""
    totals = torch.zeros(learner.num_totals, dtype=torch.float64, device=learner.model.device)
    for minibatch in sampler.in_order():
        learner.score(minibatch, totals)
    metrics = learner.metrics(totals.tolist())
    if not math.isfinite(metrics["loss"]):
        raise UserError(f"the cross-validation loss is {metrics['loss']}; lower {learner.rate_option} and run the same command again.")
    return metrics
