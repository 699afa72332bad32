"""SGD against torch's own, penalties against their definitions, and the two ways to make a step against each other."""

from __future__ import annotations

import pytest
import torch

from pykaldist.errors import UserError
from pykaldist.frames.sampler import Minibatch
from pykaldist.nnet.dnn import DnnOptions, make_dnn
from pykaldist.nnet.init import init_dnn
from pykaldist.nnet.learner import Supervised
from pykaldist.nnet.objective import CrossEntropy
from pykaldist.optim.sgd import Sgd, SgdOptions

RATE, FRAMES = 0.01, 8


def learner_and_minibatches(steps):
    shape = DnnOptions(1, 6, "tanh")
    model = make_dnn(shape, 5, 4, dtype=torch.float64)
    init_dnn(model, shape, torch.Generator().manual_seed(1))
    generator = torch.Generator().manual_seed(3)
    minibatches = [Minibatch(torch.randn(FRAMES, 5, generator=generator, dtype=torch.float64),
                             torch.randint(0, 4, (FRAMES,), generator=generator).int(), i, False) for i in range(steps)]
    return Supervised(model, CrossEntropy()), minibatches


def run(options, steps, shipped):
    learner, minibatches = learner_and_minibatches(steps)
    model, totals = learner.model, torch.zeros(3, dtype=torch.float64)
    optimizer = Sgd(learner, options)
    start = model.params + torch.linspace(-1, 1, len(model.params), dtype=model.params.dtype)
    if options.l2_to_start:
        optimizer.pull_to(start)
    reference = model.params.clone().requires_grad_()
    torch_sgd = torch.optim.SGD([reference], lr=RATE, momentum=options.momentum)
    weights = torch.cat([torch.full((v.numel(),), float(v.dim() > 1), dtype=torch.float64) for c in model.views(model.params) for v in c])
    for minibatch in minibatches:
        gradient = torch.empty_like(model.params)
        optimizer.gradient(minibatch, gradient, totals)
        reference.grad = gradient.clone()
        if shipped:
            optimizer.apply(gradient, RATE, FRAMES)
        else:
            optimizer.local_step(minibatch, RATE, totals)
        with torch.no_grad():
            reference.mul_(1 - weights * RATE * options.l2_penalty * FRAMES)
            reference.add_(weights * RATE * options.l2_to_start * FRAMES * (start - reference))
        torch_sgd.step()
        with torch.no_grad():
            if options.l1_penalty:
                shrunk = reference.sign() * (reference.abs() - RATE * options.l1_penalty * FRAMES).clamp_min(0)
                reference.copy_(torch.where(weights > 0, shrunk, reference))
            for weight in (v for c in model.views(reference) for v in c if v.dim() > 1 and options.max_norm):
                for row in weight:
                    row.mul_(min(1.0, options.max_norm / row.norm().item()))
    return model.params, reference.detach()


@pytest.mark.parametrize("shipped", [False, True])
@pytest.mark.parametrize("options", [SgdOptions(), SgdOptions(momentum=0.9), SgdOptions(momentum=0.5, l2_penalty=0.03),
                                     SgdOptions(l2_to_start=0.04), SgdOptions(momentum=0.5, l2_penalty=0.02, l2_to_start=0.04),
                                     SgdOptions(l1_penalty=0.05), SgdOptions(momentum=0.3, max_norm=1.1)])
def test_equals_torch_sgd(options, shipped):
    ours, theirs = run(options, 20, shipped)
    assert torch.allclose(ours, theirs, atol=1e-12)


def test_a_learning_rate_coefficient_is_a_rate_of_its_own():
    (one, minibatches), (other, _) = learner_and_minibatches(1), learner_and_minibatches(1)
    before = one.model.params.clone()
    one.model.maps[0].learn_rate_coef, one.model.maps[0].bias_learn_rate_coef = 0.5, 2.0
    totals = torch.zeros(3, dtype=torch.float64)
    for learner in (one, other):
        Sgd(learner, SgdOptions()).local_step(minibatches[0], RATE, totals)
    moved, plain = (learner.model.views(learner.model.params - before) for learner in (one, other))
    for component, factors in ((0, (0.5, 2.0)), (2, (1.0, 1.0))):
        for view, reference, factor in zip(moved[component], plain[component], factors, strict=True):
            assert torch.allclose(view, factor * reference, atol=1e-15)


@pytest.mark.parametrize("bad", [{"momentum": 1.0}, {"momentum": -0.1}, {"l2_penalty": -1.0}, {"l2_to_start": -1.0},
                                 {"l1_penalty": -1.0}, {"max_norm": -1.0}])
def test_nonsense_is_refused(bad):
    with pytest.raises(UserError):
        SgdOptions(**bad)


@pytest.mark.parametrize("shipped", [False, True])
def test_a_bound_on_the_change_clips_the_gradient_as_torch_does(shipped):
    """Without momentum, torch's clip_grad_norm_ with the bound over the rate; max-change likewise, map by map."""
    for name in ("max_param_change", "max_change"):
        learner, minibatches = learner_and_minibatches(5)
        model, totals = learner.model, torch.zeros(3, dtype=torch.float64)
        optimizer = Sgd(learner, SgdOptions(**{name: 0.05}))
        parts = model.map_slices() if name == "max_change" else [slice(0, len(model.params))]
        clipped = 0
        for minibatch in minibatches:
            gradient = torch.empty_like(model.params)
            optimizer.gradient(minibatch, gradient, totals)
            expected = model.params.clone()
            for part in parts:
                own = torch.zeros_like(gradient[part]).requires_grad_()
                own.grad = gradient[part].clone()
                clipped += torch.nn.utils.clip_grad_norm_([own], 0.05 / RATE).item() > 0.05 / RATE
                expected[part] -= RATE * own.grad
            if shipped:
                optimizer.apply(gradient, RATE, FRAMES)
            else:
                optimizer.local_step(minibatch, RATE, totals)
            assert torch.allclose(model.params, expected, atol=1e-6)
        assert 0 < clipped < 5 * len(parts)


class Halving(Sgd):
    """Another update: half the step."""

    def _update(self, gradient, frames):
        super()._update(0.5 * gradient, frames)


class Decaying(Sgd):
    """Another part of the update: all parameters shrink."""

    def _decay(self, frames):
        self.model.params.mul_(0.9)


class Fused(Halving):
    """Says, against better knowledge, that nothing is lost in a fused step."""

    fused_step = True


@pytest.mark.parametrize("optimizer", [Halving, Decaying])
def test_an_update_that_is_overridden_is_made_on_both_paths(optimizer):
    """A step of `local_step` equals `gradient` and `apply`, also where the base class would make its update inside the products."""
    found = []
    for shipped in (False, True):
        learner, (minibatch,) = learner_and_minibatches(1)
        own, totals = optimizer(learner, SgdOptions()), torch.zeros(3, dtype=torch.float64)
        assert not own.goes_map_by_map
        if shipped:
            gradient = torch.empty_like(learner.model.params)
            own.gradient(minibatch, gradient, totals)
            own.apply(gradient, RATE, FRAMES)
        else:
            own.local_step(minibatch, RATE, totals)
        found.append(learner.model.params.clone())
    torch.testing.assert_close(*found, rtol=0, atol=1e-12)
    learner, (minibatch,) = learner_and_minibatches(1)
    Sgd(learner, SgdOptions()).local_step(minibatch, RATE, torch.zeros(3, dtype=torch.float64))
    assert not torch.allclose(found[0], learner.model.params, rtol=0, atol=1e-6), "the overridden update was not made"


def test_the_fused_step_is_for_classes_that_say_so():
    learner, _ = learner_and_minibatches(1)
    assert Sgd(learner, SgdOptions()).goes_map_by_map and Fused(learner, SgdOptions()).goes_map_by_map
    assert not Sgd(learner, SgdOptions(momentum=0.5)).goes_map_by_map
