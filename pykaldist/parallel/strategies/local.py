"""No exchange while training: each worker on its own. With one worker, plain serial training."""

from __future__ import annotations

from pykaldist.parallel.fabric import Fabric
from pykaldist.parallel.strategy import Strategy
from pykaldist.parallel.worker import Worker


class Local(Strategy):
    async def epoch(self, worker: Worker, fabric: Fabric) -> None:
        async for _ in worker.minibatches():
            await fabric.compute(worker.step)
