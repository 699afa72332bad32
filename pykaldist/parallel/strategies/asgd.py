"""Asynchronous SGD with a parameter server.

As CMU's SPEECH3 (Chan, GTC 2015) has it: a server, beside worker 0, holds the model w. A worker trains on a minibatch by itself; then, if
the server is free, it pushes u = w_k - (what it pulled last), all that it has learnt since, and pulls the model; else it trains on another
one. Of an update that is s updates late (those that the server has taken since the worker pulled), the server makes

    u <- gamma^s u             gradient decay gamma
    u <- u / (s + 1)           staleness discount (Zhang, Gupta, Lian & Liu, 2016: the learning rate over the staleness)
    u <- u - (u.v / v.v) v   where u.v < 0   with a gradient projection: a late update does not undo the way that the server is on
    v <- m v + u,   w <- w + v       server momentum m

or, in place of the sum, per-parameter rates as Downpour's server makes them (Dean et al., 2012: Adagrad with rate g),

    a <- a + u^2,   u <- g u / sqrt(a).

SPEECH3's slides name momentum, gradient projection and gradient decay without formulas; these are ours.

A worker that finds the server busy, and itself `max_distance` or more updates behind, waits for its turn: staleness grows no further by
minibatches trained on a model that old. Every update that is pushed is applied; at an epoch's end each worker compares its count with the
server's. With one worker, without momentum, this is SGD: u is its last step, and never late.

The discount and the rate. N workers of equal speed are N - 1 updates late, each, so that the discount divides their updates by N; their
learning rate is that of one worker times N (--lr-scale linear), and a minibatch moves the model as far as one worker's would. As N updates
are made from about the same model, the server adds up to their mean, as in model averaging: however far each worker goes by itself while
the server is busy, the server's model goes no further than they do, and what comes very late, from a worker that is slow or was turned
away for long, weighs as little as it is worth. Without the discount, updates are added up as they come, at the rate of one worker (x 1).
That is bounded as for a minibatch N times as large where nobody is turned away; but where workers train on, each goes as far as all
should together, and their sum N times as far. Adagrad has a rate for each parameter, and no discount unless it is asked for.

A large model can be split over S servers, beside the first S workers, each with its part of the parameters and a line of its own; a worker
exchanges with those that are free.

At an epoch's end all push what is left and pull the model, which is then everyone's. A worker that dies leaves what it had not pushed to
the others; one with a server beside it ends the job.
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
    gradient_projection: bool = option(False, "take from a late update what goes against the server's momentum")
    server_adagrad: float = option(0.0, "rate of Adagrad on the server, of each parameter its own; 0: updates are added as they come")
    gradient_decay: float = option(1.0, "factor on an update for each update that it is late")
    staleness_discount: bool | None = option(None, "divide an update by one more than the number that it is late by, about N (true, but "
                                                   "with --server-adagrad)")
    max_distance: int = option(0, "updates behind the server past which a worker waits for it, rather than train on; 0: no limit")

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
        """Whether updates are discounted."""
        return not self.server_adagrad if self.staleness_discount is None else self.staleness_discount


class Server:
    """Of a part of the parameters. `applied` counts the epoch's updates, `applied_of` those of each worker.

    `memory`: what outlives an epoch, the velocity and Adagrad's squares. `statistics`: those of its parameters that are statistics of the
    data, which have neither.
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
        """(the model after an update, made from the model after `read` of them; all that were applied).

        An empty update is a pull, with the number of the sender's own that were applied.
        """
        if update is None:
            return None, self.applied
        if not len(update):
            return self.model, self.applied_of[sender]
        self._apply(update, self.applied - int(read))
        self.applied_of[sender] += 1
        return self.model, self.applied

    def _apply(self, update: Tensor, late: int) -> None:
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
    """Of each part of the parameters, of a server: `read` counts the updates that the model had which the worker got last, `unsent` its
    minibatches since, `pushed` its updates of the epoch. `pulled`: the models that it got last.
    """

    options: AsgdOptions

    def __init__(self, options: AsgdOptions) -> None:
        super().__init__(options)
        self.memory: dict[str, Tensor] = {}
        self.server: Server | None = None
        self._begin()

    @property
    def lr_scale(self) -> str:  # type: ignore[override]
        return "linear" if self.options.discounts else "none"

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
                await fabric.compute(lambda at=fraction: self._train(worker, at))
            elif not any(self.unsent):
                if await fabric.more(self.queue):
                    continue
                break
            await self._sync(worker, fabric, parts, patient=fraction is None)
        await fabric.total(0)  # all have pushed what they had
        for s, part in enumerate(parts):
            model, applied = await fabric.answer(await fabric.call_in_turn(s, params[:0], 0))
            if applied != self.pushed[s]:
                raise RuntimeError(f"worker {fabric.rank} has pushed {self.pushed[s]} updates, and {applied:.0f} were applied")
            params[part].copy_(model)
        await fabric.total(0)
        if self.server is not None:
            self.memory, self.server = self.server.memory, None
        self._begin()

    def _train(self, worker: Worker, fraction: float) -> None:
        worker.step(fraction)
        self.unsent = [n + 1 for n in self.unsent]

    async def _sync(self, worker: Worker, fabric: Fabric, parts: list[slice], patient: bool) -> None:
        """Push to, and pull from, the servers that are free, or all."""
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
        """The server's momentum is of the model that training went back from."""
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
