"""The minibatches of several samplers in one set of buffers, made together: for workers whose models compute together (nnet/stacked.py).

    samplers, gather = stacked(sampler, splits)
    gather.defer()
    minibatches = [next(source) for source in sources]    # each knows its place in the buffers, where nothing is as yet
    gather.make()                                         # now they are there, made by one gather
    gather.whole                                          # all of them as one minibatch, where they are full
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pykaldist.frames.device_frames import DeviceFrames
from pykaldist.frames.sampler import Minibatch, Sampler, SpliceGather


@dataclass
class StackedMinibatch(Minibatch):
    """Full minibatches of several models, one behind the other. Its length is that of each."""

    models: int = 1

    def __len__(self) -> int:
        return len(self.inputs) // self.models


class StackedGather:
    """Makes the minibatches of `parts` samplers: of each, `size` rows of the buffers. `whole`: all rows."""

    def __init__(self, gather: SpliceGather, parts: int) -> None:
        self.size, self._gather = gather.capacity, gather.of_capacity(parts * gather.capacity)
        self.whole = StackedMinibatch(**self._gather.places(parts * self.size), index=0, last=False, models=parts)
        self._deferred = False
        self._asked: list[tuple[int, Tensor, DeviceFrames]] = []

    def defer(self) -> None:
        """Make nothing of what is asked for, until `make`."""
        self._deferred = True

    def ask(self, part: int, rows: Tensor, source: DeviceFrames) -> dict[str, Any]:
        """The tensors of a minibatch of one sampler, by name."""
        if not self._deferred:
            return self._gather(rows, source, part * self.size)
        self._asked.append((part, rows, source))
        return self._gather.places(len(rows), part * self.size)

    def make(self) -> bool:
        """Make what was asked for since `defer`. Returns whether all parts are full."""
        asked, self._asked, self._deferred = self._asked, [], False
        source = asked[0][2]
        full = all(len(rows) == self.size for _, rows, _ in asked)
        if full and all(own is source for _, _, own in asked):
            self._gather(torch.cat([rows for _, rows, _ in asked]), source)
        else:
            for part, rows, source in asked:
                self._gather(rows, source, part * self.size)
        return full


class GatherPart:
    """The gather of one sampler, number `part` of those that a stacked gather makes minibatches for."""

    def __init__(self, gather: StackedGather, part: int) -> None:
        self._gather, self._part = gather, part

    def __call__(self, rows: Tensor, source: DeviceFrames) -> dict[str, Any]:
        return self._gather.ask(self._part, rows, source)


def stacked(sampler: Sampler, splits: Sequence[int]) -> tuple[list[Sampler], StackedGather]:
    """The samplers of several splits, like `sampler`, and the gather that makes their minibatches."""
    assert isinstance(sampler.gather, SpliceGather)
    gather, samplers = StackedGather(sampler.gather, len(splits)), [sampler.of_split(split) for split in splits]
    for part, one in enumerate(samplers):
        one.gather = GatherPart(gather, part)
    return samplers, gather
