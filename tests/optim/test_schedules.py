"""Schedules against nnet1's published behaviour."""

from __future__ import annotations

import math

import pytest

from pykaldist.errors import UserError
from pykaldist.optim.schedules import ExponentialOptions, Newbob, NewbobOptions, make_schedule


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
    schedule = make_schedule("newbob", NewbobOptions(), 0.008)
    schedule.start({"loss": 5.0})
    # Big drops; then one of 0.5 % (halving starts); a rise (rejected, so the next is compared with 1.99); small drops; one below 0.1 %.
    rates, accepted = walk(schedule, [3.0, 2.0, 1.99, 2.5, 1.9, 1.89, 1.8899, 1.0])
    assert rates == [0.008, 0.008, 0.008, 0.004]
    assert accepted == [True, True, True, False]  # a rise while halving is below 0.1 %: the end
    schedule = make_schedule("newbob", NewbobOptions(), 0.008)
    schedule.start({"loss": 5.0})
    rates, accepted = walk(schedule, [3.0, 2.0, 1.99, 1.9, 1.88, 1.8799, 1.0])
    assert rates == [0.008, 0.008, 0.008, 0.004, 0.002, 0.001]
    assert accepted == [True] * 6


def test_newbob_starts_halving_after_a_rejected_epoch_and_keeps_lr_iters():
    schedule = Newbob(NewbobOptions(keep_lr_iters=2), 1.0)
    schedule.start({"loss": 2.0})
    assert walk(schedule, [3.0, 2.5, 2.6, 2.0]) == ([1.0, 1.0, 1.0, 0.5], [True, True, False, True])


def test_newbob_resumes_where_it_was():
    losses = [3.0, 2.0, 1.99, 1.9, 1.88, 1.8799]
    whole = Newbob(NewbobOptions(), 0.008)
    whole.start({"loss": 5.0})
    expected = walk(whole, losses)
    for cut in range(1, 6):
        one, other = Newbob(NewbobOptions(), 0.008), Newbob(NewbobOptions(), 0.008)
        one.start({"loss": 5.0})
        first = walk(one, losses[:cut])
        other.load_state_dict(one.state_dict())
        rates, accepted = [], []
        for epoch in range(cut, 6):
            rates.append(other.learn_rate(epoch))
            accepted.append(other.end_epoch(epoch, {"loss": losses[epoch]}))
        assert (first[0] + rates, first[1] + accepted) == expected


def test_exponential_is_su_et_al():
    schedule = make_schedule("exponential", ExponentialOptions(num_epochs=15), 0.32)
    rates, accepted = walk(schedule, [9.0] * 20)
    assert len(rates) == 15 and all(accepted)
    assert rates == pytest.approx([0.32 * math.exp(i / 14 * math.log(0.01)) for i in range(15)])
    one = make_schedule("exponential", ExponentialOptions(num_epochs=1, final_learn_rate=0.1), 0.32)
    assert walk(one, [1.0, 1.0])[0] == [0.32]


def test_rates_that_are_not_positive_are_refused():
    with pytest.raises(UserError, match="--learn-rate"):
        make_schedule("newbob", NewbobOptions(), 0.0)
    with pytest.raises(UserError, match="--final-learn-rate"):
        make_schedule("exponential", ExponentialOptions(final_learn_rate=-1.0), 0.1)
