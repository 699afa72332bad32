"""The base class of all strategies. A strategy says what workers exchange, and when, and nothing else.

Each strategy is one file under `strategies/`: a class that derives from Strategy, found by the file's name, and a dataclass of its options,
whose name is that of the class with `Options` behind it. Each worker has a strategy object of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pykaldist.errors import UserError
from pykaldist.options import option
from pykaldist.parallel.fabric.interface import Fabric
from pykaldist.parallel.fabric.worker import Worker


@dataclass
class PeriodOptions:
    """How long a worker trains by itself between two exchanges."""

    average_period: int = option(10, "minibatches of a worker between exchanges; 0: a block of the N x M partition (--blocks)")
    average_frames: int = option(0, "frames of a worker between exchanges, in place of minibatches")

    def __post_init__(self) -> None:
        for name in ("average_period", "average_frames"):
            if getattr(self, name) < 0:
                raise UserError(f"--{name.replace('_', '-')} {getattr(self, name)} is negative.")

    def minibatches(self, minibatch_size: int) -> int:
        """The period in minibatches; 0 for blocks."""
        return -(-self.average_frames // minibatch_size) or self.average_period

    def shorter(self) -> str:
        """How a user can make the period shorter, in words."""
        name = "average_frames" if self.average_frames else "average_period"
        was = getattr(self, name)
        return f"shorten --{name.replace('_', '-')} (was {was})" if was else "give --average-period (was a block)"

    def described(self, workers: int, minibatch_size: int) -> str:
        """The period in words."""
        period = self.minibatches(minibatch_size)
        return f"{period} minibatches of a worker, {workers * period * minibatch_size:,} frames of all" if period else \
            "a block of the partition"


@dataclass
class Round:
    """One round of training: this worker trains on `minibatches` minibatches, 0 where its part of the data is used up.

    `fraction` is the part of the epoch's rounds before this one. `last`: no round of this epoch follows.
    """

    minibatches: int
    fraction: float
    last: bool


def on_device(device: torch.device, state: Any) -> Any:
    """Copy a state, with all its tensors, to a device."""
    if isinstance(state, Tensor):
        return state.to(device)
    if isinstance(state, dict):
        return {key: on_device(device, value) for key, value in state.items()}
    return [on_device(device, value) for value in state] if isinstance(state, (list, tuple)) else state


class Strategy(ABC):
    """What workers exchange, and when: a coroutine over one worker. State that has to outlive an epoch is in `state_dict()`.

    All that other parts need to know about a strategy is said here: tables, help texts, plans and simulations take it from here. The first
    line of the strategy's file says what it is. `lr_scale` says how the learning rate follows the number of workers N where the user does
    not say: none, linear (N) or sqrt.
    """

    lr_scale: str
    ships_gradients = False  # every update uses the minibatches of all workers
    asynchronous = False  # a gradient may belong to an older model than the one that it changes
    one_model = True  # after each exchange all workers have the same model
    keeps_mean: Any = False  # exchanges do not change the mean of the workers' models
    reads_all: Any = False  # workers train on parts of the data beside their own
    advice = ""  # what a user should know, beside its costs, when a plan recommends it

    independent: Any = False  # each worker makes its own requests, whatever the others do
    fault_tolerant: Any = False  # when a worker dies, the others finish without it, unless it is `essential`
    essential: Any = range(0)
    remembers: tuple[str, ...] = ()  # names of the attributes that a checkpoint holds: tensors, numbers, None

    def __init__(self, options: Any = None) -> None:
        self.options = options

    def lost_with(self, rank: int, size: int, node_size: int) -> range:
        """The workers that a job of `size` loses when it loses worker `rank`: with groups that cannot go on without one of theirs, a group.

        `node_size`: the workers of a node, 0 where nodes differ in it.
        """
        return range(rank, rank + 1)

    @abstractmethod
    async def epoch(self, worker: Worker, fabric: Fabric) -> None:
        """Train the worker through one epoch."""

    async def rounds(self, worker: Worker, fabric: Fabric, period: int) -> AsyncIterator[Round]:
        """Yield rounds of up to `period` minibatches, or of a block each with a period of 0. All workers have the same number of rounds.

        This is the number that the worker with the most minibatches left needs. A worker whose part of the data is used up takes part in
        the remaining rounds with no minibatches. Each round but the last ends, after what the caller does with it, in a safe point. After
        the last round the epoch is over, and the trainer takes a checkpoint.
        """
        if fabric.elastic:
            async for round in self._elastic_rounds(fabric, period):
                yield round
            return
        minibatches = worker.sampler.minibatches
        ends = worker.sampler.block_ends(worker.epoch) if period == 0 else \
            [min(start + period, minibatches) for start in range(0, minibatches, period)]
        left = [end for end in ends if end > worker.index]
        count, most_left = int(await fabric.maximum(len(ends))), int(await fabric.maximum(len(left)))
        for i in range(most_left):
            number = count - most_left + i
            yield Round(left[i] - worker.index if i < len(left) else 0, number / count, number + 1 == count)
            if number + 1 < count:
                await fabric.safe_point()

    async def _elastic_rounds(self, fabric: Fabric, period: int) -> AsyncIterator[Round]:
        """Yield the rounds of an elastic job. One may follow the last, where a worker dies in its exchange."""
        while (found := await fabric.next_round(period)) is not None:
            minibatches, before, behind = found
            yield Round(minibatches, before / (before + 1 + behind), not behind)
            if behind:
                await fabric.safe_point()

    async def gradient_of(self, worker: Worker, fabric: Fabric, round: Round, gradient: Tensor) -> int:
        """Compute the gradient of a round of one minibatch into `gradient`: zero where the worker has none left. Returns its frames."""
        if round.minibatches:
            return await fabric.compute(worker.gradient, gradient, round.fraction)
        gradient.zero_()
        return 0

    async def by_itself(self, worker: Worker, fabric: Fabric) -> None:
        """Train through an epoch without any exchange, where there is only one worker."""
        async for round in self.rounds(worker, fabric, 1):
            for _ in range(round.minibatches):
                await fabric.compute(worker.step)

    def cycle(self, workers: int, minibatch_size: int) -> int:
        """Minibatches of a worker after which the exchanges between so many workers repeat, for a dry run."""
        return (self.options.minibatches(minibatch_size) if hasattr(self.options, "minibatches") else 0) or 1

    def initial_share(self, workers: int) -> float:
        """The part of the workers' learning rate that they take at first."""
        return 1.0

    def contract(self, workers: int, minibatch_size: int) -> list[tuple[str, str]]:
        """What the strategy means for a run of so many workers, as rows (name, text) of the table at the start of a run."""
        return [("averaging period", self.options.described(workers, minibatch_size))] if isinstance(self.options, PeriodOptions) else []

    def remedies(self) -> list[str]:
        """What a user can change, beside the rate, when training diverges: in words, with the options."""
        return [self.options.shorter()] if isinstance(self.options, PeriodOptions) else []

    def inelastic(self) -> str:
        """Why a job with this strategy cannot be elastic, in words; empty where it can.

        It can where all that workers exchange is means over all of them.
        """
        return "only strategies whose workers average models at times can lose one and go on in step (ma, bmuf, diloco)"

    def join(self, state: dict[str, Any]) -> None:
        """Become the strategy of a worker that joins, from the `state_dict` of another worker's, after an exchange."""
        self.load_state_dict(state)

    def rejected(self) -> None:  # noqa: B027  # most strategies remember nothing of the model
        """Note that the schedule went back to an earlier model."""

    def to(self, device: torch.device) -> None:
        """Move the attributes in `remembers` to the workers' device, from a checkpoint on the host."""
        for name in self.remembers:
            setattr(self, name, on_device(device, getattr(self, name)))

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint has to hold of the strategy."""
        return {name: getattr(self, name) for name in self.remembers}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        assert set(state) == set(self.remembers), f"{type(self).__name__} keeps {sorted(self.remembers)}, found {sorted(state)}"
        for name, value in state.items():
            setattr(self, name, value)
