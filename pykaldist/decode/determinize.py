"""Determinisation of a lattice on its words: for each word sequence it keeps the best path at the scale of decoding, and no other.

Kaldi's decoders write lattices that are determinised so, with the transition-ids of the path that was kept, which decides what alignment a
word sequence has when the scales change. The method is that of D. Povey et al., "Generating exact lattices in the WFST framework",
ICASSP 2012, for words alone:

* a state of the result is a set of (lattice state, residual cost, residual string), the ends of the best paths of one word sequence; costs
  are pairs (graph, acoustic), compared by graph + acwt * acoustic. The best cost of a set and the longest common prefix of its strings have
  moved to the arc into it;
* sets are expanded from the best completion upwards (A*, exact, as costs to the end are known), so that a set's forward cost is final when
  it is expanded, and an arc is dropped where the best path through it is worse than the best of all by more than the beam;
* sets with the same states, the same strings and, to within DELTA, the same residual costs are one state.

Strings are nodes of a trie, so that equal strings are equal numbers; node 0 is the empty one.
"""

from __future__ import annotations

import heapq
from dataclasses import replace
from typing import Any

import numpy as np

from pykaldist.decode.lattice import Lattice
from pykaldist.decode.paths import check_not_empty, costs_to_end, scaled_costs
from pykaldist.kernels import kernel

DELTA = 1 / 1024
MAX_WORK = 20_000_000  # arcs followed and transition-ids respelled: seconds
_PARENT, _ID, _DEPTH = 0, 1, 2  # columns of the trie


@kernel
def _grown(x: np.ndarray, size: int) -> np.ndarray:
    if size <= len(x):
        return x
    y = np.empty((2 * size, *x.shape[1:]), x.dtype)
    into, out_of = y.ravel(), x.ravel()
    for i in range(len(out_of)):  # a loop compiles in a tenth of the time of y[: len(x)] = x
        into[i] = out_of[i]
    return y


@kernel
def _longer_string(children: dict[int, int], trie: np.ndarray, node: Any, transition_ids: np.ndarray) -> tuple[np.ndarray, int]:
    """Append `transition_ids` to string `node`: (the trie, the node of the longer string)."""
    for tid in transition_ids:
        key: Any = (np.int64(node) << 32) | (np.int64(tid) & 0xFFFFFFFF)
        if key in children:
            node = children[key]
        else:
            new = len(children)
            trie = _grown(trie, new + 1)
            trie[new, _PARENT], trie[new, _ID], trie[new, _DEPTH] = node, tid, trie[node, _DEPTH] + 1
            children[key] = new
            node = np.int64(new)
    return trie, node


@kernel
def _common(trie: np.ndarray, a: int, b: int) -> int:
    """The node of the longest common prefix of two strings."""
    while trie[a, _DEPTH] > trie[b, _DEPTH]:
        a = trie[a, _PARENT]
    while trie[b, _DEPTH] > trie[a, _DEPTH]:
        b = trie[b, _PARENT]
    while a != b:
        a, b = trie[a, _PARENT], trie[b, _PARENT]
    return a


@kernel
def _spelled(trie: np.ndarray, node: int, prefix: int) -> np.ndarray:
    """The transition-ids of string `node` behind its prefix."""
    ids = np.empty(trie[node, _DEPTH] - trie[prefix, _DEPTH], np.int32)
    for i in range(len(ids) - 1, -1, -1):
        ids[i] = trie[node, _ID]
        node = trie[node, _PARENT]
    return ids


@kernel(nogil=True)
def _determinize(offset: np.ndarray, word: np.ndarray, graph: np.ndarray, acoustic: np.ndarray, target: np.ndarray, final: np.ndarray,
                 final_acoustic: np.ndarray, string: np.ndarray, transition_ids: np.ndarray, to_end: np.ndarray, acwt: float, beam: float,
                 max_work: int) -> tuple[int, bool, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Determinise: (number of states, whether sets were left, source, word, graph, acoustic, target, string node of each arc, trie).

    State 0 starts. An arc of word 0 into state 1 is a final weight. After `max_work`, sets not yet expanded stay so: they are left.
    """
    limit = to_end[0] + beam
    num_arcs = len(word)
    # The sets: elements first[n]:first[n + 1].
    member, residual_g, residual_a = np.empty(1024, np.int64), np.empty(1024), np.empty(1024)
    residual_s = np.empty(1024, np.int64)
    first = np.zeros(1024, np.int64)
    forward = np.full(1024, np.inf)
    expanded = np.zeros(1024, np.bool_)
    buckets: dict[int, int] = {-1: -1}  # hash of a set -> the newest set with it
    older = np.full(1024, -1, np.int64)  # the set before with the same hash
    trie = np.zeros((1024, 3), np.int64)
    children: dict[int, int] = {-1: 0}  # (node, transition-id) -> node
    member[0], residual_g[0], residual_a[0], residual_s[0] = 0, 0.0, 0.0, 0
    first[1] = first[2] = 1
    forward[0] = 0.0
    sets = 2  # set 1 is empty: the end
    arcs = 0
    arc_source, arc_word, arc_target = np.empty(1024, np.int64), np.empty(1024, np.int32), np.empty(1024, np.int64)
    arc_g, arc_a, arc_s = np.empty(1024), np.empty(1024), np.empty(1024, np.int64)
    # Working memory: the closure of the set in hand under arcs without words, and what leaves it by words.
    reach_g, reach_a, reach_s = np.empty(len(final)), np.empty(len(final)), np.empty(len(final), np.int64)
    reached_in = np.full(len(final), -1, np.int64)
    out_word, out_state = np.empty(1024, np.int32), np.empty(1024, np.int64)
    out_g, out_a, out_s = np.empty(1024), np.empty(1024), np.empty(1024, np.int64)
    queue = [(to_end[0], 0)]
    work, complete = 0, False
    while len(queue) > 0 and not (complete and work > max_work):
        _, n = heapq.heappop(queue)
        if expanded[n]:
            continue
        expanded[n] = True
        waiting = [np.int64(-1)]
        waiting.pop()
        for e in range(first[n], first[n + 1]):
            s = member[e]
            reach_g[s], reach_a[s], reach_s[s] = residual_g[e], residual_a[e], residual_s[e]
            reached_in[s] = n
            heapq.heappush(waiting, s)
        out = 0
        end, end_g, end_a, end_cost = np.int64(-1), 0.0, 0.0, np.inf
        while len(waiting) > 0:
            s = heapq.heappop(waiting)
            g, a = reach_g[s], reach_a[s]
            if final[s] < np.inf and g + final[s] + acwt * (a + final_acoustic[s]) < end_cost:
                end, end_g, end_a = s, g + final[s], a + final_acoustic[s]
                end_cost = end_g + acwt * end_a
            work += offset[s + 1] - offset[s]
            for arc in range(offset[s], offset[s + 1]):
                t = target[arc]
                new_g, new_a = g + graph[arc], a + acoustic[arc]
                if word[arc] == 0:
                    if reached_in[t] != n or new_g + acwt * new_a < reach_g[t] + acwt * reach_a[t]:
                        if reached_in[t] != n:
                            heapq.heappush(waiting, np.int64(t))
                        reached_in[t] = n
                        reach_g[t], reach_a[t] = new_g, new_a
                        trie, reach_s[t] = _longer_string(children, trie, reach_s[s], transition_ids[string[arc] : string[arc + 1]])
                else:
                    out_word, out_state, out_s = _grown(out_word, out + 1), _grown(out_state, out + 1), _grown(out_s, out + 1)
                    out_g, out_a = _grown(out_g, out + 1), _grown(out_a, out + 1)
                    out_word[out], out_state[out], out_g[out], out_a[out] = word[arc], t, new_g, new_a
                    trie, out_s[out] = _longer_string(children, trie, reach_s[s], transition_ids[string[arc] : string[arc + 1]])
                    out += 1
        keys = np.empty(out, np.int64)
        for i in range(out):
            keys[i] = np.int64(out_word[i]) * len(final) + out_state[i]
        order = np.argsort(keys, kind="mergesort")
        arc_source, arc_word, arc_target = (_grown(arc_source, arcs + out + 1), _grown(arc_word, arcs + out + 1),
                                            _grown(arc_target, arcs + out + 1))
        arc_g, arc_a, arc_s = _grown(arc_g, arcs + out + 1), _grown(arc_a, arcs + out + 1), _grown(arc_s, arcs + out + 1)
        if forward[n] + end_cost <= limit:
            last = num_arcs + end
            trie, prefix = _longer_string(children, trie, reach_s[end], transition_ids[string[last] : string[last + 1]])
            arc_source[arcs], arc_word[arcs], arc_target[arcs] = n, 0, 1
            arc_g[arcs], arc_a[arcs], arc_s[arcs] = end_g, end_a, prefix
            arcs += 1
            complete = True
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
                residual_a, residual_s = _grown(residual_a, count + 1), _grown(residual_s, count + 1)
                member[count], residual_g[count], residual_a[count], residual_s[count] = out_state[k], out_g[k], out_a[k], out_s[k]
                count += 1
                if c < base:
                    base, base_g, base_a = c, out_g[k], out_a[k]
            prefix = residual_s[begin]
            for e in range(begin + 1, count):
                prefix = _common(trie, prefix, residual_s[e])
            key = np.int64(0)
            completion = np.inf
            for e in range(begin, count):
                residual_g[e] -= base_g
                residual_a[e] -= base_a
                work += trie[residual_s[e], _DEPTH]
                trie, residual_s[e] = _longer_string(children, trie, 0, _spelled(trie, residual_s[e], prefix))
                key = (((key * np.int64(1000003)) ^ member[e]) * np.int64(1000003)) ^ residual_s[e]
                completion = min(completion, residual_g[e] + acwt * residual_a[e] + to_end[member[e]])
            if forward[n] + base + completion > limit:
                continue
            new: Any = buckets[key] if key in buckets else np.int64(-1)
            while new >= 0:
                same = first[new + 1] - first[new] == count - begin
                e = 0
                while same and e < count - begin:
                    p, q = begin + e, first[new] + e
                    same = member[p] == member[q] and residual_s[p] == residual_s[q] and \
                        abs(residual_g[p] - residual_g[q] + acwt * (residual_a[p] - residual_a[q])) <= DELTA
                    e += 1
                if same:
                    break
                new = older[new]
            cost = forward[n] + base
            if new < 0:
                new = np.int64(sets)
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
            arc_source[arcs], arc_word[arcs], arc_target[arcs], arc_g[arcs], arc_a[arcs], arc_s[arcs] = n, w, new, base_g, base_a, prefix
            arcs += 1
    return sets, len(queue) > 0, arc_source[:arcs], arc_word[:arcs], arc_g[:arcs], arc_a[:arcs], arc_target[:arcs], arc_s[:arcs], trie


@kernel(nogil=True)
def _strings(trie: np.ndarray, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The strings of these nodes: (where each one begins, and the end of the last; the transition-ids)."""
    string = np.zeros(len(nodes) + 1, np.int64)
    for i in range(len(nodes)):
        string[i + 1] = string[i] + trie[nodes[i], _DEPTH]
    transition_ids = np.empty(string[-1], np.int32)
    for i in range(len(nodes)):
        node = nodes[i]
        for j in range(string[i + 1] - 1, string[i] - 1, -1):
            transition_ids[j] = trie[node, _ID]
            node = trie[node, _PARENT]
    return string, transition_ids


def determinize(lattice: Lattice, acwt: float, beam: float = 8.0) -> Lattice:
    """Determinise a lattice: one path a word sequence, the best at `acwt`, among paths within `beam` of the best.

    Its arcs all have words. Where that would take more than MAX_WORK, the worst of the paths are left out, as with a smaller beam, and
    the lattice is `narrowed`. Raises ValueError where the lattice has no path.
    """
    check_not_empty(lattice)
    to_end = costs_to_end(lattice.offset, lattice.target, *scaled_costs(lattice, acwt))
    if not to_end[0] < np.inf:
        raise ValueError("the lattice has no path to a final state")
    sets, narrowed, source, word, graph, acoustic, target, nodes, trie = _determinize(
        lattice.offset, lattice.word, lattice.graph, lattice.acoustic, lattice.target, lattice.final, lattice.final_acoustic,
        lattice.string, lattice.transition_ids, to_end, acwt, beam, MAX_WORK)
    ends = target == 1
    final, final_nodes = np.full((2, sets), np.inf, np.float32), np.zeros(sets, np.int64)
    final[0, source[ends]], final[1, source[ends]], final_nodes[source[ends]] = graph[ends], acoustic[ends], nodes[ends]
    order = np.flatnonzero(~ends)
    order = order[np.argsort(source[order], kind="stable")]
    offset = np.zeros(sets + 1, np.int64)
    np.cumsum(np.bincount(source[order], minlength=sets), out=offset[1:])
    string, transition_ids = _strings(trie, np.concatenate([nodes[order], final_nodes]))
    result = Lattice(offset, word[order], graph[order].astype(np.float32), acoustic[order].astype(np.float32),
                     target[order].astype(np.int32), final[0], final[1], string, transition_ids, lattice.reached_final).in_order()
    return replace(result.select(np.flatnonzero(result.reaches_end)), narrowed=narrowed)
