"""The grammar transducer G of an ARPA language model, as Kaldi's arpa2fst --disambig-symbol=#0 makes it.

A state is a history, an arc an n-gram, whose cost is its negative log-probability; it leads to the longest suffix that is a history. From
each history an arc that takes #0 leads to the longest shorter one, at the back-off's cost. <s> is the start and no arc, </s> ends: its
costs are those of final states. N-grams with words outside words.txt are left out. A history from which one can only back off needs no
state of its own: whoever comes there goes on to the shorter one at once.

Arcs are put where they belong, some million n-grams after the other, so that beside the n-grams and the transducer there is little in
memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pykaldist.errors import UserError
from pykaldist.io import provenance
from pykaldist.io.atomic import copy_file, copy_tree
from pykaldist.io.fst import Fst
from pykaldist.io.tables import read_lines, read_map
from pykaldist.lm.arpa import Ngrams, read_ngrams
from pykaldist.lm.model import BOS, EOS, NgramModel
from pykaldist.progress import Progress

_BLOCK = 1 << 20  # n-grams whose arcs are made at once


def grammar(arpa: str | os.PathLike[str], words: str | os.PathLike[str]) -> tuple[Fst, Ngrams]:
    """Make the transducer G of an ARPA file over the symbols of `words` (words.txt), and say what the file held.

    Raises UserError for errors in the file.
    """
    symbols = {word: int(number) for word, number in read_map(words).items()}
    if "#0" not in symbols:
        raise UserError(f"{words} has no #0, which back-off arcs take; make the language directory with utils/prepare_lang.sh.")
    for word in (BOS, EOS):
        symbols.setdefault(word, max(symbols.values()) + 1)
    ngrams = read_ngrams(arpa, symbols)
    unigrams = ngrams.orders[0].word
    for name in ("<eps>", "#0"):
        if symbols.get(name, -1) in unigrams:
            raise UserError(f"{arpa} has the word {name}, which stands for something else in {words}; take it out.")
    if np.isin(unigrams, [symbols[BOS], symbols[EOS]]).all():
        raise UserError(f"{arpa} has no sentence of words that are in {words}; its words are such as "
                        f"{', '.join(ngrams.outside_words[:5])}; train it on text of this vocabulary, in its spelling (upper or lower "
                        "case), with utils/train_lm.sh.")
    fst = _transducer(ngrams, symbols[BOS], symbols[EOS], symbols["#0"])
    ngrams.orders.clear()  # they are in the transducer now
    return fst, ngrams


def _transducer(ngrams: Ngrams, bos: int, eos: int, disambig: int) -> Fst:
    """The transducer of n-grams; nodes are, as those of a NgramModel, no history, then the n-grams of each order below the highest."""
    orders, highest = ngrams.orders, len(ngrams.orders)
    model = NgramModel([""] * (int(max(order.word.max(initial=0) for order in orders)) + 1), orders)
    num_nodes = int(model.base[highest])
    for order in orders:
        order.backoff = np.zeros(0, np.float32)  # the model has them
    suffix = np.concatenate([[0], *(model.suffixes(n) for n in range(1, highest))]).astype(np.int32)
    # Which nodes are histories (nothing is behind </s>, and <s> is only at the start), and how many words leave them.
    history, words, final = np.ones(num_nodes, bool), np.zeros(num_nodes, np.int32), np.full(num_nodes, np.inf, np.float32)
    below = np.zeros(num_nodes, np.int32)  # words with numbers below #0
    start = 0
    for n, rows, source, word in _rows(model, "states of G"):
        order, own = orders[n - 1], int(model.base[n])
        there, ends, begins = history[source], word == eos, word == bos
        final[source[there & ends]] = -order.logprob[rows][there & ends]
        said = source[there & ~ends & ~begins]
        np.add.at(words, said, 1)
        np.add.at(below, source[there & ~ends & ~begins & (word < disambig)], 1)
        if n < highest:
            history[own + rows.start:own + rows.stop] = there & ~ends & (~begins | (n == 1))
            if n == 1 and begins.any():
                start = own + rows.start + int(np.flatnonzero(begins)[0])
    # Where whoever comes to a node goes on at once: there, or from a shorter history, at what cost.
    lone = history & (words == 0) & np.isinf(final)
    lone[0] = False
    goes_to, cost, backoff = np.arange(num_nodes, dtype=np.int32), np.zeros(num_nodes, np.float32), -model.backoff.astype(np.float32)
    for n in range(1, highest):  # shorter ones first
        nodes = model.base[n] + np.flatnonzero(lone[model.base[n]:model.base[n + 1]])
        goes_to[nodes] = goes_to[suffix[nodes]]
        cost[nodes] = backoff[nodes] + cost[suffix[nodes]]
    kept = (history & ~lone) | (np.arange(num_nodes) == start)
    state, backs_off = np.cumsum(kept, dtype=np.int32) - np.int32(1), kept & (np.arange(num_nodes) > 0)
    # The arcs of each state, sorted: its words, and among them #0, or nothing for a start from which one can only back off.
    offset = np.concatenate([[0], np.cumsum((words + backs_off)[kept])])
    kinds = (np.int32, np.int32, np.float32, np.int32)
    fst = Fst(int(state[start]), final[kept], offset, *(np.empty(int(offset[-1]), kind) for kind in kinds))
    for n, rows, source, word in _rows(model, "arcs of G"):
        own, first = int(model.base[n]), int(np.count_nonzero(kept[:model.base[n - 1]]))  # the first state with histories so long
        if rows.start == 0:
            done = int(offset[first])  # arcs before the block, but for back-offs from states so long
        emits = np.flatnonzero(history[source] & (word != eos) & (word != bos))
        source, word = source[emits], word[emits]
        at = done + np.arange(len(emits)) + (state[source] - first) + ((word > disambig) & backs_off[source])
        to = own + rows.start + emits if n < highest else model.suffixes(n, rows)[emits]
        fst.ilabel[at] = fst.olabel[at] = word
        fst.weight[at] = -orders[n - 1].logprob[rows][emits] + cost[to]
        fst.nextstate[at] = state[goes_to[to]]
        done += len(emits)
    nodes = np.flatnonzero(backs_off)
    at = offset[state[nodes]] + below[nodes]
    fst.ilabel[at], fst.olabel[at] = np.where(lone[nodes], 0, disambig), 0
    fst.weight[at] = backoff[nodes] + cost[suffix[nodes]]
    fst.nextstate[at] = state[goes_to[suffix[nodes]]]
    return fst


def _rows(model: NgramModel, what: str) -> Iterator[tuple[int, slice, np.ndarray, np.ndarray]]:
    """Some n-grams after the other: their order, which of it they are, the nodes of their histories, their last words.

    `what` is made of them, as a bar says.
    """
    with Progress(what, sum(map(len, model.orders)), "n-gram") as bar:
        for n, order in enumerate(model.orders, 1):
            for first in range(0, len(order), _BLOCK):
                rows = slice(first, min(first + _BLOCK, len(order)))
                yield n, rows, model.base[n - 1] + order.history[rows], order.word[rows]
                bar.update(rows.stop - rows.start)


def format_lm(lang: str | os.PathLike[str], arpa: str | os.PathLike[str], lexicon: str | os.PathLike[str],
              out_lang: str | os.PathLike[str]) -> tuple[Fst, Ngrams]:
    """Write `out_lang`: a copy of `lang` with G.fst from an ARPA file; returns G and what the file held.

    Raises UserError for errors in the ARPA file, and where words that `lexicon` gives no phones make a cycle in G, which could be
    followed for ever without input.
    """
    lang, out_lang = Path(lang), Path(out_lang)
    in_place = out_lang.resolve() == lang.resolve()
    if not in_place:
        provenance.check(lang)
    if not (lang / "words.txt").is_file() or not (lang / "L_disambig.fst").is_file():
        raise UserError(f"{lang} is no language directory (no words.txt or L_disambig.fst); make it with utils/prepare_lang.sh.")
    symbols = read_map(lang / "words.txt")
    fst, summary = grammar(arpa, lang / "words.txt")
    silent = {fields[0] for fields in map(str.split, read_lines(lexicon)) if len(fields) == 1}
    labels = [0, int(symbols["#0"]), *(int(symbols[word]) for word in silent if word in symbols)]
    if _has_cycle(fst, np.isin(fst.ilabel, labels)):
        raise UserError(f"{arpa} has a cycle of words without phones ({', '.join(sorted(silent)) or 'back-offs only'}); "
                        f"give them pronunciations in {lexicon}.")
    out_lang.mkdir(parents=True, exist_ok=True)
    (out_lang / "G.fst").unlink(missing_ok=True)
    if not in_place:
        provenance.forget(out_lang)
        for path in lang.iterdir():
            if path.is_dir() and path.name == "phones":
                copy_tree(path, out_lang / path.name)
            elif path.is_file() and path.name not in ("G.fst", provenance.FILE):
                copy_file(path, out_lang / path.name)
    fst.write(out_lang / "G.fst")
    taken = [] if in_place else [lang / "words.txt", lang / "L_disambig.fst"]
    provenance.record(out_lang, "utils/format_lm.sh", [arpa, lexicon, *taken], sources=[lang])
    return fst, summary


def _has_cycle(fst: Fst, among: np.ndarray) -> bool:
    """Whether the arcs that `among` selects form a cycle; it peels off arcs that lead to states with none of them."""
    arcs = np.flatnonzero(among)
    source, target = np.searchsorted(fst.offset, arcs, "right") - 1, fst.nextstate[arcs]
    while len(source):
        goes_on = np.isin(target, source)
        if goes_on.all():
            return True
        source, target = source[goes_on], target[goes_on]
    return False
