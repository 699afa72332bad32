"""Forward-backward over lattices in tensors, for a GPU: all arcs of a level at once.

The level of a state is the largest number of arcs on a way to it from its lattice's start, so that every arc leads to a higher level, also
one that takes no frame. States of all lattices are numbered anew by level, and arcs are sorted by the state that they lead to: those of a
level are then one slice, whose log-sums by state are a maximum and a sum, scattered to the states. Backwards likewise, arcs sorted by the
state that they leave. The formulas are those of `forward_backward.py`; sums are in float64.

A lattice of long runs of frames has few levels (dozens where it has hundreds of frames), and so have all of a minibatch together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pykaldist.frames.device_frames import to_device
from pykaldist.frames.lattices import Lattices
from pykaldist.kernels import kernel
from pykaldist.nnet.forward_backward import forward_backward


@kernel(nogil=True)
def _levels(states: int, source: np.ndarray, target: np.ndarray) -> np.ndarray:
    level = np.zeros(states, np.int64)
    for a in range(len(source)):
        level[target[a]] = max(level[target[a]], level[source[a]] + 1)
    return level


@dataclass
class _Direction:
    """Arcs in the order of one direction.

    `order` (A,) are their numbers; `near` and `far` the states that they lead to and come from on this way. `slices`: for each level the
    first and last state + 1 and the first and last place in the order + 1.
    """

    order: Tensor
    near: Tensor
    far: Tensor
    slices: list[tuple[int, int, int, int]]

    @classmethod
    def of(cls, near: np.ndarray, far: np.ndarray, level_bounds: np.ndarray, levels: range, device: torch.device) -> _Direction:
        order = np.argsort(near, kind="stable")
        places = np.searchsorted(near[order], level_bounds)
        slices = [(int(level_bounds[i]), int(level_bounds[i + 1]), int(places[i]), int(places[i + 1])) for i in levels]
        on_device = [to_device(torch.from_numpy(x), device) for x in (order, near[order], far[order])]
        return cls(on_device[0], on_device[1], on_device[2], slices)

    def sums(self, log_sum: Tensor, mean: Tensor, cost: Tensor, accuracy: Tensor) -> None:
        """Fill the log-sums and mean accuracies of all states but those where paths begin on this way, which are set."""
        cost, accuracy = cost[self.order], accuracy[self.order]
        for first, last, begin, end in self.slices:
            if begin == end:
                continue
            near, far = self.near[begin:end] - first, self.far[begin:end]
            new = log_sum[far] - cost[begin:end]
            most = new.new_full((last - first,), -torch.inf).scatter_reduce_(0, near, new, "amax")
            most.masked_fill_(most == -torch.inf, 0.0)  # ends of other lattices, which no arc leads to
            share = (new - most[near]).exp_()
            total = torch.zeros_like(most).index_add_(0, near, share)
            own = total > 0
            log_sum[first:last] = torch.where(own, most + total.log(), log_sum[first:last])
            share /= total[near]
            means = torch.zeros_like(most).index_add_(0, near, share * (mean[far] + accuracy[begin:end]))
            mean[first:last] = torch.where(own, means, mean[first:last])


class LevelledLattices:
    """The lattices of a minibatch on a device, in the orders that forward and backward go through them."""

    def __init__(self, lattices: Lattices, device: torch.device | str) -> None:
        device = torch.device(device)
        level = _levels(int(lattices.states[-1]), lattices.source, lattices.target)
        by_level = np.argsort(level, kind="stable")
        number = np.empty_like(by_level)
        number[by_level] = np.arange(len(by_level))
        bounds = np.searchsorted(level[by_level], np.arange(int(level.max()) + 2))
        source, target = number[lattices.source], number[lattices.target]
        self._forward = _Direction.of(target, source, bounds, range(1, len(bounds) - 1), device)
        self._backward = _Direction.of(source, target, bounds, range(len(bounds) - 2, -1, -1), device)
        arc_lattice = np.repeat(np.arange(len(lattices)), np.diff(lattices.arcs))
        self._num_states, self._num_cells = len(level), len(lattices.frame)
        owner = np.repeat(np.arange(len(lattices.source)), np.diff(lattices.string))
        self._source, self._target, self._lattice, self._starts, self._ends, self._owner, self._entry = (
            to_device(torch.from_numpy(np.ascontiguousarray(x, np.int64)), device) for x in
            (source, target, arc_lattice, number[lattices.states[:-1]], number[lattices.states[1:] - 1], owner, lattices.entry))

    def entry_sums(self, values: Tensor) -> Tensor:
        """Sum values of cells (C,) over the entries of each arc, float64 (A,)."""
        sums = torch.zeros(len(self._source), dtype=torch.float64, device=values.device)
        return sums.index_add_(0, self._owner, values.double()[self._entry])

    def cell_sums(self, values: Tensor) -> Tensor:
        """Sum values of arcs (A,) over the entries of each cell, float64 (C,)."""
        sums = torch.zeros(self._num_cells, dtype=torch.float64, device=values.device)
        return sums.index_add_(0, self._entry, values.double()[self._owner])

    def forward_backward(self, cost: Tensor, accuracy: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(posterior, gain) of each arc and (loglike, accuracy) of each lattice, as `forward_backward.ArcStatistics`, float64.

        `cost` and `accuracy` are float64 (A,).
        """
        alpha, beta = cost.new_full((2, self._num_states), -torch.inf)
        expected, to_come = cost.new_zeros(2, self._num_states)
        alpha[self._starts] = 0.0
        beta[self._ends] = 0.0
        self._forward.sums(alpha, expected, cost, accuracy)
        self._backward.sums(beta, to_come, cost, accuracy)
        loglike, total = beta[self._starts], to_come[self._starts]
        posterior = (alpha[self._source] - cost + beta[self._target] - loglike[self._lattice]).exp_()
        gain = posterior * (expected[self._source] + accuracy + to_come[self._target] - total[self._lattice])
        return posterior, gain, loglike, total


class CompiledLattices:
    """The same interface over the compiled kernels, for the CPU."""

    def __init__(self, lattices: Lattices) -> None:
        self._lattices = lattices

    def entry_sums(self, values: Tensor) -> Tensor:
        """As `LevelledLattices.entry_sums`."""
        return torch.from_numpy(self._lattices.entry_sums(values.numpy()))

    def cell_sums(self, values: Tensor) -> Tensor:
        """As `LevelledLattices.cell_sums`."""
        return torch.from_numpy(self._lattices.cell_sums(values.numpy()))

    def forward_backward(self, cost: Tensor, accuracy: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """As `LevelledLattices.forward_backward`."""
        found = forward_backward(self._lattices, cost.numpy(), accuracy.numpy())
        posterior, gain, loglike, total = map(torch.from_numpy, (found.posterior, found.gain, found.loglike, found.accuracy))
        return posterior, gain, loglike, total


def on_device(lattices: Lattices, device: torch.device) -> LevelledLattices | CompiledLattices:
    """The lattices of a minibatch in the form that suits a device."""
    return CompiledLattices(lattices) if device.type == "cpu" else LevelledLattices(lattices, device)
