"""A training run: what runs of all kinds of networks and objectives have in common.

A class derived from this one opens the data, makes the model, the samplers and the learners, and writes the result. Only one job at a time
works in a folder.
"""

from __future__ import annotations

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from pykaldist.frames.sampler import Sampler
from pykaldist.io.lock import locked
from pykaldist.optim.schedules import Fixed, FixedOptions, Schedule
from pykaldist.parallel.engines.host import Host
from pykaldist.parallel.fabric.stack import Stack
from pykaldist.parallel.fabric.worker import Worker
from pykaldist.parallel.launch.job import JobOptions, open_job
from pykaldist.parallel.strategies.base.registry import make_strategy
from pykaldist.train.divergence import DivergenceOptions
from pykaldist.train.trainer import Trainer, TrainerOptions
from pykaldist.train.verification import Verification

SERIAL = "one worker, "  # the title of a serial warm-up


class RunChoices(Protocol):
    """The options of any training run; `strategy`, `optimizer` and `schedule` have those of what is chosen elsewhere."""

    job: JobOptions
    strategy: Any
    optimizer: Any
    schedule: Any
    trainer: TrainerOptions
    divergence: DivergenceOptions


class TrainingRun(ABC):
    """One training run in `exp`: this process's part of it. `job`, `host` and `device` are there after `open`.

    `verification`: the comparison of the stores with their checksums, where that goes on beside training.
    """

    def __init__(self, store: Path, exp: Path, choices: RunChoices) -> None:
        self.store, self.exp, self.choices = store, exp, choices

    verification = Verification()

    def open(self) -> None:
        """Meet the other processes of the job."""
        c = self.choices
        self.job = open_job(c.job, make_strategy(c.job.strategy, c.strategy), self.exp)
        self.host, self.device = self.job.host, self.job.device

    def run(self) -> None:
        """Train or resume; writes the network and what belongs to it to `exp`."""
        with locked(self.exp) if self.job.first else contextlib.nullcontext(), torch.no_grad(), self._blaming_damage():
            self._run()
        self.host.close()

    @contextlib.contextmanager
    def _blaming_damage(self) -> Iterator[None]:
        """Say of an error that is none of a user's, where a store is damaged, that this is why."""
        try:
            yield
        except (ArithmeticError, LookupError, RuntimeError, ValueError):
            self.verification.finish()
            raise

    @abstractmethod
    def _run(self) -> None:
        """Do what `run` does, in the locked folder."""

    @property
    def rate_option(self) -> str:
        """The option that gives the learning rate."""
        return "--learn-rates" if isinstance(self.choices.schedule, FixedOptions) else "--learn-rate"

    @property
    def reads_all(self) -> bool:
        """True where workers train on parts of the data beside their own."""
        return bool(make_strategy(self.choices.job.strategy, self.choices.strategy).reads_all)

    def assembled(self, host: Host, workers: list[Worker], dev: Sampler, schedule: Schedule, folder: Path, title: str = "",
                  stack: Stack | None = None, combine: int = 1) -> Trainer:
        """Make the trainer of workers of `host`, in `folder`; `title` stands before each of its messages.

        Workers of another host than the job's train by themselves. `stack`, `combine`: as in `Trainer`.
        """
        c, alone = self.choices, host is not self.host
        strategies = [make_strategy("local") if alone else make_strategy(c.job.strategy, c.strategy) for _ in workers]
        factor = 1.0 if alone else c.job.rate_factor(strategies[0].lr_scale)
        ramp = strategies[0].asynchronous and factor > 1.0 and not title and not schedule.moves_within(0)
        trainer = Trainer(host, workers, strategies, schedule, dev, folder, c.trainer, c.divergence,
                          lambda line: print(title + line, flush=True), factor, ramp, stack, combine,
                          0.0 if alone or title else c.trainer.ema_decay)
        trainer.check_stores = self.verification.check
        return trainer

    def warm_up(self, params: Tensor, learn_rate: float, trainer: Callable[[Schedule, float], Trainer]) -> None:
        """Serial warm-up: one worker trains `serial_warmup` epochs, in a folder of its own. Then all workers get its model, `params`.

        `trainer` makes its trainer, of a schedule and the fraction of the data that an epoch has.
        """
        amount = self.choices.job.serial_warmup
        epochs = math.ceil(amount)
        if self.job.first:
            schedule = Fixed(FixedOptions(",".join([repr(learn_rate)] * epochs)))
            with self.job.alone():
                trainer(schedule, amount / epochs).run()
        else:
            params.zero_()
        self.host.processes.sum(params, 1.0)
