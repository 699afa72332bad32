"""Which labels each state of a transducer may write next, and OpenFst's files of transducers that know it (`olabel_lookahead`).

From a state, follow arcs that write nothing; the labels of the arcs behind them, and the end where it is reached, are what the state may
*write next*. Composition with a second transducer need not go on in a state that may write nothing which the second one can read. A set
of up to all labels for each state would be too large; but in a lexicon whose pronunciations are a tree, the words below a node are one
interval if words are numbered in the order in which a depth-first search meets them. So labels are given new numbers in that order, and
a set is a sorted list of intervals [begin, end), few where the transducer is nearly a tree. States on a cycle of arcs that write nothing
have one set; sets are united from the ends backwards over these groups (Tarjan's strongly connected components, which come in that order).

The end has a number of its own, as if it were a label. The second transducer's input labels must be given the new numbers too.
Source: C. Allauzen, M. Riley, J. Schalkwyk, "A generalized composition algorithm for weighted finite-state transducers", Interspeech 2009.
"""

from __future__ import annotations

import mmap
import os
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from pykaldist.errors import UserError, named
from pykaldist.io.atomic import atomic_open
from pykaldist.io.fst import EXPANDED, Fst, Header, header
from pykaldist.io.fst_compose import longer, sort_arcs
from pykaldist.kernels import kernel

FST_TYPE = "olabel_lookahead"
_OUTPUT_SORTED = 0x40000000  # a property: the arcs of each state are sorted by output label
_MAGIC = 446681434  # of an FST with something added to it
_VERSION = 1
_DAMAGED = "is truncated or damaged; make it again with utils/mkgraph_lookahead.sh"


@dataclass
class NextLabels:
    """The labels that each state may write next: intervals `offset[s]:offset[s + 1]` of state s, sorted, apart from each other."""

    offset: np.ndarray  # int64 [S + 1]
    begin: np.ndarray  # int32 [I], the first label of each interval
    end: np.ndarray  # int32 [I], the one behind its last
    final: int  # the number that stands for the end

    def may_end(self) -> np.ndarray:
        """Whether each state may reach the end and write nothing on the way, bool [S]."""
        has_end = (self.begin <= self.final) & (self.final < self.end)
        counts = np.concatenate([np.zeros(1, np.int64), np.cumsum(has_end)])
        return counts[self.offset[1:]] > counts[self.offset[:-1]]


@kernel
def _numbered(start: int, final: np.ndarray, offset: np.ndarray, olabel: np.ndarray, nextstate: np.ndarray,
              number: np.ndarray) -> np.ndarray:
    """Number the labels from 1, in the order of a depth-first search over arcs that write nothing; the end's is `number[0]`.

    Returns the group of each state (states on one cycle of such arcs): a state that is reached from another has a smaller one, or the same.
    The search goes on from the states behind labels when it has seen what is before them.
    """
    states, met, groups = len(final), 0, 0
    group, low, index = np.full(states, -1, np.int32), np.zeros(states, np.int32), np.full(states, -1, np.int32)
    path, at, waiting = np.empty(states, np.int32), np.zeros(states, np.int64), np.empty(states, np.int32)
    roots, numbered, in_path, in_waiting = np.empty(states, np.int32), 0, 0, 0
    queued, first_root, last_root = np.zeros(states, np.bool_), 0, 0
    for root in range(-1, states):
        if root < 0:
            root = start
        elif queued[root]:
            continue
        roots[last_root], queued[root] = root, True
        last_root += 1
        while first_root < last_root:
            s = roots[first_root]
            first_root += 1
            if index[s] >= 0:
                continue
            path[0], in_path = s, 1
            while in_path > 0:
                s = path[in_path - 1]
                if index[s] < 0:
                    index[s] = low[s] = met
                    met += 1
                    at[s] = offset[s]
                    waiting[in_waiting] = s
                    in_waiting += 1
                    if final[s] < np.inf and number[0] == 0:
                        numbered += 1
                        number[0] = numbered
                descends = False
                while at[s] < offset[s + 1] and not descends:
                    a = at[s]
                    t = nextstate[a]
                    if olabel[a] != 0:
                        if number[olabel[a]] == 0:
                            numbered += 1
                            number[olabel[a]] = numbered
                        if not queued[t]:
                            queued[t] = True
                            roots[last_root] = t
                            last_root += 1
                    elif index[t] < 0:
                        path[in_path] = t
                        in_path += 1
                        descends = True
                        continue
                    elif group[t] < 0:
                        low[s] = min(low[s], low[t])
                    at[s] += 1
                if descends:
                    continue
                if low[s] == index[s]:
                    while True:
                        in_waiting -= 1
                        t = waiting[in_waiting]
                        group[t] = groups
                        if t == s:
                            break
                    groups += 1
                in_path -= 1
    if number[0] == 0:
        number[0] = numbered + 1
    return group


@kernel
def _intervals(final: np.ndarray, offset: np.ndarray, olabel: np.ndarray, nextstate: np.ndarray, number: np.ndarray, group: np.ndarray,
               order: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The sets of all groups, as intervals (offset, begin, end); `order` are the states sorted by their groups."""
    groups = group[order[-1]] + 1
    set_offset, begin, end = np.zeros(groups + 1, np.int64), np.empty(1024, np.int32), np.empty(1024, np.int32)
    found = np.empty(64, np.int64)  # intervals: begin in the upper half, end in the lower one
    first = 0
    for g in range(groups):
        count, last = 0, first
        while last < len(order) and group[order[last]] == g:
            s = order[last]
            last += 1
            if final[s] < np.inf:
                if count == len(found):
                    found = longer(found, 2 * count)
                found[count] = (np.int64(number[0]) << 32) | (number[0] + 1)
                count += 1
            for a in range(offset[s], offset[s + 1]):
                t = group[nextstate[a]]
                many = np.int64(1) if olabel[a] != 0 else set_offset[t + 1] - set_offset[t] if t != g else np.int64(0)
                if count + many > len(found):
                    found = longer(found, 2 * (count + many))
                if olabel[a] != 0:
                    found[count] = (np.int64(number[olabel[a]]) << 32) | (number[olabel[a]] + 1)
                else:
                    for i in range(many):
                        found[count + i] = (np.int64(begin[set_offset[t] + i]) << 32) | end[set_offset[t] + i]
                count += many
        first = last
        sets = np.sort(found[:count])
        to = set_offset[g]
        if to + count > len(begin):
            begin, end = longer(begin, 2 * (to + count)), longer(end, 2 * (to + count))
        for i in range(count):
            low, high = np.int32(sets[i] >> 32), np.int32(sets[i] & 0x7FFFFFFF)
            if to > set_offset[g] and low <= end[to - 1]:
                end[to - 1] = max(end[to - 1], high)
            else:
                begin[to], end[to] = low, high
                to += 1
        set_offset[g + 1] = to
    return set_offset, begin[:set_offset[groups]], end[:set_offset[groups]]


def next_labels(fst: Fst) -> tuple[NextLabels, np.ndarray]:
    """Renumber the output labels of a transducer, in place, and find what each state may write next.

    Returns that, and the new number of each label, 0 for one that is not there; that of label 0 is 0. Sorts the arcs by output label.
    """
    number = np.zeros(int(fst.olabel.max(initial=0)) + 1, np.int32)
    group = _numbered(fst.start, fst.final, fst.offset, fst.olabel, fst.nextstate, number)
    order = np.argsort(group, kind="stable").astype(np.int32)
    offset, begin, end = _intervals(fst.final, fst.offset, fst.olabel, fst.nextstate, number, group, order)
    final, number[0] = int(number[0]), 0
    counts = np.diff(offset)[group]
    of_state = np.zeros(fst.num_states + 1, np.int64)
    np.cumsum(counts, out=of_state[1:])
    places = np.repeat(offset[group] - of_state[:-1], counts) + np.arange(of_state[-1])
    fst.olabel[:] = number[fst.olabel]
    sort_arcs(fst.offset, fst.olabel, fst.ilabel, fst.weight, fst.nextstate)
    return NextLabels(of_state, begin[places], end[places], final), number


def write_lookahead(path: str | os.PathLike[str], fst: Fst, labels: NextLabels) -> None:
    """Write a transducer and what its states may write next as an OpenFst file, atomically; its arcs are sorted by output label.

    The file has a head, a whole `const` file, and the sets: whether there is something added (1 byte); whether sets of input labels and
    of output labels (1 byte each); for the latter whether they are of input labels, whether the new numbers are kept (1 byte each), the
    number of the end (int32), the number of states (int64); and for each state its number of intervals (int64), their beginnings and
    ends in pairs (int32), and how many labels they hold (int32; -1: not counted).
    """
    counts = np.diff(labels.offset)
    words = np.empty(3 * fst.num_states + 2 * len(labels.begin), np.int32)
    _pack_sets(words, labels.offset, labels.begin, labels.end)
    with atomic_open(path, "wb") as stream:
        stream.write(header(FST_TYPE, "standard", _VERSION, EXPANDED | _OUTPUT_SORTED, -1, 0, 0) + struct.pack("<i", _MAGIC))
        stream.writelines(fst.const_parts(EXPANDED | _OUTPUT_SORTED))
        stream.write(struct.pack("<???", True, False, True) + struct.pack("<??iq", False, False, labels.final, len(counts)))
        stream.write(words.tobytes())


@kernel
def _pack_sets(words: np.ndarray, offset: np.ndarray, begin: np.ndarray, end: np.ndarray) -> None:
    to = 0
    for s in range(len(offset) - 1):
        words[to], words[to + 1] = offset[s + 1] - offset[s], 0
        to += 2
        for i in range(offset[s], offset[s + 1]):
            words[to], words[to + 1] = begin[i], end[i]
            to += 2
        words[to] = -1
        to += 1


@kernel
def _unpack_sets(words: np.ndarray, offset: np.ndarray, begin: np.ndarray, end: np.ndarray) -> int:
    """Fill the arrays of sets; returns how many words were read, -1 where there are too few."""
    at: Any = np.int64(0)
    for s in range(len(offset) - 1):
        if at + 2 > len(words):
            return -1
        count = np.int64(words[at])
        at += 2
        if count < 0 or words[at - 1] != 0 or at + 2 * count + 1 > len(words):
            return -1
        for i in range(count):
            begin[offset[s] + i], end[offset[s] + i] = words[at], words[at + 1]
            at += 2
        at += 1
        offset[s + 1] = offset[s] + count
    return at


def read_lookahead(path: str | os.PathLike[str]) -> tuple[Fst, NextLabels]:
    """Read what `write_lookahead`, or OpenFst's fstconvert --fst_type=olabel_lookahead, has written; raises UserError for anything else."""
    with named(path), open(path, "rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        data = mmap.mmap(stream.fileno(), size, access=mmap.ACCESS_READ) if size else b""
    try:
        head = Header.parse(data, 0)
        if (head.fst_type, head.arc_type) != (FST_TYPE, "standard"):
            raise ValueError(f"holds a {head.fst_type} FST of {head.arc_type} arcs where one of type {FST_TYPE} is expected; make it with "
                             "utils/mkgraph_lookahead.sh")
        if struct.unpack_from("<i", data, head.end)[0] != _MAGIC:
            raise ValueError(_DAMAGED)
        inner = Header.parse(data, head.end + 4)
        if (inner.fst_type, inner.arc_type) != ("const", "standard"):
            raise ValueError(f"holds a {inner.fst_type} FST where a const one is expected; make it with utils/mkgraph_lookahead.sh")
        fst, at = Fst.parse_const(data, inner)
        added, of_inputs, of_outputs = struct.unpack_from("<???", data, at)
        if not added or of_inputs or not of_outputs:
            raise ValueError("does not say which labels its states may write next; make it with utils/mkgraph_lookahead.sh")
        is_input, renumbering, final, states = struct.unpack_from("<??iq", data, at + 3)
        if is_input or renumbering or states != fst.num_states:
            raise ValueError(_DAMAGED)
        at += 3 + struct.calcsize("<??iq")
        words = np.frombuffer(bytes(data[at:]), np.int32) if (size - at) % 4 == 0 else np.empty(0, np.int32)
        most = max(0, len(words) - 3 * states) // 2
        labels = NextLabels(np.zeros(states + 1, np.int64), np.empty(most, np.int32), np.empty(most, np.int32), final)
        if len(words) < 3 * states or _unpack_sets(words, labels.offset, labels.begin, labels.end) != len(words):
            raise ValueError(_DAMAGED)
    except struct.error as error:
        raise UserError(f"{path} {_DAMAGED}.") from error
    except ValueError as error:
        raise UserError(f"{path} {error}.") from error
    return fst, labels
