"""Minimisation of transducers as flat arrays: states with the same ways to the end, labels and weights alike, become one.

Weights are rounded to 1/1024 first, and an arc's two labels and weight are one symbol. States are in blocks, all in one at first. The
signature of a state is the set of (symbol, block of the target) over its arcs and its final weight; a block whose states' signatures differ
is split, the largest part keeping the block's number, and only states before those with a new number are looked at again. So a state is
looked at O(arcs log states) times in all, and what is left is the coarsest partition, determinate transducer or not.
Sets are compared by a hash of 63 bits. Of a block's states the first stands for all; arcs are in the order in which their symbols are
first met in the input, as OpenFst's minimisation leaves them.
Source: F. Birkmann, H.-P. Deifel, S. Milius, "Distributed coalgebraic partition refinement", TACAS 2022; rounding as in Kaldi's
fstminimizeencoded.
"""

from __future__ import annotations

import numpy as np

from pykaldist.io.fst import Fst
from pykaldist.io.fst_compose import longer, mixed, ways_in
from pykaldist.kernels import kernel

DELTA = np.float32(1 / 1024)


@kernel
def _symbol(table: np.ndarray, ilabel: np.ndarray, olabel: np.ndarray, weight: np.ndarray, i: int, o: int, w: np.float32) -> int:
    """Where a symbol is in the hash table, or where it belongs."""
    mask = len(table) - 1
    slot = mixed((np.int64(i) << 32 | o) * 31 + np.int64(w * np.float32(1024))) & mask
    while table[slot] >= 0 and (ilabel[table[slot]] != i or olabel[table[slot]] != o or weight[table[slot]] != w):
        slot = (slot + 1) & mask
    return slot


@kernel
def _encode(offset: np.ndarray, final: np.ndarray, ilabel: np.ndarray, olabel: np.ndarray, weight: np.ndarray) -> tuple[
        np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Number the symbols as they are met: (symbol of each arc, of each final weight or -1; ilabel, olabel and weight of each symbol)."""
    inf = np.float32(np.inf)
    arcs, finals = np.empty(len(ilabel), np.int32), np.full(len(final), np.int32(-1))
    s_in, s_out, s_weight = np.empty(1024, np.int32), np.empty(1024, np.int32), np.empty(1024, np.float32)
    table, count = np.full(4096, np.int32(-1)), 0
    for s in range(len(final)):
        for a in range(offset[s], offset[s + 1] + 1):
            is_final = a == offset[s + 1]
            if is_final and not final[s] < inf:
                continue
            i, o, w = (np.int32(0), np.int32(0), final[s]) if is_final else (ilabel[a], olabel[a], weight[a])
            slot = _symbol(table, s_in, s_out, s_weight, i, o, w)
            if table[slot] < 0:
                if count == len(s_in):
                    s_in, s_out, s_weight = longer(s_in, 2 * count), longer(s_out, 2 * count), longer(s_weight, 2 * count)
                s_in[count], s_out[count], s_weight[count] = i, o, w
                table[slot] = count
                count += 1
                if 2 * count > len(table):
                    table = np.full(2 * len(table), np.int32(-1))
                    for k in range(count):
                        table[_symbol(table, s_in, s_out, s_weight, s_in[k], s_out[k], s_weight[k])] = k
                    slot = _symbol(table, s_in, s_out, s_weight, i, o, w)
            if is_final:
                finals[s] = table[slot]
            else:
                arcs[a] = table[slot]
    return arcs, finals, s_in[:count], s_out[:count], s_weight[:count]


@kernel
def _sort(offset: np.ndarray, symbol: np.ndarray, nextstate: np.ndarray) -> None:
    """Sort each state's arcs by symbol and target, in place."""
    for s in range(len(offset) - 1):
        begin, end = offset[s], offset[s + 1]
        keys = np.empty(end - begin, np.int64)
        in_order = True
        for a in range(begin, end):
            keys[a - begin] = np.int64(symbol[a]) << 32 | nextstate[a]
            in_order &= a == begin or keys[a - begin - 1] <= keys[a - begin]
        if not in_order:
            keys.sort()
            for a in range(begin, end):
                symbol[a], nextstate[a] = keys[a - begin] >> 32, keys[a - begin] & 0x7FFFFFFF


@kernel
def _signature(s: int, offset: np.ndarray, symbol: np.ndarray, nextstate: np.ndarray, finals: np.ndarray, block: np.ndarray) -> int:
    """The hash of a state's set of symbols and targets' blocks."""
    total = mixed(finals[s])
    for a in range(offset[s], offset[s + 1]):
        twin, to = a - 1, block[nextstate[a]]
        while twin >= offset[s] and symbol[twin] == symbol[a] and block[nextstate[twin]] != to:
            twin -= 1
        if twin < offset[s] or symbol[twin] != symbol[a]:
            total += mixed(np.int64(symbol[a] + 1) << 32 | to)
    return total


@kernel
def _partition(offset: np.ndarray, symbol: np.ndarray, nextstate: np.ndarray, finals: np.ndarray, before_offset: np.ndarray,
               before: np.ndarray) -> np.ndarray:
    """The block of each state. A block's states are first:last of `order`, those from `dirty` on to be looked at again."""
    states = len(finals)
    order, place, block = np.arange(states).astype(np.int32), np.arange(states).astype(np.int32), np.zeros(states, np.int32)
    first, dirty, last = np.zeros(1024, np.int32), np.zeros(1024, np.int32), np.full(1024, np.int32(states))
    blocks = 1
    waiting, queue = 1, np.zeros(1024, np.int32)
    signature = np.empty(states, np.int64)
    moved = np.empty(states + 2, np.int32)
    while waiting > 0:
        waiting -= 1
        b = queue[waiting]
        begin, middle, end = first[b], dirty[b], last[b]
        for i in range(middle, end):
            moved[i - middle] = order[i]
            signature[i - middle] = _signature(order[i], offset, symbol, nextstate, finals, block)
        clean = signature[0] if middle == begin else _signature(order[begin], offset, symbol, nextstate, finals, block)
        for i in range(end - middle):
            signature[i] = (signature[i] - clean) & 0x7FFFFFFFFFFFFFFF  # those like the rest come first
        by_signature = np.argsort(signature[:end - middle])
        for i in range(end - middle):
            order[middle + i] = moved[by_signature[i]]
            place[order[middle + i]] = middle + i
        bounds, parts, before_it, largest = moved, 0, 0, 0  # parts begin where the signature changes
        bounds[0] = begin
        for i in range(end - middle):
            one = signature[by_signature[i]]
            if one != before_it and middle + i > begin:
                parts += 1
                bounds[parts] = middle + i
            before_it = one
        parts += 1
        bounds[parts] = end
        for part in range(parts):
            if bounds[part + 1] - bounds[part] > bounds[largest + 1] - bounds[largest]:
                largest = part
        new = blocks
        for part in range(parts):
            number = b if part == largest else blocks
            if number == len(first):
                first, dirty, last = longer(first, 2 * blocks), longer(dirty, 2 * blocks), longer(last, 2 * blocks)
            first[number], dirty[number], last[number] = bounds[part], bounds[part + 1], bounds[part + 1]
            if part != largest:
                blocks += 1
                for k in range(bounds[part], bounds[part + 1]):
                    block[order[k]] = number
        for other in range(new, blocks):
            for k in range(first[other], last[other]):
                s = order[k]
                for a in range(before_offset[s], before_offset[s + 1]):
                    p = before[a]
                    c = block[p]
                    if last[c] - first[c] > 1 and place[p] < dirty[c]:
                        if dirty[c] == last[c]:
                            if waiting == len(queue):
                                queue = longer(queue, 2 * waiting)
                            queue[waiting] = c
                            waiting += 1
                        dirty[c] -= 1
                        swapped = order[dirty[c]]
                        order[place[p]], place[swapped] = swapped, place[p]
                        order[dirty[c]], place[p] = p, dirty[c]
    return block


@kernel
def _merge(offset: np.ndarray, symbol: np.ndarray, nextstate: np.ndarray, finals: np.ndarray, block: np.ndarray) -> tuple[
        np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """One state for each block, in the order of their first states: (state of each old one; offset, symbol, nextstate, finals)."""
    number = np.full(len(block), np.int32(-1))
    states, arcs = 0, 0
    for s in range(len(block)):
        if number[block[s]] < 0:
            number[block[s]] = states
            states += 1
            arcs += offset[s + 1] - offset[s]
    made, made_finals = np.zeros(states + 1, np.int64), np.empty(states, np.int32)
    made_symbol, made_next = np.empty(arcs, np.int32), np.empty(arcs, np.int32)
    done, to = 0, 0
    for s in range(len(block)):
        if number[block[s]] == done:
            for a in range(offset[s], offset[s + 1]):
                target, twin = number[block[nextstate[a]]], to - 1
                while twin >= made[done] and made_symbol[twin] == symbol[a] and made_next[twin] != target:
                    twin -= 1
                if twin < made[done] or made_symbol[twin] != symbol[a]:
                    made_symbol[to], made_next[to] = symbol[a], target
                    to += 1
            made_finals[done] = finals[s]
            done += 1
            made[done] = to
    return number, made, made_symbol[:to], made_next[:to], made_finals


def _rounded(weights: np.ndarray) -> np.ndarray:
    return np.floor(weights / DELTA + np.float32(0.5)) * DELTA


def minimize(fst: Fst) -> Fst:
    """Make the smallest transducer with the same paths as `fst`, their weights rounded to 1/1024 an arc.

    Takes `fst` over, which must have no state that is on no way from the start to the end.
    """
    if not fst.num_states:
        return fst
    start, offset, nextstate = fst.start, fst.offset, fst.nextstate
    symbol, finals, ilabel, olabel, weight = _encode(offset, _rounded(fst.final), fst.ilabel, fst.olabel, _rounded(fst.weight))
    fst.ilabel = fst.olabel = fst.weight = np.empty(0)
    _sort(offset, symbol, nextstate)
    block = _partition(offset, symbol, nextstate, finals, *ways_in(offset, nextstate))
    number, offset, symbol, nextstate, finals = _merge(offset, symbol, nextstate, finals, block)
    final = np.where(finals >= 0, weight[finals], np.float32(np.inf))
    return Fst(int(number[block[start]]), final, offset, ilabel[symbol], olabel[symbol], weight[symbol], nextstate)
