"""Phrases that a client expects, as a language model in place of the graph's: Vosk's `phrase_list`.

The model has the phrases' words alone: bigrams with absolute discounting (`decode/biased_lm.py`), so that a phrase is likelier than its
words in another order. That takes a graph whose language model is a half of its own (utils/mkgraph_lookahead.sh), as it does in Vosk.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pykaldist.decode.biased_lm import BiasedLmOptions, biased_grammar
from pykaldist.decode.lookahead_graph import RELABEL, grammar_half
from pykaldist.errors import UserError
from pykaldist.io.fst import Fst
from pykaldist.io.lang import SymbolTable
from pykaldist.io.tables import read_lines
from pykaldist.serve.spoken_files import in_lexicon

DISCOUNT, MOST_WORDS = 0.5, 10_000  # the discount is Vosk's
VOSK_UNKNOWN = "[unk]"  # what else may be said
UNKNOWN = (VOSK_UNKNOWN, "<unk>", "<UNK>", "[UNK]", "<SPOKEN_NOISE>")


class Phrases:
    """Makes grammars for the graph of a directory that utils/mkgraph_lookahead.sh has made."""

    def __init__(self, graph_dir: Path) -> None:
        self._words = SymbolTable.read(graph_dir / "words.txt")
        pairs = np.array([line.split() for line in read_lines(graph_dir / RELABEL)], np.int64).reshape(-1, 2)
        self._number = np.zeros(pairs.max() + 1, np.int64)
        self._number[pairs[:, 0]] = pairs[:, 1]

    def grammar(self, phrases: Sequence[str]) -> Fst:
        """The grammar; raises UserError for words that the lexicon lacks, named in the sentence, and where there are none or too many."""
        sentences = [[self._word(word) for word in phrase.split()] for phrase in phrases]
        count = sum(map(len, sentences))
        if not 0 < count <= MOST_WORDS:
            raise UserError(f"phrase_list has {count} words, 1 to {MOST_WORDS} are taken.")
        options = BiasedLmOptions(ngram_order=2, discounting_constant=DISCOUNT)
        grammar = biased_grammar([sentence for sentence in sentences if sentence], {}, self._words["#0"], options)
        return grammar_half(grammar, self._number, self._words["#0"])

    def _word(self, word: str) -> int:
        form = next((name for name in UNKNOWN if name in self._words), None) if word == VOSK_UNKNOWN else in_lexicon(word, self._words)
        number = self._words[form] if form else 0
        if not 0 < number < len(self._number) or not self._number[number]:
            raise UserError(f"phrase_list: the lexicon has no word {word[:60]}; leave it out, or write {VOSK_UNKNOWN}.")
        return number
