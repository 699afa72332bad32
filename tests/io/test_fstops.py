from __future__ import annotations

import kaldifst
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pykaldist.io.fst import Fst
from pykaldist.io.fstops import from_kaldifst, push_special, remove_eps_local, to_kaldifst


@st.composite
def acyclic_fsts(draw: st.DrawFn) -> Fst:
    states = draw(st.integers(2, 6))
    count = draw(st.integers(1, 12))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    source = rng.integers(0, states - 1, count)
    final = np.where(rng.random(states) < 0.4, rng.integers(0, 5, states), np.inf)
    final[-1] = 1
    return Fst.from_arcs(0, final, source, rng.integers(0, 3, count), rng.integers(0, 3, count), rng.integers(1, 9, count) / 4,
                         rng.integers(source + 1, states))


def paths(fst: Fst) -> dict[tuple[tuple[int, ...], tuple[int, ...]], float]:
    """The best cost of each (input, output) of an acyclic transducer."""
    found: dict[tuple[tuple[int, ...], tuple[int, ...]], float] = {}

    def walk(s: int, cost: float, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> None:
        total = cost + float(fst.final[s])
        if total < found.get((inputs, outputs), np.inf):
            found[inputs, outputs] = total
        for a in range(fst.offset[s], fst.offset[s + 1]):
            i, o = int(fst.ilabel[a]), int(fst.olabel[a])
            walk(int(fst.nextstate[a]), cost + float(fst.weight[a]), inputs + (i,) * (i > 0), outputs + (o,) * (o > 0))

    walk(fst.start, 0.0, (), ())
    return found


@given(acyclic_fsts())
def test_local_epsilon_removal_keeps_every_path(fst: Fst) -> None:
    before, after = paths(fst), paths(remove_eps_local(fst))
    assert before.keys() == after.keys()
    assert all(abs(before[k] - after[k]) < 1e-4 for k in before)


@given(acyclic_fsts())
def test_local_epsilon_removal_keeps_states_stochastic(fst: Fst) -> None:
    labelled = (fst.ilabel > 0) | (fst.olabel > 0)  # without such an arc, final costs could be joined, of which the lower is kept
    arcs = (column[labelled] for column in (fst.source, fst.ilabel, fst.olabel, fst.weight, fst.nextstate))
    fst = Fst.from_arcs(0, fst.final, *arcs)
    before = sums(fst)
    excess = -np.log(np.where(before > 0, before, 1))
    fst.weight -= excess[fst.source]
    fst.final -= excess
    after = sums(remove_eps_local(fst))
    np.testing.assert_allclose(after[after > 0], 1, atol=1e-5)


def sums(fst: Fst) -> np.ndarray:
    """The sum of each state's arc and final probabilities."""
    return np.bincount(fst.source, np.exp(-fst.weight.astype(np.float64)), fst.num_states) + np.exp(-fst.final.astype(np.float64))


def test_local_epsilon_removal_removes_a_chain() -> None:
    fst = Fst.from_arcs(0, np.array([np.inf, np.inf, np.inf, 0.5]), np.array([0, 1, 2]), np.array([0, 7, 0]), np.array([3, 0, 0]),
                        np.array([1.0, 1.0, 1.0]), np.array([1, 2, 3]))
    result = from_kaldifst(connected(remove_eps_local(fst)))
    assert (result.num_states, result.num_arcs) == (2, 1)
    assert paths(result) == {((7,), (3,)): 3.5}


def connected(fst: Fst) -> kaldifst.StdVectorFst:
    result = to_kaldifst(fst)
    kaldifst.connect(result)
    return result


def test_pushing_keeps_paths_and_makes_sums_equal() -> None:
    rng = np.random.default_rng(1)
    final = np.full(6, np.inf)
    final[5] = 0.7
    source = np.array([0, 0, 1, 2, 3, 4, 1, 0])
    target = np.array([1, 2, 3, 3, 4, 5, 5, 5])
    fst = Fst.from_arcs(0, final, source, np.arange(1, 9), np.arange(1, 9), rng.random(8) * 5, target)
    pushed = push_special(fst, delta=1e-5)
    assert np.ptp(np.log(sums(pushed))) < 1e-4
    before, after = paths(fst), paths(pushed)
    assert before.keys() == after.keys() and all(abs(before[k] - after[k]) < 1e-4 for k in before)
