"""The best paths of a lattice under any scales.

A path's cost at a point of a sweep is  lm_scale * graph + acoustic_scale * acoustic + word_ins_penalty * words.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pykaldist.decode.lattice import Lattice
from pykaldist.kernels import kernel


@dataclass
class LatticePath:
    """One path through a lattice: its words, its transition-ids, its unscaled costs with the final state's."""

    words: list[int]
    transition_ids: np.ndarray
    graph: float
    acoustic: float

    def lattice(self) -> Lattice:
        """The path as a lattice, the transition-ids and costs on the first arc; without words, on the state that starts and ends it."""
        arcs = len(self.words)
        ends = np.array([0, len(self.transition_ids)])
        string = np.concatenate([[0], np.full(2 * arcs, ends[1]), ends[-1:]]) if arcs else ends
        cost = np.zeros((2, arcs), np.float32)
        final = np.full((2, arcs + 1), np.inf, np.float32)
        final[:, -1] = (0, 0) if arcs else (self.graph, self.acoustic)
        if arcs:
            cost[:, 0] = self.graph, self.acoustic
        offset = np.minimum(np.arange(arcs + 2), arcs)
        return Lattice(offset, np.array(self.words, np.int32), cost[0], cost[1], np.arange(1, arcs + 1, dtype=np.int32), final[0], final[1],
                       string.astype(np.int64), self.transition_ids)


@kernel(nogil=True)
def _best_arcs(offset: np.ndarray, word: np.ndarray, graph: np.ndarray, acoustic: np.ndarray, target: np.ndarray, final: np.ndarray,
               final_acoustic: np.ndarray, lm_scale: np.ndarray, acoustic_scale: np.ndarray, penalty: np.ndarray) -> tuple[
                   np.ndarray, np.ndarray, np.ndarray]:
    """Find the best path of each of K points.

    Returns arcs from its end to its start [K, longest], their number [K], the final state [K], -1 for no path.
    """
    states, points = len(final), len(lm_scale)
    cost = np.full((states, points), np.inf)
    back = np.full((states, points), -1, np.int64)
    source = np.empty(len(target), np.int64)
    end_cost = np.full(points, np.inf)
    end = np.full(points, -1, np.int64)
    cost[0] = 0
    for s in range(states):
        for a in range(offset[s], offset[s + 1]):
            source[a] = s
            t = target[a]
            for k in range(points):
                c = cost[s, k] + lm_scale[k] * graph[a] + acoustic_scale[k] * acoustic[a] + (penalty[k] if word[a] != 0 else 0.0)
                if c < cost[t, k]:
                    cost[t, k] = c
                    back[t, k] = a
        if final[s] < np.inf:
            for k in range(points):
                c = cost[s, k] + lm_scale[k] * final[s] + acoustic_scale[k] * final_acoustic[s]
                if c < end_cost[k]:
                    end_cost[k] = c
                    end[k] = s
    length = np.zeros(points, np.int64)
    arcs = np.empty((points, states), np.int64)
    for k in range(points):
        s = end[k]
        while s > 0:
            arcs[k, length[k]] = back[s, k]
            length[k] += 1
            s = source[back[s, k]]
    return arcs, length, end


def _best(lattice: Lattice, lm_scale: Sequence[float], acoustic_scale: Sequence[float], word_ins_penalty: Sequence[float]) -> list[
        tuple[np.ndarray, int]]:
    """Find (arcs, final state) of the best path at each point."""
    check_not_empty(lattice)
    scales = [np.ascontiguousarray(x, np.float64) for x in (lm_scale, acoustic_scale, word_ins_penalty)]
    arcs, length, end = _best_arcs(lattice.offset, lattice.word, lattice.graph, lattice.acoustic, lattice.target, lattice.final,
                                   lattice.final_acoustic, *scales)
    if (end < 0).any():
        raise ValueError("the lattice has no path to a final state")
    return [(row[:n][::-1], int(e)) for row, n, e in zip(arcs, length, end, strict=True)]


def check_not_empty(lattice: Lattice) -> None:
    """Check that a lattice has states; raises ValueError where it has none."""
    if lattice.num_states == 0:
        raise ValueError("the lattice is empty")


def path_of(lattice: Lattice, arcs: Sequence[int] | np.ndarray, end: int) -> LatticePath:
    """The path of these arcs, from the start to the final state `end`."""
    arcs = np.asarray(arcs, np.int64)
    ids = [lattice.ids(a) for a in (*arcs.tolist(), lattice.num_arcs + end)]
    return LatticePath([int(w) for w in lattice.word[arcs] if w], np.concatenate(ids),
                       float(lattice.graph[arcs].sum(dtype=np.float64) + lattice.final[end]),
                       float(lattice.acoustic[arcs].sum(dtype=np.float64) + lattice.final_acoustic[end]))


def best_words(lattice: Lattice, lm_scale: Sequence[float], acoustic_scale: Sequence[float],
               word_ins_penalty: Sequence[float]) -> list[list[int]]:
    """Find the words of the best path at each of K points (three sequences of length K), in one pass over the lattice.

    Like the other functions here, raises ValueError with a clause where the lattice has no path.
    """
    return [[int(w) for w in lattice.word[arcs] if w] for arcs, _ in _best(lattice, lm_scale, acoustic_scale, word_ins_penalty)]


def best_path(lattice: Lattice, acoustic_scale: float, lm_scale: float = 1.0, word_ins_penalty: float = 0.0) -> LatticePath:
    """Find the best path at one point."""
    ((arcs, end),) = _best(lattice, [lm_scale], [acoustic_scale], [word_ins_penalty])
    return path_of(lattice, arcs, end)


def best_path_lattice(lattice: Lattice, acoustic_scale: float, lm_scale: float = 1.0, word_ins_penalty: float = 0.0) -> Lattice:
    """The best path as a lattice whose arcs have their own words, costs and transition-ids."""
    ((arcs, end),) = _best(lattice, [lm_scale], [acoustic_scale], [word_ins_penalty])
    count = len(arcs)
    final = np.full((2, count + 1), np.inf, np.float32)
    final[:, -1] = lattice.final[end], lattice.final_acoustic[end]
    strings = [lattice.ids(a) for a in arcs.tolist()] + [np.empty(0, np.int32)] * count + [lattice.ids(lattice.num_arcs + end)]
    string = np.concatenate([[0], np.cumsum([len(ids) for ids in strings])]).astype(np.int64)
    return Lattice(np.minimum(np.arange(count + 2), count), lattice.word[arcs], lattice.graph[arcs], lattice.acoustic[arcs],
                   np.arange(1, count + 1, dtype=np.int32), final[0], final[1], string, np.concatenate(strings))


def pruned(lattice: Lattice, beam: float, acoustic_scale: float, lm_scale: float = 1.0) -> Lattice:
    """The lattice without arcs and ends that are on no path within `beam` of the best one."""
    check_not_empty(lattice)
    cost, final = scaled_costs(lattice, acoustic_scale, lm_scale)
    to_end = costs_to_end(lattice.offset, lattice.target, cost, final)
    from_start = _costs_from_start(lattice.offset, lattice.target, cost)
    limit = to_end[0] + beam
    arcs = from_start[lattice.source] + cost + to_end[lattice.target] <= limit
    ends = from_start + final <= limit
    offset = np.concatenate([[0], np.cumsum(arcs)])[lattice.offset]
    length = np.diff(lattice.string)
    kept = np.concatenate([arcs, np.ones(lattice.num_states, bool)])
    length[lattice.num_arcs :][~ends] = 0
    ids = np.concatenate([np.repeat(arcs, np.diff(lattice.string)[: lattice.num_arcs]),
                          np.repeat(ends, np.diff(lattice.string)[lattice.num_arcs :])])
    result = Lattice(offset, lattice.word[arcs], lattice.graph[arcs], lattice.acoustic[arcs], lattice.target[arcs],
                     np.where(ends, lattice.final, np.inf).astype(np.float32),
                     np.where(ends, lattice.final_acoustic, np.inf).astype(np.float32),
                     np.concatenate([[0], np.cumsum(length[kept])]), lattice.transition_ids[ids], lattice.reached_final)
    return result.select(np.flatnonzero(from_start + to_end <= limit))


@kernel
def _costs_from_start(offset: np.ndarray, target: np.ndarray, cost: np.ndarray) -> np.ndarray:
    best = np.full(len(offset) - 1, np.inf)
    best[0] = 0
    for s in range(len(best)):
        for a in range(offset[s], offset[s + 1]):
            best[target[a]] = min(best[target[a]], best[s] + cost[a])
    return best


def scaled_costs(lattice: Lattice, acoustic_scale: float, lm_scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """The costs under the scales: (cost of each arc [A], of each final state [S], inf where it is not final), float64."""
    final = np.full(lattice.num_states, np.inf)
    ends = lattice.final < np.inf
    final[ends] = lm_scale * lattice.final[ends].astype(np.float64) + acoustic_scale * lattice.final_acoustic[ends]
    return lm_scale * lattice.graph.astype(np.float64) + acoustic_scale * lattice.acoustic, final


def nbest(lattice: Lattice, n: int, acoustic_scale: float, lm_scale: float = 1.0) -> Iterator[LatticePath]:
    """Find up to `n` paths, the best first (A* with exact costs to the end); in a determinised lattice each has words of its own."""
    check_not_empty(lattice)
    cost, final = scaled_costs(lattice, acoustic_scale, lm_scale)
    to_end = costs_to_end(lattice.offset, lattice.target, cost, final)
    if not to_end[0] < np.inf:
        raise ValueError("the lattice has no path to a final state")
    # (cost of the whole path, serial, state or -1 at the end, cost so far, (arc, its predecessor, ...))
    queue: list[tuple[float, int, int, float, tuple]] = [(to_end[0], 0, 0, 0.0, ())]
    serial = found = 0
    while queue and found < n:
        _, _, state, so_far, chain = heapq.heappop(queue)
        if state < 0:
            end, chain = chain
            arcs = []
            while chain:
                arc, chain = chain
                arcs.append(arc)
            yield path_of(lattice, arcs[::-1], end)
            found += 1
            continue
        if final[state] < np.inf:
            serial += 1
            heapq.heappush(queue, (so_far + final[state], serial, -1, 0.0, (state, chain)))
        for a in range(lattice.offset[state], lattice.offset[state + 1]):
            to, after = int(lattice.target[a]), so_far + cost[a]
            if to_end[to] < np.inf:
                serial += 1
                heapq.heappush(queue, (after + to_end[to], serial, to, after, (a, chain)))


@kernel(nogil=True)
def costs_to_end(offset: np.ndarray, target: np.ndarray, cost: np.ndarray, final: np.ndarray) -> np.ndarray:
    """The cost of the best path from each state to the end, inf where there is none."""
    best = final.astype(np.float64)
    for s in range(len(final) - 1, -1, -1):
        for a in range(offset[s], offset[s + 1]):
            best[s] = min(best[s], cost[a] + best[target[a]])
    return best
