"""1-bit SGD: bits are packed as they are, nothing of a gradient is lost, and as many bytes travel as the formula says."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pykaldist.parallel.engines.host import Host
from pykaldist.parallel.strategies.onebit import Columns, Onebit, OnebitOptions, pack_bits, quantise, reconstruct, unpack_bits
from pykaldist.parallel.strategies.ssgd import Ssgd

SHAPES = [(5, 19), (5,), (3, 5), (3,), (0,), (4, 1), (4,)]


@given(st.lists(st.booleans(), max_size=70), st.integers(1, 3))
def test_packing_is_exact(flags, rows):
    table = torch.tensor([flags] * rows).view(rows, len(flags)).bool()
    packed = pack_bits(table)
    assert packed.dtype == torch.uint8 and packed.shape == (rows, -(-len(flags) // 8))
    assert torch.equal(unpack_bits(packed, len(flags)), table)
    for i, flag in enumerate(flags):
        assert bool(packed[0, i // 8] >> (i % 8) & 1) == flag


@given(st.integers(1, 6), st.integers(1, 20), st.integers(0, 10_000))
def test_a_column_is_reconstructed_by_the_means_of_its_halves(rows, columns, seed):
    values = torch.randn(rows, columns, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    values[values.abs() < 0.3] = 0.0
    found = reconstruct(*quantise(values))
    for column, got in zip(values.t(), found.t(), strict=True):
        for half in (column >= 0, column < 0):
            if half.any():
                assert torch.allclose(got[half], column[half].mean())
    assert torch.allclose(found.sum(0), values.sum(0))  # so quantising keeps the sum of a column


@pytest.mark.parametrize("size", [1, 2, 3, 7, 40])
def test_columns_are_shared_out_once_each(size):
    columns = Columns(SHAPES, size)
    flat = torch.arange(float(sum(torch.Size(s).numel() for s in SHAPES)))
    matrices, vectors = columns.split(flat)
    parts = [columns.own(matrices, k) for k in range(size)]
    for i, matrix in enumerate(matrices):
        assert torch.equal(torch.cat([own[i] for own in parts], 1), matrix)
    back = torch.empty_like(flat)
    columns.join(matrices, vectors, back)
    assert torch.equal(back, flat)


def run(size, gradients, dtype=torch.float32):
    """Exchange each worker's gradients, one after the other: (strategies, what arrived at each worker)."""
    arrived = [[] for _ in range(size)]
    strategies = [Onebit(OnebitOptions()) for _ in range(size)]
    columns = Columns(SHAPES, size)

    async def work(fabric):
        strategy = strategies[fabric.rank]
        strategy.residual = torch.zeros_like(gradients[0][0])
        owned = columns.own(columns.split(strategy.residual)[0], fabric.rank)
        strategy.sum_residual = torch.zeros(sum(part.numel() for part in owned), dtype=strategy.residual.dtype)
        for gradient in gradients[fabric.rank]:
            buffer = gradient.clone()
            await strategy.sum(buffer, columns, fabric)
            arrived[fabric.rank].append(buffer)

    host = Host(size)
    host.run([work(fabric) for fabric in host.fabrics])
    return strategies, arrived, columns


@settings(max_examples=20)
@given(st.integers(2, 9), st.integers(0, 1000), st.sampled_from([torch.float32, torch.float64]))
def test_what_was_sent_and_what_is_owed_is_all_there_was(size, seed, dtype):
    """On both ways: sum of what arrived + owners' residuals + workers' residuals = sum of all gradients. All receive the same."""
    generator = torch.Generator().manual_seed(seed)
    length = sum(torch.Size(s).numel() for s in SHAPES)
    gradients = torch.randn(size, 6, length, dtype=torch.float64, generator=generator).to(dtype)
    strategies, arrived, columns = run(size, gradients)
    for own in arrived:
        assert all(torch.equal(a, b) for a, b in zip(own, arrived[0], strict=True))
    owed = sum(strategy.residual.double() for strategy in strategies)
    matrices, vectors = columns.split(owed)
    assert not vectors.any()  # they travel as they are
    for k, strategy in enumerate(strategies):
        start = 0
        for part in columns.own(matrices, k):
            part.add_(strategy.sum_residual[start : (start := start + part.numel())].view(part.shape))
        assert start == len(strategy.sum_residual)
    columns.join(matrices, vectors, owed)
    total = torch.stack(arrived[0]).double().sum(0)
    assert torch.allclose(total + owed, gradients.double().sum((0, 1)), atol=1e-4 if dtype == torch.float32 else 1e-10)
    assert not torch.allclose(total, gradients.double().sum((0, 1)), atol=1e-2)  # something is owed


@pytest.mark.parametrize(("size", "dtype"), [(2, torch.float32), (3, torch.float64), (5, torch.float32)])
def test_bytes_are_counted(size, dtype):
    """Two levels a column and a bit a value, in bytes of 8 columns, to owners and from them to all; vectors as they are."""
    length = sum(torch.Size(s).numel() for s in SHAPES)
    strategies, _, _ = run(size, torch.randn(size, 3, length, dtype=dtype))
    whole = 0
    for shape in SHAPES:
        whole += 2 * shape[1] * dtype.itemsize + shape[0] * -(-shape[1] // 8) if len(shape) == 2 else shape[0] * dtype.itemsize
    # Each worker's whole message to all but itself; each part from its owner to all but the owner.
    assert sum(strategy.bytes_sent for strategy in strategies) == 3 * 2 * whole * (size - 1)
    if dtype == torch.float32:
        wide = Columns([(512, 512)], 2)
        bits = wide.encode([torch.randn(512, 512)], [torch.zeros(512, 512)])
        assert sum(len(wide.cut(bits, torch.empty(0), k)) for k in range(2)) < 512 * 512 * 4 / 28


def test_it_learns_as_synchronous_sgd_does(make_workers, train):
    """With error feedback it gets to a loss near that of exact gradients; one worker alone takes them as they are."""
    losses = {}
    for strategy in (Ssgd, lambda: Onebit(OnebitOptions())):
        workers = make_workers(3, minibatch_size=4)
        train(workers, [strategy() for _ in workers], 12, 0.02)
        losses[strategy is Ssgd] = workers[0].learner.metrics(sum(w.totals for w in workers).tolist())["loss"]
    assert losses[False] < 1.15 * losses[True] < 0.7


def test_after_a_rejected_epoch_nothing_is_owed(make_workers, train):
    workers, strategies = make_workers(2), [Onebit(OnebitOptions()) for _ in range(2)]
    train(workers, strategies, 1)
    assert strategies[0].state_dict()["residual"].abs().sum() > 0
    strategies[0].rejected()
    kept = strategies[0].state_dict()
    assert kept["residual"] is kept["sum_residual"] is None and kept["bytes_sent"] > 0
