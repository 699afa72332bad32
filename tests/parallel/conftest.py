"""Workers on a small store, and jobs of several processes that are threads here."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from pykaldist.frames.sampler import Partition, Sampler
from pykaldist.frames.store import FrameStore
from pykaldist.nnet.dnn import DnnOptions, make_dnn
from pykaldist.nnet.init import init_dnn
from pykaldist.nnet.learner import Supervised
from pykaldist.nnet.objective import CrossEntropy
from pykaldist.optim.registry import OPTIMIZERS, make_optimizer
from pykaldist.parallel.engines.host import Host
from pykaldist.parallel.fabric.processes import SplittableProcesses
from pykaldist.parallel.fabric.worker import Worker
from pykaldist.parallel.strategies.base.strategy import Strategy
from pykaldist.parallel.transport import transport


class Meeting:
    """Where `size` threads lay down something each, and take what all have laid down."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._barrier = threading.Barrier(size, timeout=30)
        self._laid: list[Any] = [None] * size
        self._lock, self._parts = threading.Lock(), {}

    def swap(self, rank: int, thing: Any) -> list[Any]:
        self._laid[rank] = thing
        self._barrier.wait()
        everything = list(self._laid)
        self._barrier.wait()
        return everything

    def part(self, members: tuple[int, ...]) -> Meeting:
        """Where some of the threads meet."""
        with self._lock:
            return self._parts.setdefault(members, Meeting(len(members)))

    def leave(self) -> None:
        self._barrier.abort()


class Threads(SplittableProcesses):
    """Process `rank` of a job whose processes are threads; its sums go from the last process to the first."""

    def __init__(self, rank: int, meeting: Meeting) -> None:
        self.rank, self.size, self._meeting = rank, meeting.size, meeting

    def broadcast(self, buffer: Tensor) -> None:
        buffer.copy_(self._meeting.swap(self.rank, buffer.clone())[0])

    def group(self, members: Sequence[int]) -> Threads:
        return Threads(members.index(self.rank), self._meeting.part(tuple(members)))

    def sum(self, buffer: Tensor, scale: float) -> None:
        everyone = self._meeting.swap(self.rank, buffer.clone())
        total = everyone[-1].clone()
        for other in everyone[-2::-1]:
            total += other
        buffer.copy_(total * scale)

    def control(self, values: Sequence[float] | np.ndarray, largest: bool = False) -> np.ndarray:
        table = np.array(self._meeting.swap(self.rank, np.array(values, dtype=np.float64)))
        return table.max(0) if largest else table.sum(0)

    def scatter(self, parts: list[Tensor]) -> list[Tensor]:
        return [sent[self.rank] for sent in self._meeting.swap(self.rank, [part.clone() for part in parts])]

    def gather(self, buffer: Tensor) -> list[Tensor]:
        return self._meeting.swap(self.rank, buffer.clone())

    def duplicate(self) -> Threads:
        return Threads(self.rank, self._meeting.swap(self.rank, Meeting(self.size))[0])


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """As a job has it that is to be the same for any number of processes."""
    torch.set_num_threads(1)


@pytest.fixture
def in_processes() -> Callable[..., list[Any]]:
    """`in_processes(count, work)`: what `work(processes)` returns in each of so many processes, which are threads, by rank."""

    def run(count: int, work: Callable[[SplittableProcesses], Any]) -> list[Any]:
        meeting = Meeting(count)

        def one(rank: int) -> Any:
            try:
                return work(Threads(rank, meeting))
            except BaseException:
                meeting.leave()
                raise

        with ThreadPoolExecutor(count) as pool:
            return list(pool.map(one, range(count)))

    return run


@pytest.fixture
def job(in_processes) -> Callable[..., list[Any]]:
    """`job(size, processes, work, deterministic)`: what `work(host)` returns, a list for the host's workers, put together by rank."""

    def run(size: int, count: int, work: Callable[[Host], list[Any]], deterministic: bool = True) -> list[Any]:
        parts = in_processes(count, lambda those: work(Host(size, those if count > 1 else None, deterministic)))
        return [result for part in parts for result in part]

    return run


@pytest.fixture
def make_workers(make_store) -> Callable[..., list[Worker]]:
    """`make_workers(size, ranks, blocks, minibatch_size, level, optimizer, dtype, store, **its options)`: the workers `ranks` of `size`,
    one hidden layer, on 120 frames, or on another store."""
    small = make_store([40, 30, 50])

    def make(size: int = 1, ranks: Sequence[int] | None = None, blocks: int = 1, minibatch_size: int = 16, level: str = "frame",
             optimizer: str = "sgd", dtype: torch.dtype = torch.float32, store: FrameStore = small, **options: Any) -> list[Worker]:
        partition = Partition(store, size, blocks, level)
        sampler = Sampler(store, partition, 0, minibatch_size, [-1, 0, 1], torch.zeros(12), torch.ones(12), 0, torch.device("cpu"))
        workers = []
        for rank in range(size) if ranks is None else ranks:
            shape = DnnOptions(1, 8, "tanh")
            model = make_dnn(shape, 12, 5, dtype=dtype)
            init_dnn(model, shape, torch.Generator().manual_seed(0))
            workers.append(Worker(make_optimizer(optimizer, Supervised(model, CrossEntropy()), OPTIMIZERS[optimizer][0](**options)),
                                  sampler.of_split(rank)))
        return workers

    return make


@pytest.fixture
def train() -> Callable[..., Tensor]:
    """`train(workers, strategies, epochs, learn_rate, host)`: the parameters after that, which all workers have."""

    def run(workers: list[Worker], strategies: list[Strategy], epochs: int = 2, learn_rate: float = 0.01,
            host: Host | None = None) -> Tensor:
        host = host or Host(len(workers))
        for epoch in range(epochs):
            for worker in workers:
                worker.begin_epoch(epoch, learn_rate)
            host.run([strategy.epoch(worker, fabric)
                      for strategy, worker, fabric in zip(strategies, workers, host.fabrics, strict=True)])
        assert all(torch.equal(worker.params, workers[0].params) for worker in workers)
        return workers[0].params

    return run


@pytest.fixture
def no_shared_memory(monkeypatch) -> Callable[[], None]:
    """From when this is called, processes cannot map each other's memory."""

    def refuse(pid: int, file: int, size: int) -> mmap.mmap:
        raise PermissionError("another user's")

    return lambda: monkeypatch.setattr(transport, "mapped", refuse)
