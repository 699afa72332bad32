"""Asynchronous SGD with a parameter server.

As CMU's SPEECH3 (Chan, GTC 2015) has it: a server, beside worker 0, holds the model w. A worker trains on a minibatch by itself; then, if
the server is free, it pushes u = w_k - (what it pulled last), all that it has learnt since, and pulls the model; else it trains on another
one. Of an update that is s updates late (those that the server has taken since the worker pulled), the server makes

    u <- gamma^s u             gradient decay gamma
    u <- u / max(s, 1)         with a staleness discount (Zhang, Gupta, Lian & Liu, 2016: the learning rate over the staleness)
    v <- m v + u,   w <- w + v       server momentum m

A worker that finds the server busy, and itself `max_distance` or more updates behind, waits for its turn: staleness grows no further by
minibatches trained on a model that old. Every update that is pushed is applied; at an epoch's end the numbers are compared. With one
worker, without momentum, this is SGD: u is its last step, and never late.

The updates of N workers are added up, not averaged: the learning rate is that of one worker, and as N of them are made from about the same
model, it is bounded as for a minibatch N times as large. N workers of equal speed are N - 1 updates late, each; a staleness discount
divides their updates by as much, and wants a rate that is as much higher (--lr-scale linear).

At an epoch's end all push what is left and pull the model, which is then everyone's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pykaldist.errors import UserError
from pykaldist.options import option
from pykaldist.parallel.asynchronous import Asynchronous, WorkOptions
from pykaldist.parallel.fabric import Fabric
from pykaldist.parallel.worker import Worker

SERVER = 0  # the worker beside which it is


@dataclass
class AsgdOptions(WorkOptions):
    """asgd."""

    server_momentum: float = option(0.0, "momentum of the updates on the parameter server")
    gradient_decay: float = option(1.0, "factor on an update for each update that it is late")
    staleness_discount: bool = option(False, "divide an update by the number of updates that it is late, about N - 1")
    max_distance: int = option(0, "updates behind the server past which a worker waits for it, rather than train on; 0: no limit")

    def __post_init__(self) -> None:
        if not 0.0 <= self.server_momentum < 1.0:
            raise UserError(f"--server-momentum {self.server_momentum:g} is outside [0, 1).")
        if not 0.0 < self.gradient_decay <= 1.0:
            raise UserError(f"--gradient-decay {self.gradient_decay:g} is outside (0, 1].")
        if self.max_distance < 0:
            raise UserError(f"--max-distance {self.max_distance} is negative.")


class Server:
    """`applied` counts the updates of the epoch."""

    def __init__(self, model: Tensor, velocity: Tensor | None, options: AsgdOptions) -> None:
        self.model, self.options, self.applied = model, options, 0
        self.velocity = torch.zeros_like(model) if velocity is None and options.server_momentum else velocity

    def to(self, device: torch.device) -> None:
        """Move to a device, from a checkpoint on the host."""
        self.model = self.model.to(device)
        self.velocity = None if self.velocity is None else self.velocity.to(device)

    def handle(self, sender: int, update: Tensor | None, read: float) -> tuple[Tensor | None, float]:
        """(the model after an update, made from the model after `read` of them; all that were applied). An empty update is a pull alone."""
        if update is None:
            return None, self.applied
        if len(update):
            self._apply(update, self.applied - int(read))
        return self.model.clone(), self.applied

    def _apply(self, update: Tensor, late: int) -> None:
        o = self.options
        factor = o.gradient_decay**late / (max(late, 1) if o.staleness_discount else 1)
        if self.velocity is not None:
            update = self.velocity.mul_(o.server_momentum).add_(update, alpha=factor)
            factor = 1.0
        self.model.add_(update, alpha=factor)
        self.applied += 1


class Asgd(Asynchronous):
    """`pulled`: the model that the worker got last, after `read` updates; `unsent`: minibatches since; `pushed`: updates of the epoch."""

    options: AsgdOptions
    lr_scale = "none"

    def __init__(self, options: AsgdOptions) -> None:
        super().__init__(options)
        self.velocity: Tensor | None = None
        self.server: Server | None = None
        self._begin()

    def _begin(self) -> None:
        self.pulled: Tensor | None = None
        self.read = self.unsent = self.pushed = 0

    async def epoch(self, worker: Worker, fabric: Fabric) -> None:
        params, gradient = worker.params, torch.empty_like(worker.params)
        self.pulled = params.clone() if self.pulled is None else self.pulled.to(params.device)
        if fabric.rank == SERVER:
            if self.server is None:
                self.server = Server(params.clone(), self.velocity, self.options)
            self.server.to(params.device)
            fabric.serve(self.server.handle, exclusive=True)
        going = True
        while going:
            fabric.mark()
            fraction = await fabric.take(self.queue)
            going = fraction is not None
            if fraction is not None:
                await fabric.compute(lambda at=fraction: self._train(worker, gradient, at))
            if self.unsent:
                model, applied = await self._push(params - self.pulled, fabric, patient=not going)
                if model is not None:
                    params.copy_(model)
                    self.pulled.copy_(model)
                    fabric.staleness[int(applied) - 1 - self.read] += 1
                    self.read, self.unsent, self.pushed = int(applied), 0, self.pushed + 1
                    worker.synced()
        pushed = await fabric.total(self.pushed)
        model, applied = await fabric.done(await fabric.call(SERVER, params[:0], 0))
        if pushed != applied:
            raise RuntimeError(f"{pushed:.0f} updates were pushed, and {applied:.0f} applied")
        await fabric.total(0)
        params.copy_(model)
        if self.server is not None:
            self.velocity, self.server = self.server.velocity, None
        self._begin()

    def _train(self, worker: Worker, gradient: Tensor, fraction: float) -> None:
        worker.apply(gradient, worker.gradient(gradient, fraction), fraction)
        self.unsent += 1

    async def _push(self, update: Tensor, fabric: Fabric, patient: bool) -> tuple[Tensor | None, float]:
        """(the model, or None where the server is busy and the worker goes on; the updates applied)."""
        limit = self.options.max_distance
        model, applied = await fabric.done(await fabric.call(SERVER, update, self.read, patient))
        if model is None and limit and applied - self.read >= limit:
            model, applied = await fabric.done(await fabric.call(SERVER, update, self.read))
        return model, applied

    def rejected(self) -> None:
        """The server's momentum is of the model that training went back from."""
        self.velocity = None

    def state_dict(self) -> dict[str, Any]:
        server = None if self.server is None else {"model": self.server.model, "velocity": self.server.velocity,
                                                   "applied": self.server.applied}
        return {"velocity": self.velocity, "server": server, "pulled": self.pulled, "read": self.read, "unsent": self.unsent,
                "pushed": self.pushed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name in ("velocity", "pulled", "read", "unsent", "pushed"):
            setattr(self, name, state[name])
        if state["server"] is not None:
            self.server = Server(state["server"]["model"], state["server"]["velocity"], self.options)
            self.server.applied = state["server"]["applied"]
