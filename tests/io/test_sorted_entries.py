"""Streams of sorted entries give what lists and sets in memory give, and a table larger than what is sorted at a time is sorted."""

from __future__ import annotations

from operator import itemgetter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykaldist.io.sorted_entries import StoredEntries, first_of_each, in_order, matching, only_in_one

ENTRIES = st.lists(st.tuples(st.text("abÄ\U0001f600", min_size=1, max_size=2), st.text("xy ", max_size=3)), max_size=20)


@given(ENTRIES, st.integers(1, 7))
def test_entries_are_sorted_and_those_of_one_key_stay_in_their_order(tmp_path_factory: pytest.TempPathFactory,
                                                                     entries: list[tuple[str, str]], run: int) -> None:
    folder = tmp_path_factory.mktemp("sorted")
    assert list(in_order(iter(entries), folder, run)) == sorted(entries, key=itemgetter(0))
    assert not list(folder.iterdir())


@given(ENTRIES)
def test_stored_entries_can_be_gone_through_again(tmp_path_factory: pytest.TempPathFactory, entries: list[tuple[str, str]]) -> None:
    stored = StoredEntries(entries, tmp_path_factory.mktemp("stored"))
    assert len(stored) == len(entries) and list(stored) == list(stored) == entries
    together = zip(stored, stored.keys(), strict=True)  # two readers at once
    assert all(entry[0] == key for entry, key in together)


@given(ENTRIES, st.lists(st.text("abÄ", min_size=1, max_size=2)))
def test_matching_entries_are_those_whose_key_is_in_the_set(entries: list[tuple[str, str]], keys: list[str]) -> None:
    found = matching(sorted(entries), sorted(keys))
    assert list(found) == [entry for entry in sorted(entries) if entry[0] in set(keys)]


@given(ENTRIES)
def test_the_first_entry_of_each_key(entries: list[tuple[str, str]]) -> None:
    first: dict[str, str] = {}
    for key, value in sorted(entries, key=itemgetter(0)):
        first.setdefault(key, value)
    assert list(first_of_each(sorted(entries, key=itemgetter(0)))) == list(first.items())


@given(st.sets(st.sampled_from("abcdefgh")), st.sets(st.sampled_from("abcdefgh")))
def test_what_is_in_one_list_alone(one: set[str], other: set[str]) -> None:
    found = only_in_one(sorted(one), sorted(other))
    assert found == tuple((len(alone), min(alone)) if alone else None for alone in (one - other, other - one))


def test_strings_are_in_the_order_of_their_bytes(tmp_path: Path) -> None:
    keys = ["a", "\uffff", "\U00010000", "Z", "ä"]
    assert [key for key, _ in in_order(((key, "") for key in keys), tmp_path, 2)] == sorted(keys, key=str.encode)
