"""Composition, trimming, determinisation and minimisation of flat transducers, beside kaldifst's of the same."""

from __future__ import annotations

import kaldifst
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykaldist.io.fst import Fst
from pykaldist.io.fst_compose import compose, trimmed
from pykaldist.io.fst_determinize import determinize
from pykaldist.io.fst_minimize import minimize
from pykaldist.io.fstops import from_kaldifst, to_kaldifst

COLUMNS = ("offset", "ilabel", "olabel", "nextstate", "weight", "final")


@st.composite
def transducers(draw: st.DrawFn) -> Fst:
    """Any transducer, with cycles, epsilons and states that lead nowhere; its weights are multiples of 1/4."""
    states, count = draw(st.integers(1, 8)), draw(st.integers(0, 24))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    final = np.where(rng.random(states) < 0.4, rng.integers(0, 5, states) / 4, np.inf)
    source, target = rng.integers(0, states, (2, count))
    return Fst.from_arcs(0, final, source, *rng.integers(0, 3, (2, count)), rng.integers(0, 3, count) / 4, target)


@st.composite
def lexicons(draw: st.DrawFn) -> Fst:
    """Words (outputs) as sequences of phones (inputs), told apart by a symbol at their end, with an epsilon on the way; in a loop."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    arcs, states = [], 1
    for word in range(1, draw(st.integers(2, 12))):
        at = 0
        for i, phone in enumerate([*rng.integers(1, 4, rng.integers(1, 5)), 0, 3 + word]):
            to = 0 if phone > 3 else states
            states += to > 0
            arcs.append((at, phone, word if i == 0 else 0, rng.integers(1, 9) / 4, to))
            at = to
    final = np.full(states, np.inf)
    final[0] = 0.5
    return Fst.from_arcs(0, final, *map(np.array, zip(*arcs, strict=True)))


def assert_same(ours: Fst, theirs: Fst) -> None:
    assert ours.num_states == theirs.num_states
    for name in COLUMNS:
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name), name)


def breadth_first(fst: Fst) -> Fst:
    """The transducer with its arcs sorted, and its states numbered as they are met along them."""
    order = np.lexsort((fst.weight, fst.olabel, fst.ilabel, fst.source))
    fst = Fst(fst.start, fst.final, fst.offset, *(getattr(fst, name)[order] for name in ("ilabel", "olabel", "weight", "nextstate")))
    number = {fst.start: 0}
    queue = [fst.start]
    for s in queue:
        for to in fst.nextstate[fst.offset[s]:fst.offset[s + 1]].tolist():
            if to not in number:
                number[to] = len(queue)
                queue.append(to)
    new = np.array([number[s] for s in range(fst.num_states)])
    return Fst.from_arcs(0, fst.final[queue], new[fst.source], fst.ilabel, fst.olabel, fst.weight, new[fst.nextstate])


@given(transducers(), transducers())
def test_composition_is_openfsts(left: Fst, right: Fst) -> None:
    one, two = to_kaldifst(left), to_kaldifst(right)
    kaldifst.arcsort(one, "olabel")
    kaldifst.arcsort(two, "ilabel")
    ours, theirs = compose(left, right), from_kaldifst(kaldifst.compose(one, two))
    assert ours.num_states == theirs.num_states and ours.num_arcs == theirs.num_arcs
    for name in ("ilabel", "olabel", "weight", "final"):
        np.testing.assert_array_equal(np.sort(getattr(ours, name)), np.sort(getattr(theirs, name)), name)


@given(transducers())
def test_trimming_is_openfsts(fst: Fst) -> None:
    theirs = to_kaldifst(fst)
    kaldifst.connect(theirs)
    assert_same(trimmed(fst), from_kaldifst(theirs))


@given(lexicons())
def test_determinisation_is_kaldis(fst: Fst) -> None:
    theirs = to_kaldifst(fst)
    kaldifst.determinize_star(theirs, use_log=True)
    assert_same(determinize(fst, 10_000), from_kaldifst(theirs))


@given(lexicons())
def test_minimisation_is_kaldis(fst: Fst) -> None:
    fst = determinize(fst, 10_000)
    theirs = to_kaldifst(fst)
    kaldifst.minimize_encoded(theirs)
    assert_same(breadth_first(minimize(fst)), breadth_first(from_kaldifst(theirs)))


@given(transducers())
def test_minimisation_gives_the_coarsest_partition_of_any_transducer(fst: Fst) -> None:
    fst = trimmed(fst)
    block = np.zeros(fst.num_states, int)
    for _ in range(fst.num_states):  # Moore's algorithm
        arcs = list(zip(fst.source.tolist(), fst.ilabel.tolist(), fst.olabel.tolist(), fst.weight.tolist(), block[fst.nextstate].tolist(),
                        strict=True))
        kinds = [(final, frozenset(arc[1:] for arc in arcs if arc[0] == s)) for s, final in enumerate(fst.final.tolist())]
        block = np.array([kinds.index(kind) for kind in kinds], int)
    expected = {(block[s], i, o, w, block[t]) for s, i, o, w, t in zip(fst.source, fst.ilabel, fst.olabel, fst.weight, fst.nextstate,
                                                                        strict=True)}
    made = minimize(fst)
    assert (made.num_states, made.num_arcs) == (len(set(block.tolist())), len(expected))


def test_what_cannot_be_determinised_is_refused() -> None:
    zero = np.zeros(2)
    two_outputs = Fst.from_arcs(0, np.array([np.inf, 0]), zero.astype(int), np.array([1, 1]), np.array([1, 2]), zero, np.array([1, 1]))
    with pytest.raises(ValueError, match="two outputs"):
        determinize(two_outputs, 100)
    twins = Fst.from_arcs(0, np.array([np.inf, 0, 0]), np.array([0, 0, 1, 2]), np.ones(4, int), np.zeros(4, int), np.arange(4.0),
                          np.array([1, 2, 1, 2]))  # the weights of the two states grow apart for ever
    with pytest.raises(ValueError, match="more states"):
        determinize(twins, 100)
