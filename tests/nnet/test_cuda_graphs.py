"""The recording of work: which memory pool its graphs have."""

from __future__ import annotations

import contextlib
import gc
import weakref

import pytest
import torch

from pykaldist.nnet.cuda_graphs import CudaGraphs, SharedPool


class FakeGraph:
    """A graph that replays nothing."""

    def register_generator_state(self, generator):
        pass

    def replay(self):
        pass


@pytest.fixture
def pools(monkeypatch):
    """The pools that graphs are recorded with, one after the other, on a device that is not there."""
    used, handles = [], iter(range(100))
    monkeypatch.setattr(SharedPool, "_pools", weakref.WeakValueDictionary())

    @contextlib.contextmanager
    def recording(graph, pool=None, capture_error_mode="global"):
        used.append(pool)
        yield

    monkeypatch.setattr(torch.cuda, "CUDAGraph", FakeGraph)
    monkeypatch.setattr(torch.cuda, "graph", recording)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: next(handles))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    return used


def record(graphs: CudaGraphs, *kinds: int) -> None:
    for kind in kinds:
        for _ in range(graphs.WARM_UP + 1):
            graphs.run((kind,), lambda: None, torch.Generator())


def test_all_workers_of_a_process_record_into_one_pool(pools):
    workers = [CudaGraphs("steps") for _ in range(32)]
    for graphs in workers:
        record(graphs, 1, 2, 3)
    assert pools == [0] * 96


def test_graphs_of_long_sequences_are_limited(pools, monkeypatch):
    monkeypatch.setattr(CudaGraphs, "MOST_STEPS", 100)
    graphs, run = CudaGraphs("steps"), []
    for kind, steps in (("a", 60), ("b", 50), ("c", 40), ("d", 0)):
        for _ in range(graphs.WARM_UP + 2):
            graphs.run((ord(kind),), lambda kind=kind: run.append(kind), torch.Generator(), steps)
    assert {kind: run.count(kind) for kind in "abcd"} == {"a": 3, "b": 4, "c": 3, "d": 3} and len(pools) == 3


def test_a_pool_outlives_its_graphs_and_ends_with_its_users(pools):
    """PyTorch takes no graph into a pool whose graphs are all gone: the first one stays while someone may record."""
    one, other = CudaGraphs("steps"), CudaGraphs("steps")
    record(one, 1)
    first = one._pool._first
    del one
    gc.collect()
    assert first is not None and other._pool._first is first
    record(other, 1)
    del other
    gc.collect()
    record(CudaGraphs("steps"), 1)
    assert pools == [0, 0, 1]
