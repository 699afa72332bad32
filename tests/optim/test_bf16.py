"""Steps in bfloat16: near to those in float32 for every network, objective and optimiser; the parameters stay float32."""

from __future__ import annotations

import pytest
import torch

from pykaldist.errors import UserError
from pykaldist.frames.sampler import Partition, Sampler
from pykaldist.frames.sequences import SequenceSampler
from pykaldist.nnet.cnn import CnnOptions
from pykaldist.nnet.components import Affine, Sigmoid
from pykaldist.nnet.dnn import DnnOptions
from pykaldist.nnet.kinds import init_nnet, make_nnet
from pykaldist.nnet.learner import Supervised
from pykaldist.nnet.lstm import BlstmOptions, LstmOptions
from pykaldist.nnet.model import Model
from pykaldist.nnet.objectives import OBJECTIVES
from pykaldist.nnet.rbm import ContrastiveDivergence, Rbm
from pykaldist.optim.adam import Adam
from pykaldist.optim.cd import Cd, CdOptions
from pykaldist.optim.registry import FRAME_OPTIMIZERS, make_optimizer

BF16 = torch.bfloat16
NETWORKS = {
    "dnn": DnnOptions(2, 48, "sigmoid"), "relu": DnnOptions(2, 48, "relu"), "tanh, dropout, bottleneck": DnnOptions(
        2, 48, "tanh", dropout=0.25, bottleneck_dim=16), "cnn": CnnOptions("2x4x8/2", 1, hid_layers=1, hid_dim=32)}
SPLICE = [-1, 0, 1]


@pytest.fixture
def minibatches(make_store):
    """`minibatches(size)`: of an epoch over 700 frames of dimension 16, twelve pdfs, with posteriors and target features."""
    store = make_store([400, 300], dim=16, num_pdfs=12, extras=("target_feats",))

    def make(size=100):
        sampler = Sampler(store, Partition(store), 0, size, SPLICE, torch.zeros(48), torch.ones(48), 0, torch.device("cpu"))
        return sampler.epoch(0)

    return make


#: The optimisers whose moves are as large as the gradients. Others also follow the signs of gradients that are nearly rounding.
BY_SIZE = [name for name, (_, kind) in FRAME_OPTIMIZERS.items() if not issubclass(kind, Adam)]


def steps(minibatches, network, objective, optimizer, compute=None, rate=1e-3, **options):
    """(parameters before, after an epoch, totals)."""
    criterion = OBJECTIVES[objective]()
    model = make_nnet(NETWORKS[network], 48, 3 if objective == "mse" else 12, len(SPLICE), "cpu", torch.float32, compute)
    init_nnet(model, NETWORKS[network], torch.Generator().manual_seed(0))
    own = make_optimizer(optimizer, Supervised(model, criterion), FRAME_OPTIMIZERS[optimizer][0](**options))
    before, totals = model.params.clone(), torch.zeros(criterion.num_totals, dtype=torch.float64)
    for minibatch in minibatches():
        own.local_step(minibatch, rate, totals)
    assert model.params.dtype == torch.float32
    return before, model.params, totals


def distance(one, other):
    return ((one - other).norm() / other.norm()).item()


@pytest.mark.parametrize("options", [{}, {"momentum": 0.5, "l2_penalty": 1e-3}], ids=["fused", "with velocity"])
@pytest.mark.parametrize("optimizer", BY_SIZE)
@pytest.mark.parametrize("objective", ["xent", "mse"])
@pytest.mark.parametrize("network", NETWORKS)
def test_what_an_epoch_changes_is_that_of_float32(minibatches, network, objective, optimizer, options):
    """Within bfloat16's rounding, 2^-8 of each factor, which adds up over layers and steps."""
    before, expected, totals = steps(minibatches, network, objective, optimizer, **options)
    same, found, ours = steps(minibatches, network, objective, optimizer, BF16, **options)
    assert torch.equal(before, same)
    assert 0.0 < distance(found - before, expected - before) < 0.05
    assert ours[0].item() == pytest.approx(totals[0].item(), rel=0.02) and ours[-1] == totals[-1]


@pytest.mark.parametrize("optimizer", sorted(set(FRAME_OPTIMIZERS) - set(BY_SIZE)))
@pytest.mark.parametrize("network", NETWORKS)
def test_others_train_as_well_as_in_float32(minibatches, network, optimizer):
    _, _, expected = steps(minibatches, network, "xent", optimizer)
    _, _, found = steps(minibatches, network, "xent", optimizer, BF16)
    assert found[0].item() == pytest.approx(expected[0].item(), rel=0.02) and found[-1] == expected[-1]


@pytest.mark.parametrize("optimizer", BY_SIZE)
def test_steps_too_small_for_bfloat16_are_made(minibatches, optimizer):
    """Of most weights bfloat16 shows no change, and yet they have made theirs."""
    before, found, _ = steps(minibatches, "dnn", "xent", optimizer, BF16, rate=1e-6)
    _, expected, _ = steps(minibatches, "dnn", "xent", optimizer, rate=1e-6)
    assert (before != 0.0).float().mean() > 0.9 and (before.bfloat16() == found.bfloat16()).float().mean() > 0.9
    assert distance(found - before, expected - before) < 0.05


@pytest.mark.parametrize("options", [
    LstmOptions(hid_layers=2, hid_dim=24, num_streams=4, chunk="10"),
    LstmOptions(hid_layers=1, hid_dim=24, projection_dim=8, peepholes=True, dropout=0.2, num_streams=4, chunk="10"),
    BlstmOptions(hid_layers=2, hid_dim=24, num_streams=4, chunk="2-10+2"),
    BlstmOptions(hid_layers=1, hid_dim=24, projection_dim=8, peepholes=True, num_streams=4, chunk="2-10+2")])
@pytest.mark.parametrize("optimizer", BY_SIZE)
def test_recurrent_networks(make_store, options, optimizer):
    store, found = make_store([60, 50, 70, 45, 66], dim=16, num_pdfs=12), []
    for compute in (None, BF16):
        sampler = SequenceSampler(store, Partition(store, level="utterance"), 0, options, [0], torch.zeros(16), torch.ones(16), 0,
                                  torch.device("cpu"))
        model = make_nnet(options, 16, 12, 1, "cpu", torch.float32, compute)
        init_nnet(model, options, torch.Generator().manual_seed(0))
        own = make_optimizer(optimizer, Supervised(model, OBJECTIVES["xent"]()), FRAME_OPTIMIZERS[optimizer][0]())
        before, totals = model.params.clone(), torch.zeros(3, dtype=torch.float64)
        for minibatch in sampler.epoch(0):
            own.local_step(minibatch, 1e-3, totals)
        assert model.params.dtype == torch.float32
        found.append((model.params - before, totals))
    assert 0.0 < distance(found[1][0], found[0][0]) < 0.05
    assert found[1][1][0].item() == pytest.approx(found[0][1][0].item(), rel=0.01) and found[1][1][2] == found[0][1][2]


def pretrained(minibatches, units, compute, below=None):
    rbm = Rbm(units, 48, 40, "cpu", torch.float32, compute)
    rbm.init(0.1, -2.0, 4.0, torch.Generator().manual_seed(0))
    learner = ContrastiveDivergence(rbm, below)
    cd, before, totals = Cd(learner, CdOptions()), rbm.params.clone(), torch.zeros(5, dtype=torch.float64)
    for minibatch in minibatches():
        cd.local_step(minibatch, 0.01, totals)
    held_out = torch.zeros(5, dtype=torch.float64)
    for minibatch in minibatches():
        learner.score(minibatch, held_out)
    assert rbm.params.dtype == torch.float32
    return before, rbm.params, totals, held_out


@pytest.mark.parametrize(("units", "stacked"), [("gauss", False), ("bern", True)])
def test_contrastive_divergence(minibatches, units, stacked):
    """States are drawn by the same random numbers, and differ where a probability's rounding passes one."""

    def below(compute):
        model = Model([Affine(48, 48), Sigmoid(48)], "cpu", torch.float32, compute)
        model.params.normal_(0.0, 0.3, generator=torch.Generator().manual_seed(1))
        return model if stacked else None

    before, expected, totals, held_out = pretrained(minibatches, units, None, below(None))
    _, found, ours, scores = pretrained(minibatches, units, BF16, below(BF16))
    assert 0.0 < distance(found - before, expected - before) < 0.1
    torch.testing.assert_close(ours, totals, rtol=0.02, atol=0.0)
    torch.testing.assert_close(scores, held_out, rtol=0.02, atol=0.0)


def test_the_type_of_a_model_can_be_changed(minibatches):
    model = make_nnet(NETWORKS["dnn"], 48, 12, len(SPLICE), "cpu", torch.float32, BF16)
    init_nnet(model, NETWORKS["dnn"], torch.Generator().manual_seed(0))
    plain = make_nnet(NETWORKS["dnn"], 48, 12, len(SPLICE))
    plain.params.copy_(model.params)
    inputs = next(iter(minibatches())).inputs
    assert not torch.equal(model.forward(inputs), plain.forward(inputs))
    narrow = model.forward(inputs).clone()
    model.compute_in(torch.float32)
    assert torch.equal(model.forward(inputs), plain.forward(inputs)) and model.components[0].weight.dtype == torch.float32
    model.compute_in(BF16)
    assert torch.equal(model.forward(inputs), narrow)


def test_batch_normalisation_is_refused():
    options = CnnOptions("2x4x8/2", 1, hid_layers=1, hid_dim=32, batch_norm=True)
    with pytest.raises(UserError, match="--dtype bf16 is not for batch normalisation, whose sums need more digits"):
        make_nnet(options, 48, 12, len(SPLICE), "cpu", torch.float32, BF16)
