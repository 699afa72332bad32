"""Language models biased towards what transcripts say, and decoding graphs of them: to find where transcript and speech differ.

A model is estimated on a few sentences, by absolute discounting: with the count c(h w) of a word behind its history h, d the discount,
n(h) the number of different words behind h, and h' the next shorter history that is kept,

    p(w | h) = (max(c(h w) - d, 0) + d n(h) p(w | h')) / c(h),

down to single words, whose shares are mixed with those of the corpus's most frequent words. So a decoder follows the transcript where that
fits, and can leave it anywhere. Histories of two words and more are kept only where they are frequent (Kaldi:
steps/cleanup/make_biased_lm_graphs.sh, whose names and defaults the options have).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import kaldifst
import numpy as np

from pykaldist.decode.hclg import GraphOptions, decoding_graph
from pykaldist.errors import UserError
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.hmm.tree.tree import ContextDependency
from pykaldist.io.fst import Fst
from pykaldist.io.fstops import from_kaldifst, to_kaldifst
from pykaldist.io.lang import LangDir
from pykaldist.options import option

BEGIN, END = -1, -2  # in the place of word numbers
History = tuple[int, ...]


@dataclass
class BiasedLmOptions:
    """Options of biased language models, with Kaldi's names (steps/cleanup/make_biased_lm_graphs.sh)."""

    top_n_words: int = option(100, "so many of the corpus's most frequent words are in each model")
    top_n_words_weight: float = option(1.0, "their weight beside the words of the utterances")
    min_words_per_graph: int = option(100, "utterances are taken together until they have so many words")
    ngram_order: int = option(4, "the longest n-grams have so many words")
    min_lm_state_count: int = option(10, "histories of two words and more that are seen less often are left out")
    discounting_constant: float = option(0.3, "the discount of absolute discounting; nearer to 0 is more biased")

    def __post_init__(self) -> None:
        if not 2 <= self.ngram_order <= 7 or not 0 < self.discounting_constant < 1:
            raise UserError(f"expected --ngram-order 2 to 7 and --discounting-constant between 0 and 1, found {self.ngram_order} and "
                            f"{self.discounting_constant:g}.")
        if self.top_n_words < 0 or self.top_n_words_weight < 0 or self.min_words_per_graph < 1:
            raise UserError("expected --top-n-words and --top-n-words-weight from 0 up, and --min-words-per-graph from 1.")


def common_words(sentences: Iterable[Sequence[int]], count: int) -> dict[int, float]:
    """The most frequent words of a corpus, with their shares of all its words."""
    counts = Counter(word for sentence in sentences for word in sentence)
    total = max(counts.total(), 1)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return {word: number / total for word, number in ordered[:count]}


def groups_of(utts: Sequence[str], words: Mapping[str, Sequence[int]], least: int) -> Iterator[list[str]]:
    """Divide utterances, in their order, into groups with at least `least` words, but for the last."""
    group: list[str] = []
    size = 0
    for utt in utts:
        group.append(utt)
        size += len(words[utt])
        if size >= least:
            yield group
            group, size = [], 0
    if group:
        yield group


def biased_probabilities(sentences: Sequence[Sequence[int]], common: Mapping[int, float], options: BiasedLmOptions) -> dict[
        History, dict[int, float]]:
    """The probability of each word (or END) behind each history that is kept: BEGIN and words, () for no history."""
    seen: dict[History, Counter[int]] = {(): Counter()}
    for sentence in sentences:
        row = [BEGIN, *sentence, END]
        for i in range(1, len(row)):
            seen[()][row[i]] += 1
            for length in range(1, min(options.ngram_order, i + 1)):
                seen.setdefault(tuple(row[i - length:i]), Counter())[row[i]] += 1
    kept = {history: counts for history, counts in seen.items() if len(history) < 2 or counts.total() >= options.min_lm_state_count}
    total, weight = seen[()].total(), options.top_n_words_weight
    mass = 1 + weight * sum(common.values())
    found: dict[History, dict[int, float]] = {
        (): {word: (seen[()][word] / total + weight * common.get(word, 0.0)) / mass for word in [*seen[()], *(common.keys() - seen[()])]}}
    for history in sorted(kept, key=len):
        if history:
            counts, shorter = kept[history], found[shortened(history, found)]
            left = options.discounting_constant * len(counts)
            found[history] = {word: (count - options.discounting_constant + left * shorter[word]) / counts.total()
                              for word, count in counts.items()}
    return found


def shortened(history: History, kept: Mapping[History, object]) -> History:
    """The next shorter history that is kept."""
    shorter = history[1:]
    while shorter not in kept:
        shorter = shorter[1:]
    return shorter


def biased_grammar(sentences: Sequence[Sequence[int]], common: Mapping[int, float], disambig: int, options: BiasedLmOptions) -> Fst:
    """The model as a transducer G: a state a history, back-off arcs with `disambig` (#0) as input."""
    found = biased_probabilities(sentences, common, options)
    numbers = {history: number for number, history in enumerate(found)}
    final = np.full(len(found), np.inf, np.float32)
    arcs: list[tuple[int, int, int, float, int]] = []  # source, ilabel, olabel, cost, target
    for history, probabilities in found.items():
        here = numbers[history]
        for word, probability in probabilities.items():
            if word == END:
                final[here] = -np.log(probability)
                continue
            goal = (*history, word)[-(options.ngram_order - 1):]
            arcs.append((here, word, word, -np.log(probability), numbers[goal if goal in found else shortened(goal, found)]))
        if history:
            shorter = shortened(history, found)
            left = 1 - sum(probabilities.values())
            covered = sum(found[shorter][word] for word in probabilities)
            if left > 1e-9:  # what is left goes to the words that are not seen here
                arcs.append((here, disambig, 0, -np.log(left / max(1 - covered, left)), numbers[shorter]))
    source, ilabel, olabel, weight, target = (np.array(column) for column in zip(*arcs, strict=True))
    start = numbers[(BEGIN,)] if (BEGIN,) in numbers else numbers[()]
    return Fst.from_arcs(start, final, source, ilabel, olabel, weight, target)


class BiasedGraphs:
    """Makes decoding graphs of biased models, for one language directory, tree and transition model."""

    def __init__(self, lang: LangDir, tree: ContextDependency, model: TransitionModel, common: Mapping[int, float],
                 options: BiasedLmOptions) -> None:
        self._lexicon = Fst.read(lang.file("L_disambig.fst"))
        self._tree, self._model, self._common, self._options = tree, model, common, options
        self._disambig, (_, self._word_disambig) = lang.disambig_phones, lang.word_disambig

    def graph(self, sentences: Sequence[Sequence[int]]) -> Fst:
        """The decoding graph of a few sentences."""
        grammar = biased_grammar(sentences, self._common, self._word_disambig, self._options)
        wanted = np.unique(np.concatenate([grammar.ilabel, [0, self._word_disambig]]))
        full = self._lexicon
        keep = np.isin(full.olabel, wanted)
        part = to_kaldifst(Fst.from_arcs(full.start, full.final, full.source[keep], full.ilabel[keep], full.olabel[keep],
                                         full.weight[keep], full.nextstate[keep]))
        kaldifst.connect(part)
        return decoding_graph(from_kaldifst(part), grammar, self._disambig, self._tree, self._model, GraphOptions())[0]
