"""Ranks are found as a list would find them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykaldist.parallel.engines.ranks import Ranks


@given(st.sets(st.integers(0, 30)), st.integers(-2, 32), st.integers(0, 12), st.integers(0, 12))
def test_membership_and_places_are_those_of_a_list(ranks, rank, start, stop):
    plain = sorted(ranks)
    living = Ranks(plain)
    assert (rank in living) == (rank in plain)
    for bounds in ((), (start,), (start, stop)):
        try:
            place = plain.index(rank, *bounds)
        except ValueError:
            with pytest.raises(ValueError, match=str(rank)):
                living.index(rank, *bounds)
        else:
            assert living.index(rank, *bounds) == place


def test_other_things_are_no_ranks():
    assert "1" not in Ranks([0, 1]) and None not in Ranks([0, 1])
