"""Adam against torch's own, and Muon against singular value decompositions; both go on from a state, and refuse what has no meaning."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from pykaldist.errors import UserError
from pykaldist.frames.sampler import Minibatch
from pykaldist.nnet.dnn import DnnOptions, make_dnn
from pykaldist.nnet.init import init_dnn
from pykaldist.nnet.learner import Supervised
from pykaldist.nnet.objective import CrossEntropy
from pykaldist.optim.adam import Adam, AdamOptions
from pykaldist.optim.muon import Muon, MuonOptions
from pykaldist.optim.optimizer import Optimizer

RATE, FRAMES, STEPS = 0.01, 8, 15


def a_learner() -> Supervised:
    shape = DnnOptions(2, 6, "tanh")
    model = make_dnn(shape, 5, 4, dtype=torch.float64)
    init_dnn(model, shape, torch.Generator().manual_seed(1))
    return Supervised(model, CrossEntropy())


def minibatches(count: int = STEPS) -> list[Minibatch]:
    generator = torch.Generator().manual_seed(3)
    return [Minibatch(torch.randn(FRAMES, 5, generator=generator, dtype=torch.float64),
                      torch.randint(0, 4, (FRAMES,), generator=generator).int(), i, False) for i in range(count)]


def train(optimizer: Optimizer, those: list[Minibatch], shipped: bool = False) -> list[tuple[Tensor, Tensor]]:
    """Train; returns (parameters before, summed gradient) of each step."""
    totals, seen = torch.zeros(3, dtype=torch.float64), []
    for minibatch in those:
        gradient = torch.empty_like(optimizer.model.params)
        optimizer.gradient(minibatch, gradient, totals)
        seen.append((optimizer.model.params.clone(), gradient.clone()))
        if shipped:
            optimizer.apply(gradient, RATE, FRAMES)
        else:
            optimizer.local_step(minibatch, RATE, totals)
    return seen


@pytest.mark.parametrize("shipped", [False, True])
@pytest.mark.parametrize("options", [{}, {"beta1": 0.5, "beta2": 0.9, "epsilon": 0.1}, {"l2_penalty": 0.2}])
def test_adam_equals_torch(options: dict[str, float], shipped: bool) -> None:
    own = Adam(a_learner(), AdamOptions(**options))
    views = [view for views in own.model.views(own.model.params) for view in views]
    weights, biases = (torch.cat([torch.full((view.numel(),), float((view.dim() > 1) == flat)) for view in views]).bool()
                       for flat in (True, False))
    parts = [own.model.params[which].clone().requires_grad_() for which in (weights, biases)]
    # torch's weight decay comes before the step and is a rate an update; ours is one a frame
    theirs = torch.optim.AdamW([{"params": parts[:1], "weight_decay": options.get("l2_penalty", 0.0) * FRAMES},
                                {"params": parts[1:], "weight_decay": 0.0}], RATE, (own.options.beta1, own.options.beta2),
                               own.options.epsilon)
    for _, gradient in train(own, minibatches(), shipped):
        for part, which in zip(parts, (weights, biases), strict=True):
            part.grad = gradient[which] / FRAMES
        theirs.step()
    for part, which in zip(parts, (weights, biases), strict=True):
        assert torch.allclose(own.model.params[which], part.detach(), atol=1e-12)


def muon_by_decompositions(those: list[tuple[Tensor, Tensor]], shapes: list[tuple[slice, tuple[int, int]]],
                           momentum: float) -> list[np.ndarray]:
    """The moves of hidden weights, from their gradients."""
    moves = []
    for part, shape in shapes:
        velocity, move = np.zeros(shape), np.zeros(shape)
        for _, gradient in those:
            mean = gradient[part].view(shape).numpy() / FRAMES
            velocity = momentum * velocity + mean
            u, s, v = np.linalg.svd(mean + momentum * velocity, full_matrices=False)
            s = s / np.linalg.norm(s)
            for _ in range(5):
                s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
            move = move - RATE * 0.2 * np.sqrt(max(shape)) * (u * s) @ v
        moves.append(move)
    return moves


@pytest.mark.parametrize("momentum", [0.95, 0.0])
def test_muon_moves_hidden_weights_alike_in_all_directions_and_the_rest_as_adam(momentum: float) -> None:
    muon = Muon(a_learner(), MuonOptions(muon_momentum=momentum))
    before = muon.model.params.clone()
    seen = train(muon, minibatches())
    hidden = [(slice(part.start, part.start + map.output_dim * map.input_dim), (map.output_dim, map.input_dim))
              for map, part in zip(muon.model.maps, muon.model.map_slices(), strict=True)][:2]
    assert [shape for _, shape in hidden] == [(6, 5), (6, 6)]
    for (part, shape), move in zip(hidden, muon_by_decompositions(seen, hidden, momentum), strict=True):
        assert np.allclose((muon.model.params - before)[part].view(shape), move, atol=1e-9)
    rest = torch.ones(len(before), dtype=torch.bool)
    for part, _ in hidden:
        rest[part] = False
    adam = before.clone().requires_grad_()
    theirs = torch.optim.Adam([adam], RATE)
    for _, gradient in seen:
        adam.grad = gradient / FRAMES
        theirs.step()
    assert torch.allclose(muon.model.params[rest], adam.detach()[rest], atol=1e-12)


@pytest.mark.parametrize(("kind", "options"), [(Adam, AdamOptions()), (Muon, MuonOptions())])
def test_a_run_that_goes_on_from_a_state_is_the_run(kind: type[Optimizer], options: AdamOptions) -> None:
    whole, first, second = (kind(a_learner(), options) for _ in range(3))
    those = minibatches()
    train(whole, those)
    train(first, those[:7])
    second.load_state_dict(first.state_dict())
    second.model.params.copy_(first.model.params)
    train(second, those[7:])
    assert torch.equal(second.model.params, whole.model.params)


@pytest.mark.parametrize(("kind", "options"), [(Adam, AdamOptions()), (Muon, MuonOptions())])
def test_a_learning_rate_coefficient_is_a_rate_of_its_own(kind: type[Optimizer], options: AdamOptions) -> None:
    one, other = a_learner(), a_learner()
    before = one.model.params.clone()
    one.model.maps[0].learn_rate_coef, one.model.maps[0].bias_learn_rate_coef = 0.5, 2.0
    for learner in (one, other):
        train(kind(learner, options), minibatches(1))
    moved, plain = (learner.model.views(learner.model.params - before) for learner in (one, other))
    for component, factors in ((0, (0.5, 2.0)), (2, (1.0, 1.0))):
        for view, reference, factor in zip(moved[component], plain[component], factors, strict=True):
            assert torch.allclose(view, factor * reference, atol=1e-6)


@pytest.mark.parametrize(("kind", "options", "sentence"), [
    (AdamOptions, {"momentum": 0.9}, "--momentum 0.9 is for SGD and NG-SGD"),
    (AdamOptions, {"beta2": 1.0}, "--beta2 1.0 is outside"),
    (AdamOptions, {"epsilon": 0.0}, "--epsilon 0 is not positive"),
    (MuonOptions, {"muon_momentum": 1.0}, "--muon-momentum 1.0 is outside")])
def test_options_without_meaning_are_refused(kind: type[AdamOptions], options: dict[str, float], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        kind(**options)
