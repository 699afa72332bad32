"""RBMs against loops over frames and units, against enumeration of hidden states, and on a distribution that they can learn."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from pykaldist.frames.sampler import Minibatch, Partition, Sampler
from pykaldist.nnet.components import Affine, Sigmoid
from pykaldist.nnet.model import Model
from pykaldist.nnet.nnet1 import Nnet1
from pykaldist.nnet.rbm import ContrastiveDivergence, Rbm
from pykaldist.optim.cd import Cd, CdOptions

FRAMES, VISIBLE, HIDDEN = 5, 4, 3


def make_rbm(units: str, dtype: torch.dtype = torch.float64) -> Rbm:
    rbm = Rbm(units, VISIBLE, HIDDEN, dtype=dtype)
    rbm.params[: rbm.num_params].normal_(0.0, 0.7, generator=torch.Generator().manual_seed(1))
    return rbm


def make_minibatch(seed: int = 2, dtype: torch.dtype = torch.float64) -> Minibatch:
    inputs = torch.rand(FRAMES, VISIBLE, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    return Minibatch(inputs, torch.zeros(FRAMES, dtype=torch.int32), 0, False, seed=99)


def sigmoid(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x))


def slow_cd(rbm: Rbm, data: list[list[float]], uniform: list[list[list[float]]]):
    """(weight, hidden bias, visible bias gradients; reconstructions) by loops; `uniform[step][frame][unit]` decides on hidden states."""
    weight, c, b = rbm.units.weight.tolist(), rbm.units.bias.tolist(), rbm.units.visible_bias.tolist()

    def up(v: list[float]) -> list[float]:
        return [sigmoid(c[j] + sum(weight[j][i] * v[i] for i in range(VISIBLE))) for j in range(HIDDEN)]

    def down(h: list[float]) -> list[float]:
        means = [b[i] + sum(weight[j][i] * h[j] for j in range(HIDDEN)) for i in range(VISIBLE)]
        return means if rbm.visible_units == "gauss" else [sigmoid(m) for m in means]

    dw, dc, db = [[0.0] * VISIBLE for _ in range(HIDDEN)], [0.0] * HIDDEN, [0.0] * VISIBLE
    reconstructions = []
    for t, v in enumerate(data):
        positive = probabilities = up(v)
        for numbers in uniform:
            again = down([float(numbers[t][j] < probabilities[j]) for j in range(HIDDEN)])
            probabilities = up(again)
        reconstructions.append(again)
        for j in range(HIDDEN):
            dc[j] += probabilities[j] - positive[j]
            for i in range(VISIBLE):
                dw[j][i] += probabilities[j] * again[i] - positive[j] * v[i]
        for i in range(VISIBLE):
            db[i] += again[i] - v[i]
    return dw, dc, db, reconstructions


@pytest.mark.parametrize("cd_steps", [1, 3])
@pytest.mark.parametrize("units", ["gauss", "bern"])
def test_gradient_equals_loops(units, cd_steps):
    rbm, minibatch = make_rbm(units), make_minibatch()
    generator = torch.Generator().manual_seed(minibatch.seed)
    uniform = [torch.empty(FRAMES, HIDDEN, dtype=torch.float64).uniform_(generator=generator).tolist() for _ in range(cd_steps)]
    dw, dc, db, reconstructions = slow_cd(rbm, minibatch.inputs.tolist(), uniform)
    learner, totals, before = ContrastiveDivergence(rbm, cd_steps=cd_steps), torch.zeros(5, dtype=torch.float64), minibatch.inputs.clone()
    grads = torch.full_like(rbm.params, 7.0)
    learner.gradient(minibatch, grads, 0.5, totals)
    weight, bias, visible_bias, moments = rbm.views(grads)[0]
    for ours, theirs in ((weight, dw), (bias, dc), (visible_bias, db)):
        assert torch.allclose(ours - 3.5, torch.tensor(theirs, dtype=torch.float64), atol=1e-12)
    again = torch.tensor(reconstructions, dtype=torch.float64)
    error = (again - before).square().sum().item()
    assert totals.tolist() == pytest.approx([error, FRAMES, 0, 0, 0])
    assert learner.metrics(totals.tolist()) == pytest.approx({"loss": error / FRAMES / VISIBLE})
    if units == "gauss":
        expected = [before.sum(), before.square().sum(), again.sum(), again.square().sum()]
        assert (moments - 3.5).tolist() == pytest.approx([float(x) for x in expected])
    else:
        assert len(moments) == 0
    assert torch.equal(minibatch.inputs, before)


@pytest.mark.parametrize("units", ["gauss", "bern"])
def test_a_minibatch_has_its_own_random_numbers(units):
    """The same whatever came before it; others in another minibatch."""
    learner, totals = ContrastiveDivergence(make_rbm(units)), torch.zeros(5, dtype=torch.float64)

    def gradient(seed: int) -> torch.Tensor:
        grads, minibatch = torch.zeros_like(learner.model.params), make_minibatch()
        minibatch.seed = seed
        learner.gradient(minibatch, grads, 0.0, totals)
        return grads

    first = gradient(1)
    assert not torch.equal(gradient(2), first)
    assert torch.equal(gradient(1), first)


@pytest.mark.parametrize("units", ["gauss", "bern"])
def test_free_energy_equals_enumeration(units):
    rbm, data = make_rbm(units), make_minibatch().inputs
    weight, c, b = rbm.units.weight, rbm.units.bias, rbm.units.visible_bias
    for v, found in zip(data, rbm.free_energy(data, rbm.forward(data)), strict=True):
        own = 0.5 * ((v - b) ** 2).sum() if units == "gauss" else -(b * v).sum()
        energies = [own - (c * h).sum() - h @ weight @ v
                    for h in (torch.tensor(states, dtype=torch.float64) for states in itertools.product([0, 1], repeat=HIDDEN))]
        assert found.item() == pytest.approx(-torch.logsumexp(-torch.stack(energies), 0).item())


@pytest.mark.parametrize("units", ["gauss", "bern"])
def test_the_gap_compares_held_out_frames_with_the_sample(make_store, units):
    rbm = Rbm(units, 4, HIDDEN)
    rbm.init(0.5, 0.0, 0.0, torch.Generator().manual_seed(3))
    train, dev = make_store([30, 25], seed=1, name="train"), make_store([20, 13], seed=2, name="dev")
    zeros, ones = torch.zeros(4), torch.ones(4)
    samplers = [Sampler(store, Partition(store, splits), 0, 8, [0], zeros, ones, 0, torch.device("cpu"))
                for store, splits in ((train, 2), (dev, 1))]
    learner, totals = ContrastiveDivergence(rbm, sample=samplers[0]), torch.zeros(5, dtype=torch.float64)
    for minibatch in samplers[1].in_order():
        learner.score(minibatch, totals)
    metrics = learner.metrics(totals.tolist())
    means = []
    for frames in (torch.from_numpy(dev.feats), torch.from_numpy(train.feats[Partition(train, 2).part(0, 0)])):
        own = 0.5 * (frames**2).sum(1) if units == "gauss" else 0.0
        means.append((own - torch.log1p(torch.exp(frames @ rbm.units.weight.t())).sum(1)).mean().item())
    assert metrics["free_energy"] == pytest.approx(means[0], rel=1e-5)
    assert metrics["free_energy_gap"] == pytest.approx(means[0] - means[1], abs=1e-5)
    assert next(iter(metrics)) == "loss" and 0 < metrics["loss"] < 10
    assert torch.allclose(learner.visible_mean(), torch.from_numpy(train.feats[Partition(train, 2).part(0, 0)]).mean(0), atol=1e-6)


def test_a_bernoulli_rbm_starts_at_the_mean_of_its_data():
    rbm = Rbm("bern", VISIBLE, HIDDEN)
    mean = torch.tensor([0.0, 1.0, 0.25, 2e-4])
    rbm.init(0.1, -2.0, 4.0, torch.Generator().manual_seed(1), mean)
    reconstruction = torch.empty(1, VISIBLE)
    rbm.reconstruct(torch.zeros(1, HIDDEN), reconstruction)
    assert reconstruction[0].tolist() == pytest.approx([1e-4, 1 - 1e-4, 0.25, 2e-4], rel=1e-5)


def test_a_gaussian_rbm_starts_with_sparse_hidden_units():
    rbm = Rbm("gauss", 20, 1000)
    rbm.init(0.1, -2.0, 4.0, torch.Generator().manual_seed(1))
    weight, bias = rbm.units.weight, rbm.units.bias
    assert weight.std().item() == pytest.approx(0.1, rel=0.02) and abs(weight.mean()) < 0.005
    assert bias.mean().item() == pytest.approx(-2.0, abs=0.1) and bias.std().item() == pytest.approx(4 / 12**0.5, rel=0.05)
    assert -4.0 <= bias.min() < -3.9 and -0.1 < bias.max() <= 0.0 and not rbm.units.visible_bias.any()


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("units", ["gauss", "bern"])
def test_nnet1_file_round_trip(units, binary, tmp_path):
    rbm = make_rbm(units, torch.float32)
    rbm.to_nnet1().write(tmp_path / "1.rbm", binary)
    (component,) = Nnet1.read(tmp_path / "1.rbm").components
    assert (component.marker, component.output_dim, component.input_dim) == ("Rbm", HIDDEN, VISIBLE)
    assert component.options == {"vis_type": units, "hid_type": "bern"}
    for name, ours in (("vis_hid", rbm.units.weight), ("vis_bias", rbm.units.visible_bias), ("hid_bias", rbm.units.bias)):
        assert torch.allclose(torch.from_numpy(component.arrays[name]), ours, rtol=0 if binary else 1e-5)


def test_data_are_the_activations_of_the_layers_below():
    below = Model([Affine(6, VISIBLE), Sigmoid(VISIBLE)], dtype=torch.float64)
    below.params.normal_(generator=torch.Generator().manual_seed(5))
    inputs = torch.randn(FRAMES, 6, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    through, direct = (torch.zeros_like(make_rbm("bern").params) for _ in range(2))
    totals = torch.zeros(5, dtype=torch.float64)
    minibatch = Minibatch(inputs, torch.zeros(FRAMES, dtype=torch.int32), 0, False, 99)
    ContrastiveDivergence(make_rbm("bern"), below).gradient(minibatch, through, 0.0, totals)
    minibatch.inputs = torch.sigmoid(inputs @ below.components[0].weight.t() + below.components[0].bias)
    ContrastiveDivergence(make_rbm("bern")).gradient(minibatch, direct, 0.0, totals)
    assert torch.allclose(through, direct, atol=1e-12)


def log_likelihood(rbm: Rbm, patterns: torch.Tensor) -> float:
    """Mean log-probability of the patterns, normalised over all visible states."""
    states = torch.tensor(list(itertools.product([0.0, 1.0], repeat=rbm.input_dim)))
    log_z = torch.logsumexp(-rbm.free_energy(states, rbm.forward(states)), 0)
    return (-rbm.free_energy(patterns, rbm.forward(patterns)) - log_z).mean().item()


def test_an_rbm_learns_a_distribution():
    """Bars and stripes on 2 x 3 pixels (MacKay, 2003): the likelihood rises from a uniform one to near the best, the error falls."""
    bars = [torch.tensor(bits, dtype=torch.float32).repeat(2, 1) for bits in itertools.product([0, 1], repeat=3)]
    stripes = [torch.tensor(bits, dtype=torch.float32)[:, None].repeat(1, 3) for bits in itertools.product([0, 1], repeat=2)]
    patterns = torch.unique(torch.stack([*bars, *stripes]).flatten(1), dim=0)
    rbm = Rbm("bern", 6, 12)
    rbm.init(0.1, 0.0, 0.0, torch.Generator().manual_seed(1), patterns.mean(0))
    learner = ContrastiveDivergence(rbm)
    optimizer = Cd(learner, CdOptions(momentum_step_period=1000, l2_penalty=0.0))
    assert log_likelihood(rbm, patterns) < -0.95 * math.log(64)
    inputs, errors = patterns.repeat(10, 1), []
    for step in range(600):
        totals = torch.zeros(5, dtype=torch.float64)
        optimizer.local_step(Minibatch(inputs, torch.zeros(len(inputs), dtype=torch.int32), step, False, seed=step), 1.0, totals)
        errors.append(learner.metrics(totals.tolist())["loss"])
    assert sum(errors[-50:]) < 0.05 * sum(errors[:50])
    assert log_likelihood(rbm, patterns) > -1.25 * math.log(len(patterns))


def test_other_units_are_refused():
    with pytest.raises(ValueError, match="gauss or bern"):
        Rbm("softmax", VISIBLE, HIDDEN)
