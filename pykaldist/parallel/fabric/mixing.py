"""What two workers exchange of their models, while they compute.

A flow c d between two workers, d = s_i - w_j the difference of their models, is added to one model and taken from the other (`adpsgd`).
What answers a call must not disturb the step that the worker is about, whose gradient is that of the model w which it began with. So
while the worker computes its model is `held`: others mix with what it will be, w + f, where f adds up the flows since; at the end of the
step f is added to what that has left.

`Mixing`: the parameters stay as they are until the step is over, and are w. A caller sends a copy, and d comes back in its place.

`Showing`: the worker takes its step in place, which spares the gradient a buffer and a pass; w is `shown`, a buffer that others read where
it lies, and d = shown_i - shown_j is never made. A call says where the one is, its answer where the other is, and each adds
    c (shown_j - shown_i)   or   c (shown_i - shown_j)
by itself: a call costs whoever answers it no pass over the model, and his gradient's core no time.
Both passes that are left, to mix and to show the next model, go along with the step, map by map (`around`). Just before a map's
parameters W are updated in place they are as shown, so that
    W <- (1 - c) W + c W'
reads nothing but the other's W', and they are in the cache, as the derivatives of the map's inputs have been made of them; so they are
just after it, when they are copied to the buffer that is shown next. What comes too late for some of the maps is added to them when the
step is over; so is all of it where nobody goes along with the step: on a GPU, whose steps are replayed, or where momentum stands between
gradient and update. Of those who call in the same step, the first is answered in this way; to the others the model is shown + f, in a
buffer of its own.
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
    """Parts of all of them; on the host such that stay in its cache while something is done with them."""
    piece = PIECE if vectors[0].device.type == "cpu" else len(vectors[0])
    return zip(*(vector.split(piece) for vector in vectors), strict=True)


class Mixing:
    """The model of one worker, of whose differences from others' the share c flows.

    `hold`, `answer` and `release` are called `alone`, the rest by the worker itself.
    """

    def __init__(self, params: Tensor, share: float) -> None:
        self.params, self.share = params, share
        self.held = False
        self._flow: Tensor | None = None
        self._flowed = False  # whether there is something in `_flow`

    @property
    def sent(self) -> Tensor:
        """What a call of this worker's brings, from `hold` on."""
        return self.params

    def hold(self) -> None:
        """The worker begins to compute."""
        self.held = True

    def calls(self, ticket: int) -> None:
        """The worker has called another, which sends what `release` is to be given."""

    def answer(self, other: Tensor) -> Tensor:
        """Another's `sent` has come, and flows: what goes back. It may be written over what has come."""
        c = self.share
        if not self.held:
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

    def release(self, answer: Tensor | None) -> None:
        """It has computed: all that has been exchanged since `hold` flows, with the answer to its own call, if it has one."""
        flows = [(self._flow, 1.0)] * self._flowed + [(answer, -self.share)] * (answer is not None)
        for mine, *parts in pieces(self.params, *(flow for flow, _ in flows if flow is not None)):
            for part, (_, share) in zip(parts, flows, strict=True):
                mine.add_(part, alpha=share)
        self.held = self._flowed = False


@dataclass
class Flow:
    """c (model - shown), which is in those parts of the parameters already that begin at `mixed`."""

    model: Tensor
    mixed: set[int] = field(default_factory=set)


class Showing(Mixing):
    """`parts` of the parameters are what `around` is called with, each at most once a step; those that make up all of them.

    The first caller of a step and the one called make `_flows`; what others bring adds up in `_flow`. `_next` is shown next, and as the
    parameters are in the parts that begin at `_fresh`. `_changed`: the parts that this step has changed already.
    """

    def __init__(self, params: Tensor, share: float, fabric: Fabric, parts: Sequence[slice]) -> None:
        super().__init__(params, share)
        self._fabric, self._parts = fabric, parts
        self.shown: Tensor | None = None  # None: there is nobody
        self._next: Tensor | None = None
        self._first: Tensor | None = None
        self._flows: list[Flow] = []
        self._ticket: int | None = None  # of a call whose answer is not among the flows
        self._fresh: set[int] = set()
        self._changed: set[int] = set()

    @property
    def sent(self) -> Tensor:
        assert self.shown is not None
        return self.shown

    def hold(self) -> None:
        self.held = True
        if len(self._fabric.living) == 1:
            return
        following = self._following()
        for part in self._parts:
            if part.start not in self._fresh:
                following[part].copy_(self.params[part])
        self.shown, self._next = following, None
        self._fresh.clear()

    def calls(self, ticket: int) -> None:
        self._ticket = ticket

    @contextmanager
    def around(self, part: slice) -> Iterator[None]:
        """Entered while the step changes a part of the parameters, in place."""
        if self.shown is None:
            yield
            return
        self._fabric.look()
        with self._fabric.alone():
            self._hear()
            flows = [] if part.start in self._changed else list(self._flows)
            self._changed.add(part.start)
            for flow in flows:
                flow.mixed.add(part.start)
        mine = self.params[part]
        for before, flow in enumerate(reversed(flows)):  # a later one takes of an earlier one's share
            mine.lerp_(flow.model[part], self.share / (1.0 - self.share * (len(flows) - 1 - before)))
        yield
        self._following()[part].copy_(mine)
        self._fresh.add(part.start)

    def _following(self) -> Tensor:
        """Lent as late as can be: the fewer there are the more of them are in a cache."""
        if self._next is None:
            self._next = self._fabric.lend(self.params)
        return self._next

    def answer(self, other: Tensor) -> Tensor:
        if self.held and self._first is None:
            self._first = other
            self._flows.append(Flow(other))
            assert self.shown is not None
            return self.shown
        model = self._fabric.lend(self.params)
        if not self.held:
            for seen, mine, others in pieces(model, self.params, other):
                seen.copy_(mine)
                mine.lerp_(others, self.share)
            self._fresh.clear()
            return model
        assert self.shown is not None and self._first is not None
        self._flow = torch.zeros_like(self.params) if self._flow is None else self._flow if self._flowed else self._flow.zero_()
        for seen, shown, first, flow, others in pieces(model, self.shown, self._first, self._flow, other):
            torch.lerp(shown, first, self.share, out=seen).add_(flow)
            flow.add_(others, alpha=self.share).sub_(seen, alpha=self.share)
        self._flowed = True
        return model

    def release(self, answer: Tensor | None) -> None:
        if self._ticket is not None and answer is not None:
            self._flows.append(Flow(answer))
        for part in self._parts:
            models = [flow.model[part] for flow in self._flows if part.start not in flow.mixed]
            if models or self._flowed:
                self._add(part, models)
        self.held = self._flowed = False
        self.shown = self._first = self._ticket = None
        self._flows.clear()
        self._changed.clear()

    def _hear(self) -> None:
        """The answer to the worker's own call may have come."""
        come = None if self._ticket is None else self._fabric.come(self._ticket)
        if come is not None:
            self._ticket = None
            if come[0] is not None:
                self._flows.append(Flow(come[0]))

    def _add(self, part: slice, models: list[Tensor]) -> None:
        """To a part of the parameters, which the step has changed: the flows from these models, and from those who called later."""
        assert self.shown is not None
        rest = [self._flow[part]] if self._flowed and self._flow is not None else []
        for mine, following, shown, *others in pieces(self.params[part], self._following()[part], self.shown[part], *models, *rest):
            for model in others[: len(models)]:
                mine.add_(model, alpha=self.share).sub_(shown, alpha=self.share)
            for flow in others[len(models) :]:
                mine.add_(flow)
            following.copy_(mine)
        self._fresh.add(part.start)
