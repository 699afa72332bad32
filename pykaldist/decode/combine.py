"""Combination of lattices of several systems: one lattice in which each system's paths have the system's share of the probability."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pykaldist.decode.lattice import Lattice
from pykaldist.decode.paths import scaled_costs
from pykaldist.kernels import kernel


@kernel
def _log_total(offset: np.ndarray, target: np.ndarray, cost: np.ndarray, final: np.ndarray) -> float:
    """The log of the sum of the probabilities of all paths; states are in topological order."""
    beta = -final
    for s in range(len(final) - 1, -1, -1):
        for a in range(offset[s], offset[s + 1]):
            beta[s] = np.logaddexp(beta[s], beta[target[a]] - cost[a])
    return beta[0]


def combined(parts: Sequence[tuple[Lattice, float]], acoustic_scale: float, lm_scale: float = 1.0) -> Lattice:
    """The union of lattices, with a new start. Costs are scaled, and each lattice's total probability is its share.

    `parts` are (lattice, share).
    """
    graph, acoustic, final, final_acoustic, word, target, offset, ids, lengths = ([] for _ in range(9))
    state, ends = 1, []
    first = []
    for lattice, share in parts:
        cost, end_cost = scaled_costs(lattice, acoustic_scale, lm_scale)
        total = _log_total(lattice.offset, lattice.target, cost.astype(np.float64), end_cost)
        there = lattice.final < np.inf
        closing = np.full(lattice.num_states, np.inf, np.float32)
        closing[there] = lm_scale * lattice.final[there] + total - np.log(share)
        closing_acoustic = np.full(lattice.num_states, np.inf, np.float32)
        closing_acoustic[there] = acoustic_scale * lattice.final_acoustic[there]
        first.append(state)
        graph.append(lm_scale * lattice.graph)
        acoustic.append(acoustic_scale * lattice.acoustic)
        word.append(lattice.word)
        target.append(lattice.target + state)
        offset.append(np.diff(lattice.offset))
        final.append(closing)
        final_acoustic.append(closing_acoustic)
        length = np.diff(lattice.string)
        lengths.append(length[: lattice.num_arcs])
        ends.append(length[lattice.num_arcs :])
        ids.append((lattice.transition_ids[: lattice.string[lattice.num_arcs]], lattice.transition_ids[lattice.string[lattice.num_arcs] :]))
        state += lattice.num_states
    many = len(parts)
    none = np.zeros(many, np.int32)
    counts = np.concatenate([[many], *offset])
    string = np.concatenate([[0], np.cumsum(np.concatenate([none, *lengths, [0], *ends]))]).astype(np.int64)
    inf = np.full(1, np.inf, np.float32)
    return Lattice(np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), np.concatenate([none, *word]).astype(np.int32),
                   np.concatenate([none, *graph]).astype(np.float32), np.concatenate([none, *acoustic]).astype(np.float32),
                   np.concatenate([np.array(first), *target]).astype(np.int32), np.concatenate([inf, *final]),
                   np.concatenate([inf, *final_acoustic]), string, np.concatenate([pair[0] for pair in ids] + [pair[1] for pair in ids]))
