"""The unknown word by a phone language model: in place of its pronunciation the lexicon transducers get the model's transducer.

In the lexicon the word's pronunciation is then `#1 #2 #3`, as in Kaldi. In the transducers an arc with #2 is replaced by the model
(`pykaldist.lm.unknown_word`), once for each state that such arcs lead to. #1 before it lets all words that come before share that copy, and
#3 behind it keeps the choice of a silence after the word out of the copy. In training graphs these symbols are epsilons.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pykaldist.errors import UserError
from pykaldist.io.dictdir import Pronunciation
from pykaldist.io.lang import EPSILON, SymbolTable
from pykaldist.io.tables import read_lines

PLACE = ("#1", "#2", "#3")

NumberedArc = tuple[int, int, int, int, float]  # state, next state, phone, word, cost


@dataclass
class UnknownWord:
    """A transducer of phones, whose state 0 is the start: arcs (state, next state, symbol, cost), and final states with their costs."""

    path: str
    arcs: list[tuple[int, int, str, float]]
    final: dict[int, float]

    @classmethod
    def read(cls, path: Path) -> UnknownWord:
        """Read a transducer as text, whose symbols are names; output symbols do not matter. Raises UserError with file and line."""
        if not path.is_file():
            raise UserError(f"--unk-fst: {path} does not exist; make it with utils/lang/make_unk_lm.sh.")
        states: dict[str, int] = {}
        arcs: list[tuple[int, int, str, float]] = []
        final: dict[int, float] = {}
        for line, text in enumerate(read_lines(path), 1):
            fields = text.split()
            try:
                cost = float(fields[-1]) if len(fields) in (2, 5) else 0.0
                if len(fields) not in (1, 2, 4, 5) or math.isnan(cost):
                    raise ValueError
            except ValueError as error:
                raise UserError(f"{path}, line {line}: expected `state next-state phone symbol [cost]` or `state [cost]`, found {text!r}."
                                ) from error
            numbers = [states.setdefault(name, len(states)) for name in fields[: 1 if len(fields) < 4 else 2]]
            if len(fields) < 4:
                final[numbers[0]] = cost
            else:
                arcs.append((numbers[0], numbers[1], fields[2], cost))
        if not arcs or not final:
            raise UserError(f"{path} has no path to a final state; make it again with utils/lang/make_unk_lm.sh.")
        return cls(str(path), arcs, final)


def with_place(lexicon: Sequence[Pronunciation], oov: str) -> list[Pronunciation]:
    """The lexicon with `#1 #2 #3` as the pronunciation of the unknown word; raises UserError where that has several."""
    if sum(entry.word == oov for entry in lexicon) != 1:
        raise UserError(f"--unk-fst: {oov} has several pronunciations in the lexicon; keep one, in whose place the model comes.")
    return [replace(entry, phones=PLACE) if entry.word == oov else entry for entry in lexicon]


def inserted(arcs: Sequence[NumberedArc], phones: SymbolTable, model: UnknownWord) -> list[NumberedArc]:
    """The arcs of a lexicon transducer with the model in place of #2; raises UserError for a phone of the model that `phones` lacks."""
    try:
        labels = [phones[symbol] for _, _, symbol, _ in model.arcs]
    except KeyError as error:
        raise UserError(f"{model.path}: phone {error.args[0]} is not one of the language's; give make_unk_lm.sh and prepare_lang.sh the "
                        "same dictionary and --position-dependent-phones.") from error
    made = [arc for arc in arcs if arc[2] != phones[PLACE[1]]]
    replaced = [arc for arc in arcs if arc[2] == phones[PLACE[1]]]
    free = 1 + max(max(arc[:2]) for arc in arcs)
    size = 1 + max(*(max(arc[:2]) for arc in model.arcs), *model.final)
    for copy, end in enumerate(dict.fromkeys(to for _, to, _, _, _ in replaced)):
        base = free + copy * size
        made += [(here, base, phones[EPSILON], word, cost) for here, to, _, word, cost in replaced if to == end]
        made += [(base + here, base + to, label, 0, cost) for (here, to, _, cost), label in zip(model.arcs, labels, strict=True)]
        made += [(base + state, end, phones[EPSILON], 0, cost) for state, cost in model.final.items()]
    return made
