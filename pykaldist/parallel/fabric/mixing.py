"""How two workers mix their models while they compute (strategy `adpsgd`).

Two workers i and j mix with share c: the flow c d, with d = s_i - w_j the difference of their models, is added to model j and subtracted
from model i. A call of another worker can arrive while this worker computes a gradient. The gradient belongs to the model w with which the
step began, so the answer must not disturb it. Therefore, while the worker computes (`computing`), others mix with w + f, where f is the sum
of the flows since the step began. At the end of the step f is added to the parameters that the step has made.

There are two implementations.

`Mixing`: the parameters stay at w until the step is over. A caller sends a copy of its model, and d comes back in its place.

`PublishedModel`: the worker updates its parameters in place. This saves a gradient buffer and one pass over the model. w is copied to a
buffer, the published model, which other workers read where it lies in shared memory. The difference d = published_i - published_j is never
made. A call says where the caller's published model is, its answer says where the other's is, and each worker adds
    c (published_j - published_i)   or   c (published_i - published_j)
by itself. So to answer a call costs no pass over the model, and takes no time from the gradient. The two passes that are left, to mix and
to publish the next model, are made during the step, map by map (`around`). Just before the parameters W of a map are updated in place, they
are equal to the published ones. So
    W <- (1 - c) W + c W'
reads nothing else but the other worker's W'. W is in the cache then, because the derivatives with respect to the map's inputs have just
been computed from it. Just after the update, W is still in the cache, and is copied to the next published model. A flow that comes too late
for some maps is added to them when the step is over. All of it is added then where the step is not made map by map: on a GPU, whose steps
are replayed, and where momentum stands between gradient and update. Only the first caller in a step is answered in this way. Later callers
in the same step are given published + f, in a buffer of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pykaldist.parallel.fabric.interface import Fabric

PIECE = 1 << 16  # parameters


def pieces(*vectors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Split all vectors into parts of equal size. On a CPU, a part stays in the cache while it is worked on."""
    if vectors[0].numel() <= PIECE or vectors[0].device.type != "cpu":
        return iter([vectors])
    return zip(*(vector.split(PIECE) for vector in vectors), strict=True)


class Mixing:
    """Mixes the model of one worker with those of others, with share c. Calls are answered while the worker computes.

    `begin_compute`, `answer` and `end_compute` are called within `Fabric.hold_calls`, the other methods by the worker itself.
    """

    def __init__(self, params: Tensor, share: float) -> None:
        self.params, self.share = params, share
        self.computing = False
        self._flow: Tensor | None = None
        self._flowed = False  # True where `_flow` is not zero

    @property
    def sent(self) -> Tensor:
        """The buffer that this worker's own call sends, after `begin_compute`."""
        return self.params

    def begin_compute(self) -> None:
        """Note that the worker begins to compute: the parameters must not change until `end_compute`."""
        self.computing = True

    def call_sent(self, ticket: int) -> None:
        """Note that the worker has called another one. The answer to this call will be given to `end_compute`."""

    def answer(self, other: Tensor) -> Tensor:
        """Mix with the model `other` that another worker has sent, and return the answer. It may be written over `other`."""
        c = self.share
        if not self.computing:
            for difference, mine in pieces(other, self.params):
                mine.add_(difference.sub_(mine), alpha=c)
        elif not self._flowed:
            self._flow = torch.empty_like(self.params) if self._flow is None else self._flow
            for difference, mine, flow in pieces(other, self.params, self._flow):
                torch.mul(difference.sub_(mine), c, out=flow)
            self._flowed = True
        else:
            assert self._flow is not None
            for difference, mine, flow in pieces(other, self.params, self._flow):
                flow.add_(difference.sub_(mine).sub_(flow), alpha=c)
        return other

    def end_compute(self, answer: Tensor | None) -> None:
        """Add to the parameters all flows since `begin_compute`, and that of `answer`.

        `answer` is the answer to the worker's own call, if there is one.
        """
        flows = [(self._flow, 1.0)] * self._flowed + [(answer, -self.share)] * (answer is not None)
        for mine, *parts in pieces(self.params, *(flow for flow, _ in flows if flow is not None)):
            for part, (_, share) in zip(parts, flows, strict=True):
                mine.add_(part, alpha=share)
        self.computing = self._flowed = False


@dataclass
class Flow:
    """One flow c (model - published). It has already been added to the parts of the parameters whose starts are in `mixed`."""

    model: Tensor
    mixed: set[int] = field(default_factory=set)


class PublishedModel(Mixing):
    """Mixes the model of a worker that updates its parameters in place, while others read its published model (see the head of this file).

    `parts` are the slices of the parameters with which `around` is called, each at most once a step. Together they cover all parameters.

    The first caller of a step, and the worker that this one calls, make the `_flows`. The flows of later callers are summed in `_flow`.
    `_next_published` will be published next; the parts whose starts are in `_copied_parts` have already been copied to it. `_stepped_parts`
    are the starts of the parts that this step has updated already.
    """

    def __init__(self, params: Tensor, share: float, fabric: Fabric, parts: Sequence[slice]) -> None:
        super().__init__(params, share)
        self._fabric, self._parts = fabric, parts
        self.published: Tensor | None = None  # None: there is no other worker
        self._next_published: Tensor | None = None
        self._first_caller: Tensor | None = None
        self._flows: list[Flow] = []
        self._ticket: int | None = None  # of the own call, while its answer is not among the flows
        self._copied_parts: set[int] = set()
        self._stepped_parts: set[int] = set()

    @property
    def sent(self) -> Tensor:
        assert self.published is not None
        return self.published

    def begin_compute(self) -> None:
        self.computing = True
        if len(self._fabric.living) == 1:
            return
        next_buffer = self._next_buffer()
        for part in self._parts:
            if part.start not in self._copied_parts:
                next_buffer[part].copy_(self.params[part])
        self.published, self._next_published = next_buffer, None
        self._copied_parts.clear()

    def call_sent(self, ticket: int) -> None:
        self._ticket = ticket

    @contextmanager
    def around(self, part: slice) -> Iterator[None]:
        """A context in which the step updates a part of the parameters in place.

        It mixes the part before, and copies it to the next model after.
        """
        if self.published is None:
            yield
            return
        self._fabric.poll()
        with self._fabric.hold_calls():
            self._check_own_answer()
            flows = [] if part.start in self._stepped_parts else list(self._flows)
            self._stepped_parts.add(part.start)
            for flow in flows:
                flow.mixed.add(part.start)
        mine = self.params[part]
        for before, flow in enumerate(reversed(flows)):  # shares are scaled as each lerp_ reduces the flows before it
            mine.lerp_(flow.model[part], self.share / (1.0 - self.share * (len(flows) - 1 - before)))
        yield
        self._next_buffer()[part].copy_(mine)
        self._copied_parts.add(part.start)

    def _next_buffer(self) -> Tensor:
        """The buffer that is published next.

        It is lent as late as possible: fewer buffers in use means that more of them stay in the cache.
        """
        if self._next_published is None:
            self._next_published = self._fabric.lend(self.params)
        return self._next_published

    def answer(self, other: Tensor) -> Tensor:
        if self.computing and self._first_caller is None:
            self._first_caller = other
            self._flows.append(Flow(other))
            assert self.published is not None
            return self.published
        model = self._fabric.lend(self.params)
        if not self.computing:
            for seen, mine, others in pieces(model, self.params, other):
                seen.copy_(mine)
                mine.lerp_(others, self.share)
            self._copied_parts.clear()
            return model
        assert self.published is not None and self._first_caller is not None
        self._flow = torch.zeros_like(self.params) if self._flow is None else self._flow if self._flowed else self._flow.zero_()
        for seen, published, first, flow, others in pieces(model, self.published, self._first_caller, self._flow, other):
            torch.lerp(published, first, self.share, out=seen).add_(flow)
            flow.add_(others, alpha=self.share).sub_(seen, alpha=self.share)
        self._flowed = True
        return model

    def end_compute(self, answer: Tensor | None) -> None:
        if self._ticket is not None and answer is not None:
            self._flows.append(Flow(answer))
        for part in self._parts:
            models = [flow.model[part] for flow in self._flows if part.start not in flow.mixed]
            if models or self._flowed:
                self._add(part, models)
        self.computing = self._flowed = False
        self.published = self._first_caller = self._ticket = None
        self._flows.clear()
        self._stepped_parts.clear()

    def _check_own_answer(self) -> None:
        """Add the flow of the answer to the worker's own call, if that has come."""
        come = None if self._ticket is None else self._fabric.poll_answer(self._ticket)
        if come is not None:
            self._ticket = None
            if come[0] is not None:
                self._flows.append(Flow(come[0]))

    def _add(self, part: slice, models: list[Tensor]) -> None:
        """Add to a part of the parameters, after the step, the flows from these models and the flows of later callers."""
        assert self.published is not None
        rest = [self._flow[part]] if self._flowed and self._flow is not None else []
        own = self.params[part], self._next_buffer()[part], self.published[part]
        for mine, next_buffer, published, *others in pieces(*own, *models, *rest):
            for model in others[: len(models)]:
                mine.add_(model, alpha=self.share).sub_(published, alpha=self.share)
            for flow in others[len(models) :]:
                mine.add_(flow)
            next_buffer.copy_(mine)
        self._copied_parts.add(part.start)
