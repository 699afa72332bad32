"""Stacked models compute what each computes by itself, and are its parameters."""

from __future__ import annotations

import pytest
import torch

from pykaldist.frames.sampler import Minibatch
from pykaldist.nnet.dnn import DnnOptions, make_dnn
from pykaldist.nnet.objective import CrossEntropy
from pykaldist.nnet.stacked import StackedModel

MODELS, ROWS, INPUTS, PDFS = 3, 5, 7, 4
SHAPES = {"sigmoid": {}, "tanh": {"activation": "tanh"}, "relu": {"activation": "relu", "hid_layers": 3},
          "no hidden layer": {"hid_layers": 0},
          "bottleneck": {"bottleneck_dim": 3}, "rates": {"learn_rate_coefs": "1,0.5,0.1", "bias_learn_rate_coef": 2.0}}


@pytest.fixture(params=SHAPES)
def models(request):
    """`models()`: models of one shape, whose parameters differ."""

    def make():
        made = [make_dnn(DnnOptions(**{"hid_layers": 2, "hid_dim": 6, **SHAPES[request.param]}), INPUTS, PDFS, dtype=torch.float64)
                for _ in range(MODELS)]
        for seed, model in enumerate(made):
            model.params.copy_(torch.randn(len(model.params), dtype=torch.float64, generator=torch.Generator().manual_seed(seed)))
        return made

    return make


def minibatch(weighted, parts):
    """What models of these numbers are trained on."""
    made = []
    for seed in parts:
        generator = torch.Generator().manual_seed(10 + seed)
        targets = torch.randint(0, PDFS, (ROWS,), generator=generator)
        weights = torch.rand(ROWS, generator=generator) if weighted else None
        made.append((torch.randn(ROWS, INPUTS, dtype=torch.float64, generator=generator), targets, weights))
    inputs, targets, weights = zip(*made, strict=True)
    return Minibatch(torch.cat(inputs), torch.cat(targets), 0, False, weights=torch.cat(weights) if weighted else None)


@pytest.mark.parametrize("beta", [0.0, 0.5])
@pytest.mark.parametrize("weighted", [False, True])
def test_each_models_gradient_and_totals_are_its_own(models, beta, weighted):
    objective, apart, together = CrossEntropy(), models(), models()
    stacked = StackedModel(together)
    grads = torch.ones_like(stacked.params)
    totals = torch.ones(MODELS, 3, dtype=torch.float64)
    data = minibatch(weighted, range(MODELS))
    logits = stacked.forward(data.inputs, training=True)
    found = logits.clone()
    stacked.backward(objective(logits, data, totals), grads, beta)
    for number, model in enumerate(apart):
        own, own_grads, own_totals = minibatch(weighted, [number]), torch.ones_like(model.params), torch.ones(3, dtype=torch.float64)
        logits = model.forward(own.inputs, training=True)
        assert torch.allclose(found[number * ROWS : (number + 1) * ROWS], logits, rtol=1e-12)
        model.backward(objective(logits, own, own_totals), own_grads, beta)
        assert torch.allclose(grads[number, 0], own_grads, rtol=1e-12, atol=1e-14)
        assert torch.allclose(totals[number], own_totals, rtol=1e-12)


def test_parameters_are_views(models):
    apart, together = models(), models()
    stacked = StackedModel(together)
    assert all(torch.equal(one.params, other.params) for one, other in zip(apart, together, strict=True))
    inputs = minibatch(False, [0]).inputs
    stacked.params.mul_(2.0)
    for one, other in zip(apart, together, strict=True):
        one.params.mul_(2.0)
        assert torch.equal(other.params, one.params) and torch.equal(other.forward(inputs), one.forward(inputs))
    assert len({model.params.untyped_storage().data_ptr() for model in together}) == 1
