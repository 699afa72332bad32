"""CUDA graphs: work on a GPU that is recorded when its kind comes again, and then launched as one.

The launching of a hundred small kernels costs more than what a small network computes with them. So a step's work is recorded the third
time that its kind comes, and replayed from then on. All that differs between two works of one kind lies in tensors that stay in place.

A graph's own memory is in a pool, which graphs share where nothing that one leaves there is read after another one has been replayed. A
step that is recorded in parts leaves activations between them, though. What is recorded between two parts has to have another pool: that of
objectives, `OBJECTIVES`, beside that of steps, `STEPS`.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

STEPS, OBJECTIVES = "steps", "objectives"


@dataclass
class Parts:
    """The parts in which a flat gradient is made, the last layers' first, as `Model.parts` has them.

    `ready(k)` is called when part k is made; on a GPU, when its making has been handed over to the device.
    """

    slices: Sequence[slice]
    ready: Callable[[int], None]


def in_turn(work: Callable[[], None], parts: Parts | None) -> None:
    """Do work without recording it, once for each part where there are any."""
    for number in range(1 if parts is None else len(parts.slices)):
        work()
        if parts is not None:
            parts.ready(number)


class SharedPool:
    """A memory pool of graphs on a device, by the name of what they record.

    Of all workers in a process one computes at a time, and its work leaves nothing in the pool that a later one reads. The pool lives as
    long as someone may record into it. PyTorch forbids one whose graphs are all gone, so that the first graph is kept.
    """

    _pools: ClassVar[weakref.WeakValueDictionary[tuple[str, int], SharedPool]] = weakref.WeakValueDictionary()

    def __init__(self) -> None:
        self.handle = torch.cuda.graph_pool_handle()
        self._first: torch.cuda.CUDAGraph | None = None

    @classmethod
    def current(cls, name: str) -> SharedPool:
        """The pool of that name of the current device."""
        key = name, torch.cuda.current_device()
        pool = cls._pools.get(key)
        if pool is None:
            pool = cls._pools[key] = cls()
        return pool

    def keep(self, graph: torch.cuda.CUDAGraph) -> None:
        """Keep the first graph that is recorded."""
        self._first = self._first or graph


class CudaGraphs:
    """CUDA graphs of work, by its kind: it is run twice as it is, recorded the third time, and replayed after that.

    Each part of it is a graph of its own. `pool`: the name of their pool.
    """

    WARM_UP = 2
    LIMIT = 24  # kinds recorded; others run as they are
    MOST_STEPS = 1 << 15  # in time, in all graphs: each is four to seven kernels

    def __init__(self, pool: str) -> None:
        self._pool = SharedPool.current(pool)
        self._seen: dict[tuple[float, ...], int] = {}
        self._recorded: dict[tuple[float, ...], list[torch.cuda.CUDAGraph]] = {}
        self._steps = 0

    def run(self, kind: tuple[float, ...], work: Callable[[], None], generator: torch.Generator | None = None, steps: int = 0,
            parts: Parts | None = None) -> None:
        """Run or replay work. `generator`, seeded for this minibatch, is what it draws from, if it does; `steps`: in time.

        With `parts` each call of `work` makes the next one.
        """
        if kind in self._recorded:
            in_turn(functools.partial(_replay_next, iter(self._recorded[kind])), parts)
            return
        self._seen[kind] = self._seen.get(kind, 0) + 1
        if self._seen[kind] <= self.WARM_UP or len(self._recorded) >= self.LIMIT or self._steps + steps > self.MOST_STEPS:
            in_turn(work, parts)
            return
        self._steps += steps
        graphs: list[torch.cuda.CUDAGraph] = []

        def record() -> None:
            graphs.append(self._record(work, generator))
            graphs[-1].replay()

        in_turn(record, parts)
        self._recorded[kind] = graphs

    def _record(self, work: Callable[[], None], generator: torch.Generator | None) -> torch.cuda.CUDAGraph:
        """Record work, which is not done meanwhile."""
        graph = torch.cuda.CUDAGraph()
        if generator is not None:
            graph.register_generator_state(generator)
        # Other threads may answer calls meanwhile.
        with torch.cuda.graph(graph, pool=self._pool.handle, capture_error_mode="thread_local"):
            work()
        self._pool.keep(graph)
        return graph


def _replay_next(graphs: Iterator[torch.cuda.CUDAGraph]) -> None:
    """Replay the next graph."""
    next(graphs).replay()


class ObjectiveGraphs:
    """The buffers of an objective, which stay in place between minibatches of one kind, and on a GPU the CUDA graphs that work on them.

    As many kinds have them as graphs are recorded. Others get buffers for one minibatch, and run without a graph.
    """

    def __init__(self) -> None:
        self._kept: dict[Hashable, tuple[Tensor, ...]] = {}

    def memory(self, kind: Hashable, make: Callable[[], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        """The tensors of a kind, on one device, in the place where they were the last time; `make` makes them."""
        if kind in self._kept:
            return self._kept[kind]
        made = make()
        if len(self._kept) < CudaGraphs.LIMIT:
            self._kept[kind] = made
        return made

    def run(self, memory: tuple[Tensor, ...], work: Callable[[], None], steps: int = 0, kind: tuple[float, ...] = ()) -> None:
        """Do work on tensors of `memory`. `steps`: in time; `kind`: what the work depends on beside these tensors."""
        if memory[0].is_cuda and any(kept is memory for kept in self._kept.values()):
            self._graphs.run((memory[0].data_ptr(), *kind), work, steps=steps)
        else:
            work()

    @functools.cached_property
    def _graphs(self) -> CudaGraphs:
        return CudaGraphs(OBJECTIVES)
