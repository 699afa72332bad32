"""The update of RBMs against its definition, the momentum's schedule, and the guard: what it does, and that nobody has to look."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from pykaldist.errors import UserError
from pykaldist.frames.sampler import Minibatch
from pykaldist.nnet.rbm import ContrastiveDivergence, Rbm
from pykaldist.optim.cd import Cd, CdOptions

RATE, FRAMES, VISIBLE, HIDDEN = 0.2, 8, 5, 4


def make_cd(units: str, options: CdOptions | None = None, stddev: float = 0.3) -> Cd:
    rbm = Rbm(units, VISIBLE, HIDDEN, dtype=torch.float64)
    rbm.init(stddev, 0.0, 0.0, torch.Generator().manual_seed(1))
    return Cd(ContrastiveDivergence(rbm), options or CdOptions(momentum_step_period=2 * FRAMES, momentum_steps=3))


def make_minibatches(count: int) -> list[Minibatch]:
    generator = torch.Generator().manual_seed(3)
    inputs = [torch.randn(FRAMES, VISIBLE, generator=generator, dtype=torch.float64) for _ in range(count)]
    return [Minibatch(x, torch.zeros(FRAMES, dtype=torch.int32), i, False, 100 + i) for i, x in enumerate(inputs)]


def totals() -> torch.Tensor:
    return torch.zeros(5, dtype=torch.float64)


@pytest.mark.parametrize("shipped", [False, True])
@pytest.mark.parametrize("units", ["gauss", "bern"])
def test_update_equals_its_definition(units, shipped):
    cd = make_cd(units)
    rbm = cd.learner.model
    weights = torch.zeros_like(rbm.params)
    rbm.views(weights)[0][0].fill_(1.0)
    params, velocity = rbm.params.clone(), torch.zeros_like(rbm.params)
    for step, minibatch in enumerate(make_minibatches(9)):
        gradient = torch.empty_like(params)
        cd.gradient(minibatch, gradient, totals())
        if shipped:
            cd.apply(gradient, RATE, FRAMES)
        else:
            cd.local_step(minibatch, RATE, totals())
        gradient[rbm.num_params :] = 0.0
        momentum = 0.5 + 0.4 * min(step // 2, 3) / 3
        velocity = momentum * velocity + RATE * (1 - momentum) * (gradient / FRAMES + 0.0002 * weights * params)
        params = params - velocity
        assert torch.allclose(rbm.params, params, atol=1e-13)
    assert cd.frames == 9 * FRAMES and cd.rate_factor == 1.0


@given(st.integers(0, 10**9), st.floats(0, 0.5), st.floats(0.5, 0.99), st.integers(1, 50), st.integers(1, 10**7))
@settings(max_examples=50)
def test_momentum_rises_in_equal_steps(frames, start, end, steps, period):
    cd = make_cd("bern", CdOptions(start, end, steps, period))
    cd.frames = frames
    assert cd.momentum() == pytest.approx(start + (end - start) * min(frames // period, steps) / steps)
    cd.frames += period
    assert cd.momentum() == pytest.approx(start + (end - start) * min(frames // period + 1, steps) / steps)


def test_a_blown_up_reconstruction_shrinks_the_rbm_instead():
    cd, (minibatch, *others) = make_cd("gauss"), make_minibatches(4)
    rbm = cd.learner.model
    cd.local_step(others[0], RATE, totals())
    assert cd.velocity.any() and cd.rate_factor == 1.0
    rbm.units.weight.mul_(1e4)
    before, gradient = rbm.params.clone(), torch.empty_like(rbm.params)
    cd.gradient(minibatch, gradient, totals())
    states = torch.empty(FRAMES, HIDDEN, dtype=torch.float64).uniform_(generator=torch.Generator().manual_seed(minibatch.seed))
    states.lt_(torch.sigmoid(rbm.forward(minibatch.inputs)))
    reconstruction = states @ rbm.units.weight + rbm.units.visible_bias
    ratio = (minibatch.inputs.std(correction=0) / reconstruction.std(correction=0)).item()
    assert ratio < 0.5
    cd.local_step(minibatch, RATE, totals())
    assert torch.allclose(rbm.params, ratio * before, rtol=1e-9) and not cd.velocity[: rbm.num_params].any()
    assert cd.rate_factor.item() == pytest.approx(0.9) and cd.frames == 2 * FRAMES
    # From then on the rate is 0.9 of what it was.
    params = rbm.params.clone()
    rbm.params.mul_(1e-3)
    params.mul_(1e-3)
    cd.options.l2_penalty = 0.0
    cd.gradient(others[1], gradient, totals())
    cd.local_step(others[1], RATE, totals())
    momentum = 0.5 + 0.4 / 3
    moved = (params - rbm.params)[: rbm.num_params]
    assert torch.allclose(moved, 0.9 * RATE * (1 - momentum) * gradient[: rbm.num_params] / FRAMES, rtol=1e-9)


def test_the_guard_sees_a_shipped_gradient_as_one_minibatch():
    """Of two parts of which only one is blown up by itself; together they are judged by all their frames."""
    cd, (quiet, loud) = make_cd("gauss"), make_minibatches(2)
    loud.inputs.mul_(50.0)
    rbm = cd.learner.model
    rbm.units.weight.fill_(2.0)
    parts = []
    for minibatch in (quiet, loud):
        parts.append(torch.empty_like(rbm.params))
        cd.gradient(minibatch, parts[-1], totals())
    moments = sum(rbm.views(part)[0][3] for part in parts)
    deviations = [(moments[i + 1] / n - (moments[i] / n) ** 2) ** 0.5 for n in [2 * FRAMES * VISIBLE] for i in (0, 2)]
    assert deviations[1] < 2 * deviations[0]
    before = rbm.params.clone()
    cd.apply(parts[0] + parts[1], RATE, 2 * FRAMES)
    assert cd.rate_factor == 1.0 and cd.velocity.any()
    alone = make_cd("gauss")
    alone.learner.model.params.copy_(before)
    alone.apply(parts[0], RATE, FRAMES)
    assert alone.rate_factor.item() == pytest.approx(0.9) and not alone.velocity.any()


class NothingReadBack(TorchDispatchMode):
    """Raises where a tensor's value is asked for, which would wait for the device and could not be recorded as a CUDA graph."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        assert function is not torch.ops.aten._local_scalar_dense.default, "a step reads a value back"
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("units", ["gauss", "bern"])
def test_a_compiled_update_is_torchs(units, monkeypatch):
    found = []
    for stddev in (0.1, 100.0):  # the second one calls the guard
        for way in (Cd._compiled_move, Cd._move):
            monkeypatch.setattr(Cd, "_compiled_move", way)
            cd, sums = make_cd(units, stddev=stddev), totals()
            for minibatch in make_minibatches(3):
                cd.local_step(minibatch, RATE, sums)
            found.append((cd.learner.model.params, cd.velocity))
            monkeypatch.undo()
    for compiled, by_torch in (found[:2], found[2:]):
        for one, other in zip(compiled, by_torch, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("units", ["gauss", "bern"])
def test_a_step_reads_nothing_back(units, monkeypatch):
    monkeypatch.setattr(Cd, "_compiled_move", Cd._move)  # as on a GPU
    cd, sums = make_cd(units, stddev=100.0), totals()
    with NothingReadBack():
        for minibatch in make_minibatches(3):
            cd.local_step(minibatch, RATE, sums)
        with pytest.raises(AssertionError, match="reads a value back"):
            float(sums[0])
    assert (cd.rate_factor < 1.0) == (units == "gauss")


@pytest.mark.parametrize("units", ["gauss", "bern"])
def test_an_optimiser_is_its_state(units):
    one, other, minibatches = make_cd(units, stddev=3.0), make_cd(units), make_minibatches(8)
    for minibatch in minibatches[:5]:
        one.local_step(minibatch, RATE, totals())
    other.load_state_dict(one.state_dict())
    other.learner.model.params.copy_(one.learner.model.params)
    for cd in (one, other):
        for minibatch in minibatches[5:]:
            cd.local_step(minibatch, RATE, totals())
    assert torch.equal(one.learner.model.params, other.learner.model.params)
    assert one.momentum() == other.momentum() == 0.9 and one.rate_factor == other.rate_factor


@pytest.mark.parametrize(("bad", "words"), [({"momentum": -0.1}, "--momentum -0.1"), ({"momentum": 0.95}, "--momentum-max 0.9"),
                                            ({"momentum_max": 1.0}, "--momentum-max 1"), ({"momentum_steps": 0}, "--momentum-steps 0"),
                                            ({"momentum_step_period": 0}, "--momentum-step-period 0"), ({"l2_penalty": -1.0}, "l2")])
def test_nonsense_is_refused(bad, words):
    with pytest.raises(UserError, match=words):
        CdOptions(**bad)
