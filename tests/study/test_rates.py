"""The search for a rate: the same tries for all, and the best rate where losses have one valley."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from pykaldist.study.rates import TRIES, rate_at, search


def searched(first: float, loss) -> tuple[dict[float, float], object]:
    """The losses of all rates that a search tries, and how it ends."""
    losses: dict[float, float] = {}
    while (state := search(first, losses)).next is not None:
        assert state.next not in losses
        losses[state.next] = loss(state.next)
    return losses, state


@given(st.floats(-6, 6), st.floats(0.1, 10))
def test_the_best_rate_of_one_valley_is_found_where_the_tries_reach_it(place: float, steepness: float) -> None:
    losses, state = searched(0.01, lambda rate: steepness * abs(math.log2(rate / 0.01) - place))
    assert 3 <= len(losses) <= TRIES
    assert losses[state.best] == min(losses.values())
    near = [rate_at(0.01, math.floor(place)), rate_at(0.01, math.ceil(place))]
    assert not state.bracketed or state.best in near
    assert state.bracketed or abs(place) > 2


@given(st.lists(st.sampled_from([1.0, 2.0, 3.0, math.inf]), min_size=2 * TRIES + 1, max_size=2 * TRIES + 1))
def test_any_losses_end_a_search_within_its_tries(values: list[float]) -> None:
    by_rate = {rate_at(0.3, step): value for step, value in zip(range(-TRIES, TRIES + 1), values, strict=True)}
    losses, state = searched(0.3, by_rate.__getitem__)
    assert len(losses) <= TRIES and losses[state.best] == min(losses.values())


def test_rates_that_diverge_lead_to_smaller_ones() -> None:
    losses, state = searched(0.08, lambda rate: math.inf if rate > 0.03 else -rate)
    assert list(losses) == [0.08, 0.16, 0.04, 0.02, 0.01] and state.best == 0.02 and state.bracketed


def test_without_tries_the_first_rate_is_the_rate() -> None:
    state = search(0.02, {}, 0)
    assert (state.best, state.next, state.bracketed) == (0.02, None, True)
