"""Mixing models while a worker computes: compared with sums over whole vectors, one exchange after the other."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pykaldist.parallel.fabric.interface import Fabric
from pykaldist.parallel.fabric.mixing import PIECE, Mixing, PublishedModel


class Lending(Fabric):
    """A worker's end; the test puts the answer to its call into `has_come`."""

    answers_while_computing = True
    has_come = None

    def lend(self, like):
        return torch.full_like(like, torch.nan)

    def poll_answer(self, ticket):
        return self.has_come


class Reference:
    """w, which a step began with, and the flows since, each answer being w + flow."""

    def __init__(self, params, share):
        self.params, self.share, self.flow = params.clone(), share, torch.zeros_like(params)

    def answer(self, other):
        seen = self.params + self.flow
        self.flow += self.share * (other - seen)
        return seen

    def end_compute(self, step, own):
        self.params += self.flow + step + (0.0 if own is None else self.share * (own - self.params))
        self.flow.zero_()


@settings(max_examples=200)
@given(st.integers(1, 4), st.sampled_from([0.5, 1 / 3]), st.integers(0, 10_000), st.data())
def test_calls_in_any_order(count, share, seed, data):
    """Before, between and in the middle of the parts of a step, and between steps; parts in another order than they lie in. In some steps
    nothing comes, and some do not go along."""
    generator = torch.Generator().manual_seed(seed)

    def draw():
        return torch.randn(9 * count, generator=generator, dtype=torch.float64)

    parts = [slice(9 * i, 9 * i + 9) for i in range(count)]
    params, fabric = draw(), Lending(0, 2)
    mixing, reference, answers = PublishedModel(params, share, fabric, parts), Reference(params, share), []

    def others():
        for _ in range(data.draw(st.integers(0, 2)) if busy else 0):
            other = draw()
            seen = mixing.answer(other.clone())
            assert torch.allclose(seen, reference.answer(other))
            answers.append((seen, seen.clone()))

    for _ in range(4):
        busy, goes_along = data.draw(st.booleans()), data.draw(st.booleans())
        mixing.begin_compute()
        others_before = params.clone()
        assert torch.equal(mixing.sent, params)
        answers.append((mixing.sent, params.clone()))
        own = data.draw(st.sampled_from([None, "turned away", "early", "late"])) if busy else None
        model, fabric.has_come = draw(), None
        if own is not None:
            mixing.call_sent(7)
        others()
        step = draw()
        assert torch.equal(params, others_before)  # the gradient is of these
        for place in data.draw(st.permutations(parts)):
            if own in ("early", "turned away") and data.draw(st.booleans()):
                fabric.has_come = (model if own == "early" else None, 0.0)
            if goes_along:
                with mixing.around(place):
                    others()
                    params[place] += step[place]
            else:
                params[place] += step[place]
            others()
        mixing.end_compute(model if own in ("early", "late") else None)
        reference.end_compute(step, model if own in ("early", "late") else None)
        assert torch.allclose(params, reference.params)
        for _ in range(data.draw(st.integers(0, 1)) if busy else 0):  # the worker rests
            other = draw()
            seen = mixing.answer(other)
            assert torch.allclose(seen, reference.params)
            reference.params += share * (other - reference.params)
            answers.append((seen, seen.clone()))
            assert torch.allclose(params, reference.params)
    assert all(torch.equal(seen, as_it_was) for seen, as_it_was in answers)  # nobody writes to what is lent


def test_what_one_gains_the_other_loses():
    """Two workers with each other, both ways at once; their steps are nothing."""
    generator = torch.Generator().manual_seed(0)
    models = [torch.randn(2 * PIECE + 3, generator=generator, dtype=torch.float64) for _ in range(2)]
    start, parts = torch.stack(models), [slice(0, PIECE + 5), slice(PIECE + 5, 2 * PIECE + 3)]
    fabrics = [Lending(0, 2), Lending(1, 2)]
    one, other = (PublishedModel(model, 1 / 3, fabric, parts) for model, fabric in zip(models, fabrics, strict=True))
    for mixing in (one, other):
        mixing.begin_compute()
        mixing.call_sent(1)
    fabrics[0].has_come = other.answer(one.sent), 0.0
    with other.around(parts[0]):
        pass
    fabrics[1].has_come = one.answer(other.sent), 0.0
    for part in parts:
        with one.around(part):
            pass
    with other.around(parts[1]):
        pass
    for mixing, fabric in zip((one, other), fabrics, strict=True):
        mixing.end_compute(fabric.has_come[0])
    assert torch.allclose(models[0], (start[0] + 2 * start[1]) / 3) and torch.allclose(models[1], (2 * start[0] + start[1]) / 3)


def test_alone_a_worker_publishes_nothing():
    fabric, params = Lending(0, 2), torch.zeros(3)
    fabric.lend = None
    fabric.living = [0]
    mixing = PublishedModel(params, 0.5, fabric, [slice(0, 3)])
    mixing.begin_compute()
    with mixing.around(slice(0, 3)):
        params += 1.0
    mixing.end_compute(None)
    assert params.tolist() == [1.0] * 3 and mixing.published is None


@pytest.mark.parametrize("own", [True, False])
def test_parameters_do_not_change_until_the_step_is_over(own):
    """Others see, and mix with, what earlier ones have left. In pieces, the last one short."""
    size, c = 2 * PIECE + 3, 1.0 / 3.0
    generator = torch.Generator().manual_seed(1)
    params = torch.randn(size, generator=generator)
    mixing, model = Mixing(params, c), params.clone()
    for round in range(2):
        mixing.begin_compute()
        before = params.clone()
        for _ in range(3 * round):
            other = torch.randn(size, generator=generator)
            expected = other - model
            assert torch.allclose(mixing.answer(other.clone()), expected, atol=1e-6)
            assert torch.equal(params, before)
            model += c * expected
        difference = torch.randn(size, generator=generator) if own else None
        mixing.end_compute(difference)
        model -= c * difference if own else 0.0
        assert torch.allclose(params, model, atol=1e-5)
        model = params.clone()
        other = torch.randn(size, generator=generator)
        assert torch.equal(mixing.answer(other.clone()), other - model)  # between steps, of the parameters
        model += c * (other - model)
        assert torch.allclose(params, model, atol=1e-6)


@pytest.mark.parametrize("name", ["sgd", "ngsgd"])
@pytest.mark.parametrize("options", [{}, {"momentum": 0.5}])
def test_a_step_goes_around_each_map_once(make_workers, name, options):
    """Where it goes map by map: with derivatives made by then of the parameters as they were, and updates not."""
    worker, plain = make_workers(1, optimizer=name, **options)[0], make_workers(1, optimizer=name, **options)[0]
    entered, optimizer = [], worker.optimizer
    optimizer.around = lambda part: entered.append((part, worker.params[part].clone())) or nullcontext()
    for each in (worker, plain):
        each.begin_epoch(0, 0.01)
    start = worker.params.clone()
    worker.step()
    plain.step()
    assert torch.equal(worker.params, plain.params) and not torch.equal(worker.params, start)
    assert optimizer.goes_map_by_map == (not options)
    assert sorted(part.start for part, _ in entered) == sorted(part.start for part in optimizer.parts if not options)
    assert all(torch.equal(before, start[part]) for part, before in entered)
    assert sum(part.stop - part.start for part in optimizer.parts) == len(start)
