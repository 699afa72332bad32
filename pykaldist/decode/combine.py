"""Combination of lattices of several systems.

`combined`: one lattice in which each system's paths have the system's share of the probability. `interpolated`: the paths that two lattices
share, at weighted sums of their costs.
"""

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


def interpolated(first: Lattice, second: Lattice, weight: float) -> Lattice | None:
    """The paths whose words both lattices have, at weight * costs of the first + (1 - weight) * the second's; None where none is left.

    Transition-ids are those of the first, as in Kaldi's lattice-interp.
    """
    numbers = {(0, 0): 0}
    pairs = [(0, 0)]
    arcs: list[tuple[int, int, int, int]] = []  # source, target, arc of the first, arc of the second; -1: none
    first_offset, first_word, first_target = first.offset.tolist(), first.word.tolist(), first.target.tolist()
    second_offset, second_word, second_target = second.offset.tolist(), second.word.tolist(), second.target.tolist()

    def number(pair: tuple[int, int]) -> int:
        if pair not in numbers:
            numbers[pair] = len(pairs)
            pairs.append(pair)
        return numbers[pair]

    for here, (one, two) in enumerate(pairs):  # grows
        by_word: dict[int, list[int]] = {}
        for arc in range(second_offset[two], second_offset[two + 1]):
            by_word.setdefault(second_word[arc], []).append(arc)
        for arc in range(first_offset[one], first_offset[one + 1]):
            if first_word[arc] == 0:
                arcs.append((here, number((first_target[arc], two)), arc, -1))
            else:
                goal = first_target[arc]
                arcs += [(here, number((goal, second_target[other])), arc, other) for other in by_word.get(first_word[arc], ())]
        arcs += [(here, number((one, second_target[arc])), -1, arc) for arc in by_word.get(0, ())]
    return _joint(first, second, weight, arcs, np.array(pairs))


def _joint(first: Lattice, second: Lattice, weight: float, arcs: list[tuple[int, int, int, int]], pairs: np.ndarray) -> Lattice | None:
    source, target, mine, theirs = np.array(arcs, np.int64).reshape(-1, 4).T
    one, two = pairs.T

    def mixed(x: np.ndarray, y: np.ndarray, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """weight * x[i] + (1 - weight) * y[j], nothing of either where its index is -1."""
        return (weight * np.append(x, 0)[i] + (1 - weight) * np.append(y, 0)[j]).astype(np.float32)

    strings = np.concatenate([np.where(mine < 0, first.num_arcs + first.num_states, mine), first.num_arcs + one])
    length = np.append(np.diff(first.string), 0)[strings]
    string = np.concatenate([[0], np.cumsum(length)]).astype(np.int64)
    places = np.arange(string[-1]) + np.repeat(first.string[strings] - string[:-1], length)
    offset = np.searchsorted(source, np.arange(len(pairs) + 1)).astype(np.int64)
    made = Lattice(offset, np.append(first.word, 0)[mine].astype(np.int32), mixed(first.graph, second.graph, mine, theirs),
                   mixed(first.acoustic, second.acoustic, mine, theirs), target.astype(np.int32),
                   mixed(first.final, second.final, one, two), mixed(first.final_acoustic, second.final_acoustic, one, two), string,
                   first.transition_ids[places]).in_order()
    reaches = made.reaches_end
    return made.select(np.flatnonzero(reaches)) if reaches[0] else None
