"""A strategy: what workers exchange, and when; nothing else.

One file each under `strategies/`: a class that derives from Strategy, found by the file's name, and its options, a dataclass named as the
class with `Options` behind it. One object for each worker.
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
    """How long a worker trains by itself between exchanges."""

    average_period: int = option(10, "minibatches of a worker between exchanges; 0: a block of the N x M partition (--blocks)")
    average_frames: int = option(0, "frames of a worker between exchanges, in place of minibatches")

    def __post_init__(self) -> None:
        for name in ("average_period", "average_frames"):
            if getattr(self, name) < 0:
                raise UserError(f"--{name.replace('_', '-')} {getattr(self, name)} is negative.")

    def minibatches(self, minibatch_size: int) -> int:
        """The period, 0 for blocks."""
        return -(-self.average_frames // minibatch_size) or self.average_period

    def shorter(self) -> str:
        """How to make it shorter, in words."""
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
    """`minibatches` to be trained on by this worker, 0 where its shard is used up.

    `fraction` of the epoch's rounds were before it; `last`: none is after it.
    """

    minibatches: int
    fraction: float
    last: bool


def on_device(device: torch.device, state: Any) -> Any:
    """A state with its tensors on a device."""
    if isinstance(state, Tensor):
        return state.to(device)
    if isinstance(state, dict):
        return {key: on_device(device, value) for key, value in state.items()}
    return [on_device(device, value) for value in state] if isinstance(state, (list, tuple)) else state


class Strategy(ABC):
    """A coroutine over one worker; state that outlives an epoch is in its `state_dict()`.

    What a strategy says of itself stands here; every table, help text, plan and simulation takes it from here. The first line of its file
    says what it is.
    `lr_scale`: how the learning rate follows the number of workers N where the user does not say: none, linear (N) or sqrt.
    """

    lr_scale: str
    ships_gradients = False  # every update is made of all workers' minibatches
    asynchronous = False  # gradients may be of an older model than they are applied to
    one_model = True  # after each exchange all workers have the same model
    keeps_mean = False  # exchanges leave the mean over the workers' models as it is
    advice = ""  # what to know of it beside what it takes, for a plan

    independent: Any = False  # workers do not make the same requests, but go each their own way
    fault_tolerant: Any = False  # where a worker dies, the others can finish without it, if it is not one of the `essential`
    essential: Any = range(0)
    remembers: tuple[str, ...] = ()  # attributes that a checkpoint holds: tensors, numbers, None

    def __init__(self, options: Any = None) -> None:
        self.options = options

    @abstractmethod
    async def epoch(self, worker: Worker, fabric: Fabric) -> None:
        """Train the worker through its epoch."""

    async def rounds(self, worker: Worker, fabric: Fabric, period: int) -> AsyncIterator[Round]:
        """Rounds of up to `period` minibatches, as many for every worker as the one with most minibatches left needs; with a period of 0,
        rounds of a block each.

        A worker whose shard is used up takes part in the remaining rounds with none. Each round but the last ends, after what the caller
        does with it, in a safe point; after the last one the epoch is over, and with it comes a checkpoint.
        """
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

    async def by_itself(self, worker: Worker, fabric: Fabric) -> None:
        """The epoch of a worker that is the only one."""
        async for round in self.rounds(worker, fabric, 1):
            for _ in range(round.minibatches):
                await fabric.compute(worker.step)

    def cycle(self, workers: int, minibatch_size: int) -> int:
        """Minibatches of a worker after which so many workers exchange in the same way again, for a dry run."""
        return (self.options.minibatches(minibatch_size) if hasattr(self.options, "minibatches") else 0) or 1

    def contract(self, workers: int, minibatch_size: int) -> list[tuple[str, str]]:
        """What it does to a run of so many workers, as rows of the table at a run's start."""
        return [("averaging period", self.options.described(workers, minibatch_size))] if isinstance(self.options, PeriodOptions) else []

    def remedies(self) -> list[str]:
        """What a user can change, beside the rate, where training diverges: in words, with its options."""
        return [self.options.shorter()] if isinstance(self.options, PeriodOptions) else []

    def rejected(self) -> None:  # noqa: B027  # most strategies remember nothing of the model
        """The schedule went back to an earlier model."""

    def to(self, device: torch.device) -> None:
        """Move what it remembers to the workers' device, from a checkpoint on the host."""
        for name in self.remembers:
            setattr(self, name, on_device(device, getattr(self, name)))

    def state_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.remembers}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        assert set(state) == set(self.remembers), f"{type(self).__name__} keeps {sorted(self.remembers)}, found {sorted(state)}"
        for name, value in state.items():
            setattr(self, name, value)
