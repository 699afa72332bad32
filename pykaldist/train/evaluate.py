"""Cross-validation: the loss and accuracy on held-out frames, which are shared out over the processes of a job."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from torch import Tensor

from pykaldist.frames.sampler import Minibatch, Sampler
from pykaldist.nnet.learner import Learner
from pykaldist.parallel.fabric.processes import Processes, SingleProcess

# Minibatches whose totals are one tensor. A small tensor of each would lie between what minibatches take and give back, and keep the
# allocator from giving their memory to anyone: 24 KB a minibatch.
ROWS = 256


def evaluate(learner: Learner, sampler: Sampler, processes: Processes | None = None,
             score: Callable[[Minibatch, Tensor], None] | None = None) -> dict[str, float]:
    """The learner's metrics (loss in nats per frame, frame accuracy in [0, 1], ...) over all frames of the sampler's split.

    `score` is the learner's own where no other is given. Process p of P takes every P-th minibatch. The totals are summed in the order of
    the minibatches, so that the sums do not depend on P.
    """
    processes, score = processes or SingleProcess(), score or learner.score
    size = 0
    while size != processes.size:  # do it again when a process has died meanwhile
        totals = torch.empty(0, learner.num_totals, dtype=torch.float64, device=learner.model.device)
        parts, count, size = [totals], 0, processes.size
        for count, minibatch in enumerate(sampler.in_order(processes.rank, size), 1):
            row = (count - 1) % ROWS
            if row == 0:
                parts.append(totals.new_zeros(ROWS, learner.num_totals))
            score(minibatch, parts[-1][row])
        learner.settle()
        own = torch.cat(parts)[:count].cpu().view(-1)
        gathered = [part.view(-1, learner.num_totals) for part in processes.gather(own)]
    in_order = [row for rows in itertools.zip_longest(*gathered) for row in rows if row is not None]
    total = torch.zeros(learner.num_totals, dtype=torch.float64)
    for row in in_order:
        total += row
    return learner.metrics(total.tolist())
