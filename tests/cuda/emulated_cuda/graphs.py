"""CUDA graphs of an emulated device: kernels recorded with their arguments, and replayed."""

from __future__ import annotations

import itertools
import weakref
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from emulated_cuda.tensor import Allocation, Pool

_POOLS = itertools.count(1)


@dataclass(eq=False)
class Recorded:
    """A recorded kernel: the function and its arguments on the host, what it makes, and what it touches."""

    run: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    made: list[Tensor]
    touched: list[tuple[Tensor, weakref.ref[Allocation], bool]]
    name: str


class CUDAGraph:
    """`torch.cuda.CUDAGraph`. `kernels` are recorded; `own` are the allocations made meanwhile, which live as long as the graph.

    `memory`: that of its pool.
    """

    def __init__(self, keep_graph: bool = False) -> None:
        from emulated_cuda.device import EmulatedCuda

        self._cuda = EmulatedCuda.running()
        self.kernels: list[Recorded] | None = None
        self.own: list[Allocation] = []
        self.device = -1
        self._pool: tuple[int, int] = (0, 0)
        self.memory: Pool | None = None
        self.generators: list[Any] = []

    def register_generator_state(self, generator: Any) -> None:
        self.generators.append(generator)

    def capture_begin(self, pool: tuple[int, int] | None = None, capture_error_mode: str = "global") -> None:
        if self._cuda.recording is not None:
            raise RuntimeError("a graph is being recorded already")
        self.kernels, self.device = [], self._cuda.current_device()
        self._pool = pool or graph_pool_handle()
        self._cuda.pools.append(self._pool)
        self.memory = self._cuda.pool(self._pool)
        self._cuda.recording = self

    def capture_end(self) -> None:
        self._cuda.recording = None

    def pool(self) -> tuple[int, int]:
        return self._pool

    def reset(self) -> None:
        self.kernels, self.own, self.memory = None, [], None

    def replay(self) -> None:
        if self.kernels is None:
            raise RuntimeError("a graph is replayed that was not recorded")
        self._cuda.replay(self)


class graph:
    """`torch.cuda.graph`: records what is launched within."""

    def __init__(self, cuda_graph: CUDAGraph, pool: tuple[int, int] | None = None, stream: Any = None,
                 capture_error_mode: str = "global") -> None:
        self._graph, self._pool, self._mode = cuda_graph, pool, capture_error_mode

    def __enter__(self) -> None:
        torch.cuda.synchronize()
        self._graph.capture_begin(self._pool, self._mode)

    def __exit__(self, *exception: object) -> None:
        self._graph.capture_end()


def graph_pool_handle() -> tuple[int, int]:
    """A new pool of memory, which graphs may share."""
    return 0, next(_POOLS)
