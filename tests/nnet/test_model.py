"""The network's explicit passes against autograd, and `final.pt`."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pykaldist.errors import UserError
from pykaldist.frames.sampler import Minibatch
from pykaldist.nnet.components import ACTIVATIONS
from pykaldist.nnet.dnn import DnnOptions, make_dnn
from pykaldist.nnet.init import init_dnn
from pykaldist.nnet.network import FeatureTransform, Network
from pykaldist.nnet.objective import CrossEntropy

FUNCTIONS = {"sigmoid": torch.sigmoid, "tanh": torch.tanh, "relu": torch.relu}


def setup(activation, dtype=torch.float64):
    options = DnnOptions(hid_layers=3, hid_dim=7, activation=activation)
    model = make_dnn(options, 5, 4, dtype=dtype)
    init_dnn(model, options, torch.Generator().manual_seed(1))
    generator = torch.Generator().manual_seed(2)
    return model, torch.randn(6, 5, generator=generator, dtype=dtype), torch.randint(0, 4, (6,), generator=generator).int()


def slow(model, activation, inputs, targets):
    """(summed loss, flat gradient) by autograd."""
    params = model.params.clone().requires_grad_()
    x, views = inputs, [v for v in model.views(params) if v]
    for i, (weight, bias) in enumerate(views):
        x = x @ weight.t() + bias
        x = FUNCTIONS[activation](x) if i < len(views) - 1 else x
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


def test_one_flat_buffer_holds_all_parameters():
    model, inputs, _ = setup("sigmoid")
    assert len(model.params) == 5 * 7 + 7 + 2 * (7 * 7 + 7) + 7 * 4 + 4
    before = model.forward(inputs).clone()
    model.params.mul_(1.1)
    assert not torch.equal(before, model.forward(inputs))
    model.params.zero_()
    assert not model.forward(inputs).any()


def test_initial_weights_come_from_the_generator_alone():
    torch.manual_seed(5)
    one = setup("relu")[0].params
    torch.manual_seed(6)
    assert torch.equal(one, setup("relu")[0].params)


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
