"""What asynchronous strategies have in common: who trains on which minibatches."""

from __future__ import annotations

from dataclasses import dataclass

from pykaldist.options import option
from pykaldist.parallel.strategies.base.strategy import Strategy


@dataclass
class WorkOptions:
    """Who trains on what. Either way, every frame is trained on once an epoch."""

    work: str = option("queue", "a worker that is through with its part of the data goes on with others' (queue), or rests (shards)",
                       ("queue", "shards"))


class Asynchronous(Strategy):
    options: WorkOptions
    asynchronous = True
    one_model = False

    @property
    def queue(self) -> bool:
        return self.options.work == "queue"

    def contract(self, workers: int, minibatch_size: int) -> list[tuple[str, str]]:
        return [("minibatches", "of each worker's own part of the data" + ", then of who has most left" * self.queue)]
