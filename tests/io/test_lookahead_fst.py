from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykaldist.errors import UserError
from pykaldist.io.fst import Fst
from pykaldist.io.lookahead_fst import next_labels, read_lookahead, write_lookahead


def random_fst(seed: int) -> Fst:
    """A transducer of up to 12 states, with cycles of arcs that write nothing."""
    rng = np.random.default_rng(seed)
    states, arcs = int(rng.integers(1, 13)), int(rng.integers(0, 30))
    final = np.where(rng.random(states) < 0.3, 0.5, np.inf)
    olabel = rng.integers(1, 9, arcs) * (rng.random(arcs) < 0.4)
    return Fst.from_arcs(0, final, rng.integers(0, states, arcs), rng.integers(0, 5, arcs), olabel, rng.random(arcs),
                         rng.integers(0, states, arcs))


def by_following(fst: Fst, state: int, end: int) -> set[int]:
    """What a state may write next: follow every arc that writes nothing."""
    seen, stack, found = {state}, [state], set()
    while stack:
        s = stack.pop()
        if np.isfinite(fst.final[s]):
            found.add(end)
        for a in range(fst.offset[s], fst.offset[s + 1]):
            to = int(fst.nextstate[a])
            if fst.olabel[a]:
                found.add(int(fst.olabel[a]))
            elif to not in seen:
                seen.add(to)
                stack.append(to)
    return found


@given(seed=st.integers(0, 2**32 - 1))
def test_the_intervals_hold_the_labels_that_following_arcs_finds(seed: int) -> None:
    fst = random_fst(seed)
    old = {(s, i, float(w), t): o for s, i, o, w, t in zip(fst.source, fst.ilabel, fst.olabel, fst.weight, fst.nextstate, strict=True)}
    sets, number = next_labels(fst)
    for s, i, o, w, t in zip(fst.source, fst.ilabel, fst.olabel, fst.weight, fst.nextstate, strict=True):
        assert number[old[s, i, float(w), t]] == o  # renumbered, one to one
    used = number[number > 0]
    assert len(np.unique(used)) == len(used) and sets.final not in used
    for s in range(fst.num_states):
        own = slice(sets.offset[s], sets.offset[s + 1])
        held = {label for begin, end in zip(sets.begin[own], sets.end[own], strict=True) for label in range(begin, end)}
        expected = by_following(fst, s, sets.final)
        assert held == expected and sets.may_end()[s] == (sets.final in expected)
        assert (sets.begin[own][1:] > sets.end[own][:-1]).all()


def test_the_words_of_a_tree_are_one_interval_at_each_node() -> None:
    parents = [(0, 1), (0, 2), (1, 3), (1, 4), (2, 5), (2, 6)]  # leaves 3 to 6 write the words 4, 1, 3, 2
    leaves = zip((3, 4, 5, 6), (4, 1, 3, 2), strict=True)
    arcs = [(a, b, 0, 0.0, b) for a, b in parents] + [(leaf, 9, word, 0.0, 7) for leaf, word in leaves]
    final = np.full(8, np.inf)
    final[7] = 0
    fst = Fst.from_arcs(0, final, *map(np.array, zip(*arcs, strict=True)))
    sets, _ = next_labels(fst)
    assert np.diff(sets.offset).tolist() == [1] * 8


def test_a_file_is_read_as_it_was_written_and_damage_is_refused(tmp_path: Path) -> None:
    fst = random_fst(3)
    sets, _ = next_labels(fst)
    write_lookahead(tmp_path / "fst", fst, sets)
    read, its = read_lookahead(tmp_path / "fst")
    for name in ("final", "offset", "ilabel", "olabel", "weight", "nextstate"):
        np.testing.assert_array_equal(getattr(read, name), getattr(fst, name))
    np.testing.assert_array_equal(its.offset, sets.offset)
    np.testing.assert_array_equal(its.begin[: len(sets.begin)], sets.begin)
    np.testing.assert_array_equal(its.end[: len(sets.end)], sets.end)
    data = (tmp_path / "fst").read_bytes()
    for cut in range(0, len(data), 7):
        (tmp_path / "cut").write_bytes(data[:cut])
        with pytest.raises(UserError, match="cut"):
            read_lookahead(tmp_path / "cut")
    fst.write(tmp_path / "vector")
    with pytest.raises(UserError, match="one of type olabel_lookahead is expected"):
        read_lookahead(tmp_path / "vector")
