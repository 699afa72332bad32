"""Determinisation of transducers with epsilons, in the log or the tropical semiring, with flat arrays: Kaldi's fstdeterminizestar.

A state of the result is a subset of the input's states, each with a weight and with the output that is still to be written (its part
behind what all have in common). From the subset all epsilons are followed; then the arcs of each label lead to one subset. Subsets whose
weights differ by at most 1/1024 are one state. The last subset met is looked at first, which numbers the states. Outputs of several words
become a chain of arcs, whose states come behind the others.

Outputs are nodes of a tree: a node's output is its parent's and one word more, node 0 is empty, so that equal outputs are one node.
Source: M. Mohri, "Finite-state transducers in language and speech processing", Computational Linguistics 23, 1997; epsilons as in Kaldi's
fstext/determinize-star-inl.h.
"""

from __future__ import annotations

import numpy as np

from pykaldist.io.fst import Fst
from pykaldist.io.fst_compose import longer, mixed, slot_of, sort_arcs, twice_as_large
from pykaldist.io.fstops import log_plus
from pykaldist.kernels import kernel

DELTA = np.float32(1 / 1024)
#: A member of a subset: state, output that is to be written, weight.
MEMBER = np.dtype([("state", "i4"), ("output", "i4"), ("weight", "f4")])
#: An arc of the result; its target is -1 where it is the final weight of its state.
ARC = np.dtype([("label", "i4"), ("output", "i4"), ("weight", "f4"), ("target", "i4")])


@kernel
def _near(a: np.float32, b: np.float32) -> bool:
    return a <= b + DELTA and b <= a + DELTA


@kernel
def _plus(a: np.float32, b: np.float32, tropical: bool) -> np.float32:
    """The cost of two paths together: in the tropical semiring that of the better one."""
    return min(a, b) if tropical else log_plus(a, b)


@kernel
def _records(x: np.ndarray, size: int) -> np.ndarray:
    """A copy with room for `size` records."""
    y = np.empty(size, x.dtype)
    for i in range(len(x)):
        y[i] = x[i]
    return y


@kernel
def _with_word(tree: np.ndarray, table: np.ndarray, size: int, output: int, word: int) -> tuple[np.ndarray, np.ndarray, int, int]:
    """The output with a word more; returns (tree, its hash table, its size, the node)."""
    key = (np.int64(output) << 32) | word
    slot = slot_of(table, tree, key)
    if table[slot] < 0:
        if size == len(tree):
            tree = longer(tree, 2 * size)
        tree[size] = key
        table[slot] = size
        size += 1
        if 2 * size > len(table):
            table = twice_as_large(table, tree, size)
        return tree, table, size, size - 1
    return tree, table, size, table[slot]


@kernel
def _words(tree: np.ndarray, output: int, above: int, words: np.ndarray) -> tuple[np.ndarray, int]:
    """The words of an output behind those of the node `above`, the last one first; returns (words, their number)."""
    count = 0
    while output != above:
        if count == len(words):
            words = longer(words, 2 * count)
        words[count] = tree[output] & 0x7FFFFFFF
        count += 1
        output = tree[output] >> 32
    return words, count


@kernel
def _depth(tree: np.ndarray, output: int) -> int:
    depth = 0
    while output != 0:
        output = tree[output] >> 32
        depth += 1
    return depth


@kernel
def _common(tree: np.ndarray, a: int, b: int) -> int:
    """The longest output with which both begin."""
    if a == b:
        return a
    more = _depth(tree, a) - _depth(tree, b)
    while more > 0:
        a = tree[a] >> 32
        more -= 1
    while more < 0:
        b = tree[b] >> 32
        more += 1
    while a != b:
        a, b = tree[a] >> 32, tree[b] >> 32
    return a


@kernel
def _subset_slot(table: np.ndarray, members: np.ndarray, first: np.ndarray, subset: np.ndarray, count: int) -> int:
    """Where a subset is in the hash table of states, or where it belongs."""
    mask = len(table) - 1
    key = np.int64(count)
    for i in range(count):
        key = mixed(key * 31 + subset[i].state * 103_333 + subset[i].output)
    slot = key & mask
    while table[slot] >= 0:
        begin = first[table[slot]]
        same = first[table[slot] + 1] - begin == count
        i = 0
        while same and i < count:
            other = members[begin + i]
            same = other.state == subset[i].state and other.output == subset[i].output and _near(other.weight, subset[i].weight)
            i += 1
        if same:
            break
        slot = (slot + 1) & mask
    return slot


@kernel
def _add(closed: np.ndarray, todo: np.ndarray, queued: np.ndarray, where: np.ndarray, queue: np.ndarray, size: int, tail: int, state: int,
         output: int, weight: np.float32, tropical: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, int, int]:
    """Add a way by epsilons to a subset; returns (members, weights to be passed on, in the queue or not, queue, size, queue's end)."""
    at = where[state]
    if tail == len(queue):
        queue = longer(queue, 2 * tail)
    if at < 0 or at >= size or closed[at].state != state:
        if size == len(closed):
            closed, todo, queued = _records(closed, 2 * size), longer(todo, 2 * size), longer(queued, 2 * size)
        closed[size].state, closed[size].output, closed[size].weight = state, output, np.float32(np.inf)
        todo[size], queued[size], where[state] = weight, True, size
        queue[tail] = state
        return closed, todo, queued, queue, size + 1, tail + 1
    if closed[at].output != output:
        raise ValueError("has two outputs for one input")
    todo[at] = _plus(todo[at], weight, tropical)
    if not queued[at] and not _near(_plus(closed[at].weight, todo[at], tropical), closed[at].weight):
        queued[at] = True
        queue[tail] = state
        tail += 1
    return closed, todo, queued, queue, size, tail


@kernel
def _determinize(start: int, final: np.ndarray, offset: np.ndarray, ilabel: np.ndarray, olabel: np.ndarray, weight: np.ndarray,
                 nextstate: np.ndarray, max_states: int, tropical: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Determinise; returns (arcs, of each state the places of its first arc and behind its last one, tree of outputs)."""
    inf = np.float32(np.inf)
    tree, tree_table, tree_size = np.full(1024, -1, np.int64), np.full(4096, -1, np.int32), 1
    members, first, num_members = np.empty(4096, MEMBER), np.zeros(1025, np.int64), 1
    table = np.full(4096, -1, np.int32)
    arcs, num_arcs, places = np.empty(4096, ARC), 0, np.zeros((1024, 2), np.int64)
    stack, waiting = np.zeros(1024, np.int32), 1
    where = np.full(len(final), -1, np.int32)
    closed, todo, queued, queue = np.empty(64, MEMBER), np.empty(64, np.float32), np.empty(64, np.bool_), np.empty(64, np.int32)
    steps, keys, words = np.empty(64, MEMBER), np.empty(64, np.int64), np.empty(64, np.int32)
    members[0].state, members[0].output, members[0].weight = start, 0, np.float32(0)
    first[1] = 1
    table[_subset_slot(table, members, first, members, 1)] = 0
    states = 1
    while waiting > 0:
        waiting -= 1
        s = stack[waiting]
        # 1. Follow the epsilons.
        size, head, tail, has_eps = first[s + 1] - first[s], 0, 0, False
        if size > len(closed):
            closed, todo, queued = np.empty(2 * size, MEMBER), np.empty(2 * size, np.float32), np.empty(2 * size, np.bool_)
        for i in range(size):
            closed[i] = members[first[s] + i]
            begin = offset[closed[i].state]
            has_eps |= begin < offset[closed[i].state + 1] and ilabel[begin] == 0
        if has_eps:
            initial = size
            for i in range(initial):
                todo[i], queued[i] = closed[i].weight, False
                closed[i].weight = inf
                where[closed[i].state] = i
            at = 0
            while at < initial or head < tail:  # those of the subset itself first, with the weights that they came with
                if at < initial:
                    i, passed = at, members[first[s] + at].weight
                    at += 1
                else:
                    i = where[queue[head]]
                    head += 1
                    passed = todo[i]
                    closed[i].weight = _plus(closed[i].weight, passed, tropical)
                    todo[i], queued[i] = inf, False
                state, output = closed[i].state, closed[i].output
                for a in range(offset[state], offset[state + 1]):
                    if ilabel[a] != 0:
                        break
                    longer_output = output
                    if olabel[a] != 0:
                        tree, tree_table, tree_size, longer_output = _with_word(tree, tree_table, tree_size, output, olabel[a])
                    closed, todo, queued, queue, size, tail = _add(closed, todo, queued, where, queue, size, tail, nextstate[a],
                                                                   longer_output, passed + weight[a], tropical)
            for i in range(size):
                if todo[i] != inf:
                    closed[i].weight = _plus(closed[i].weight, todo[i], tropical)
            if size > len(keys):
                keys = np.empty(2 * size, np.int64)
            for i in range(size):
                keys[i] = closed[i].state
            order = np.argsort(keys[:size])
            if size > len(steps):
                steps = np.empty(2 * size, MEMBER)
            for i in range(size):
                steps[i] = closed[i]
            for i in range(size):
                closed[i] = steps[order[i]]
        # 2. The final weight.
        places[s, 0] = num_arcs
        is_final, final_output, final_weight = False, 0, inf
        count = 0
        for i in range(size):
            state = closed[i].state
            count += offset[state + 1] - offset[state]
            if final[state] < inf:
                if is_final and final_output != closed[i].output:
                    raise ValueError("has two outputs for one input")
                is_final, final_output = True, closed[i].output
                final_weight = _plus(final_weight, closed[i].weight + final[state], tropical)
        if num_arcs + count + 1 > len(arcs):
            arcs = _records(arcs, num_arcs + num_arcs // 2 + count + 1)
        if is_final:
            arc = arcs[num_arcs]
            arc.label, arc.output, arc.weight, arc.target = 0, final_output, final_weight, -1
            num_arcs += 1
        # 3. The arcs, in the order of their labels and targets.
        if count > len(steps):
            steps = np.empty(2 * count, MEMBER)
        if count > len(keys):
            keys = np.empty(2 * count, np.int64)
        count = 0
        for i in range(size):
            state = closed[i].state
            for a in range(offset[state], offset[state + 1]):
                if ilabel[a] != 0:
                    output = closed[i].output
                    if olabel[a] != 0:
                        tree, tree_table, tree_size, output = _with_word(tree, tree_table, tree_size, output, olabel[a])
                    steps[count].state, steps[count].output, steps[count].weight = nextstate[a], output, closed[i].weight + weight[a]
                    keys[count] = (np.int64(ilabel[a]) << 32) | nextstate[a]
                    count += 1
        order = np.argsort(keys[:count], kind="mergesort") if count > 1 else np.arange(count)
        if count > len(closed):
            closed, todo, queued = np.empty(2 * count, MEMBER), np.empty(2 * count, np.float32), np.empty(2 * count, np.bool_)
        at = 0
        while at < count:
            label, size = keys[order[at]] >> 32, 0
            while at < count and keys[order[at]] >> 32 == label:
                step = steps[order[at]]
                if size and closed[size - 1].state == step.state:
                    if closed[size - 1].output != step.output:
                        raise ValueError("has two outputs for one input")
                    closed[size - 1].weight = _plus(closed[size - 1].weight, step.weight, tropical)
                else:
                    closed[size] = step
                    size += 1
                at += 1
            common, total = closed[0].output, closed[0].weight
            for i in range(1, size):
                common = _common(tree, common, closed[i].output)
                total = _plus(total, closed[i].weight, tropical)
            for i in range(size):
                closed[i].weight -= total
                if common != 0:
                    words, length = _words(tree, closed[i].output, common, words)
                    output = 0
                    for w in range(length - 1, -1, -1):
                        tree, tree_table, tree_size, output = _with_word(tree, tree_table, tree_size, output, words[w])
                    closed[i].output = output
            slot = _subset_slot(table, members, first, closed, size)
            if table[slot] < 0:
                if states == max_states:
                    raise ValueError("has more states than are allowed")
                if num_members + size > len(members):
                    members = _records(members, num_members + num_members // 2 + size)
                for i in range(size):
                    members[num_members + i] = closed[i]
                num_members += size
                if states + 1 == len(first):
                    first = longer(first, states + states // 2 + 2)
                    larger = np.zeros((states + states // 2 + 2, 2), np.int64)
                    larger[:states] = places[:states]
                    places = larger
                first[states + 1] = num_members
                table[slot] = states
                if waiting == len(stack):
                    stack = longer(stack, 2 * waiting)
                stack[waiting] = states
                waiting += 1
                states += 1
                if 2 * states > len(table):
                    larger_table = np.full(2 * len(table), -1, np.int32)
                    for t in range(states):
                        larger_table[_subset_slot(larger_table, members, first, members[first[t]:first[t + 1]],
                                                  first[t + 1] - first[t])] = t
                    table = larger_table
                    slot = _subset_slot(table, members, first, closed, size)
            arc = arcs[num_arcs]
            arc.label, arc.output, arc.weight, arc.target = label, common, total, table[slot]
            num_arcs += 1
        places[s, 1] = num_arcs
    return arcs, places[:states], tree


@kernel
def _written(arcs: np.ndarray, places: np.ndarray, tree: np.ndarray) -> tuple[
        np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The transducer of determinised arcs: outputs of several words become chains; (final, offset, ilabel, olabel, weight, nextstate)."""
    states = len(places)
    chain, chained_arcs, more_states, more_arcs = states, 0, 0, 0
    for s in range(states):
        for a in range(places[s, 0], places[s, 1]):
            depth = _depth(tree, arcs[a].output)
            more_states += depth if arcs[a].target < 0 else max(depth - 1, 0)
            more_arcs += max(depth - 1, 0)
            chained_arcs += arcs[a].target >= 0 or depth > 0
    all_states, all_arcs = states + more_states, chained_arcs + more_arcs
    final, offset = np.full(all_states, np.float32(np.inf)), np.zeros(all_states + 1, np.int64)
    ilabel, olabel, nextstate = np.zeros(all_arcs, np.int32), np.zeros(all_arcs, np.int32), np.empty(all_arcs, np.int32)
    weight = np.zeros(all_arcs, np.float32)
    words = np.empty(64, np.int32)
    to = 0
    for s in range(states):
        for a in range(places[s, 0], places[s, 1]):
            arc = arcs[a]
            words, length = _words(tree, arc.output, 0, words)
            links = length if arc.target < 0 else max(length, 1)
            if links == 0:
                final[s] = arc.weight
            for i in range(links):
                last = i == links - 1
                own = to if i == 0 else chained_arcs
                ilabel[own] = arc.label if i == 0 else 0
                olabel[own] = words[length - 1 - i] if length else 0
                weight[own] = arc.weight if i == 0 else np.float32(0)
                nextstate[own] = arc.target if last and arc.target >= 0 else chain
                if i == 0:
                    to += 1
                else:
                    chained_arcs += 1
                    offset[chain] = chained_arcs  # that of the state before is its end
                if not last or arc.target < 0:
                    chain += 1
                    offset[chain] = chained_arcs
                    if last:
                        final[chain - 1] = np.float32(0)
        offset[s + 1] = to
    return final, offset, ilabel, olabel, weight, nextstate


def determinize(fst: Fst, max_states: int, tropical: bool = False) -> Fst:
    """Make an equivalent transducer in which no state has two arcs of one input label, nor epsilons but in chains of outputs.

    Two paths of one input and output become one, with the probability of both, or in the tropical semiring with that of the better one.
    Sorts the arcs of `fst`. Raises ValueError where an input has two outputs, or where it takes more than `max_states`.
    """
    sort_arcs(fst.offset, fst.ilabel, fst.olabel, fst.weight, fst.nextstate)
    found = _determinize(fst.start, fst.final, fst.offset, fst.ilabel, fst.olabel, fst.weight, fst.nextstate, max_states, tropical)
    return Fst(0, *_written(*found))
