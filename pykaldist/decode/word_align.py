"""Lattices whose arcs are whole words in time: each arc has one word and its transition-ids, or no word and those of one silence phone.

Either phones say by their position which begin and which end a word (phones/word_boundary.int), as Kaldi's lattice-align-words has it, or a
lexicon says which phones a word has (phones/align_lexicon.int), as lattice-align-words-lexicon has it. From the start, words and
transition-ids of the arcs that were followed are kept until a word, or a silence, is complete; then it is an arc of the result. A state of
the result is a lattice state with what is kept there, so that paths that agree in both are one.

By a lexicon, a word that is complete may go on: "a b" may be a word, and "a b c" another. Then both are followed. An arc is made at the
first state where it can be, and not again where more is kept (`_Kept`'s last part), so that each way to divide a path is one path of the
result.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from pykaldist.decode.lattice import Lattice
from pykaldist.errors import UserError
from pykaldist.hmm.tree.transition_model import TransitionModel

#: phones that have been looked at already, and whether a word was there
_Tried = tuple[int, bool]
_NOTHING: _Tried = (0, False)
#: lattice state (-1 behind the end), words and transition-ids that are kept, their graph and acoustic costs, what has been tried of them
_Kept = tuple[int, tuple[int, ...], tuple[int, ...], float, float, _Tried]
#: an arc's word, its number of transition-ids, and whether it takes a word that is kept
_Arc = tuple[int, int, bool]


class Aligner(ABC):
    """Aligns lattices on their words, for one transition model."""

    def __init__(self, model: TransitionModel, reorder: bool) -> None:
        self._phone, self._final, self._loop = model.tid2phone.tolist(), model.tid_is_final.tolist(), model.tid_is_self_loop.tolist()
        self._reorder = reorder

    @abstractmethod
    def _next_arcs(self, kept: _Kept) -> tuple[Sequence[_Arc], _Tried | None]:
        """The arcs that what is kept begins with; and what has been tried then, where the lattice's next arcs are to be kept, too."""

    def _first_phone(self, tids: tuple[int, ...], begin: int, at_end: bool) -> int:
        """Where the phone ends that begins at `begin`; -1 where what follows is not known yet."""
        last_was_final = False
        for i in range(begin, len(tids)):
            tid = tids[i]
            if i > begin and last_was_final and not (self._reorder and self._loop[tid]):
                return i
            if not (self._reorder and self._loop[tid]):
                last_was_final = self._final[tid]
        return len(tids) if at_end or (last_was_final and not self._reorder) else -1

    def align(self, lattice: Lattice, max_states: int = 0) -> Lattice:
        """Align a lattice; raises UserError where its paths do not fit, or where it would have more than `max_states` states (0: any)."""
        start: _Kept = (0, (), (), 0.0, 0.0, _NOTHING)
        numbers: dict[_Kept, int] = {start: 0}
        queue = [start]
        arcs: list[tuple[int, int, int, float, float, tuple[int, ...]]] = []
        final: dict[int, tuple[float, float]] = {}
        offset, ends = lattice.offset.tolist(), lattice.final < np.inf

        def number(kept: _Kept) -> int:
            if kept not in numbers:
                if max_states and len(numbers) >= max_states:
                    raise UserError(f"aligned on words it would have more than {max_states} states; raise --max-expand.")
                numbers[kept] = len(numbers)
                queue.append(kept)
            return numbers[kept]

        while queue:
            kept = queue.pop()
            here = numbers[kept]
            state, words, tids, graph, acoustic, _ = kept
            if state < 0 and not words and not tids:
                final[here] = (graph, acoustic)
                continue
            found, tried = self._next_arcs(kept)
            for word, count, takes in found:
                goal = number((state, words[takes:], tids[count:], 0.0, 0.0, _NOTHING))
                arcs.append((here, goal, word, graph, acoustic, tids[:count]))
            if state < 0 or tried is None:
                continue
            for a in range(offset[state], offset[state + 1]):
                more = (int(lattice.word[a]),) if lattice.word[a] else ()
                goal = number((int(lattice.target[a]), words + more, tids + tuple(lattice.ids(a).tolist()),
                               graph + float(lattice.graph[a]), acoustic + float(lattice.acoustic[a]), tried))
                arcs.append((here, goal, 0, 0.0, 0.0, ()))
            if ends[state]:
                own = tuple(lattice.ids(lattice.num_arcs + state).tolist())
                arcs.append((here, number((-1, words, tids + own, graph + float(lattice.final[state]),
                                           acoustic + float(lattice.final_acoustic[state]), tried)), 0, 0.0, 0.0, ()))
        if not final:
            raise UserError("no path of it has phones that spell its words; model, lang directory and lattice do not belong together.")
        return _without_empty(arcs, final)


class WordAligner(Aligner):
    """Aligns lattices by a table of word positions.

    `boundary` maps phones to nonword, begin, end, internal or singleton. Raises UserError where paths do not fit these positions.
    """

    def __init__(self, boundary: Mapping[int, str], model: TransitionModel, reorder: bool = True, silence_label: int = 0,
                 partial_word_label: int = 0) -> None:
        super().__init__(model, reorder)
        self._boundary, self._silence, self._partial = dict(boundary), silence_label, partial_word_label
        missing = sorted(set(model.tuples[:, 0].tolist()) - set(boundary))
        if missing:
            raise UserError(f"the phones {missing[:5]} of the model have no position; give word_boundary.int of its lang directory.")

    def _next_arcs(self, kept: _Kept) -> tuple[Sequence[_Arc], _Tried | None]:
        found = self._next_arc(kept)
        return ([], _NOTHING) if found is None else ([found], None)

    def _next_arc(self, kept: _Kept) -> _Arc | None:
        """The next arc; None where no word is complete."""
        state, words, tids, *_ = kept
        at_end = state < 0
        if not tids:
            return (words[0], 0, True) if at_end and words else None
        end = self._first_phone(tids, 0, at_end)
        if end < 0:
            return None
        position = self._boundary[self._phone[tids[0]]]
        if position == "nonword":
            return self._silence, end, False
        if position == "begin":
            while self._boundary[self._phone[tids[end - 1]]] != "end":
                if end == len(tids):
                    return (words[0] if words else self._partial, end, bool(words)) if at_end else None
                end = self._first_phone(tids, end, at_end)
                if end < 0:
                    return None
        elif position != "singleton" and not at_end:
            raise UserError(f"a word's phones begin with {self._phone[tids[0]]}, which is {position} of a word; the model and the word "
                            "positions do not belong together.")
        if not words:
            return (self._partial, end, False) if at_end else None
        return words[0], end, True


class LexiconAligner(Aligner):
    """Aligns lattices by a lexicon: rows of a word as the lattice has it, the word as the result is to have it, and phones.

    The word 0 is that of silences. A path whose phones do not spell its words is left out.
    """

    def __init__(self, lexicon: Iterable[tuple[int, int, Sequence[int]]], model: TransitionModel, reorder: bool = True) -> None:
        super().__init__(model, reorder)
        self._entries: dict[tuple[int, ...], dict[int, int]] = {}
        self._begun: set[tuple[int, ...]] = {()}
        for word, label, phones in lexicon:
            self._entries.setdefault(tuple(phones), {})[word] = label
            self._begun |= {tuple(phones[:n]) for n in range(len(phones))}

    def _next_arcs(self, kept: _Kept) -> tuple[Sequence[_Arc], _Tried | None]:
        state, words, tids, _, _, (tried, had_word) = kept
        found: list[_Arc] = []
        phones: tuple[int, ...] = ()
        end, late = 0, False  # late: these may be the phones of a word that comes behind them
        while True:
            entries = self._entries.get(phones, {})
            if words and words[0] in entries and (len(phones) > tried or not had_word):
                found.append((entries[words[0]], end, True))
            if 0 in entries and len(phones) > tried:
                found.append((entries[0], end, False))
            late = late or (not words and any(entries))
            begin, end = end, self._first_phone(tids, end, state < 0) if end < len(tids) else -1
            if end < 0:  # the next phone is not complete
                return found, (len(phones), bool(words)) if late or phones in self._begun else None
            phones = (*phones, self._phone[tids[begin]])
            if phones not in self._begun and phones not in self._entries:
                return found, (len(phones), bool(words)) if late else None


class PhoneAligner(Aligner):
    """Aligns lattices on their phones: an arc of the result is a phone, which is its label; words are left out.

    It is Kaldi's lattice-align-phones --replace-output-symbols=true.
    """

    def _next_arcs(self, kept: _Kept) -> tuple[Sequence[_Arc], _Tried | None]:
        state, _, tids, *_ = kept
        end = self._first_phone(tids, 0, state < 0) if tids else -1
        return ([], _NOTHING) if end < 0 else ([(self._phone[tids[0]], end, False)], None)

    def align(self, lattice: Lattice, max_states: int = 0) -> Lattice:
        return super().align(replace(lattice, word=np.zeros_like(lattice.word)), max_states)


def _without_empty(arcs: list[tuple[int, int, int, float, float, tuple[int, ...]]], final: dict[int, tuple[float, float]]) -> Lattice:
    """The lattice of the arcs that have a word or transition-ids; the others, which cost nothing, are followed to where they lead."""
    empty: dict[int, list[int]] = {}
    real: dict[int, list[tuple[int, int, float, float, tuple[int, ...]]]] = {}
    for source, goal, word, graph, acoustic, ids in arcs:
        if ids or word or graph or acoustic:
            real.setdefault(source, []).append((goal, word, graph, acoustic, ids))
        else:
            empty.setdefault(source, []).append(goal)
    order, numbers, rows = [0], {0: 0}, []
    ended: dict[int, tuple[float, float]] = {}
    for at in order:  # grows
        stack, seen = [at], {at}
        while stack:
            state = stack.pop()
            if state in final:
                best = ended.get(numbers[at])
                ended[numbers[at]] = final[state] if best is None or sum(final[state]) < sum(best) else best
            for goal, word, graph, acoustic, ids in real.get(state, ()):
                if goal not in numbers:
                    numbers[goal] = len(numbers)
                    order.append(goal)
                rows.append((numbers[at], numbers[goal], word, graph, acoustic, ids))
            for goal in empty.get(state, ()):
                if goal not in seen:
                    seen.add(goal)
                    stack.append(goal)
    count = len(numbers)
    rows.sort(key=lambda row: row[0])
    offset = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(np.array([row[0] for row in rows], np.int64), minlength=count), out=offset[1:])
    costs = np.full((2, count), np.inf, np.float32)
    for state, pair in ended.items():
        costs[:, state] = pair
    string = np.concatenate([[0], np.cumsum([len(row[5]) for row in rows]), np.full(count, sum(len(row[5]) for row in rows))])
    lattice = Lattice(offset, np.array([row[2] for row in rows], np.int32), np.array([row[3] for row in rows], np.float32),
                      np.array([row[4] for row in rows], np.float32), np.array([row[1] for row in rows], np.int32), costs[0], costs[1],
                      string.astype(np.int64)[: len(rows) + count + 1], np.array([i for row in rows for i in row[5]], np.int32)).in_order()
    return lattice.select(np.flatnonzero(lattice.reaches_end))
