"""Schedules against nnet1's published behaviour."""

from __future__ import annotations

import itertools
import math

import pytest

from pykaldist.errors import UserError
from pykaldist.optim.registry import make_schedule
from pykaldist.optim.schedules import ExponentialOptions, FixedOptions, Newbob, NewbobOptions, WarmupOptions


def walk(schedule, losses):
    """(rates, accepted) until the schedule ends or the losses do."""
    rates, accepted = [], []
    for epoch, loss in enumerate(losses):
        if schedule.finished(epoch):
            break
        rates.append(schedule.learn_rate(epoch))
        accepted.append(schedule.end_epoch(epoch, {"loss": loss}))
    return rates, accepted


def test_newbob_halves_rejects_and_stops():
    schedule = make_schedule("newbob", NewbobOptions())
    schedule.start({"loss": 5.0})
    # Big drops; then one of 0.5 % (halving starts); a rise (rejected, so the next is compared with 1.99); small drops; one below 0.1 %.
    rates, accepted = walk(schedule, [3.0, 2.0, 1.99, 2.5, 1.9, 1.89, 1.8899, 1.0])
    assert rates == [0.008, 0.008, 0.008, 0.004]
    assert accepted == [True, True, True, False]  # a rise while halving is below 0.1 %: the end
    schedule = make_schedule("newbob", NewbobOptions())
    schedule.start({"loss": 5.0})
    rates, accepted = walk(schedule, [3.0, 2.0, 1.99, 1.9, 1.88, 1.8799, 1.0])
    assert rates == [0.008, 0.008, 0.008, 0.004, 0.002, 0.001]
    assert accepted == [True] * 6


def test_newbob_starts_halving_after_a_rejected_epoch_and_keeps_lr_iters():
    schedule = Newbob(NewbobOptions(learn_rate=1.0, keep_lr_iters=2))
    schedule.start({"loss": 2.0})
    assert walk(schedule, [3.0, 2.5, 2.6, 2.0]) == ([1.0, 1.0, 1.0, 0.5], [True, True, False, True])


def test_newbob_resumes_where_it_was():
    losses = [3.0, 2.0, 1.99, 1.9, 1.88, 1.8799]
    whole = Newbob(NewbobOptions())
    whole.start({"loss": 5.0})
    expected = walk(whole, losses)
    for cut in range(1, 6):
        one, other = Newbob(NewbobOptions()), Newbob(NewbobOptions())
        one.start({"loss": 5.0})
        first = walk(one, losses[:cut])
        other.load_state_dict(one.state_dict())
        rates, accepted = [], []
        for epoch in range(cut, 6):
            rates.append(other.learn_rate(epoch))
            accepted.append(other.end_epoch(epoch, {"loss": losses[epoch]}))
        assert (first[0] + rates, first[1] + accepted) == expected


def test_exponential_is_su_et_al():
    schedule = make_schedule("exponential", ExponentialOptions(learn_rate=0.32))
    rates, accepted = walk(schedule, [9.0] * 20)
    assert len(rates) == 15 and all(accepted)
    assert rates == pytest.approx([0.32 * math.exp(i / 14 * math.log(0.01)) for i in range(15)])
    one = make_schedule("exponential", ExponentialOptions(learn_rate=0.32, num_epochs=1, final_learn_rate=0.1))
    assert walk(one, [1.0, 1.0])[0] == [0.32]


@pytest.mark.parametrize("epochs", [1, 3])
def test_exponential_within_epochs_depends_on_what_is_done_of_all(epochs):
    schedule = make_schedule("exponential", ExponentialOptions(0.32, epochs, 0.02, decay_within=True))
    for epoch, fraction in itertools.product(range(epochs), (0.0, 0.25, 0.999)):
        assert schedule.moves_within(epoch)
        assert schedule.learn_rate(epoch, fraction) == pytest.approx(0.32 * 0.0625 ** ((epoch + fraction) / epochs))
    assert schedule.learn_rate(epochs - 1, 1 - 1e-9) == pytest.approx(0.02)
    assert not make_schedule("exponential", ExponentialOptions(0.32, epochs)).moves_within(0)


def test_newbob_on_accuracy_has_absolute_thresholds():
    """Su et al. (2015): halving once an epoch gains less than 0.5 %, the end below 0.1 %."""
    schedule = make_schedule("newbob", NewbobOptions(learn_rate=0.32, newbob_on="accuracy"))
    schedule.start({"loss": 1.0, "acc": 0.10})
    rates, accepted = [], []
    for epoch, acc in enumerate([0.300, 0.306, 0.310, 0.309, 0.320, 0.3205, 0.9]):  # the loss rises all the time, which nobody heeds
        if schedule.finished(epoch):
            break
        rates.append(schedule.learn_rate(epoch))
        accepted.append(schedule.end_epoch(epoch, {"loss": 1.0 + epoch, "acc": acc}))
    assert rates == [0.32, 0.32, 0.32, 0.16]
    assert accepted == [True, True, True, False]
    with pytest.raises(UserError, match="has no frame accuracy"):
        schedule.start({"loss": 1.0})


def test_newbob_does_not_end_within_min_iters():
    schedule = Newbob(NewbobOptions(learn_rate=1.0, min_iters=4))
    schedule.start({"loss": 1.0})
    assert walk(schedule, [1.1] * 9)[0] == [1.0, 0.5, 0.25, 0.125, 0.0625]


def test_fixed_is_a_list_one_rate_an_epoch():
    schedule = make_schedule("fixed", FixedOptions("0.008,0.002,4e-3"))
    assert walk(schedule, [9.0] * 5) == ([0.008, 0.002, 0.004], [True] * 3)


def test_warmup_rises_linearly_and_anneals_by_the_root_of_one_half():
    schedule = make_schedule("warmup", WarmupOptions(1.0, 6, warmup_epochs=1.5, warmup_start_factor=0.25, anneal_from=3))
    rates = [schedule.learn_rate(epoch, fraction) for epoch in range(6) for fraction in (0.0, 0.5)]
    root = math.sqrt(0.5)
    assert rates == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0, 1.0, root, root, 0.5, 0.5, 0.5 * root, 0.5 * root])
    assert [schedule.moves_within(epoch) for epoch in range(6)] == [True, True, False, False, False, False]
    assert walk(schedule, [9.0] * 9)[1] == [True] * 6
    assert WarmupOptions(warmup_epochs=1.5).anneal_from == 2


@pytest.mark.parametrize(("options", "words"), [
    (lambda: NewbobOptions(learn_rate=0.0), "--learn-rate 0"), (lambda: NewbobOptions(num_epochs=0), "--num-epochs 0"),
    (lambda: ExponentialOptions(final_learn_rate=-1.0), "--final-learn-rate -1"), (lambda: FixedOptions(), "needs --learn-rates"),
    (lambda: FixedOptions("0.1,x"), "--learn-rates 0.1,x: expected numbers"), (lambda: FixedOptions("0.1,0"), "not positive"),
    (lambda: WarmupOptions(warmup_start_factor=1.5), "a factor in"), (lambda: WarmupOptions(anneal_from=2), "within the warm-up"),
])
def test_nonsense_is_refused(options, words):
    with pytest.raises(UserError, match=words):
        options()
