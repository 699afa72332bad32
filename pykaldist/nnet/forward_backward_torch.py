"""Forward-backward over lattices in tensors, for a GPU: all arcs of a level at once.

The level of a state is the largest number of arcs on a way to it from its lattice's start, so that every arc leads to a higher level, also
one that takes no frame. Backwards likewise, from the end. Both directions are one pass over twice as many states: a level has the arcs that
lead to states of this level, forwards and backwards, of all lattices. Their log-sums by state are a maximum and a sum, scattered to the
states. The formulas are those of `forward_backward.py`; sums are in float64.

A lattice of long runs of frames has few levels (dozens where it has hundreds of frames), and so have all of a minibatch together. Each is
eleven small kernels, or seventeen with accuracies. A GPU records those of all levels as a CUDA graph. So that minibatches have few shapes,
levels are padded, their number as well as their arcs: to several times as many, but a kernel takes as long for ten arcs as for a thousand.
Padding leads from a state `ROOT`, whose log-sum is 0 and from which also a lattice's first arcs come, to states that nobody looks at.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pykaldist.frames.device_frames import sendable, together
from pykaldist.frames.lattices import Lattices
from pykaldist.kernels import kernel
from pykaldist.nnet.cuda_graphs import ObjectiveGraphs
from pykaldist.nnet.forward_backward import forward_backward

ROOT = 0  # the state where paths begin on both ways
LEVELS, WIDTH = 8, 64  # to a multiple of which the number of levels is padded, and the least number of arcs to which each is
LEAST = -1e300  # a maximum that is below all others, and finite, so that a difference with -inf is a number


@kernel(nogil=True)
def _levels(states: int, source: np.ndarray, target: np.ndarray) -> np.ndarray:
    level = np.zeros(states, np.int64)
    for a in range(len(source)):
        level[target[a]] = max(level[target[a]], level[source[a]] + 1)
    return level


def levels(lattices: Lattices) -> tuple[np.ndarray, np.ndarray]:
    """The level of each state, forwards and backwards."""
    states, source, target = int(lattices.states[-1]), lattices.source, lattices.target
    return _levels(states, source, target), _levels(states, np.ascontiguousarray(target[::-1]), np.ascontiguousarray(source[::-1]))


@dataclass(frozen=True)
class Shape:
    """The shape of padded levels: how many there are, and the arcs of each, of both directions.

    Each arc is in two levels, and so are the lattices, with arcs from ROOT to their starts and ends. So there are at most `arcs` of both
    together.
    """

    levels: int
    width: int

    @property
    def arcs(self) -> int:
        return self.levels * self.width // 2

    @property
    def first(self) -> int:
        """The first state of a lattice; before it are ROOT, and a state for each padding arc of a level, so that none waits for another."""
        return 1 + self.width

    @property
    def sizes(self) -> list[int]:
        """The sizes of the parts of what is given: three of levels, five of arcs, one of lattices."""
        return [2 * self.arcs] * 3 + [self.arcs] * 5 + [self.width]

    def memory(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """(what is given, what is found) on a device; what is found is 0, and gains and accuracies stay so where they are not computed."""
        return (torch.empty(sum(self.sizes), dtype=torch.int64, device=device),
                torch.zeros(2 * (self.arcs + self.width), dtype=torch.float64, device=device))


def _given(lattices: Lattices, graph: np.ndarray, accuracy: np.ndarray | None) -> tuple[Shape, np.ndarray]:
    """Padded levels of lattices: their shape, and what they hold but for acoustic scores, as int64 numbers, one part behind the other.

    Of each place of each level, the states that its arc leads to and comes from on this way, and the arc's number. Of each arc, its source
    forwards, its target backwards, its lattice's start backwards, its cost and its accuracy, these as float64. Of each lattice, its start
    backwards.
    """
    states, arcs, count = int(lattices.states[-1]), len(lattices.source), len(lattices)
    forwards, backwards = levels(lattices)
    level = np.concatenate([np.zeros(2 * count, np.int64), forwards[lattices.target], backwards[lattices.source]])
    bounds = np.cumsum(np.bincount(level))
    widest = max(WIDTH, int(np.diff(bounds, prepend=0).max()))
    shape = Shape(-(-len(bounds) // LEVELS) * LEVELS, 1 << (widest - 1).bit_length())
    order = np.argsort(level, kind="stable")
    place = level[order] * shape.width + np.arange(len(order)) - np.append(0, bounds)[level[order]]
    source, target = (numbers.astype(np.int64) + shape.first for numbers in (lattices.source, lattices.target + states))
    starts, ends = lattices.states[:-1] + shape.first + states, lattices.states[1:] - 1 + shape.first + states
    near = np.tile(1 + np.arange(shape.width), shape.levels)
    far, arc = np.full(2 * shape.arcs, ROOT), np.full(2 * shape.arcs, shape.arcs - 1)
    near[place] = np.concatenate([starts - states, ends, target - states, source + states])[order]
    far[place] = np.concatenate([np.full(2 * count, ROOT), source, target])[order]
    arc[place] = np.concatenate([np.full(2 * count, shape.arcs - 1), np.arange(arcs), np.arange(arcs)])[order]
    of_arcs = np.full((3, shape.arcs), ROOT)
    of_arcs[:, :arcs] = source, target, np.repeat(starts, np.diff(lattices.arcs))
    values = np.zeros((2, shape.arcs))
    values[0, :arcs] = graph
    if accuracy is not None:
        values[1, :arcs] = accuracy
    of_lattices = np.full(shape.width, ROOT)
    of_lattices[:count] = starts
    return shape, np.concatenate([near, far, arc, of_arcs.ravel(), values.view(np.int64).ravel(), of_lattices])


def _sums(given: Tensor, found: Tensor, shape: Shape, accuracies: bool) -> None:
    """Fill `found`, (posteriors, gains) of arcs and (log-sums, accuracies) of lattices, from what is given; gains with accuracies alone."""
    near, far, arc, source, target, start, cost, accuracy, starts = given.split(shape.sizes)
    cost, accuracy = cost.view(torch.float64), accuracy.view(torch.float64)
    posterior, gain, loglike, expected = found.split([shape.arcs, shape.arcs, shape.width, shape.width])
    log_sum, total, mean = cost.new_zeros(3, shape.first + 2 * shape.arcs)
    most = torch.full_like(log_sum, LEAST)
    by_level = [part.view(shape.levels, -1) for part in (near, far, cost[arc], accuracy[arc])]
    for to, back, own_cost, own_accuracy in zip(*by_level, strict=True):
        new = log_sum[back] - own_cost
        most.scatter_reduce_(0, to, new, "amax")
        top = most[to]
        share = (new - top).exp_()
        total.index_add_(0, to, share)
        sums = total[to]
        log_sum.scatter_(0, to, top + sums.log())  # the same from all arcs that lead to a state
        if accuracies:
            share /= sums.clamp_min_(1.0)  # which it is not below but where no path has a probability
            mean.index_add_(0, to, share * (mean[back] + own_accuracy))
    torch.exp(log_sum[source] - cost + log_sum[target] - log_sum[start], out=posterior)
    torch.index_select(log_sum, 0, starts, out=loglike)
    if accuracies:
        torch.mul(posterior, mean[source] + accuracy + mean[target] - mean[start], out=gain)
        torch.index_select(mean, 0, starts, out=expected)


class LevelledLattices:
    """The lattices of a minibatch on a device; the interface is that of `CompiledLattices`."""

    def __init__(self, lattices: Lattices, device: torch.device, graphs: ObjectiveGraphs) -> None:
        self._lattices, self._device, self._graphs = lattices, device, graphs
        owner = np.repeat(np.arange(len(lattices.source)), np.diff(lattices.string))
        self._owner, self._entry = together([owner, lattices.entry.astype(np.int64)], device)

    def forward_backward(self, graph: np.ndarray, accuracy: np.ndarray | None, scores: Tensor,
                         scale: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """As `CompiledLattices.forward_backward`; the results are valid until the next call."""
        shape, values = _given(self._lattices, graph, accuracy)
        memory = self._graphs.memory((self._device, shape, accuracy is not None), lambda: shape.memory(self._device))
        given, found = memory
        given.copy_(sendable(torch.from_numpy(values), self._device), non_blocking=True)
        cost = given.split(shape.sizes)[6].view(torch.float64)
        cost.index_add_(0, self._owner, scores[self._entry], alpha=-scale)
        self._graphs.run(memory, lambda: _sums(given, found, shape, accuracy is not None))
        arcs, count = len(self._lattices.source), len(self._lattices)
        posterior, gain, loglike, expected = found.split([shape.arcs, shape.arcs, shape.width, shape.width])
        return posterior[:arcs], gain[:arcs], loglike[:count], expected[:count]

    def cell_sums(self, values: Tensor) -> Tensor:
        """As `CompiledLattices.cell_sums`."""
        sums = torch.zeros(len(self._lattices.frame), dtype=torch.float64, device=self._device)
        return sums.index_add_(0, self._entry, values[self._owner])


class CompiledLattices:
    """The lattices of a minibatch for the CPU, by the compiled kernels."""

    def __init__(self, lattices: Lattices) -> None:
        self._lattices = lattices

    def forward_backward(self, graph: np.ndarray, accuracy: np.ndarray | None, scores: Tensor,
                         scale: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(posterior, gain) of each arc and (loglike, accuracy) of each lattice, as `forward_backward.ArcStatistics`, float64.

        An arc's cost is its `graph` cost (A,) less `scale` times the `scores` (C,) of its cells, both float64; without `accuracy` (A,) all
        accuracies are 0.
        """
        found = forward_backward(self._lattices, graph - scale * self._lattices.entry_sums(scores.numpy()), accuracy)
        posterior, gain, loglike, expected = map(torch.from_numpy, (found.posterior, found.gain, found.loglike, found.accuracy))
        return posterior, gain, loglike, expected

    def cell_sums(self, values: Tensor) -> Tensor:
        """Sum values of arcs (A,) over the entries of each cell, float64 (C,)."""
        return torch.from_numpy(self._lattices.cell_sums(values.numpy()))


def on_device(lattices: Lattices, device: torch.device, graphs: ObjectiveGraphs) -> LevelledLattices | CompiledLattices:
    """The lattices of a minibatch in the form that suits a device."""
    return CompiledLattices(lattices) if device.type == "cpu" else LevelledLattices(lattices, device, graphs)
