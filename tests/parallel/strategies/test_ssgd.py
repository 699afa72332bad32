"""Synchronous SGD: N workers are one with a minibatch N times as large."""

from __future__ import annotations

import itertools

import pytest
import torch

from pykaldist.frames.sampler import Minibatch
from pykaldist.parallel.strategies.ssgd import Ssgd


@pytest.mark.parametrize("options", [{}, {"momentum": 0.9, "l2_penalty": 0.01}, {"max_norm": 0.5}, {"l1_penalty": 0.001}])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_workers_equal_one_with_all_of_their_frames(make_workers, train, options, size):
    """The single worker is shown, at each update, the frames that the workers were shown; where a shard is used up, those of the rest."""
    workers = make_workers(size, minibatch_size=7, **options)
    shown = [[] for _ in workers]
    gather = workers[0].sampler.gather
    for worker, own in zip(workers, shown, strict=True):
        worker.sampler.gather = lambda rows, source, own=own: own.append(rows) or gather(rows, source)
    found = train(workers, [Ssgd() for _ in workers], 2)
    epochs = [[own[: worker.sampler.minibatches] for own, worker in zip(shown, workers, strict=True)],
              [own[worker.sampler.minibatches :] for own, worker in zip(shown, workers, strict=True)]]
    frames = [torch.cat([own for own in together if own is not None]) for epoch in epochs for together in itertools.zip_longest(*epoch)]
    assert sum(map(len, frames)) == 240

    (one,) = make_workers(minibatch_size=7 * size, **options)
    for chosen in frames:
        tensors = one.sampler.gather(chosen, one.sampler.shared.of(chosen.numpy()))
        one.optimizer.local_step(Minibatch(**tensors, index=0, last=False), 0.01, one.totals)
    assert torch.allclose(found, one.params, atol=2e-6)
    if "momentum" in options:
        assert all(torch.allclose(worker.optimizer.velocity, one.optimizer.velocity, atol=1e-4) for worker in workers)
