"""NG-SGD: its gradient against the definition, its bounds, its options, and its state."""

from __future__ import annotations

import itertools

import pytest
import torch

from pykaldist.errors import UserError
from pykaldist.frames.sampler import Minibatch
from pykaldist.nnet.dnn import DnnOptions, make_dnn
from pykaldist.nnet.init import init_dnn
from pykaldist.nnet.learner import Supervised
from pykaldist.nnet.model import Model
from pykaldist.nnet.objective import CrossEntropy
from pykaldist.optim.natural_gradient import OnlineNaturalGradient
from pykaldist.optim.ngsgd import DelayedUpdates, NgSgd, NgSgdOptions

ROWS, RATE = 24, 0.05


def make_learner(layers=2, **shape):
    shape = DnnOptions(layers, 10, "tanh", **shape)
    model = make_dnn(shape, 7, 5, dtype=torch.float64)
    init_dnn(model, shape, torch.Generator().manual_seed(1))
    return Supervised(model, CrossEntropy())


def minibatches(count, seed=3):
    generator = torch.Generator().manual_seed(seed)
    return [Minibatch(torch.randn(ROWS, 7, generator=generator, dtype=torch.float64),
                      torch.randint(0, 5, (ROWS,), generator=generator).int(), i, False) for i in range(count)]


def reference_steps(options, batches):
    """Parameters after NG-SGD on two affine maps written out: autograd for the derivatives, [x, 1] as one matrix, products of rows."""
    learner = make_learner(1)
    weights = [v.clone() for component in learner.model.views(learner.model.params) for v in component]
    sides = {}
    velocity = [torch.zeros_like(w) for w in weights]
    for minibatch in batches:
        x, t = minibatch.inputs, minibatch.targets.long()
        for w in weights:
            w.requires_grad_()
        with torch.enable_grad():
            a = x @ weights[0].t() + weights[1]
            h = torch.tanh(a)
            z = h @ weights[2].t() + weights[3]
            loss = torch.nn.functional.cross_entropy(z, t, reduction="sum")
            derivatives = torch.autograd.grad(loss, (a, z))
        weights = [w.detach() for w in weights]
        norms = []
        for i, (inputs, dy) in enumerate(((x, derivatives[0]), (h.detach(), derivatives[1]))):
            rows = torch.cat([inputs, torch.ones(len(x), 1, dtype=torch.float64)], 1)
            hats, scale = [], 1.0
            for name, matrix, rank in (("in", rows, options.rank_in), ("out", dy, options.rank_out)):
                if (i, name) not in sides:
                    sides[i, name] = OnlineNaturalGradient(matrix.shape[1], rank, dtype=torch.float64,
                                                            update_period=options.update_period or 4)
                    sides[i, name].start(matrix)
                side = sides[i, name]
                hat = matrix.clone()
                _, gamma = side.precondition(hat)
                if side.collecting:
                    side.finish(side.update())
                side.advance()
                hats.append(hat)
                scale *= gamma
            if options.max_change_per_sample:
                total = sum(one.norm().item() * other.norm().item() for one, other in zip(*hats, strict=True))
                scale *= min(1.0, options.max_change_per_sample * len(x) / (RATE * scale * total))
            gradient = scale * hats[1].t() @ hats[0]
            for w, g in ((2 * i, gradient[:, :-1]), (2 * i + 1, gradient[:, -1])):
                velocity[w] = options.momentum * velocity[w] + g
            norms.append(RATE * torch.cat([velocity[2 * i].flatten(), velocity[2 * i + 1]]).norm().item())
        factors = [min(1.0, options.max_change / n) if options.max_change else 1.0 for n in norms]
        together = sum((f * n) ** 2 for f, n in zip(factors, norms, strict=True)) ** 0.5
        bound = min(1.0, options.max_param_change / together) if options.max_param_change else 1.0
        for w in range(4):
            if w % 2 == 0:
                weights[w] = weights[w] * (1 - RATE * options.l2_penalty * ROWS)
            weights[w] = weights[w] - factors[w // 2] * bound * RATE * velocity[w]
    return torch.cat([w.flatten() for w in weights])


@pytest.mark.parametrize("options", [
    NgSgdOptions(rank_in=3, rank_out=2, max_change_per_sample=0.0),
    NgSgdOptions(rank_in=3, rank_out=2, max_change_per_sample=0.01, momentum=0.6),
    NgSgdOptions(rank_in=7, rank_out=4, update_period=1, max_change=0.3, max_param_change=0.4, l2_penalty=0.01),
    NgSgdOptions(rank_in=1, rank_out=1, max_change=0.2, momentum=0.9)])
def test_equals_the_definition(options):
    learner, totals = make_learner(1), torch.zeros(3, dtype=torch.float64)
    optimizer, batches = NgSgd(learner, options), minibatches(20)
    for minibatch in batches:
        optimizer.local_step(minibatch, RATE, totals)
    assert torch.allclose(learner.model.params, reference_steps(options, batches), atol=1e-8)


@pytest.mark.parametrize("options", [NgSgdOptions(), NgSgdOptions(momentum=0.7, max_change=0.05), NgSgdOptions(l2_penalty=0.1)])
def test_gradients_shipped_equal_local_steps(options):
    one, other = NgSgd(make_learner(), options), NgSgd(make_learner(), options)
    totals, gradient = torch.zeros(3, dtype=torch.float64), torch.zeros_like(one.velocity)
    for minibatch in minibatches(15):
        one.local_step(minibatch, RATE, totals)
        other.set_rate(RATE)  # which max-change per sample asks for
        other.gradient(minibatch, gradient, totals)
        other.apply(gradient, RATE, ROWS)
    assert torch.allclose(one.model.params, other.model.params, atol=1e-12)


@pytest.mark.parametrize("shape", [{}, {"dropout": 0.3}, {"bottleneck_dim": 4}])
def test_inputs_written_over_and_inputs_copied_give_the_same(shape, monkeypatch):
    def trained():
        optimizer, totals = NgSgd(make_learner(3, **shape), NgSgdOptions()), torch.zeros(3, dtype=torch.float64)
        for minibatch in minibatches(14):
            optimizer.local_step(minibatch, RATE, totals)
        return optimizer.model.params, totals

    (params, totals), found = trained(), []
    monkeypatch.setattr(Model, "_later", lambda self, rule, *_: found.append(rule) or rule)
    assert all(torch.allclose(*pair, rtol=1e-9) for pair in zip((params, totals), trained(), strict=True)) and found


def test_what_was_asked_for_is_what_runs():
    optimizer = NgSgd(make_learner(), NgSgdOptions(rank_in=4, rank_out=3, update_period=7, num_samples_history=123.0, alpha=2.5))
    for side in itertools.chain.from_iterable((s.input, s.output) for s in optimizer.states):
        assert (side.update_period, side.num_samples_history, side.alpha) == (7, 123.0, 2.5)
    assert [(s.input.rank, s.output.rank) for s in optimizer.states] == [(4, 3)] * 3
    defaults = NgSgd(make_learner(), NgSgdOptions())
    assert [(s.input.rank, s.output.rank) for s in defaults.states] == [(4, 5), (5, 5), (5, 3)]  # half of 7 + 1, 10 + 1, 5 + 1
    narrow = Supervised(make_dnn(DnnOptions(1, 10), 7, 5, compute=torch.bfloat16), CrossEntropy())
    periods = [NgSgd(learner, NgSgdOptions()).states[0].input.update_period for learner in (make_learner(), narrow)]
    on_device = Supervised(make_dnn(DnnOptions(1, 10), 7, 5, device="meta"), CrossEntropy())
    assert NgSgd(on_device, NgSgdOptions()).states[0].input.update_period == 32
    assert periods == [4, 32] and NgSgd(narrow, NgSgdOptions(update_period=4)).states[0].input.update_period == 4


def test_the_state_is_whole():
    """A fresh optimiser with another's state goes on as it would have: Fisher models and the place in the period included."""
    totals, batches = torch.zeros(3, dtype=torch.float64), minibatches(40)
    whole = NgSgd(make_learner(), NgSgdOptions(momentum=0.5))
    for cut in (1, 5, 13, 16):
        other = NgSgd(make_learner(), NgSgdOptions(momentum=0.5))
        for minibatch in batches[:cut]:
            whole.local_step(minibatch, RATE, totals)
        other.load_state_dict(whole.state_dict())
        other.model.params.copy_(whole.model.params)
        for minibatch in batches[cut : cut + 9]:
            whole.local_step(minibatch, RATE, totals)
            other.local_step(minibatch, RATE, totals)
        assert torch.equal(whole.model.params, other.model.params)


@pytest.mark.parametrize("bad", [{"rank_in": 0}, {"update_period": 0}, {"alpha": -1.0}, {"num_samples_history": 0.0},
                                 {"max_change_per_sample": -1.0}, {"momentum": 1.0}])
def test_nonsense_is_refused(bad):
    with pytest.raises(UserError, match=next(iter(bad)).replace("_", "-")):
        NgSgdOptions(**bad)


def delayed(options):
    """An optimiser whose Fisher models are updated as on a GPU."""
    optimizer = NgSgd(make_learner(), options)
    optimizer.delayed = DelayedUpdates([side for state in optimizer.states for side in (state.input, state.output)])
    return optimizer


def test_an_update_is_never_overtaken_by_the_next_statistics():
    """With updates at every minibatch, the delayed ones arrive just in time: the same run."""
    options, totals = NgSgdOptions(update_period=1), torch.zeros(3).double()
    one, other = NgSgd(make_learner(), options), delayed(options)
    for minibatch in minibatches(30):
        one.local_step(minibatch, RATE, totals)
        other.local_step(minibatch, RATE, totals)
    assert torch.equal(one.model.params, other.model.params)


def test_delayed_updates_are_repeatable_and_part_of_the_state():
    options, batches, totals = NgSgdOptions(update_period=4), minibatches(60), torch.zeros(3).double()
    plain, whole, again = NgSgd(make_learner(), options), delayed(options), delayed(options)
    for minibatch in batches:
        for optimizer in (plain, whole, again):
            optimizer.local_step(minibatch, RATE, totals)
    assert torch.equal(whole.model.params, again.model.params) and not torch.equal(whole.model.params, plain.model.params)
    assert torch.allclose(whole.model.params, plain.model.params, rtol=0.05, atol=0.02)
    for cut in range(13, 20):
        one, other = delayed(options), delayed(options)
        for minibatch in batches[:cut]:
            one.local_step(minibatch, RATE, totals)
        other.load_state_dict(one.state_dict())
        other.model.params.copy_(one.model.params)
        for minibatch in batches[cut : cut + 9]:
            one.local_step(minibatch, RATE, totals)
            other.local_step(minibatch, RATE, totals)
        assert torch.equal(one.model.params, other.model.params), cut
