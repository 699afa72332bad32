"""Determinisation of a lattice on its words: for each word sequence, the best path at the scale of decoding, and no other.

Kaldi sweeps language model weights over lattices that are determinised so, which decides what alignment a word sequence keeps when the
scales change. The method is that of D. Povey et al., "Generating exact lattices in the WFST framework", ICASSP 2012, for words alone:

* a state of the result is a set of (lattice state, residual cost), the ends of the best paths of one word sequence; costs are pairs
  (graph, acoustic), compared by graph + acwt * acoustic, and the best residual of a set is 0, the rest having moved to the arc into it;
* sets are expanded from the best completion upwards (A*, exact, as costs to the end are known), so that a set's forward cost is final when
  it is expanded, and an arc is dropped where the best path through it is worse than the best of all by more than the beam;
* sets with the same states and, to within DELTA, the same residuals are one state.
"""

from __future__ import annotations

import heapq

import numba
import numpy as np

from pykaldist.decode.lattice import Lattice

DELTA = 1 / 1024
MAX_ELEMENTS = 2_000_000


@numba.njit(cache=True)
def _costs_to_end(offset: np.ndarray, target: np.ndarray, cost: np.ndarray, final: np.ndarray) -> np.ndarray:
    best = final.astype(np.float64)
    for s in range(len(final) - 1, -1, -1):
        for a in range(offset[s], offset[s + 1]):
            best[s] = min(best[s], cost[a] + best[target[a]])
    return best


@numba.njit(cache=True)
def _grown(x: np.ndarray, size: int) -> np.ndarray:
    if size <= len(x):
        return x
    y = np.empty(2 * size, x.dtype)
    for i in range(len(x)):
        y[i] = x[i]
    return y


@numba.njit(cache=True)
def _determinize(offset: np.ndarray, word: np.ndarray, graph: np.ndarray, acoustic: np.ndarray, target: np.ndarray, final: np.ndarray,
                 acwt: float, beam: float, max_elements: int) -> tuple[int, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(number of states, source, word, graph, acoustic, target of each arc); -1 states where `max_elements` did not suffice.

    State 0 starts; state 1 is the only final one, entered by arcs of word 0.
    """
    to_end = _costs_to_end(offset, target, graph + acwt * acoustic, final)
    limit = to_end[0] + beam
    # The sets: elements first[n]:first[n + 1].
    member, residual_g, residual_a = np.empty(1024, np.int64), np.empty(1024), np.empty(1024)
    first = np.zeros(1024, np.int64)
    forward = np.full(1024, np.inf)
    expanded = np.zeros(1024, np.bool_)
    buckets: dict[int, int] = {-1: -1}  # hash of a set -> the newest set with it
    older = np.full(1024, -1, np.int64)  # the set before with the same hash
    member[0], residual_g[0], residual_a[0] = 0, 0.0, 0.0
    first[1] = first[2] = 1
    forward[0] = 0.0
    sets = 2  # set 1 is empty: the final state
    arcs = 0
    arc_source, arc_word, arc_target = np.empty(1024, np.int64), np.empty(1024, np.int64), np.empty(1024, np.int64)
    arc_g, arc_a = np.empty(1024), np.empty(1024)
    # Working memory: the closure of the set in hand under arcs without words, and what leaves it by words.
    reach_g, reach_a = np.empty(len(final)), np.empty(len(final))
    reached_in = np.full(len(final), -1, np.int64)
    out_word, out_state = np.empty(1024, np.int64), np.empty(1024, np.int64)
    out_g, out_a = np.empty(1024), np.empty(1024)
    queue = [(to_end[0], 0)]
    while len(queue) > 0:
        _, n = heapq.heappop(queue)
        if expanded[n]:
            continue
        expanded[n] = True
        waiting = [np.int64(-1)]
        waiting.pop()
        for e in range(first[n], first[n + 1]):
            s = member[e]
            reach_g[s], reach_a[s] = residual_g[e], residual_a[e]
            reached_in[s] = n
            heapq.heappush(waiting, s)
        out = 0
        end_g, end_a, end_cost = 0.0, 0.0, np.inf
        while len(waiting) > 0:
            s = heapq.heappop(waiting)
            g, a = reach_g[s], reach_a[s]
            if final[s] < np.inf and g + final[s] + acwt * a < end_cost:
                end_g, end_a = g + final[s], a
                end_cost = end_g + acwt * end_a
            for arc in range(offset[s], offset[s + 1]):
                t = target[arc]
                new_g, new_a = g + graph[arc], a + acoustic[arc]
                if word[arc] == 0:
                    if reached_in[t] != n:
                        reached_in[t] = n
                        reach_g[t], reach_a[t] = new_g, new_a
                        heapq.heappush(waiting, np.int64(t))
                    elif new_g + acwt * new_a < reach_g[t] + acwt * reach_a[t]:
                        reach_g[t], reach_a[t] = new_g, new_a
                else:
                    out_word, out_state = _grown(out_word, out + 1), _grown(out_state, out + 1)
                    out_g, out_a = _grown(out_g, out + 1), _grown(out_a, out + 1)
                    out_word[out], out_state[out], out_g[out], out_a[out] = word[arc], t, new_g, new_a
                    out += 1
        if forward[n] + end_cost <= limit:
            arc_source, arc_word, arc_target = _grown(arc_source, arcs + 1), _grown(arc_word, arcs + 1), _grown(arc_target, arcs + 1)
            arc_g, arc_a = _grown(arc_g, arcs + 1), _grown(arc_a, arcs + 1)
            arc_source[arcs], arc_word[arcs], arc_target[arcs], arc_g[arcs], arc_a[arcs] = n, 0, 1, end_g, end_a
            arcs += 1
        keys = np.empty(out, np.int64)
        for i in range(out):
            keys[i] = out_word[i] * len(final) + out_state[i]
        order = np.argsort(keys, kind="mergesort")
        i = 0
        while i < out:
            w = out_word[order[i]]
            begin = first[sets]
            count = begin
            base_g, base_a, base = 0.0, 0.0, np.inf
            while i < out and out_word[order[i]] == w:
                k = order[i]
                i += 1
                c = out_g[k] + acwt * out_a[k]
                if count > begin and member[count - 1] == out_state[k]:
                    if c >= residual_g[count - 1] + acwt * residual_a[count - 1]:
                        continue
                    count -= 1
                member, residual_g = _grown(member, count + 1), _grown(residual_g, count + 1)
                residual_a = _grown(residual_a, count + 1)
                member[count], residual_g[count], residual_a[count] = out_state[k], out_g[k], out_a[k]
                count += 1
                if c < base:
                    base, base_g, base_a = c, out_g[k], out_a[k]
            key = np.int64(0)
            completion = np.inf
            for e in range(begin, count):
                residual_g[e] -= base_g
                residual_a[e] -= base_a
                key = (key * np.int64(1000003)) ^ member[e]
                completion = min(completion, residual_g[e] + acwt * residual_a[e] + to_end[member[e]])
            if forward[n] + base + completion > limit:
                continue
            new = buckets[key] if key in buckets else np.int64(-1)
            while new >= 0:
                same = first[new + 1] - first[new] == count - begin
                e = 0
                while same and e < count - begin:
                    p, q = begin + e, first[new] + e
                    same = member[p] == member[q] and abs(residual_g[p] - residual_g[q]) <= DELTA and \
                        acwt * abs(residual_a[p] - residual_a[q]) <= DELTA
                    e += 1
                if same:
                    break
                new = older[new]
            cost = forward[n] + base
            if new < 0:
                new = np.int64(sets)
                if count > max_elements:
                    return -1, arc_source, arc_word, arc_g, arc_a, arc_target
                if sets + 2 > len(older):
                    first, older = _grown(first, sets + 3), _grown(older, sets + 3)
                    forward, expanded = _grown(forward, sets + 3), _grown(expanded, sets + 3)
                sets += 1
                first[sets] = count
                older[new] = buckets[key] if key in buckets else np.int64(-1)
                buckets[key] = new
                forward[new] = np.inf
                expanded[new] = False
            if cost < forward[new]:
                forward[new] = cost
                heapq.heappush(queue, (cost + completion, new))
            arc_source, arc_word, arc_target = _grown(arc_source, arcs + 1), _grown(arc_word, arcs + 1), _grown(arc_target, arcs + 1)
            arc_g, arc_a = _grown(arc_g, arcs + 1), _grown(arc_a, arcs + 1)
            arc_source[arcs], arc_word[arcs], arc_target[arcs], arc_g[arcs], arc_a[arcs] = n, w, new, base_g, base_a
            arcs += 1
    return sets, arc_source[:arcs], arc_word[:arcs], arc_g[:arcs], arc_a[:arcs], arc_target[:arcs]


def determinize(lattice: Lattice, acwt: float, beam: float = 8.0) -> Lattice:
    """The lattice with one path a word sequence, the best at `acwt`, among paths within `beam` of the best.

    Its arcs have a word (or, into the final state, none) and no transition-ids, so all its states are of frame 0. A lattice with very many
    word sequences is cut to a smaller beam. Raises ValueError where it has no path.
    """
    if lattice.num_states == 0:
        raise ValueError("the lattice is empty")
    num_states = -1
    while num_states < 0:
        num_states, source, word, graph, acoustic, target = _determinize(
            lattice.offset, lattice.word, lattice.graph, lattice.acoustic, lattice.target, lattice.final, acwt, beam, MAX_ELEMENTS)
        beam *= 0.7
    if len(source) == 0:
        raise ValueError("the lattice has no path to a final state")
    order = np.argsort(source, kind="stable")
    offset = np.zeros(num_states + 1, np.int64)
    np.cumsum(np.bincount(source, minlength=num_states), out=offset[1:])
    final = np.full(num_states, np.inf, np.float32)
    final[1] = 0
    result = Lattice.in_order(0, offset, np.zeros(len(source), np.int32), word[order], graph[order], acoustic[order], target[order], final)
    result.reached_final = lattice.reached_final
    return result
