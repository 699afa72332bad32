"""A stack: the workers of a process whose models are small, and compute together.

Several workers in step on one device make the same requests. Where they take turns, a step of a small network costs its launches (on a
GPU) or the calls of PyTorch (on a CPU) rather than its arithmetic, once for each worker. In a stack the workers' parameters are the rows of
one buffer (nnet/stacked.py), their minibatches are gathered together (frames/stacked.py), and a step, a gradient or an update is made for
all of them at once (optim/stacked.py). Strategies see no difference: `worker.params`, the velocity and the totals are views.

What is made together are full minibatches, when every worker has one, and updates. The rest, such as an epoch's last minibatches, is made
one worker after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from pykaldist.frames.sampler import Minibatch
from pykaldist.frames.stacked import stacked
from pykaldist.nnet.learner import Supervised
from pykaldist.nnet.model import Model
from pykaldist.nnet.stacked import StackedModel
from pykaldist.optim.stacked import StackedSgd
from pykaldist.parallel.fabric.worker import Worker


class Stack:
    """The workers of a process, which have not begun to train: DNNs with SGD. `gradients`: their strategy ships gradients."""

    def __init__(self, workers: Sequence[Worker], gradients: bool = False) -> None:
        self.workers, learner = workers, workers[0].learner
        assert isinstance(learner, Supervised)
        model = StackedModel([cast(Model, worker.learner.model) for worker in workers])
        samplers, self._gather = stacked(workers[0].sampler, [worker.sampler.split for worker in workers])
        for worker, sampler in zip(workers, samplers, strict=True):
            worker.sampler = sampler
            worker.restart()  # with an optimiser that knows where the parameters lie now
        model.reserve(len(workers) * self._gather.size)
        self._optimizer = StackedSgd(Supervised(model, learner.objective), [worker.optimizer for worker in workers], gradients)
        self._totals = torch.zeros(len(workers), learner.num_totals, dtype=torch.float64, device=model.device)
        for worker, row in zip(workers, self._totals.unbind(), strict=True):
            worker.add_totals_to(row)
        self._kinds: list[tuple[str, Callable[[Any], list[Any]]]] = [("step", self._step), ("gradient", self._gradient),
                                                                     ("apply", self._apply)]

    def begin_epoch(self) -> None:
        """Take in the optimisers of workers that have begun again."""
        self._optimizer.adopt([worker.optimizer for worker in self.workers])

    def compute(self, work: dict[int, Callable[[], Any]]) -> dict[int, Any]:
        """Do the work of workers, by their place among those of the process, and return its results; together, where it is of one kind."""
        asked = list(work.values())
        if len(asked) == len(self.workers):
            for name, together in self._kinds:
                if all(isinstance(one, partial) and one.func == getattr(worker, name)
                       for one, worker in zip(asked, self.workers, strict=True)):
                    return dict(zip(work, together([one.args for one in asked if isinstance(one, partial)]), strict=True))
        return {i: one() for i, one in work.items()}

    def _minibatches(self) -> tuple[list[Minibatch], bool]:
        """The next minibatch of each worker; and whether all are full, so that they are one."""
        self._gather.defer()
        minibatches = [worker.next_minibatch() for worker in self.workers]
        before = self.workers[0].clock.mark()
        full = self._gather.make()
        self.workers[0].add_load(before, self.workers)
        return minibatches, full

    def _rates(self) -> list[float]:
        return [worker.learn_rate for worker in self.workers]

    def _step(self, fractions: Sequence[tuple[float | None, ...]]) -> list[None]:
        """Let each worker make a local update (`Worker.step`)."""
        for worker, given in zip(self.workers, fractions, strict=True):
            worker.set_rate(*given or (None,))
        minibatches, full = self._minibatches()
        if full:
            self._optimizer.set_rates(self._rates())
            self._optimizer.step_each(self._gather.whole, self._totals)
        for worker, minibatch in zip(self.workers, minibatches, strict=True):
            if not full:
                worker.optimizer.local_step(minibatch, worker.learn_rate, worker.totals)
            worker.stepped(minibatch)
        return [None] * len(minibatches)

    def _gradient(self, asked: Sequence[tuple[Tensor, float]]) -> list[int]:
        """Compute each worker's gradient (`Worker.gradient`), and return the frames."""
        for worker, (_, fraction) in zip(self.workers, asked, strict=True):
            worker.set_rate(fraction)
        minibatches, full = self._minibatches()
        if full:
            self._optimizer.gradient_of_each(self._gather.whole, [grads for grads, _ in asked], self._totals)
        for worker, minibatch, (grads, _) in zip(self.workers, minibatches, asked, strict=True):
            if not full:
                worker.optimizer.gradient(minibatch, grads, worker.totals)
        return [worker.shipped(minibatch) for worker, minibatch in zip(self.workers, minibatches, strict=True)]

    def _apply(self, asked: Sequence[tuple[Tensor, float, float]]) -> list[None]:
        """Let each worker make an update of a gradient (`Worker.apply`)."""
        frames = asked[0][1]
        if any(own != frames for _, own, _ in asked):
            for worker, given in zip(self.workers, asked, strict=True):
                worker.apply(*given)
            return [None] * len(asked)
        for worker, (_, _, fraction) in zip(self.workers, asked, strict=True):
            worker.set_rate(fraction)
            worker.updates += 1
        self._optimizer.set_rates(self._rates())
        self._optimizer.apply_each([grads for grads, _, _ in asked], cast(int, frames))
        return [None] * len(asked)
