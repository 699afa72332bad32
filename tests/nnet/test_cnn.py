"""Convolution, pooling and batch normalisation equal torch's own; batch statistics are those of all workers' data."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from round_trip import through_nnet1
from torch.nn import functional as F

from pykaldist.errors import UserError
from pykaldist.frames.sampler import Minibatch
from pykaldist.nnet.cnn import CnnOptions, init_cnn, make_cnn
from pykaldist.nnet.components import Pass
from pykaldist.nnet.convert import to_nnet1, unrepresentable
from pykaldist.nnet.convolution import BatchNorm, Convolution
from pykaldist.nnet.learner import Supervised
from pykaldist.nnet.model import Model
from pykaldist.nnet.network import FeatureTransform, Network
from pykaldist.nnet.nnet1 import Nnet1
from pykaldist.nnet.nnet1_run import Nnet1Forward
from pykaldist.nnet.objective import CrossEntropy
from pykaldist.optim.adam import Adam
from pykaldist.optim.optimizer import STATISTICS_FRAMES
from pykaldist.optim.registry import FRAME_OPTIMIZERS, make_optimizer

FRAMES, BANDS, CHANNELS = 5, 12, 3


def make(**options) -> tuple[Model, CnnOptions]:
    shape = CnnOptions(**{"conv": "3x4x6/2,2x2x5", "channels": CHANNELS, "hid_layers": 1, "hid_dim": 7, "activation": "tanh", **options})
    model = make_cnn(shape, FRAMES * BANDS * CHANNELS, 4, dtype=torch.float64, frames=FRAMES)
    init_cnn(model, shape, torch.Generator().manual_seed(1))
    return model, shape


def slow(model: Model, shape: CnnOptions, params: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """torch.nn.functional on images (n, channels, frames, bands)."""
    views = [v for v in model.views(params) if v]
    x = x.view(-1, FRAMES, CHANNELS, BANDS).transpose(1, 2)
    channels = CHANNELS
    for layer in shape.layers():
        weight, bias = views.pop(0)
        time = layer.time or x.shape[2]
        x = F.conv2d(x, weight.view(-1, time, channels, layer.bands).transpose(1, 2), bias)
        if layer.pool > 1:
            x = F.max_pool2d(x, (1, layer.pool))
        if shape.batch_norm:
            gamma, beta, _, _ = views.pop(0)
            x = F.batch_norm(x, None, None, gamma, beta, True)
        x, channels = torch.tanh(x), layer.maps
    x = x.permute(0, 2, 3, 1).flatten(1)
    while len(views) > 1:
        weight, bias = views.pop(0)
        x = x @ weight.t() + bias
        if shape.batch_norm:
            gamma, beta, _, _ = views.pop(0)
            x = F.batch_norm(x, None, None, gamma, beta, True)
        x = torch.tanh(x)
    return x @ views[0][0].t() + views[0][1]


@pytest.mark.parametrize("options", [{}, {"batch_norm": True}, {"conv": "0x5x6/3"}, {"conv": "2x2x3,2x3x4/5,0x1x2", "batch_norm": True}])
def test_outputs_and_gradients_are_torchs(options):
    torch.manual_seed(0)
    model, shape = make(**options)
    model.params.add_(torch.randn_like(model.params), alpha=0.1)
    x, dy = torch.randn(6, FRAMES * BANDS * CHANNELS, dtype=torch.float64), torch.randn(6, 4, dtype=torch.float64)
    got = model.forward(x, training=True).clone()
    grads = torch.full_like(model.params, 2.0)
    model.backward(dy.clone(), grads, beta=0.5)
    params = model.params.clone().requires_grad_(True)
    with torch.enable_grad():
        expected = slow(model, shape, params, x)
        (expected * dy).sum().backward()
    assert torch.allclose(got, expected, atol=1e-10)
    trained = torch.ones_like(grads, dtype=torch.bool)
    for part in model.statistics():
        trained[part] = False
    assert trained.all() != shape.batch_norm
    assert torch.allclose(grads[trained], 1.0 + params.grad[trained], atol=1e-9)
    model.forward(x, training=True)
    model.backward(dy.clone(), grads.fill_(torch.nan))  # what stood there does not matter
    assert torch.allclose(grads[trained], params.grad[trained], atol=1e-9) and not grads.isnan().any()


def test_running_statistics_are_torchs_and_serve_where_the_network_is_used():
    torch.manual_seed(0)
    layer, theirs = BatchNorm(3, 4), torch.nn.BatchNorm1d(3, dtype=torch.float64)
    model = Model([layer], dtype=torch.float64)
    for view, value in zip(model.views(model.params)[0], (1.0, 0.0, 0.0, 1.0), strict=True):
        view.fill_(value)
    optimizer = make_optimizer("sgd", Supervised(model, CrossEntropy()), FRAME_OPTIMIZERS["sgd"][0]())
    mean = square = None
    for step in range(3):
        x = 2.0 * torch.randn(50, 12, dtype=torch.float64) + 1.0
        share = 1.0 - np.exp(-50 / STATISTICS_FRAMES)
        theirs.momentum = share
        theirs(x.view(200, 3))
        model.forward(x, training=True)
        grads = torch.zeros_like(model.params)
        model.backward(torch.zeros_like(x), grads)
        optimizer.apply(grads, 0.1, 50)
        moments = x.view(200, 3).mean(0), x.view(200, 3).square().mean(0)
        mean, square = ((1 - share) * old + share * new for old, new in zip((mean, square), moments, strict=True)) if step else \
            (share * moments[0], 1 - share + share * moments[1])
        assert torch.allclose(layer.mean, theirs.running_mean, atol=1e-10) and torch.allclose(layer.mean_square, square)
    layer.mean.copy_(theirs.running_mean), layer.mean_square.copy_(theirs.running_var + theirs.running_mean**2)
    theirs.eval()
    assert torch.allclose(model.forward(x).view(200, 3), theirs(x.view(200, 3)), atol=1e-10)


def parts_of(store_size: int, workers: int) -> list[torch.Tensor]:
    return list(torch.randn(store_size, FRAMES * BANDS * CHANNELS, generator=torch.Generator().manual_seed(4)).double().split(
        store_size // workers))


@pytest.mark.parametrize("name", FRAME_OPTIMIZERS)
def test_shipped_sums_make_the_statistics_of_all_workers_data(name):
    """As ssgd does it: gradients summed, one step for all frames. The same moments as of one worker with all the data."""
    first = make(batch_norm=True)[0]
    index = next(i for i, c in enumerate(first.components) if isinstance(c, BatchNorm))
    moments, momentum = [], {} if issubclass(FRAME_OPTIMIZERS[name][1], Adam) else {"momentum": 0.5}
    for workers in (1, 4):
        model, _ = make(batch_norm=True)
        optimizer = make_optimizer(name, Supervised(model, CrossEntropy()), FRAME_OPTIMIZERS[name][0](**momentum))
        total = torch.zeros_like(model.params)
        for x in parts_of(40, workers):
            gradient = torch.empty_like(total)
            optimizer.gradient(Minibatch(x, torch.zeros(len(x), dtype=torch.int32), 0, False), gradient, torch.zeros(3).double())
            total += gradient
        optimizer.apply(total, 0.0, 40)
        layer = model.components[index]
        moments.append(torch.cat([layer.mean, layer.mean_square]))
    assert torch.allclose(moments[0], moments[1], atol=1e-12) and moments[0].abs().min() > 0


def test_the_mean_of_workers_statistics_is_that_of_their_data():
    """As model averaging does it, by frames: moments are linear, so that the mean has the variance of the pooled data."""
    data = [torch.randn(n, 12).double() * (k + 1) + k for k, n in enumerate((10, 30, 60))]
    total = torch.zeros(6).double()
    for x in data:
        model = Model([BatchNorm(3, 4)], dtype=torch.float64)
        model.forward(x, training=True)
        grads = torch.zeros_like(model.params)
        model.backward(torch.zeros_like(x), grads)
        total += len(x) * (grads[6:] / len(x))
    mean, square = (total / 100).split(3)
    pooled = torch.cat(data).view(-1, 3)
    assert torch.allclose(mean, pooled.mean(0), atol=1e-5)
    assert torch.allclose(square - mean**2, pooled.var(0, correction=0), atol=1e-4)


def test_a_filter_sees_its_patch_in_the_layout_of_spliced_features():
    layer = Convolution((3, 6, 2), 2, 3, 1, outer=True)
    Model([layer])
    x = torch.zeros(1, 3, 2, 6)
    x[0, 1, 1, 4] = 1.0  # frame 1, stream 1, band 4
    layer.weight.copy_(torch.arange(12.0).view(1, -1))
    y, run = torch.empty(1, 8), Pass(memory=torch.empty(8 * 12))
    layer.forward(x.view(1, -1), y, run)
    # Patches of frames 0-1 have it in their second frame, those of 1-2 in their first; of bands 2-4 and 3-5 at 2 and 1.
    weight = layer.weight.view(2, 2, 3)
    expected = torch.zeros(2, 4)
    expected[0, 2], expected[0, 3], expected[1, 2], expected[1, 3] = weight[1, 1, 2], weight[1, 1, 1], weight[0, 1, 2], weight[0, 1, 1]
    assert torch.equal(y.view(2, 4), expected)


@pytest.mark.parametrize(("options", "words"), [
    ({"conv": "3x4"}, "expected layers such as"), ({"conv": "3x4x6/0"}, "expected layers such as"),
    ({"conv": "9x4x6"}, "layer 1: filters of 9"),
    ({"conv": "3x4x6/5,2x2x5"}, "layer 2"), ({"channels": 7}, "are not of so many streams"), ({"hid_dim": 0}, "--hid-dim 0")])
def test_shapes_that_make_no_sense_are_refused(options, words):
    with pytest.raises(UserError, match=words):
        make(**options)


def network_of(**options) -> Network:
    shape = CnnOptions(**{"conv": "3x4x6/2", "channels": CHANNELS, "hid_layers": 1, "hid_dim": 7, **options})
    model = make_cnn(shape, FRAMES * BANDS * CHANNELS, 4, frames=FRAMES)
    init_cnn(model, shape, torch.Generator().manual_seed(1))
    model.params.add_(torch.rand(len(model.params), generator=torch.Generator().manual_seed(2)), alpha=0.1)
    shift = torch.linspace(-0.1, 0.1, model.input_dim)
    return Network(shape, model, FeatureTransform([-2, -1, 0, 1, 2], shift, 1.0 + shift), torch.tensor([1, 2, 3, 4]))


FEATS = np.random.default_rng(0).normal(size=(20, BANDS * CHANNELS)).astype(np.float32)


def test_network_file_round_trip(tmp_path):
    network = network_of(batch_norm=True)
    network.save(tmp_path / "final.pt")
    assert np.array_equal(Network.load(tmp_path / "final.pt").loglikes(FEATS), network.loglikes(FEATS))


@pytest.mark.parametrize("options", [
    {"conv": "0x4x6/2"}, {"conv": "5x3x6/3,0x2x5", "activation": "sigmoid"},
    {"conv": "0x2x6/2,1x2x5/2", "hid_layers": 0, "activation": "tanh"}, {"conv": "0x4x6/2", "dropout": 0.2, "hid_layers": 2}])
def test_nnet1_files_run_as_the_network_does_and_become_it_again(options, tmp_path):
    network = network_of(**options)
    again, expected = through_nnet1(network, tmp_path / "final.nnet", FEATS), network.log_posteriors(FEATS)
    assert np.allclose(again.log_posteriors(FEATS), expected, atol=1e-6)
    assert again.options.channels == CHANNELS and again.options.num_maps == network.options.num_maps


def test_nnet1_files_have_batch_normalisation_as_shift_and_scale():
    network = network_of(conv="0x4x6/2", batch_norm=True)
    nnet, transform = to_nnet1(network)
    assert np.allclose(np.log(Nnet1Forward(Nnet1(transform.components + nnet.components))(FEATS)), network.log_posteriors(FEATS), atol=1e-4)


def test_convolution_over_time_is_not_in_nnet1():
    assert "over time" in unrepresentable(network_of())
    with pytest.raises(UserError, match="convolution over time"):
        to_nnet1(network_of())
