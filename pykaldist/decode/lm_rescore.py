"""Language-model rescoring: in a lattice's graph costs, the costs of one language model are replaced by another's.

Both models are deterministic automata over words: a state is what of the words before matters, and a word leads from it to one state, at
one cost (`LanguageModel`). So a lattice that has each word sequence once still has it once afterwards, at

    graph cost - cost by the old model + cost by the new one,

and the states of the result are (lattice state, old model's state, new model's state). A back-off arc is taken where a state has no arc
of the word (Kaldi: steps/lmrescore.sh, lattice-lmrescore).
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from pykaldist.decode.lattice import Lattice
from pykaldist.errors import UserError
from pykaldist.io.fst import Fst


class LanguageModel(Protocol):
    """A deterministic automaton over the numbers of words."""

    @property
    def start(self) -> Any:
        """The state at a sentence's beginning."""

    def step(self, state: Any, word: int) -> tuple[Any, float] | None:
        """The state after `word`, and its cost; None where the model has no such sentence."""

    def final(self, state: Any) -> float:
        """The cost of the sentence's end, inf where there is none."""


class Grammar:
    """A back-off model as a transducer (`G.fst`): a state a history, back-off arcs with no word on their output.

    Raises UserError for one with two arcs of a word, or two back-off arcs, in a state, and for a circle of back-off arcs.
    """

    def __init__(self, fst: Fst, name: str | os.PathLike[str]) -> None:
        self._fst, self._name = fst, name
        self.start = fst.start
        self._arcs: dict[int, tuple[dict[int, int], int | None]] = {}  # state -> (word -> arc, back-off arc)

    def step(self, state: int, word: int) -> tuple[int, float] | None:
        cost = 0.0
        for _ in range(self._fst.num_states):
            arcs, backoff = self._of(state)
            arc = arcs.get(word)
            if arc is not None:
                return int(self._fst.nextstate[arc]), cost + float(self._fst.weight[arc])
            if backoff is None:
                return None
            cost, state = cost + float(self._fst.weight[backoff]), int(self._fst.nextstate[backoff])
        raise self._wrong(state, "is in a circle of back-off arcs")

    def final(self, state: int) -> float:
        cost = 0.0
        for _ in range(self._fst.num_states):
            if self._fst.final[state] < np.inf:
                return cost + float(self._fst.final[state])
            backoff = self._of(state)[1]
            if backoff is None:
                return math.inf
            cost, state = cost + float(self._fst.weight[backoff]), int(self._fst.nextstate[backoff])
        raise self._wrong(state, "is in a circle of back-off arcs")

    def _of(self, state: int) -> tuple[dict[int, int], int | None]:
        if state not in self._arcs:
            begin, end = int(self._fst.offset[state]), int(self._fst.offset[state + 1])
            words = self._fst.olabel[begin:end].tolist()
            arcs = dict(zip(words, range(begin, end), strict=True))
            if len(arcs) != len(words):
                raise self._wrong(state, "has two arcs of one word")
            backoff = arcs.pop(0, None)
            self._arcs[state] = arcs, backoff
        return self._arcs[state]

    def _wrong(self, state: int, what: str) -> UserError:
        return UserError(f"{self._name}, state {state}: {what}, and expected is a back-off model; make it with utils/format_lm.sh.")


def lm_rescored(lattice: Lattice, models: Sequence[tuple[LanguageModel, float]], where: str) -> Lattice:
    """The lattice with scale * cost of each model, (model, scale), added to its graph costs.

    Paths that a model does not have are left out. Raises UserError, naming `where`, if no path is left.
    """
    offset, words, targets, final = lattice.offset.tolist(), lattice.word.tolist(), lattice.target.tolist(), lattice.final
    begin = tuple(model.start for model, _ in models)
    at: list[dict[tuple[Any, ...], int]] = [{} for _ in range(lattice.num_states)]  # lattice state -> states of the models -> number
    at[0][begin] = 0
    met, number = 1, np.empty(0, np.int64)
    order: list[int] = []
    states: list[int] = []
    ends: list[float] = []
    arcs: list[tuple[int, int, float]] = []  # arc of the lattice, target as it was met, cost that is added
    offsets = [0]
    for state, found in enumerate(at):
        for joint, met_as in found.items():
            order.append(met_as)
            states.append(state)
            ends.append(sum(scale * model.final(own) for (model, scale), own in zip(models, joint, strict=True))
                        if final[state] < np.inf else math.inf)
            for arc in range(offset[state], offset[state + 1]):
                step = _step(models, joint, words[arc])
                if step is not None:
                    place = at[targets[arc]]
                    if step[0] not in place:
                        place[step[0]] = met
                        met += 1
                    arcs.append((arc, place[step[0]], step[1]))
            offsets.append(len(arcs))
    number = np.empty(met, np.int64)
    number[order] = np.arange(met)
    return _made(lattice, np.array(offsets), arcs, number, np.array(states), np.array(ends), where)


def _step(models: Sequence[tuple[LanguageModel, float]], joint: tuple[Any, ...], word: int) -> tuple[tuple[Any, ...], float] | None:
    """The models' states after a word, and the cost that is added; 0 is no word."""
    if word == 0:
        return joint, 0.0
    after, cost = [], 0.0
    for (model, scale), own in zip(models, joint, strict=True):
        step = model.step(own, word)
        if step is None:
            return None
        after.append(step[0])
        cost += scale * step[1]
    return tuple(after), cost


def _made(lattice: Lattice, offset: np.ndarray, arcs: list[tuple[int, int, float]], number: np.ndarray, states: np.ndarray,
          ends: np.ndarray, where: str) -> Lattice:
    index = np.array([arc for arc, _, _ in arcs], np.int64)
    target = number[np.array([met for _, met, _ in arcs], np.int64)]
    strings = np.concatenate([index, lattice.num_arcs + states])
    length = np.diff(lattice.string)[strings]
    string = np.concatenate([[0], np.cumsum(length)])
    places = np.arange(string[-1]) + np.repeat(lattice.string[strings] - string[:-1], length)
    final = np.where(np.isfinite(ends), lattice.final[states] + np.where(np.isfinite(ends), ends, 0.0), np.inf).astype(np.float32)
    graph = (lattice.graph[index] + np.array([cost for _, _, cost in arcs])).astype(np.float32)
    made = Lattice(offset.astype(np.int64), lattice.word[index], graph, lattice.acoustic[index], target.astype(np.int32), final,
                   np.where(final < np.inf, lattice.final_acoustic[states], np.inf).astype(np.float32), string,
                   lattice.transition_ids[places], lattice.reached_final)
    reaches = made.reaches_end
    if not reaches[0]:
        raise UserError(f"{where}: no path of the lattice is a sentence of both language models; rescore with models of the words and the "
                        "grammar that it was decoded with.")
    return made if reaches.all() else made.select(np.flatnonzero(reaches))
