"""The base class of asynchronous strategies, and the option by which workers share the minibatches."""

from __future__ import annotations

from dataclasses import dataclass

from pykaldist.options import option
from pykaldist.parallel.strategies.base.strategy import Strategy


@dataclass
class WorkOptions:
    """Which worker trains on which minibatches. In each case every frame is trained on once in an epoch."""

    work: str = option("queue", "a worker that has finished its part of the data goes on with others' (queue), or rests (shards)",
                       ("queue", "shards"))


class Asynchronous(Strategy):
    """A strategy whose workers do not wait for each other."""

    options: WorkOptions
    asynchronous = True
    one_model = False

    @property
    def queue(self) -> bool:
        """True where a worker that has finished its own part of the data goes on with minibatches of other parts."""
        return self.options.work == "queue"

    def contract(self, workers: int, minibatch_size: int) -> list[tuple[str, str]]:
        return [("minibatches", "of each worker's own part of the data" + ", then of who has most left" * self.queue)]
