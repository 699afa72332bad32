"""A phone language model of the unknown word, as a transducer: which phone sequences a word outside the lexicon may have, and their costs.

The model is an n-gram model of the lexicon's pronunciations (`smoothing.estimate`). Its transducer takes only pairs of neighbouring phones
that some pronunciation has, ends of words among them: a state is a context of at least one phone, and

    a context of one phone h has an arc for each pair hw, with p(w | h) / sum of p(v | h) over the pairs hv,
    a longer context has an arc for each of its n-grams, and one that backs off, which takes a disambiguation symbol.

So decoding graphs stay small, and no sequence is allowed that the language does not know. The product with an automaton that counts phones
leaves out words that are too short, and marks phones with their place in the word. At last costs are pushed until all states' arcs have
one sum (`io.fstops.push_special`), and equal states are merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import kaldifst
import numpy as np

from pykaldist.errors import UserError
from pykaldist.io.dictdir import DictDir
from pykaldist.io.fst import Fst
from pykaldist.io.fstops import from_kaldifst, push_special, to_kaldifst
from pykaldist.lm.model import BOS, EOS, NgramModel
from pykaldist.lm.prune import prune_to
from pykaldist.lm.smoothing import estimate
from pykaldist.options import option

Arc = tuple[int, int, str, float]  # state, next state, phone or disambiguation symbol, cost
_PLACES = {  # (positions, least number of phones) -> for each number of the automaton's states: (suffix of the phone, next state)
    (True, 1): ([[("_B", 1), ("_S", 2)], [("_I", 1), ("_E", 2)], []], 2),
    (True, 2): ([[("_B", 1)], [("_I", 1), ("_E", 2)], []], 2),
    (False, 1): ([[("", 1)], [("", 1)]], 1),
    (False, 2): ([[("", 1)], [("", 2)], [("", 2)]], 2),
}


@dataclass
class UnknownWordOptions:
    """The options of `unknown_word_model`, with the names of Kaldi's utils/lang/make_unk_lm.sh."""

    ngram_order: int = option(4, "order of the model, 2 to 7")
    num_extra_ngrams: int = option(10000, "at most so many n-grams beside the unigrams")
    position_dependent_phones: bool = option(True, "mark phones with their place in the word, as prepare_lang.sh does")
    min_word_length: int = option(2, "least number of phones of a word, 1 or 2")
    phone_disambig_symbol: str = option("#1", "what arcs that back off take; prepare_lang.sh expects #1")

    def check(self) -> None:
        """Check the options; raises UserError for a value that cannot work."""
        if not 2 <= self.ngram_order <= 7 or self.num_extra_ngrams < 0 or self.min_word_length not in (1, 2):
            raise UserError(f"expected --ngram-order from 2 to 7, --num-extra-ngrams of at least 0 and --min-word-length 1 or 2, found "
                            f"{self.ngram_order}, {self.num_extra_ngrams} and {self.min_word_length}.")
        if not self.phone_disambig_symbol.startswith("#"):
            raise UserError(f"--phone-disambig-symbol: expected one such as #1, found {self.phone_disambig_symbol!r}.")


def spoken_pronunciations(dictionary: DictDir) -> list[tuple[str, ...]]:
    """The lexicon's pronunciations without those that have silence or noise in them; raises UserError where none is left."""
    quiet = {phone for group in dictionary.silence for phone in group}
    found = [entry.phones for entry in dictionary.lexicon if entry.phones and quiet.isdisjoint(entry.phones)]
    if not found:
        raise UserError("the lexicon has no pronunciation without silence phones, from which to learn what words sound like.")
    return found


def unknown_word_model(pronunciations: Sequence[tuple[str, ...]], symbols: Mapping[str, int], options: UnknownWordOptions) -> Fst:
    """The phone language model as a transducer with the numbers of `symbols`, from each phone to itself, from the symbol to epsilon.

    Raises UserError where no pronunciation is long enough.
    """
    options.check()
    if max(map(len, pronunciations)) < options.min_word_length:
        raise UserError(f"no pronunciation of the lexicon has {options.min_word_length} phones; give --min-word-length 1.")
    model = estimate(pronunciations, {phone for phones in pronunciations for phone in phones}, options.ngram_order)
    model, _ = prune_to(model, options.num_extra_ngrams + len(model.orders[0]))
    arcs, final = phone_arcs(model, pairs_of(pronunciations), options.phone_disambig_symbol)
    arcs, final = placed(arcs, final, options)
    ends = np.full(1 + max(max(arc[:2]) for arc in arcs), np.inf, np.float32)
    ends[list(final)] = list(final.values())
    labels = np.array([symbols[symbol] for _, _, symbol, _ in arcs])
    source, to, cost = (np.array([arc[i] for arc in arcs]) for i in (0, 1, 3))
    fst = to_kaldifst(Fst.from_arcs(0, ends, source, labels, labels, cost, to))
    kaldifst.connect(fst)
    fst = to_kaldifst(push_special(from_kaldifst(fst)))
    kaldifst.minimize_encoded(fst)
    made = from_kaldifst(fst)
    made.olabel[made.olabel == symbols[options.phone_disambig_symbol]] = 0
    return made


def pairs_of(pronunciations: Iterable[tuple[str, ...]]) -> dict[str, set[str]]:
    """Of each phone, and of <s>, the phones that stand behind it somewhere, </s> among them."""
    pairs: dict[str, set[str]] = {}
    for phones in pronunciations:
        for phone, following in zip((BOS, *phones), (*phones, EOS), strict=True):
            pairs.setdefault(phone, set()).add(following)
    return pairs


def phone_arcs(model: NgramModel, pairs: Mapping[str, set[str]], disambig: str) -> tuple[list[Arc], dict[int, float]]:
    """The arcs of a model that takes only `pairs` of neighbours, and its final states with their costs; state 0 is the start."""
    words = model.words
    of_one = {int(model.base[1]) + i: words[word] for i, word in enumerate(model.orders[0].word.tolist()) if words[word] != EOS}
    longer = [int(model.base[n]) + h for n in range(2, model.order) for h in np.unique(model.orders[n].history).tolist()]
    start = next(node for node, word in of_one.items() if word == BOS)
    state = {node: number for number, node in enumerate([start, *(node for node in of_one if node != start), *longer])}
    arcs: list[Arc] = []
    final: dict[int, float] = {}

    def known(node: int) -> int:
        """The state of the longest context that ends an n-gram."""
        while node not in state:
            node = int(model.suffix[node])
        return state[node]

    def leave(node: int, word: str, cost: float, found: int) -> None:
        if word == EOS:
            final[state[node]] = cost
        else:
            arcs.append((state[node], known(found), word, cost))

    for node, phone in of_one.items():
        following = sorted(pairs.get(phone, ()))
        logprob, found = model.look_up(np.full(len(following), node), np.array([model.index[word] for word in following], np.int64))
        total = float(np.logaddexp.reduce(logprob)) if following else 0.0
        for word, value, place in zip(following, logprob.tolist(), found.tolist(), strict=True):
            leave(node, word, total - value, place)
    for n in range(2, model.order):
        order = model.orders[n]
        for i, (history, word, value) in enumerate(zip(order.history.tolist(), order.word.tolist(), order.logprob.tolist(), strict=True)):
            leave(int(model.base[n]) + history, words[word], -value, int(model.base[n + 1]) + i)
    arcs += [(state[node], known(int(model.suffix[node])), disambig, -float(model.backoff[node])) for node in longer]
    return arcs, final


def placed(arcs: Sequence[Arc], final: Mapping[int, float], options: UnknownWordOptions) -> tuple[list[Arc], dict[int, float]]:
    """The arcs and final states for words of `min_word_length` phones and more, phones marked with their places if so wanted."""
    places, end = _PLACES[options.position_dependent_phones, options.min_word_length]
    leaving: dict[int, list[Arc]] = {}
    for arc in arcs:
        leaving.setdefault(arc[0], []).append(arc)
    number = {(0, 0): 0}
    todo, made = [(0, 0)], []
    for here, place in todo:  # which grows
        for _, to, symbol, cost in leaving.get(here, ()):
            ways = [(symbol, place)] if symbol == options.phone_disambig_symbol else [(symbol + mark, n) for mark, n in places[place]]
            for marked, next_place in ways:
                target = to, next_place
                if target not in number:
                    number[target] = len(number)
                    todo.append(target)
                made.append((number[here, place], number[target], marked, cost))
    return made, {number[state, place]: cost for state, cost in final.items() for place in (end,) if (state, place) in number}
