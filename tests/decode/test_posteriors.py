"""Posteriors of lattices against enumeration of all paths."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykaldist.decode.lattice import Lattice
from pykaldist.decode.posteriors import lattice_posteriors


def layered_lattice(seed: int) -> Lattice:
    """Every path has five frames: an arc leads from each state to the next, some farther; final states take the frames that are left."""
    rng = np.random.default_rng(seed)
    layer = np.sort(np.concatenate([[0, 5], rng.integers(0, 6, rng.integers(2, 7))]))
    states = len(layer)
    arcs = [(s, t, rng.integers(1, 4, layer[t] - layer[s])) for s in range(states) for t in range(s + 1, states)
            if t == s + 1 or rng.random() < 0.4]
    ends = (layer >= 4) & (rng.random(states) < 0.5)
    ends[-1] = True
    strings = [ids for _, _, ids in arcs] + [rng.integers(1, 4, 5 - at if end else 0) for at, end in zip(layer, ends, strict=True)]
    final, acoustic = (np.where(ends, rng.random(states), np.inf).astype(np.float32) for _ in range(2))
    offset = np.searchsorted([s for s, _, _ in arcs], np.arange(states + 1)).astype(np.int64)
    string = np.concatenate([[0], np.cumsum([len(ids) for ids in strings])]).astype(np.int64)
    return Lattice(offset, np.zeros(len(arcs), np.int32), rng.random(len(arcs)).astype(np.float32),
                   rng.normal(size=len(arcs)).astype(np.float32), np.array([t for _, t, _ in arcs], np.int32), final, acoustic, string,
                   np.concatenate(strings).astype(np.int32))


def enumerated(lattice: Lattice, acoustic_scale: float) -> dict[tuple[int, int], float]:
    """(frame, transition_id) -> posterior, path by path."""
    found: list[tuple[tuple[int, ...], float]] = []

    def walk(s: int, ids: tuple[int, ...], cost: float) -> None:
        if lattice.final[s] < np.inf:
            found.append(((*ids, *lattice.ids(lattice.num_arcs + s).tolist()),
                          cost + float(lattice.final[s]) + acoustic_scale * float(lattice.final_acoustic[s])))
        for a in range(lattice.offset[s], lattice.offset[s + 1]):
            walk(int(lattice.target[a]), (*ids, *lattice.ids(a).tolist()),
                 cost + float(lattice.graph[a]) + acoustic_scale * float(lattice.acoustic[a]))

    walk(0, (), 0.0)
    total = np.logaddexp.reduce([-cost for _, cost in found])
    result: dict[tuple[int, int], float] = defaultdict(float)
    for ids, cost in found:
        for t, tid in enumerate(ids):
            result[t, tid] += float(np.exp(-cost - total))
    return result


@settings(max_examples=100)
@given(st.integers(0, 10**6), st.floats(0.05, 2))
def test_posteriors_are_sums_over_paths(seed: int, acoustic_scale: float) -> None:
    lattice = layered_lattice(seed)
    expected = enumerated(lattice, acoustic_scale)
    frame, tid, posterior = lattice_posteriors(lattice, acoustic_scale)
    assert sorted(expected) == list(zip(frame.tolist(), tid.tolist(), strict=True))
    np.testing.assert_allclose(posterior, [expected[key] for key in sorted(expected)], rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(np.bincount(frame, posterior), np.ones(5), rtol=1e-6)


def test_lattices_without_a_path() -> None:
    lattice = layered_lattice(0)
    with pytest.raises(ValueError, match="empty"):
        lattice_posteriors(lattice.select(np.arange(0)), 1.0)
    lattice.final[:] = np.inf
    with pytest.raises(ValueError, match="no path to a final state"):
        lattice_posteriors(lattice, 1.0)
