"""Asynchronous SGD with a parameter server, which adds up the workers' updates.

This follows CMU's SPEECH3 (Chan, GTC 2015). The parameter server, beside worker 0, holds the model w. A worker trains on a minibatch. Then,
if the server is free, it pushes u = w_k - (the model pulled last), all that it has learnt since then, and pulls the model. If the server is
busy, it trains on another minibatch. The staleness s of an update is the number of updates that the server has applied since the worker
pulled. The server applies an update in these steps:

    u <- gamma^s u             gradient decay gamma
    u <- u / (s + 1)           staleness discount (Zhang, Gupta, Lian & Liu, 2016: the learning rate over the staleness)
    u <- u - (u.v / v.v) v   where u.v < 0   gradient projection: a late update does not undo the way that the server moves
    v <- m v + u,   w <- w + v       server momentum m

or, in place of the sum, with a rate for each parameter, as Downpour's server does (Dean et al., 2012: Adagrad with rate g),

    a <- a + u^2,   u <- g u / sqrt(a).

SPEECH3's slides name momentum, gradient projection and gradient decay without formulas. The formulas here are ours.

A worker that finds the server busy, and whose model is `max_distance` or more updates old, waits for its turn. So staleness does not grow
further by minibatches that are trained on such an old model. Every update that is pushed is applied. At an epoch's end each worker compares
its count of updates with the server's. With one worker, without momentum, this is SGD: u is its last step, and is never late.

The discount and the rate. N workers of equal speed have a staleness of N - 1 each, so the discount divides their updates by N. Their
learning rate is that of one worker times N (--lr-scale linear), and so a minibatch moves the model as far as one worker's would. N updates
are made from about the same model, so the server adds up their mean, as in model averaging. However far each worker goes by itself while
the server is busy, the server's model goes no further than the workers do. A very late update, from a worker that is slow or was often
refused, has a small weight. Without the discount, updates are added as they come, at the rate of one worker (x 1). Where no worker is
refused, this is bounded as for a minibatch N times as large. But where workers go on training, each goes as far as all of them should go
together, and the sum goes N times as far. Adagrad has a rate for each parameter, and no discount unless the user asks for it.

A large model can be split over S servers, beside the first S workers. Each server has its part of the parameters and its own queue. A
worker exchanges with those servers that are free.

At an epoch's end all workers push what is left and pull the model. Then all have the same model. When a worker dies, others train again on
the minibatches whose updates it had not pushed. When a worker with a server beside it dies, the job ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pykaldist.errors import UserError
from pykaldist.options import option
from pykaldist.parallel.fabric.interface import Fabric
from pykaldist.parallel.fabric.worker import Worker
from pykaldist.parallel.strategies.base.asynchronous import Asynchronous, WorkOptions


@dataclass
class AsgdOptions(WorkOptions):
    """asgd."""

    servers: int = option(1, "servers, beside the first workers, over which the parameters are split")
    server_momentum: float = option(0.0, "momentum of the updates on the parameter server")
    gradient_projection: bool = option(False, "remove from a late update the part that is opposite to the server's momentum")
    server_adagrad: float = option(0.0, "Adagrad's rate on the server, for each parameter; 0: updates are just added")
    gradient_decay: float = option(1.0, "factor on an update for each update that it is late by (its staleness)")
    staleness_discount: bool | None = option(None, "divide an update by its staleness plus one, about N (true; false with "
                                                   "--server-adagrad)")
    max_distance: int = option(0, "staleness from which a worker waits for a busy server, and does not train on; 0: no limit")

    def __post_init__(self) -> None:
        if self.servers < 1:
            raise UserError(f"--servers {self.servers} is less than 1.")
        if not 0.0 <= self.server_momentum < 1.0:
            raise UserError(f"--server-momentum {self.server_momentum:g} is outside [0, 1).")
        if self.gradient_projection and not self.server_momentum:
            raise UserError("--gradient-projection needs --server-momentum, against which it projects.")
        if self.server_adagrad < 0.0:
            raise UserError(f"--server-adagrad {self.server_adagrad:g} is negative.")
        if not 0.0 < self.gradient_decay <= 1.0:
            raise UserError(f"--gradient-decay {self.gradient_decay:g} is outside (0, 1].")
        if self.max_distance < 0:
            raise UserError(f"--max-distance {self.max_distance} is negative.")


    @property
    def discounts(self) -> bool:
        """True where updates are divided by their staleness plus one."""
        return not self.server_adagrad if self.staleness_discount is None else self.staleness_discount


class Server:
    """The parameter server for a part of the parameters. `applied` counts the epoch's updates, `applied_of` those of each worker.

    `memory` holds what outlives an epoch: the velocity and Adagrad's squares. `statistics` are the slices of its parameters that are
    statistics of the data: they have neither.
    """

    def __init__(self, model: Tensor, memory: dict[str, Tensor], options: AsgdOptions, statistics: Sequence[slice] = ()) -> None:
        self.model, self.options, self.applied, self.statistics = model, options, 0, statistics
        self.applied_of: Counter[int] = Counter()
        needed = {"velocity": options.server_momentum, "squares": options.server_adagrad}
        self.memory = {name: memory[name] if name in memory else torch.zeros_like(model)
                       for name, value in needed.items() if value}

    def to(self, device: torch.device) -> None:
        """Move to a device, from a checkpoint on the host."""
        self.model = self.model.to(device)
        self.memory = {name: tensor.to(device) for name, tensor in self.memory.items()}

    def handle(self, sender: int, update: Tensor | None, read: float) -> tuple[Tensor | None, float]:
        """Handle a call.

        Returns (the model after an update that was made from the model after `read` updates; the number of all updates applied).

        An empty update is a pull: the number is then that of the sender's own updates. None: the call is refused.
        """
        if update is None:
            return None, self.applied
        if not len(update):
            return self.model, self.applied_of[sender]
        self._apply(update, self.applied - int(read))
        self.applied_of[sender] += 1
        return self.model, self.applied

    def _apply(self, update: Tensor, late: int) -> None:
        """Apply an update of staleness `late`."""
        o = self.options
        factor = o.gradient_decay**late / (late + 1 if o.discounts else 1)
        if "squares" in self.memory:
            squares, plain = self.memory["squares"].addcmul_(update, update), update
            update = update * (o.server_adagrad * torch.rsqrt(squares.clamp_min(torch.finfo(squares.dtype).tiny)))
            for part in self.statistics:
                update[part] = plain[part]
        if "velocity" in self.memory:
            velocity = self.memory["velocity"]
            for part in self.statistics:
                velocity[part].zero_()
            if o.gradient_projection and late:
                along = torch.dot(update, velocity) / torch.dot(velocity, velocity).clamp_min(torch.finfo(velocity.dtype).tiny)
                update = update - velocity * along.clamp_max(0.0)
            update, factor = velocity.mul_(o.server_momentum).add_(update, alpha=factor), 1.0
        self.model.add_(update, alpha=factor)
        self.applied += 1

    def state_dict(self) -> dict[str, Any]:
        return {"model": self.model, "memory": self.memory, "applied": self.applied, "applied_of": dict(self.applied_of)}


class Asgd(Asynchronous):
    """Asynchronous SGD. `read`, `unsent` and `pushed` have a number for each server.

    `read`: updates in the model that the worker pulled last. `unsent`: its minibatches since then. `pushed`: its updates of the epoch.
    `pulled`: the model that it pulled last.
    """

    options: AsgdOptions

    def __init__(self, options: AsgdOptions) -> None:
        super().__init__(options)
        self.lr_scale = "linear" if options.discounts else "none"
        self.memory: dict[str, Tensor] = {}
        self.server: Server | None = None
        self._begin()

    @property
    def independent(self) -> bool:
        return True

    @property
    def fault_tolerant(self) -> bool:
        return True

    @property
    def essential(self) -> range:
        return range(self.options.servers)

    def _begin(self) -> None:
        """Reset the counts, at the beginning of an epoch."""
        self.pulled: Tensor | None = None
        self.read, self.unsent, self.pushed = ([0] * self.options.servers for _ in range(3))

    def contract(self, workers: int, minibatch_size: int) -> list[tuple[str, str]]:
        servers = self.options.servers
        where = "beside worker 0" if servers == 1 else f"on {servers}, beside the workers 0 to {servers - 1}"
        return [*super().contract(workers, minibatch_size), ("parameter server", where)]

    async def epoch(self, worker: Worker, fabric: Fabric) -> None:
        params, count = worker.params, self.options.servers
        if count > fabric.size:
            raise UserError(f"--servers {count}: there are {fabric.size} workers for them to be beside.")
        parts = [slice(len(params) * s // count, len(params) * (s + 1) // count) for s in range(count)]
        self.pulled = params.clone() if self.pulled is None else self.pulled.to(params.device)
        if fabric.rank < count:
            own = parts[fabric.rank]
            if self.server is None:
                self.server = Server(params[own].clone(), self.memory, self.options)
            self.server.to(params.device)
            inside = [slice(max(s.start, own.start) - own.start, min(s.stop, own.stop) - own.start) for s in worker.statistics]
            self.server.statistics = [part for part in inside if part.start < part.stop]
            fabric.serve(self.server.handle)
        while True:
            fabric.mark()
            fraction = await fabric.take(self.queue, max(self.unsent))
            if fraction is not None:
                await fabric.compute(self._train, worker, fraction)
            elif not any(self.unsent):
                if await fabric.more(self.queue):
                    continue
                break
            await self._sync(worker, fabric, parts, patient=fraction is None)
        await fabric.total(0)  # wait until all workers have pushed what they had
        for s, part in enumerate(parts):
            model, applied = await fabric.answer(await fabric.call_in_turn(s, params[:0], 0))
            if applied != self.pushed[s]:
                raise RuntimeError(f"worker {fabric.rank} has pushed {self.pushed[s]} updates, and {applied:.0f} were applied")
            assert model is not None  # a server's death ends the job
            params[part].copy_(model)
        await fabric.total(0)
        if self.server is not None:
            self.memory, self.server = self.server.memory, None
        self._begin()

    def _train(self, worker: Worker, fraction: float) -> None:
        """Train on one minibatch."""
        worker.step(fraction)
        self.unsent = [n + 1 for n in self.unsent]

    async def _sync(self, worker: Worker, fabric: Fabric, parts: list[slice], patient: bool) -> None:
        """Push to, and pull from, all servers that are free; wait for the others where `patient`, or where the model is too old."""
        assert self.pulled is not None
        due, limit = [s for s, n in enumerate(self.unsent) if n], self.options.max_distance
        updates = {s: worker.params[parts[s]] - self.pulled[parts[s]] for s in due}
        tickets = {s: await fabric.call_in_turn(s, updates[s], self.read[s], patient) for s in due}
        answers = {s: await fabric.answer(ticket) for s, ticket in tickets.items()}
        far = [s for s, (model, applied) in answers.items() if model is None and limit and applied - self.read[s] >= limit]
        tickets = {s: await fabric.call_in_turn(s, updates[s], self.read[s]) for s in far}
        for s, ticket in tickets.items():
            answers[s] = await fabric.answer(ticket)
        for s, (model, applied) in answers.items():
            if model is not None:
                worker.params[parts[s]].copy_(model)
                self.pulled[parts[s]].copy_(model)
                fabric.staleness[int(applied) - 1 - self.read[s]] += 1
                self.read[s], self.unsent[s] = int(applied), 0
                self.pushed[s] += 1
        if not any(self.unsent):
            worker.synced()

    def remedies(self) -> list[str]:
        limit = self.options.max_distance
        return [f"bound the staleness by --max-distance (was {limit or 'no limit'})",
                *["discount it with --staleness-discount true"] * (not self.options.discounts)]

    def rejected(self) -> None:
        """Forget the server's momentum: it belongs to the model that training went back from."""
        self.memory = {}

    def state_dict(self) -> dict[str, Any]:
        return {"memory": self.memory, "server": None if self.server is None else self.server.state_dict(), "pulled": self.pulled,
                "read": self.read, "unsent": self.unsent, "pushed": self.pushed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name in ("memory", "pulled", "read", "unsent", "pushed"):
            setattr(self, name, state[name])
        if state["server"] is not None:
            server = state["server"]
            self.server = Server(server["model"], server["memory"], self.options)
            self.server.applied, self.server.applied_of = server["applied"], Counter(server["applied_of"])
