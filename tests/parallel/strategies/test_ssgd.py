"""Synchronous SGD: N workers are one with a minibatch N times as large."""

from __future__ import annotations

import itertools

import pytest
import torch

from pykaldist.frames.sampler import Minibatch
from pykaldist.nnet.cuda_graphs import Parts
from pykaldist.optim.registry import FRAME_OPTIMIZERS
from pykaldist.parallel.clusters.cluster import Cluster, Compute, Link, Workload
from pykaldist.parallel.engines.host import Host
from pykaldist.parallel.engines.side_stream import SideStream
from pykaldist.parallel.planning.dry_run import epoch_seconds, rehearse
from pykaldist.parallel.strategies import ssgd
from pykaldist.parallel.strategies.ssgd import PART, Ssgd, SsgdOptions


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


@pytest.mark.parametrize("optimizer", FRAME_OPTIMIZERS)
def test_a_part_is_ready_before_those_below_it_are_made(make_workers, optimizer):
    worker, again = make_workers(1, optimizer=optimizer) + make_workers(1, optimizer=optimizer)
    for one in (worker, again):
        one.begin_epoch(0, 0.01)
    slices = worker.learner.model.parts(40)
    assert slices == [slice(104, 149), slice(0, 104)]  # the last map, whose gradient waits for the nonlinearity before it; the first
    gradient, seen, whole = torch.full((149,), torch.nan), [], torch.zeros(149)
    worker.gradient(gradient, 0.0, Parts(slices, lambda number: seen.append(gradient.clone())))
    again.gradient(whole, 0.0)
    assert torch.equal(gradient, whole) and len(seen) == 2 and torch.equal(seen[1], whole)
    assert torch.equal(seen[0][104:], whole[104:]) and seen[0][:104].isnan().all()


@pytest.mark.parametrize("dtype", ["float32", "bf16"])
@pytest.mark.parametrize("processes", [1, 2])
def test_overlapped_exchanges_change_nothing(make_workers, train, job, monkeypatch, processes, dtype):
    """Three workers, in one process or two; the last minibatches of an epoch are not those of all."""
    monkeypatch.setattr(ssgd, "PART", 40)
    begun = []
    begin = Host._begin
    monkeypatch.setattr(Host, "_begin", lambda host, requests: begun.append(host) or begin(host, requests))
    models = []
    for overlap in (True, False):

        def one(host, overlap=overlap):
            workers = make_workers(3, host.ranks, minibatch_size=7)
            return [train(workers, [Ssgd(SsgdOptions(exchange_dtype=dtype, overlap=overlap)) for _ in workers], 2, host=host)]

        models += job(3, processes, one)
        assert len(begun) == 2 * 2 * 6 * processes  # parts, epochs, minibatches
    assert all(torch.equal(model, models[0]) for model in models)


@pytest.mark.parametrize("bandwidth", [1e9, 1e10, 1e12])
def test_predictions_hide_sums_behind_the_backward_pass(bandwidth):
    """Four parts, made in the last two thirds of a minibatch's seconds; each is summed when it is made and the one before is summed."""
    step, latency, workers, minibatches = 0.1, 1e-4, 4, 20
    cluster = Cluster("c", "", 4, 1, Workload("n", 4 * PART, 100, workers * minibatches * 100), Compute(step), Link(bandwidth, latency),
                      Link(bandwidth, latency))
    seconds, end = 2 * (workers - 1) * (latency + 4 * PART / (workers * bandwidth)), 0.0
    for part in range(1, 5):
        end = max(end, step * (1 + 2 * part / 4) / 3) + seconds
    options = SsgdOptions(overlap=True)
    found = rehearse("ssgd", options, cluster.workload, cluster, workers, minibatches)
    assert found.exchange == pytest.approx(minibatches * (end - step)) and found.wait == 0.0
    assert epoch_seconds(cluster, workers, "ssgd", options) == pytest.approx(minibatches * end)
    assert epoch_seconds(cluster, workers, "ssgd") > minibatches * end


@pytest.mark.gpu
@pytest.mark.parametrize("waits", [True, False])
def test_on_a_device_a_part_is_summed_behind_its_making(cuda, monkeypatch, waits):
    """On the side stream, which waits for an event; without it, the emulated device finds that nothing orders the two."""
    if not waits:
        if cuda is None:
            pytest.skip("a race that only an emulated device finds for sure")
        monkeypatch.setattr(SideStream, "begin", lambda stream: torch.cuda.Event())
    buffers, slices, host = [torch.zeros(8, device="cuda") for _ in range(2)], [slice(5, 8), slice(0, 5)], Host(2)
    host.use_device(torch.device("cuda:0"))

    async def step(fabric):
        own = buffers[fabric.rank]

        def work(parts=None):
            for number, part in enumerate(slices):
                own[part] += fabric.rank + 1.0
                if parts is not None:
                    parts.ready(number)
            return fabric.rank

        for _ in range(2):
            _, tickets = await fabric.compute_parts(work, slices, lambda number, own=own: fabric.sum(own[slices[number]]))
            for ticket in tickets:
                await fabric.finish(ticket)
            own += 1.0

    work = [step(fabric) for fabric in host.fabrics]
    if waits:
        host.run(work)
        assert all(buffer.tolist() == [12.0] * 8 for buffer in buffers)  # 2 (1 + 2 + 1) + 1 + 2 + 1
    else:
        with pytest.raises(RuntimeError, match="nothing orders the two"):
            host.run(work)
