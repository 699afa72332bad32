"""Passes by one thread: pieces are all of the rows, and too small for PyTorch to share out."""

from __future__ import annotations

import pytest
import torch

from pykaldist.nnet.components import Pass, Relu, Sigmoid, Tanh
from pykaldist.pieces import FEW, GRAIN, pieces


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("shape", [(256, 512), (1000, 33), (9, 16384)])
def test_pieces_are_small_and_make_up_the_whole(threads, shape):
    threads(2)
    x, y = torch.arange(shape[0] * shape[1]).view(shape), torch.arange(shape[0])[:, None]
    parts = list(pieces(x, y))
    assert torch.equal(torch.cat([part for part, _ in parts]), x) and torch.equal(torch.cat([part for _, part in parts]), y)
    assert len(parts) > 1 and all(part.numel() < GRAIN and len(part) == len(own) for part, own in parts)


def test_what_is_small_large_or_one_threads_stays_whole(threads):
    threads(2)
    assert [len(list(pieces(torch.empty(n, 1)))) for n in (GRAIN - 1, GRAIN, FEW, FEW + 1)] == [1, 2, 9, 1]
    assert len(list(pieces(torch.empty(3, 20001)))) == 1
    threads(1)
    assert len(list(pieces(torch.empty(FEW, 1)))) == 1


@pytest.mark.parametrize("kind", [Sigmoid, Tanh, Relu])
def test_activations_are_those_of_one_pass(threads, kind):
    x, found = torch.randn(256, 200, generator=torch.Generator().manual_seed(0)), []
    for number in (1, 2):
        threads(number)
        y, d = torch.empty_like(x), torch.ones_like(x)
        kind(200).forward(x, y, Pass())
        kind(200).backward(x, y, d, d, [], 0.0, lambda *_, **__: None, Pass())
        found.append((y, d))
    assert torch.equal(found[0][0], found[1][0]) and torch.equal(found[0][1], found[1][1])
    assert not torch.equal(found[0][1], torch.ones_like(x))
