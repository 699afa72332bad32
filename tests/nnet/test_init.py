"""Initial weights: their moments, and that they come from the generator alone."""

from __future__ import annotations

import math

import pytest
import torch

from pykaldist.errors import UserError
from pykaldist.nnet.dnn import DnnOptions, make_dnn
from pykaldist.nnet.init import OF_ACTIVATION, GlorotInit, HeInit, Nnet1Init, init_dnn

GLOROT = math.sqrt(2 / (300 + 200))  # of the first layer; 200 by 200 and 200 by 250 follow


def made(init=None, activation="sigmoid", **shape):
    options = DnnOptions(2, 200, activation, **shape)
    model = make_dnn(options, 300, 250)
    init_dnn(model, options, torch.Generator().manual_seed(1), init)
    return model


@pytest.mark.parametrize(("init", "stddevs"), [
    (Nnet1Init(), [3.5 * GLOROT, 3.5 * math.sqrt(1 / 200), 3.5 * math.sqrt(2 / 450)]),
    (Nnet1Init(param_stddev_factor=0.02), [0.7 * GLOROT, 0.7 * math.sqrt(1 / 200), 0.7 * math.sqrt(2 / 450)]),
    (Nnet1Init(input_stddev_factor=0.5), [1.75 * GLOROT, 3.5 * math.sqrt(1 / 200), 3.5 * math.sqrt(2 / 450)]),
    (Nnet1Init(glorot_scaled=False), [0.1, 0.1, 0.1]),
    (GlorotInit(), [GLOROT, math.sqrt(1 / 200), math.sqrt(2 / 450)]),
    (GlorotInit("uniform"), [GLOROT, math.sqrt(1 / 200), math.sqrt(2 / 450)]),
    (HeInit(), [math.sqrt(2 / 300), math.sqrt(2 / 200), math.sqrt(2 / 450)]),
])
def test_standard_deviations_of_weights(init, stddevs):
    views = [v for v in made(init).views(made(init).params) if v]
    for (weight, _), stddev in zip(views, stddevs, strict=True):
        assert weight.std().item() == pytest.approx(stddev, rel=0.02) and abs(weight.mean().item()) < 0.05 * stddev
    weight = views[0][0]
    if init == GlorotInit("uniform"):
        assert weight.abs().max().item() == pytest.approx(math.sqrt(6 / 500), rel=1e-3)
    else:
        assert weight.abs().max().item() > 3 * stddevs[0]


def test_biases_spread_over_their_range():
    model = made(Nnet1Init(hid_bias_mean=1.0, hid_bias_range=0.5))
    (_, bias), _, (_, output) = (v for v in model.views(model.params) if v)
    assert 0.75 <= bias.min() < 0.77 and 1.23 < bias.max() <= 1.25 and not output.any()
    assert not any(v[1].any() for v in made(GlorotInit()).views(made(GlorotInit()).params) if v)


@pytest.mark.parametrize("activation", OF_ACTIVATION)
def test_each_activation_has_its_own(activation):
    named = {"nnet1": Nnet1Init(), "glorot": GlorotInit(), "he": HeInit()}[OF_ACTIVATION[activation]]
    torch.manual_seed(5)
    one = made(None, activation).params
    torch.manual_seed(6)
    assert torch.equal(one, made(named, activation).params)


def test_a_bottleneck_has_small_weights():
    weight = made(bottleneck_dim=40).components[2].weight
    assert weight.shape == (40, 200) and weight.std().item() == pytest.approx(math.sqrt(2 / 240), rel=0.05)


def test_negative_spread_is_refused():
    with pytest.raises(UserError, match="--hid-bias-range -1 is negative"):
        Nnet1Init(hid_bias_range=-1.0)
