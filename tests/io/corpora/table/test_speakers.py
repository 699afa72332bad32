"""Speakers from folders, and the split."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykaldist.errors import UserError
from pykaldist.io.corpora.table.speakers import SETS, chosen_shares, of_folders, split

unhurried = settings()  # a test asserts no time


@pytest.mark.parametrize(("keys", "names"), [
    (["anna/1", "ben/1"], ["anna", "ben"]),
    (["train/anna/1", "test/ben/2"], ["anna", "ben"]),  # sets are no speakers
    (["corpus/19/198/a", "corpus/19/227/b", "corpus/26/495/c"], ["19", "19", "26"]),  # LibriSpeech: chapters are no speakers
    (["train/1", "test/2"], None), (["1", "2"], None), (["clips/1"], None), (["anna/1", "2"], None),
])
def test_speakers_of_folders(keys: list[str], names: list[str] | None) -> None:
    assert of_folders(keys) == names


@unhurried
@given(st.dictionaries(st.integers(0, 999).map(str), st.floats(0.1, 1000), min_size=3, max_size=40), st.integers(0, 9),
       st.sampled_from(["80 10 10", "1 1 1", "90 2 8"]))
def test_sets_share_no_speaker_and_are_near_their_sizes(seconds: dict[str, float], seed: int, shares: str) -> None:
    parts = split(seconds, chosen_shares(shares), np.random.default_rng(seed))
    assert parts.keys() == seconds.keys() and set(parts.values()) == set(SETS)  # each speaker is in one set, and none is empty
    sums = {part: sum(seconds[name] for name in seconds if parts[name] == part) for part in SETS}
    counts = {part: list(parts.values()).count(part) for part in SETS}
    for part, share in zip(("dev", "test"), chosen_shares(shares)[1:], strict=True):
        missed = abs(sums[part] - share * sum(seconds.values()))
        assert missed <= max(seconds.values()) / 2 + 1e-6 or counts[part] == 1 or counts["train"] == 1
    assert parts == split(dict(reversed(seconds.items())), chosen_shares(shares), np.random.default_rng(seed))


def test_many_small_speakers_come_near() -> None:
    seconds = {f"s{i}": 10.0 + i % 7 for i in range(200)}
    parts = split(seconds, chosen_shares("80 10 10"), np.random.default_rng(0))
    sums = {part: sum(seconds[name] for name in seconds if parts[name] == part) / sum(seconds.values()) for part in SETS}
    assert sums == pytest.approx({"train": 0.8, "dev": 0.1, "test": 0.1}, abs=0.003)


@pytest.mark.parametrize("text", ["80 20", "80 10 0", "a b c", "10 10 80", "80 10 inf", "80 10 nan"])
def test_wrong_shares(text: str) -> None:
    with pytest.raises(UserError, match="--shares: expected three numbers above 0"):
        chosen_shares(text)


def test_fewer_than_three_cannot_be_divided() -> None:
    with pytest.raises(UserError, match="found 2"):
        split({"a": 1.0, "b": 2.0}, (0.8, 0.1, 0.1), np.random.default_rng(0))
