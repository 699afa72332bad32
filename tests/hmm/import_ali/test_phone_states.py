"""Phones shared equally among their states: lengths, order, and what phone_segments reads back."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykaldist.hmm.gmm.model_files import read_transition_model
from pykaldist.hmm.import_ali.phone_states import PhoneStates, state_path
from pykaldist.hmm.lang.topology import HmmState, read_topology
from pykaldist.hmm.tree.phone_segments import is_reordered, phone_segments
from pykaldist.io.lang import LangDir
from pykaldist.io.tables import read_int_vectors


def bakis(states: int, skip: int = 0) -> tuple[HmmState, ...]:
    """Left to right; `skip` > 0 lets the first state skip so many."""
    rows = [[(s, 0.5), (s + 1, 0.5)] for s in range(states)]
    if skip:
        rows[0].append((1 + skip, 0.1))
    return (*(HmmState(s, s, tuple(row)) for s, row in enumerate(rows)), HmmState(-1, -1, ()))


@pytest.mark.parametrize(("entry", "frames", "path"), [
    (bakis(3), 9, [0, 1, 2]), (bakis(3), 3, [0, 1, 2]), (bakis(3), 2, [1, 2]), (bakis(3), 1, [2]), (bakis(3), 0, []),
    (bakis(4, skip=1), 3, [0, 2, 3]), (bakis(4, skip=2), 2, [0, 3]), (bakis(1), 5, [0])])
def test_state_path(entry: tuple[HmmState, ...], frames: int, path: list[int]) -> None:
    assert state_path(entry, frames) == path


def test_silence_of_kaldi(golden: Path) -> None:
    """Five states: the inner three may be left out, the first and the last not."""
    entry = read_topology(golden / "an4_kaldi/lang/topo").entry(1)
    assert [state_path(entry, n) for n in (7, 5, 3, 2)] == [[0, 1, 2, 3, 4], [0, 1, 2, 3, 4], [0, 1, 4], [3, 4]]


PHONES = st.lists(st.tuples(st.integers(1, 22), st.integers(1, 12)), max_size=8)


@settings(max_examples=100)
@given(PHONES)
def test_phones_come_back(toy_lang: LangDir, spans: list[tuple[int, int]]) -> None:
    states = PhoneStates(toy_lang)
    phones, frames = [p for p, _ in spans], [n for _, n in spans]
    tids = states.transition_ids(phones, frames)
    model = states.model
    assert model.tid2phone[tids].tolist() == [p for p, n in spans for _ in range(n)]
    assert states.too_short == sum(n < model.topology.min_length(p) for p, n in spans)
    found = phone_segments(tids, model)
    if states.too_short == 0 and (is_reordered(tids, model) or not any(n > model.topology.min_length(p) for p, n in spans)):
        assert found[0].tolist() == phones and found[2].tolist() == frames
        assert found[1].tolist() == [sum(frames[:i]) for i in range(len(frames))]
        hmm_states = model.tid2hmm_state[tids]
        for start, count in zip(found[1], found[2], strict=True):
            shares = np.unique(hmm_states[start:start + count], return_counts=True)[1]
            assert np.ptp(shares) <= 1 and (np.diff(hmm_states[start:start + count]) >= 0).all()


def test_segments_are_kaldis(golden: Path) -> None:
    """Beside a reading of the alignment frame by frame, in Kaldi's order and in that of time."""
    model = read_transition_model(golden / "an4_kaldi/tri1/final.mdl")
    for _, tids in read_int_vectors(golden / "an4_kaldi/tri1/ali20.txt"):
        assert is_reordered(tids, model)
        lengths, count, leaving = [], 0, False
        for tid in tids.tolist():
            if leaving and not model.tid_is_self_loop[tid]:
                lengths, count, leaving = [*lengths, count], 0, False
            count += 1
            leaving = leaving or bool(model.tid_is_final[tid])
        phones, starts, found = phone_segments(tids, model)
        assert found.tolist() == [*lengths, count]
        assert (model.tid2phone[tids] == np.repeat(phones, found)).all() and starts[0] == 0
        in_time = tids.copy()
        changes = [0, *(np.flatnonzero(np.diff(model.tid2state[tids])) + 1), len(tids)]
        for start, end in itertools.pairwise(changes):
            in_time[start:end] = np.roll(tids[start:end], -1)
        assert not is_reordered(in_time, model)
        for one, other in zip(phone_segments(in_time, model), (phones, starts, found), strict=True):
            np.testing.assert_array_equal(one, other)


def test_nothing_and_fragments(toy_lang: LangDir) -> None:
    states = PhoneStates(toy_lang)
    assert all(len(x) == 0 for x in phone_segments(states.transition_ids([], []), states.model))
    tids = states.transition_ids([20, 21], [6, 6])
    phones, starts, lengths = phone_segments(tids[1:8], states.model)
    assert phones.tolist() == [20, 21] and starts.tolist() == [0, 5] and lengths.tolist() == [5, 2]
