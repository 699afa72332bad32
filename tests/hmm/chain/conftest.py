"""Kaldi's chain files, and the comparison of graphs whose states may be numbered otherwise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pykaldist.io.fst import Fst


@pytest.fixture(scope="session")
def chain(golden: Path) -> Path:
    return golden / "chain"


def classes(graphs: list[Fst]) -> list[np.ndarray]:
    """For each graph the class of each state: states are of one class where all paths out of them and into them have the same labels."""
    found = [[int(s == fst.start) for s in range(fst.num_states)] for fst in graphs]
    count = 0
    while True:
        names: dict[object, int] = {}
        new = []
        for fst, own in zip(graphs, found, strict=True):
            out, back = ([[] for _ in own] for _ in range(2))
            for s, label, to in zip(fst.source.tolist(), fst.ilabel.tolist(), fst.nextstate.tolist(), strict=True):
                out[s].append((label, own[to]))
                back[to].append((label, own[s]))
            keys = [(own[s], bool(np.isinf(fst.final[s])), *sorted(out[s]), "", *sorted(back[s])) for s in range(fst.num_states)]
            new.append([names.setdefault(key, len(names)) for key in keys])
        if len(names) == count:
            return [np.array(one) for one in new]
        count, found = len(names), new


def check_same_graph(ours: Fst, kaldis: Fst, tolerance: float) -> None:
    assert (ours.num_states, ours.num_arcs) == (kaldis.num_states, kaldis.num_arcs)
    arcs, finals = [], []
    for fst, own in zip((ours, kaldis), classes([ours, kaldis]), strict=True):  # states of one class are told apart by their costs alone
        columns = (fst.weight, own[fst.nextstate], fst.ilabel, own[fst.source])
        order = np.lexsort(columns)
        arcs.append([column[order] for column in columns])
        order = np.lexsort((fst.final, own))
        finals.append((own[order], fst.final[order]))
    for n in (1, 2, 3):
        np.testing.assert_array_equal(arcs[0][n], arcs[1][n])
    np.testing.assert_allclose(arcs[0][0], arcs[1][0], rtol=tolerance, atol=tolerance)
    np.testing.assert_array_equal(finals[0][0], finals[1][0])
    np.testing.assert_allclose(finals[0][1], finals[1][1], rtol=tolerance, atol=tolerance)


@pytest.fixture(scope="session")
def same_graph() -> Callable[[Fst, Fst, float], None]:
    """Asserts that two acceptors are one but for the numbering of states, and that weights differ by no more than a tolerance."""
    return check_same_graph
