"""Cross-validation: the loss and accuracy on held-out frames, which are shared out over the processes of a job."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from torch import Tensor

from pykaldist.frames.sampler import Minibatch, Sampler
from pykaldist.nnet.learner import Learner
from pykaldist.parallel.fabric.processes import Processes, SingleProcess


def evaluate(learner: Learner, sampler: Sampler, processes: Processes | None = None,
             score: Callable[[Minibatch, Tensor], None] | None = None) -> dict[str, float]:
    """The learner's metrics (loss in nats per frame, frame accuracy in [0, 1], ...) over all frames of the sampler's split.

    `score` is the learner's own where no other is given. Process p of P takes every P-th minibatch. The totals are summed in the order of
    the minibatches, so that the sums do not depend on P.
    """
    processes, score = processes or SingleProcess(), score or learner.score
    size = 0
    while size != processes.size:  # do it again when a process has died meanwhile
        rows, size = [], processes.size
        for minibatch in sampler.in_order(processes.rank, size):
            rows.append(torch.zeros(learner.num_totals, dtype=torch.float64, device=learner.model.device))
            score(minibatch, rows[-1])
        learner.settle()
        own = torch.cat(rows).cpu() if rows else torch.empty(0, dtype=torch.float64)
        parts = [part.view(-1, learner.num_totals) for part in processes.gather(own)]
    in_order = [row for rows in itertools.zip_longest(*parts) for row in rows if row is not None]
    totals = torch.zeros(learner.num_totals, dtype=torch.float64)
    for row in in_order:
        totals += row
    return learner.metrics(totals.tolist())
