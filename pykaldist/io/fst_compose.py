"""Composition of transducers as flat arrays, and the trimming of states: as OpenFst's, in a third of the memory.

A state of the composition is a pair (state of the left, state of the right) and what the filter remembers: after an epsilon of the right
alone none of the left may follow, so that each pair of paths is made once ("sequence filter"). States are numbered as they are met.
Source: M. Mohri, F. Pereira, M. Riley, "Speech recognition with weighted finite-state transducers", 2008, section 2.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pykaldist.io.fst import Fst
from pykaldist.kernels import kernel


@kernel
def longer(x: np.ndarray, size: int) -> np.ndarray:
    """A copy with room for `size` numbers."""
    y = np.empty(size, x.dtype)
    y[: len(x)] = x
    return y


@kernel
def mixed(x: int) -> Any:
    """A number >= 0 whose bits all depend on all bits of x (the finaliser of MurmurHash3)."""
    u = np.uint64(x)
    u = (u ^ (u >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    u = (u ^ (u >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return np.int64((u ^ (u >> np.uint64(33))) >> np.uint64(1))


@kernel
def slot_of(table: np.ndarray, keys: np.ndarray, key: int) -> int:
    """Where a key is in an open hash table of places in `keys` (-1: an empty slot), or where it belongs."""
    mask = len(table) - 1
    slot = mixed(key) & mask
    while table[slot] >= 0 and keys[table[slot]] != key:
        slot = (slot + 1) & mask
    return slot


@kernel
def twice_as_large(table: np.ndarray, keys: np.ndarray, count: int) -> np.ndarray:
    """The table of the first `count` keys with twice as many slots."""
    larger = np.full(2 * len(table), -1, np.int32)
    for i in range(count):
        larger[slot_of(larger, keys, keys[i])] = i
    return larger


@kernel
def number_of(keys: np.ndarray, table: np.ndarray, count: int, key: int) -> tuple[np.ndarray, np.ndarray, int]:
    """The place of a key among the first `count`, or `count` where it is new and has been put there; returns (keys, table, place)."""
    slot = slot_of(table, keys, key)
    if table[slot] >= 0:
        return keys, table, np.int64(table[slot])
    if count == len(keys):
        keys = longer(keys, 2 * count)
    keys[count], table[slot] = key, count
    if 2 * (count + 1) > len(table):
        table = twice_as_large(table, keys, count + 1)
    return keys, table, np.int64(count)


@kernel
def first_at_least(labels: np.ndarray, begin: int, end: int, label: int) -> int:
    """The first of the sorted places begin:end whose label is at least `label`."""
    while begin < end:
        middle = (begin + end) // 2
        if labels[middle] < label:
            begin = middle + 1
        else:
            end = middle
    return begin


@kernel
def _moves(moves: np.ndarray, l_out: np.ndarray, a_begin: int, a_end: int, r_in: np.ndarray, b_begin: int, b_end: int, filtered: bool,
           a_final: bool) -> tuple[np.ndarray, int]:
    """The moves from a pair of states, rows (arc of the left, arc of the right, what the filter remembers); -1: that side stays."""
    a_eps, b_eps = first_at_least(l_out, a_begin, a_end, 1), first_at_least(r_in, b_begin, b_end, 1)
    count = 0
    if (b_eps - b_begin) + (a_eps - a_begin) > len(moves):
        moves = np.empty((2 * ((b_eps - b_begin) + (a_eps - a_begin)), 3), np.int64)
    if a_eps < a_end or a_final or a_eps == a_begin:  # else the left has nothing but epsilons: they come first
        for b in range(b_begin, b_eps):
            moves[count] = (-1, b, 1 if a_eps > a_begin else 0)
            count += 1
    if not filtered:
        for a in range(a_begin, a_eps):
            moves[count] = (a, -1, 0)
            count += 1
    by_left = a_end - a_eps <= b_end - b_eps
    for one in range(a_eps if by_left else b_eps, a_end if by_left else b_end):
        label = l_out[one] if by_left else r_in[one]
        other = first_at_least(r_in, b_eps, b_end, label) if by_left else first_at_least(l_out, a_eps, a_end, label)
        while (other < b_end and r_in[other] == label) if by_left else (other < a_end and l_out[other] == label):
            if count == len(moves):
                larger = np.empty((2 * count, 3), np.int64)
                larger[:count] = moves
                moves = larger
            moves[count] = (one, other, 0) if by_left else (other, one, 0)
            count += 1
            other += 1
    return moves, count


@kernel
def _compose(l_start: int, l_final: np.ndarray, l_offset: np.ndarray, l_in: np.ndarray, l_out: np.ndarray, l_weight: np.ndarray,
             l_next: np.ndarray, r_start: int, r_final: np.ndarray, r_offset: np.ndarray, r_in: np.ndarray, r_out: np.ndarray,
             r_weight: np.ndarray, r_next: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Compose; returns (final, offset, ilabel, olabel, weight, nextstate). The left's arcs are sorted by output, the right's by input."""
    inf, rights = np.float32(np.inf), len(r_final)
    keys, table = np.empty(1024, np.int64), np.full(4096, -1, np.int32)
    ilabel, olabel, nextstate = np.empty(4096, np.int32), np.empty(4096, np.int32), np.empty(4096, np.int32)
    weight, final, offset = np.empty(4096, np.float32), np.empty(1024, np.float32), np.zeros(1025, np.int64)
    moves = np.empty((64, 3), np.int64)
    keys[0] = 2 * (l_start * rights + r_start)
    table[slot_of(table, keys, keys[0])] = 0
    states, arcs, s = 1, 0, 0
    while s < states:
        filtered, pair = keys[s] & 1, keys[s] >> 1
        a, b = pair // rights, pair % rights
        moves, count = _moves(moves, l_out, l_offset[a], l_offset[a + 1], r_in, r_offset[b], r_offset[b + 1], filtered == 1,
                              l_final[a] < inf)
        if arcs + count > len(weight):
            size = arcs + arcs // 2 + count
            ilabel, olabel, nextstate, weight = longer(ilabel, size), longer(olabel, size), longer(nextstate, size), longer(weight, size)
        for i in range(count):
            x, y = moves[i, 0], moves[i, 1]
            key = 2 * (np.int64(l_next[x] if x >= 0 else a) * rights + (r_next[y] if y >= 0 else b)) + moves[i, 2]
            keys, table, target = number_of(keys, table, states, key)
            states += target == states
            ilabel[arcs] = l_in[x] if x >= 0 else 0
            olabel[arcs] = r_out[y] if y >= 0 else 0
            weight[arcs] = (l_weight[x] if x >= 0 else np.float32(0)) + (r_weight[y] if y >= 0 else np.float32(0))
            nextstate[arcs] = target
            arcs += 1
        if s + 1 == len(offset):
            offset, final = longer(offset, s + s // 2 + 2), longer(final, s + s // 2 + 2)
        final[s] = l_final[a] + r_final[b]
        s += 1
        offset[s] = arcs
    return final[:states], offset[:states + 1], ilabel[:arcs], olabel[:arcs], weight[:arcs], nextstate[:arcs]


@kernel
def sort_arcs(offset: np.ndarray, label: np.ndarray, second: np.ndarray, weight: np.ndarray, nextstate: np.ndarray) -> None:
    """Sort each state's arcs by label, then by the second label, in place; equal ones keep their order."""
    for s in range(len(offset) - 1):
        begin, end = offset[s], offset[s + 1]
        in_order = True
        for a in range(begin + 1, end):
            in_order &= label[a - 1] < label[a] or (label[a - 1] == label[a] and second[a - 1] <= second[a])
        if in_order:
            continue
        keys = np.empty(end - begin, np.int64)
        for a in range(begin, end):
            keys[a - begin] = (np.int64(label[a]) << 32) | second[a]
        order = np.argsort(keys, kind="mergesort") + begin
        label[begin:end], second[begin:end] = label[order], second[order]
        weight[begin:end], nextstate[begin:end] = weight[order], nextstate[order]


def compose(left: Fst, right: Fst) -> Fst:
    """The composition of two transducers, trimmed; its start is -1 where they have nothing in common. Sorts the arcs of both."""
    sort_arcs(left.offset, left.olabel, left.ilabel, left.weight, left.nextstate)
    sort_arcs(right.offset, right.ilabel, right.olabel, right.weight, right.nextstate)
    if left.start < 0 or right.start < 0:
        return _nothing()
    return trimmed(Fst(0, *_compose(left.start, left.final, left.offset, left.ilabel, left.olabel, left.weight, left.nextstate, right.start,
                                    right.final, right.offset, right.ilabel, right.olabel, right.weight, right.nextstate)))


def _nothing() -> Fst:
    """The transducer without states."""
    label, weight = np.empty(0, np.int32), np.empty(0, np.float32)
    return Fst(-1, weight, np.zeros(1, np.int64), label, label, weight, label)


@kernel
def ways_in(offset: np.ndarray, nextstate: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The states before each state: (offset, states), one for each arc."""
    begin = np.zeros(len(offset) + 1, np.int64)
    for a in range(len(nextstate)):
        begin[nextstate[a] + 2] += 1
    for s in range(2, len(begin)):
        begin[s] += begin[s - 1]
    before = np.empty(len(nextstate), np.int32)
    for s in range(len(offset) - 1):
        for a in range(offset[s], offset[s + 1]):
            before[begin[nextstate[a] + 1]] = s
            begin[nextstate[a] + 1] += 1
    return begin[:-1], before


@kernel
def _reached(offset: np.ndarray, neighbours: np.ndarray, reached: np.ndarray) -> None:
    """Mark all states that can be reached from those that are marked."""
    stack = np.empty(len(reached), np.int32)
    size = 0
    for s in range(len(reached)):
        if reached[s]:
            stack[size] = s
            size += 1
    while size > 0:
        size -= 1
        s = stack[size]
        for a in range(offset[s], offset[s + 1]):
            t = neighbours[a]
            if not reached[t]:
                reached[t] = True
                stack[size] = t
                size += 1


@kernel
def _kept_arcs(offset: np.ndarray, nextstate: np.ndarray, keep: np.ndarray, number: np.ndarray, columns: tuple[Any, ...]) -> tuple[
        np.ndarray, int]:
    """Move the arcs between states that are kept to the front of the columns, in place; returns (offset, number of arcs)."""
    ilabel, olabel, weight = columns
    made = np.zeros(number[-1] + 1, np.int64)
    to = 0
    for s in range(len(keep)):
        if keep[s]:
            for a in range(offset[s], offset[s + 1]):
                if keep[nextstate[a]]:
                    ilabel[to], olabel[to], weight[to], nextstate[to] = ilabel[a], olabel[a], weight[a], number[nextstate[a]]
                    to += 1
            made[number[s] + 1] = to
    return made, to


def trimmed(fst: Fst) -> Fst:
    """The transducer without the states that are on no way from the start to the end; the others keep their order. Takes `fst` over."""
    forward, backward = np.zeros(fst.num_states, bool), np.isfinite(fst.final)
    if fst.start >= 0:
        forward[fst.start] = True
        _reached(fst.offset, fst.nextstate, forward)
    before_offset, before = ways_in(fst.offset, fst.nextstate)
    _reached(before_offset, before, backward)
    del before_offset, before
    keep = forward & backward
    del forward, backward
    if keep.all() and len(keep):
        return fst
    if fst.start < 0 or not keep[fst.start]:
        return _nothing()
    number = np.concatenate([np.zeros(1, np.int32), np.cumsum(keep, dtype=np.int32)])
    offset, arcs = _kept_arcs(fst.offset, fst.nextstate, keep, number, (fst.ilabel, fst.olabel, fst.weight))
    return Fst(int(number[fst.start]), fst.final[keep], offset, *(column[:arcs].copy() for column in
                                                                   (fst.ilabel, fst.olabel, fst.weight, fst.nextstate)))
