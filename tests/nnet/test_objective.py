"""Objectives against autograd, and the invariants of weights and soft targets."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pykaldist.frames.sampler import Minibatch
from pykaldist.nnet.objective import CrossEntropy, MeanSquareError

N, K = 7, 5
GENERATOR = torch.Generator().manual_seed(0)
LOGITS = torch.randn(N, K, generator=GENERATOR, dtype=torch.float64)
TARGETS = torch.randint(0, K, (N,), generator=GENERATOR).int()
WEIGHTS = torch.tensor([0.0, 1.0, 2.0, 0.5, 1.0, 0.0, 3.0])
PDFS = torch.stack([torch.randperm(K, generator=GENERATOR)[:3] for _ in range(N)]).int()
PROBS = torch.rand(N, 3, generator=GENERATOR).sort(1, descending=True).values
PROBS[3, 1:] = PDFS[3, 1:] = 0  # padded
PROBS[4] = PDFS[4] = 0  # empty


def apply(objective, outputs, **fields):
    """(derivative, totals)"""
    totals = torch.zeros(objective.num_totals, dtype=torch.float64)
    fields = {"targets": TARGETS[: len(outputs)], **fields}
    return objective(outputs.clone(), Minibatch(outputs, index=0, last=False, **fields), totals), totals.tolist()


def dense(pdfs, probs):
    return torch.zeros(len(pdfs), K, dtype=torch.float64).scatter_add_(1, pdfs.long(), probs.double())


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_soft_targets_equal_autograd(weights):
    soft, w = dense(PDFS, PROBS), torch.ones(N) if weights is None else weights
    logits = LOGITS.clone().requires_grad_()
    loss = -(w[:, None] * soft * torch.log_softmax(logits, 1)).sum()
    loss.backward()
    derivative, totals = apply(CrossEntropy(), LOGITS, weights=weights, posterior_pdfs=PDFS, posterior_probs=PROBS)
    assert torch.allclose(derivative, logits.grad, atol=1e-12)
    mass = w * soft.sum(1)
    correct = (LOGITS.argmax(1) == PDFS[:, 0]) * mass
    assert totals == pytest.approx([loss.item(), correct.sum().item(), mass.sum().item()])
    metrics = CrossEntropy().metrics(totals)
    assert metrics == pytest.approx({"loss": loss.item() / mass.sum().item(), "acc": (correct.sum() / mass.sum()).item()})


def test_one_hot_posteriors_are_hard_targets():
    pdfs, probs = torch.stack([TARGETS, torch.zeros_like(TARGETS)], 1), torch.tensor([1.0, 0.0]).repeat(N, 1)
    hard, soft = apply(CrossEntropy(), LOGITS), apply(CrossEntropy(), LOGITS, posterior_pdfs=pdfs, posterior_probs=probs)
    assert torch.allclose(hard[0], soft[0], atol=1e-15) and hard[1] == pytest.approx(soft[1])


@pytest.mark.parametrize("objective", [CrossEntropy(), MeanSquareError()])
def test_weights_are_counts_of_frames(objective):
    """Weight 0 is a frame that is not there, weight 2 one that is there twice."""
    counts, feats = torch.tensor([0, 1, 2, 1, 0, 2, 3]), torch.randn(N, K, generator=torch.Generator().manual_seed(4))
    weighted, totals = apply(objective, LOGITS, target_feats=feats, weights=counts.float())
    rows = torch.repeat_interleave(torch.arange(N), counts)
    repeated, expected = apply(objective, LOGITS[rows], targets=TARGETS[rows], target_feats=feats[rows])
    assert torch.allclose(weighted, torch.zeros_like(LOGITS).index_add_(0, rows, repeated), atol=1e-12)
    assert totals == pytest.approx(expected)


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_mean_square_error_equals_autograd(weights):
    feats, w = torch.randn(N, K, generator=torch.Generator().manual_seed(4)), torch.ones(N) if weights is None else weights
    outputs = LOGITS.clone().requires_grad_()
    loss = 0.5 * (w[:, None] * (outputs - feats) ** 2).sum()
    loss.backward()
    derivative, totals = apply(MeanSquareError(), LOGITS, target_feats=feats, weights=weights)
    assert torch.allclose(derivative, outputs.grad, atol=1e-12)
    assert totals == pytest.approx([loss.item(), w.sum().item()])
    assert MeanSquareError().metrics(totals) == {"loss": pytest.approx(loss.item() / w.sum().item())}


def test_frames_that_count_nothing_have_no_mean():
    nothing = {"weights": torch.zeros(N), "target_feats": torch.zeros(N, K)}
    for objective in (CrossEntropy(), MeanSquareError()):
        derivative, totals = apply(objective, LOGITS, **nothing)
        assert not derivative.any() and set(objective.metrics(totals).values()) == {0.0}


def test_output_dimensions(make_store):
    store = make_store([20], extras=("target_feats",))
    assert CrossEntropy().output_dim(store) == 5 and MeanSquareError().output_dim(store) == 3
    assert np.isfinite(store.target_feats).all()
