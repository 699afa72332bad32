"""Convolutions over time and height, as Kaldi's TimeHeightConvolutionComponent makes them: affine maps of patches.

A frame is a column of H points, each with F filters side by side. The output at frame t and height h is W p + b, p the patch: the filters
of the input at (t + u, s h + v), for each of the component's offsets (u, v), one behind the other; s is the subsampling of heights. Beyond
the heights of the input stand zeros. So a convolution of n frames is an affine map of n H' rows, H' the heights of the output.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from pykaldist.errors import UserError
from pykaldist.nnet.nnet3.components import Nnet3Component


@dataclass(frozen=True)
class _Slot:
    """A place in all patches: the number of the time offset, and the heights of the input that stand there, at those of the output."""

    time: int
    heights_in: slice
    heights_out: slice


class Patches:
    """The patches of a convolution; raises UserError for one that puts zeros beyond the first and the last frame."""

    def __init__(self, component: Nnet3Component) -> None:
        self.filters_in, self.filters_out = component.integer("NumFiltersIn"), component.integer("NumFiltersOut")
        self.height_in, self.height_out = component.integer("HeightIn"), component.integer("HeightOut")
        times, step = component.time_offsets, component.integer("HeightSubsampleOut")
        if cast("list[int]", component.values["RequiredTimeOffsets"]) != times:
            raise UserError(f"component {component.name} has required-time-offsets other than its time-offsets, which is not computed "
                            "here: leave that field out.")
        self.times = len(times)
        self._slots = [self._slot(times.index(time), height, step) for time, height in component.offsets]

    def _slot(self, time: int, offset: int, step: int) -> _Slot:
        """The slot of an offset: the heights h of the output for which 0 <= step h + offset < the input's."""
        first = max(0, -(offset // step))
        end = min(self.height_out, (self.height_in - 1 - offset) // step + 1)
        if end <= first:
            return _Slot(time, slice(0, 0), slice(0, 0))
        return _Slot(time, slice(step * first + offset, step * (end - 1) + offset + 1, step), slice(first, end))

    def of(self, x: Tensor) -> Tensor:
        """The patches (n x heights out, offsets x filters in) of frames x (n, times x heights in x filters in)."""
        frames = x.reshape(len(x), self.times, self.height_in, self.filters_in)
        patches = x.new_zeros(len(x), self.height_out, len(self._slots), self.filters_in)
        for number, slot in enumerate(self._slots):
            patches[:, slot.heights_out, number] = frames[:, slot.time, slot.heights_in]
        return patches.view(len(x) * self.height_out, -1)

    def back(self, patches: Tensor) -> Tensor:
        """The derivatives with respect to the frames of those with respect to their patches."""
        patches = patches.view(-1, self.height_out, len(self._slots), self.filters_in)
        frames = patches.new_zeros(len(patches), self.times, self.height_in, self.filters_in)
        for number, slot in enumerate(self._slots):
            frames[:, slot.time, slot.heights_in] += patches[:, slot.heights_out, number]
        return frames.view(len(patches), -1)

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """The convolution (n, heights out x filters out) of frames x."""
        return torch.addmm(bias, self.of(x), weight.t()).view(len(x), -1)
