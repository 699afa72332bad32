"""No exchange during training: each worker trains by itself, and their models are averaged at an epoch's end.

With one worker this is plain serial training.
"""

from __future__ import annotations

from dataclasses import dataclass

from pykaldist.parallel.fabric.interface import Fabric
from pykaldist.parallel.fabric.worker import Worker
from pykaldist.parallel.strategies.base.strategy import Strategy

SAFE_POINT_PERIOD = 50  # minibatches; large, so that workers seldom wait for each other


@dataclass
class LocalOptions:
    """local."""


class Local(Strategy):
    """Training without exchanges."""

    lr_scale = "linear"
    one_model = False  # but at an epoch's end
    keeps_mean = True

    def cycle(self, workers: int, minibatch_size: int) -> int:
        return SAFE_POINT_PERIOD if workers > 1 else 1

    async def epoch(self, worker: Worker, fabric: Fabric) -> None:
        async for round in self.rounds(worker, fabric, self.cycle(fabric.size, worker.sampler.minibatch_size)):
            for _ in range(round.minibatches):
                await fabric.compute(worker.step)
            if round.last and fabric.size > 1:
                await fabric.average(worker.params, worker.frames, measure=True)
                worker.synced()
