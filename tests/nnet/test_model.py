"""The network's explicit passes against autograd, and `final.pt`."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pykaldist.errors import UserError
from pykaldist.frames.sampler import Minibatch
from pykaldist.nnet.components import ACTIVATIONS, Dropout, Pass
from pykaldist.nnet.dnn import DnnOptions, make_dnn
from pykaldist.nnet.init import init_dnn
from pykaldist.nnet.network import FeatureTransform, Network
from pykaldist.nnet.objective import CrossEntropy

FUNCTIONS = {"sigmoid": torch.sigmoid, "tanh": torch.tanh, "relu": torch.relu}


def setup(activation, dtype=torch.float64, **shape):
    options = DnnOptions(hid_layers=3, hid_dim=7, activation=activation, **shape)
    model = make_dnn(options, 5, 4, dtype=dtype)
    init_dnn(model, options, torch.Generator().manual_seed(1))
    generator = torch.Generator().manual_seed(2)
    return model, torch.randn(6, 5, generator=generator, dtype=dtype), torch.randint(0, 4, (6,), generator=generator).int()


def slow(model, activation, inputs, targets, masks=None):
    """(summed loss, flat gradient) by autograd; `masks` are what dropout multiplies by."""
    params = model.params.clone().requires_grad_()
    x, views = inputs, [v for v in model.views(params) if v]
    for i, (weight, *bias) in enumerate(views):
        x = x @ weight.t() + (bias[0] if bias else 0.0)
        x = FUNCTIONS[activation](x) if bias and i < len(views) - 1 else x
        x = x * masks.pop(0) if bias and masks else x
    loss = torch.nn.functional.cross_entropy(x, targets.long(), reduction="sum")
    loss.backward()
    return loss.item(), params.grad, (x.argmax(1) == targets).sum().item()


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gradient_loss_and_accuracy_equal_autograd(activation):
    model, inputs, targets = setup(activation)
    loss, gradient, correct = slow(model, activation, inputs, targets)
    totals, objective = torch.zeros(3, dtype=torch.float64), CrossEntropy()
    grads = torch.full_like(model.params, 7.0)
    model.backward(objective(model.forward(inputs), Minibatch(inputs, targets, 0, False), totals), grads)
    assert torch.allclose(grads, gradient, atol=1e-12)
    assert totals.tolist() == pytest.approx([loss, correct, 6])
    assert objective.metrics(totals.tolist()) == pytest.approx({"loss": loss / 6, "acc": correct / 6})
    model.backward(objective(model.forward(inputs[:4]), Minibatch(inputs[:4], targets[:4], 1, False), totals), grads, beta=0.5)
    assert torch.allclose(grads, 0.5 * gradient + slow(model, activation, inputs[:4], targets[:4])[1], atol=1e-12)


@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_a_rule_may_write_over_what_it_is_given(dropout):
    """Over dy, and over the rows of x where they are spent: those of every map but the first, whose inputs are the data."""
    model, inputs, targets = setup("tanh", dropout=dropout, bottleneck_dim=2)
    grads, totals = torch.zeros_like(model.params), torch.zeros(3, dtype=torch.float64)

    def seen(spoil):
        found, all_spent = [], []

        def rule(map, x, dy, weight, bias, beta, *, spent=None):
            found.extend([x.clone(), dy.clone()])
            all_spent.append(spent is not None)
            assert spent is None or (torch.equal(spent[:, : x.shape[1]], x) and spent.shape[1] % 8 == 0)
            if spoil:
                dy.fill_(torch.nan)
                if spent is not None:
                    x.fill_(torch.nan)

        logits = model.forward(inputs, torch.Generator().manual_seed(3), training=True)
        model.backward(CrossEntropy()(logits, Minibatch(inputs, targets, 0, False), totals), grads, rule=rule)
        assert all_spent == [True] * 4 + [False]
        return found

    assert all(torch.equal(one, other) for one, other in zip(seen(True), seen(False), strict=True))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gradient_through_dropout_and_a_bottleneck_equals_autograd(activation):
    model, inputs, targets = setup(activation, dropout=0.4, bottleneck_dim=2)
    assert model.stochastic
    model.forward(inputs, torch.Generator().manual_seed(3))
    layers = [c for c in model.components if isinstance(c, Dropout)]
    memories = [memory for c, memory in zip(model.components, model._activations.memories, strict=True) if c in layers]
    masks = [memory[: 6 * 7].view(6, 7).clone() for memory in memories]
    assert len(masks) == 3 and not torch.equal(masks[0], masks[1])
    loss, gradient, _ = slow(model, activation, inputs, targets, masks)
    totals, grads = torch.zeros(3, dtype=torch.float64), torch.full_like(model.params, 7.0)
    logits = model.forward(inputs, torch.Generator().manual_seed(3))  # the same seed, the same masks
    model.backward(CrossEntropy()(logits, Minibatch(inputs, targets, 0, False), totals), grads)
    assert torch.allclose(grads, gradient, atol=1e-12) and totals[0].item() == pytest.approx(loss)
    used = slow(model, activation, inputs, targets)[0]
    totals.zero_()
    CrossEntropy()(model.forward(inputs), Minibatch(inputs, targets, 0, False), totals)
    assert totals[0].item() == pytest.approx(used)


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_dropout_keeps_the_expectation(rate):
    dropout, x, y = Dropout(50, rate), torch.full((4000, 50), 3.0), torch.empty(4000, 50)
    dropout.forward(x, y, Pass(True, torch.Generator().manual_seed(0), memory=torch.empty(4000 * 50)))
    assert (y == 0).double().mean().item() == pytest.approx(rate, abs=0.01)
    assert y.mean().item() == pytest.approx(3.0, abs=0.03)
    assert torch.allclose(y[y > 0], torch.tensor(3.0 / (1.0 - rate)))
    dropout.forward(x, y, Pass())
    assert torch.equal(x, y)


def test_coefficients_belong_to_their_maps():
    model = setup("tanh", learn_rate_coefs="1,0.5,0,2,0.1", bottleneck_dim=2, bias_learn_rate_coef=2.0)[0]
    assert [(m.learn_rate_coef, m.bias_learn_rate_coef) for m in model.maps] == [(1, 2), (0.5, 1), (0, 0), (2, 4), (0.1, 0.2)]
    assert [(m.input_dim, m.output_dim) for m in model.maps] == [(5, 7), (7, 7), (7, 2), (2, 7), (7, 4)]
    assert [m.bias for m in model.maps] == [True, True, False, True, True]


@pytest.mark.parametrize(("shape", "words"), [
    ({"learn_rate_coefs": "1,1,1"}, "has 3 factors, the network 4"), ({"learn_rate_coefs": "1,1,1,-1"}, "negative"),
    ({"dropout": 1.0}, "--dropout 1 is outside"), ({"bottleneck_dim": -1}, "--bottleneck-dim -1"),
    ({"learn_rate_coefs": "1;1"}, "expected numbers"),
])
def test_shapes_that_make_no_sense_are_refused(shape, words):
    with pytest.raises(UserError, match=words):
        setup("tanh", **shape)


def test_one_flat_buffer_holds_all_parameters():
    model, inputs, _ = setup("sigmoid")
    assert len(model.params) == 5 * 7 + 7 + 2 * (7 * 7 + 7) + 7 * 4 + 4
    before = model.forward(inputs).clone()
    model.params.mul_(1.1)
    assert not torch.equal(before, model.forward(inputs))
    model.params.zero_()
    assert not model.forward(inputs).any()


@pytest.fixture
def network():
    model, _, _ = setup("tanh", torch.float32)
    transform = FeatureTransform([-1, 0, 1, 2, 3], torch.full((5,), 0.5), torch.full((5,), 2.0))
    return Network(DnnOptions(3, 7, "tanh"), model, transform, torch.tensor([10, 0, 30, 60]))


def test_network_file_round_trip(network, tmp_path):
    feats = np.random.default_rng(0).normal(size=(5000, 1)).astype(np.float32)
    network.save(tmp_path / "final.pt")
    loaded = Network.load(tmp_path / "final.pt")
    assert np.array_equal(network.loglikes(feats), loaded.loglikes(feats))
    posteriors = np.exp(loaded.loglikes(feats)[:, [0, 2, 3]] + np.log([0.1, 0.3, 0.6]))
    padded = np.concatenate([feats[:1], feats, feats[-1:], feats[-1:], feats[-1:]])[:, 0]
    inputs = np.stack([(padded[i : i + 5] - 0.5) * 2 for i in range(5000)])
    expected = torch.softmax(loaded.model.forward(torch.from_numpy(inputs)), 1)[:, [0, 2, 3]]
    assert np.allclose(posteriors, expected, atol=1e-5)


def test_unseen_pdf_cannot_be_decoded(network):
    assert (network.loglikes(np.zeros((3, 1), np.float32))[:, 1] < -1e9).all()


def test_damaged_or_foreign_network_is_refused_in_words(network, tmp_path):
    network.save(tmp_path / "final.pt")
    content = bytearray((tmp_path / "final.pt").read_bytes())
    content[-40] ^= 1
    (tmp_path / "bad.pt").write_bytes(content)
    (tmp_path / "alien.pt").write_bytes(b"hello, world")
    for name, words in (("bad.pt", "checksum"), ("alien.pt", "no pykaldist file"), ("none.pt", "does not exist")):
        with pytest.raises(UserError, match=words):
            Network.load(tmp_path / name)
    with pytest.raises(UserError, match="features of dimension 1, found 2"):
        network.loglikes(np.zeros((3, 2), np.float32))


def test_a_network_without_counts_is_not_decoded(network, tmp_path):
    Network(network.options, network.model, network.transform, None).save(tmp_path / "final.pt")
    loaded = Network.load(tmp_path / "final.pt")
    assert loaded.counts is None
    with pytest.raises(UserError, match="its outputs are no pdfs, and cannot be decoded"):
        loaded.loglikes(np.zeros((3, 1), np.float32))


def test_buffers_that_a_recorded_graph_writes_to_stay_where_they_are():
    model = make_dnn(DnnOptions(1, 8), 4, 3)
    model.reserve(16)
    outputs = model._activations.outputs[0].data_ptr()
    model.forward(torch.zeros(16, 4))
    assert model._activations.outputs[0].data_ptr() == outputs
    scratch = model.scratch(10, model.params)
    model._activations.recorded = True
    assert model.scratch(20, model.params).numel() == 20 and any(kept is scratch for kept in model._activations._kept)
    with pytest.raises(RuntimeError, match="a minibatch of 17 rows after CUDA graphs were recorded with buffers for 16"):
        model.forward(torch.zeros(17, 4))
