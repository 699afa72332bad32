"""DiLoCo: its streaming form written out step by step, what it becomes without its parts, and what fewer bits lose."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pykaldist.errors import UserError
from pykaldist.parallel.engines.host import Host
from pykaldist.parallel.strategies import diloco
from pykaldist.parallel.strategies.bmuf import Bmuf, BmufOptions
from pykaldist.parallel.strategies.diloco import Diloco, DilocoOptions, decode, encode
from pykaldist.parallel.strategies.ma import Ma, MaOptions

LENGTH, RATE = 37, 0.1
TARGETS = np.random.default_rng(0).normal(size=(5, LENGTH))


def quadratic(descender, size, steps):
    """Workers that descend to a target each; the parameters in one piece."""
    workers = [descender(lambda worker, k=k: RATE * (torch.from_numpy(TARGETS[k]) - worker.params), steps,
                         torch.zeros(LENGTH, dtype=torch.float64)) for k in range(size)]
    for worker in workers:
        worker.optimizer.parts = [slice(0, LENGTH)]
    return workers


def run(workers, made, epochs=1):
    host = Host(len(workers))
    for epoch in range(epochs):
        for worker in workers:
            worker.epoch, worker.index, worker.frames = epoch, 0, 0
        host.run([s.epoch(w, fabric) for s, w, fabric in zip(made, workers, host.fabrics, strict=True)])
    return host


def reference(size, steps, o, epochs=1):
    """The outer model: a loop over minibatches, fragments by masks, arrivals in a table."""
    pieces = o.fragments**2 if o.fragment_pattern == "strided" else o.fragments
    edges = [LENGTH * i // pieces for i in range(pieces + 1)]
    masks = np.zeros((o.fragments, LENGTH), bool)
    for i in range(pieces):
        masks[i % o.fragments, edges[i] : edges[i + 1]] = True
    assert (masks.sum(0) == 1).all()
    w, outer, v, turn, gap = np.zeros((size, LENGTH)), np.zeros(LENGTH), np.zeros(LENGTH), 0, o.average_period // o.fragments

    def step(mask, mean, mixing):
        v[mask] = o.outer_momentum * v[mask] + mean[mask]
        outer[mask] -= o.outer_learning_rate * (mean[mask] + o.outer_momentum * v[mask])
        w[:, mask] = mixing * w[:, mask] + (1 - mixing) * outer[mask]

    for _ in range(epochs):
        under_way = []
        for t in range(1, steps + 1):
            w += RATE * (TARGETS[:size] - w)
            if t % gap == 0 and t < steps:
                under_way.append((t + o.overlap_steps, masks[turn % o.fragments], (outer - w).mean(0)))
                turn += 1
            for _, mask, mean in [f for f in under_way if f[0] <= t]:
                step(mask, mean, o.mixing)
            under_way = [f for f in under_way if f[0] > t]
        for _, mask, mean in under_way:
            step(mask, mean, o.mixing)
        for mask in masks:
            step(mask, (outer - w).mean(0), 0.0)
    return outer


@pytest.mark.parametrize("size", [2, 5])
@pytest.mark.parametrize("given", [
    {"average_period": 4, "fragments": 2}, {"average_period": 6, "fragments": 3, "overlap_steps": 5, "fragment_pattern": "sequential"},
    {"average_period": 3, "fragments": 1, "overlap_steps": 0, "mixing": 0.0}, {"average_period": 4, "fragments": 4, "overlap_steps": 3},
    {"average_period": 5, "fragments": 1, "overlap_steps": 2, "mixing": 1.0, "outer_learning_rate": 0.4, "outer_momentum": 0.3}],
    ids=["two", "long on the way", "DiLoCo", "three under way", "nothing mixed in"])
def test_it_is_what_its_head_says(descender, size, given):
    o = DilocoOptions(**given)
    workers = quadratic(descender, size, 23)
    made = [Diloco(o) for _ in workers]
    run(workers, made, 2)
    expected = reference(size, 23, o, 2)
    assert all(np.allclose(worker.params, expected, rtol=1e-11, atol=1e-13) for worker in workers)
    assert not made[0].flights


def test_several_fragments_are_under_way_at_a_time(descender, monkeypatch):
    most, land = 0, Diloco._land

    async def counting(self, *given):
        nonlocal most
        most = max(most, len(self.flights))
        await land(self, *given)

    monkeypatch.setattr(Diloco, "_land", counting)
    workers = quadratic(descender, 2, 20)
    run(workers, [Diloco(DilocoOptions(average_period=4, fragments=4, overlap_steps=3)) for _ in workers])
    assert most == 4


@pytest.mark.parametrize("size", [2, 3, 5])
def test_whole_at_once_and_plain_it_is_model_averaging(make_workers, train, size):
    plain = {"average_period": 3, "fragments": 1, "overlap_steps": 0, "mixing": 0.0, "outer_learning_rate": 1.0, "outer_momentum": 0.0}
    found = train(make_workers(size, momentum=0.9, minibatch_size=4), [Diloco(DilocoOptions(**plain)) for _ in range(size)])
    ma = train(make_workers(size, momentum=0.9, minibatch_size=4), [Ma(MaOptions(3)) for _ in range(size)])
    assert torch.allclose(found, ma, atol=1e-6)  # uneven shards too: 120 frames of 5 workers leave none over, those of 3 and 2 neither


def test_whole_at_once_it_is_bmuf(descender):
    """In bmuf's letters, a look-ahead at the block's end in place of its beginning."""
    workers, others = quadratic(descender, 3, 12), quadratic(descender, 3, 12)
    o = DilocoOptions(average_period=4, fragments=1, overlap_steps=0, mixing=0.0, outer_learning_rate=0.5, outer_momentum=0.8)
    made = [Diloco(o) for _ in workers]
    run(workers, made)
    run(others, [Bmuf(BmufOptions(4, block_momentum=0.8, block_learning_rate=0.5, local_momentum="keep")) for _ in others])
    ahead = workers[0].params + 0.5 * 0.8 * made[0].velocity[0]  # without the last look-ahead
    assert torch.allclose(ahead, others[0].params, rtol=1e-10)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("length", [0, 1, 255, 256, 1000])
def test_values_in_few_bits(bits, length):
    values = torch.randn(length, generator=torch.Generator().manual_seed(length)) * 10.0 ** torch.arange(length).remainder(5)
    message = encode(values, bits)
    blocks = -(-length // 256)
    assert message.dtype == torch.uint8 and len(message) == blocks * (4 + 256 * bits // 8)
    found = decode(message, values, bits)
    for a in range(0, length, 256):
        block = values[a : a + 256]
        assert float((found[a : a + 256] - block).abs().max()) <= float(block.abs().max()) / (2 ** (bits - 1) - 1) * 0.501
    assert torch.equal(decode(encode(torch.zeros(300), bits), torch.zeros(300), bits), torch.zeros(300))


@pytest.mark.parametrize("bits", [4, 8])
def test_error_feedback_loses_nothing_in_the_end(descender, monkeypatch, bits):
    """With plain averaging, the model plus what is still unsent is what the workers have learnt, to the last bit of float64."""
    monkeypatch.setattr(diloco, "BLOCK", 8)
    move = torch.from_numpy(TARGETS)
    workers = [descender(lambda worker, k=k: move[k], 12, torch.zeros(LENGTH, dtype=torch.float64)) for k in range(3)]
    plain = {"average_period": 4, "fragments": 2, "overlap_steps": 1, "mixing": 0.0, "outer_learning_rate": 1.0, "outer_momentum": 0.0}
    made = [Diloco(DilocoOptions(**plain, outer_bits=bits, fragment_pattern="sequential")) for _ in workers]
    for worker in workers:
        worker.optimizer.parts = [slice(0, LENGTH)]
    exact = [Diloco(DilocoOptions(**plain, fragment_pattern="sequential")) for _ in workers]
    others = [descender(lambda worker, k=k: move[k], 12, torch.zeros(LENGTH, dtype=torch.float64)) for k in range(3)]
    run(workers, made, 3)
    run(others, exact, 3)
    unsent = torch.stack([torch.cat(s.lost) for s in made]).mean(0)
    owned = torch.cat([torch.cat([s.lost_means[fragment] for s in made]) for fragment in range(2)])
    assert float((workers[0].params - others[0].params).abs().max()) > 1e-4 and unsent.any() and owned.any()
    assert torch.allclose(workers[0].params - unsent - owned, others[0].params, atol=1e-9)


@pytest.mark.parametrize("bits", [32, 8, 4])
def test_it_comes_to_the_mean_of_what_the_workers_want(descender, bits):
    workers = quadratic(descender, 4, 400)
    run(workers, [Diloco(DilocoOptions(outer_bits=bits)) for _ in workers])
    far = np.linalg.norm(workers[0].params.numpy() - TARGETS[:4].mean(0)) / np.linalg.norm(TARGETS[:4].mean(0))
    assert far < {32: 0.01, 8: 0.03, 4: 0.3}[bits]


def test_statistics_of_the_data_are_averaged(descender):
    workers = quadratic(descender, 2, 9)
    for worker in workers:
        worker.statistics = [slice(3, 21)]
    made = [Diloco(DilocoOptions(average_period=4, fragments=2, mixing=0.0, overlap_steps=0)) for _ in workers]
    run(workers, made)
    pieces = [np.arange(LENGTH * i // 4, LENGTH * (i + 1) // 4) for i in (0, 2, 1, 3)]  # fragment after fragment, as the vectors have them
    velocity = torch.cat(made[0].velocity)[np.argsort(np.concatenate(pieces))]
    assert not velocity[3:21].any() and velocity[[2, 21]].all()


@pytest.mark.parametrize(("options", "words"), [
    ({"fragments": 0}, "expected at least 1 of --fragments"), ({"mixing": 1.1}, "--mixing in"),
    ({"outer_momentum": 1.0}, "--outer-momentum"), ({"outer_learning_rate": 0.0}, "positive --outer-learning-rate"),
    ({"overlap_steps": -1}, "--overlap-steps")])
def test_options_that_are_out_of_range(options, words):
    with pytest.raises(UserError, match=words):
        DilocoOptions(**options)


@pytest.mark.parametrize("options", [{"average_period": 6}, {"average_period": 0}, {"overlap_steps": 20}])
def test_a_period_that_fragments_do_not_divide(options):
    with pytest.raises(UserError, match="expected a multiple of --fragments 5 over --overlap-steps"):
        DilocoOptions(**options).gap(8)
