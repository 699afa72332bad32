from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykaldist.decode.decoder import DecoderOptions, LatticeDecoder
from pykaldist.decode.lazy_graph import BiglmDecoder, backoff_model
from pykaldist.decode.paths import best_path
from pykaldist.errors import UserError
from pykaldist.io.fst import Fst
from pykaldist.io.fst_compose import compose

WORDS, BACKOFF, PHONES = 4, 9, 3
TID2PDF = np.arange(-1, PHONES)


def bigram(rng: np.random.Generator) -> Fst:
    """A bigram model: state 0 backs off to nothing, states 1 to WORDS are histories, which have some of the words and back off to 0."""
    arcs = [(0, word, word, rng.uniform(2, 3), word) for word in range(1, WORDS + 1)]
    for history in range(1, WORDS + 1):
        arcs += [(history, word, word, rng.uniform(0, 1), word) for word in range(1, WORDS + 1) if rng.random() < 0.4]
        arcs.append((history, BACKOFF, 0, rng.uniform(0.5, 1.5), 0))
    final = np.where(rng.random(WORDS + 1) < 0.5, rng.uniform(0, 1, WORDS + 1), np.inf)
    final[0] = rng.uniform(1, 2)
    return Fst.from_arcs(1, final, *map(np.array, zip(*arcs, strict=True)))


def lexicon(rng: np.random.Generator) -> Fst:
    """A loop of words that are one to three phones long, each phone of one frame and more; word 1 and word 2 may sound alike."""
    arcs, states = [], 1
    for word in range(1, WORDS + 1):
        at = 0
        for i, phone in enumerate(rng.integers(1, PHONES + 1, rng.integers(1, 4))):
            arcs.append((at, phone, word if i == 0 else 0, rng.uniform(0, 1), states))
            arcs.append((states, phone, 0, rng.uniform(0, 1), states))
            at = states
            states += 1
        arcs.append((at, 0, 0, 0.0, 0))
    final = np.full(states, np.inf)
    final[0] = 0
    return Fst.from_arcs(0, final, *map(np.array, zip(*arcs, strict=True)))


def unigram(rng: np.random.Generator) -> Fst:
    arcs = [(0, word, word, rng.uniform(1, 2), 0) for word in range(1, WORDS + 1)]
    return Fst.from_arcs(0, np.array([0.7]), *map(np.array, zip(*arcs, strict=True)))


def without_backing_off(grammar: Fst) -> Fst:
    """The same model with an arc for every word of every history: what backing off means, written out."""
    arcs, final = [], grammar.final.copy()
    model = {(s, w): (c, t) for s, w, c, t in zip(grammar.source.tolist(), grammar.ilabel.tolist(), grammar.weight.tolist(),
                                                  grammar.nextstate.tolist(), strict=True)}
    for s in range(grammar.num_states):
        back, below = model.get((s, BACKOFF), (0.0, s))
        final[s] = final[s] if final[s] < np.inf else back + final[below]
        for w in range(1, WORDS + 1):
            cost, to = model[s, w] if (s, w) in model else (back + model[below, w][0], model[below, w][1])
            arcs.append((s, w, w, cost, to))
    return Fst.from_arcs(grammar.start, final, *map(np.array, zip(*arcs, strict=True)))


@given(seed=st.integers(0, 2**32 - 1), kept=st.booleans())
def test_it_finds_what_a_graph_of_the_large_model_has(seed: int, kept: bool) -> None:
    rng = np.random.default_rng(seed)
    words, small, large = lexicon(rng), unigram(rng), bigram(rng)
    options = DecoderOptions(beam=1e4, lattice_beam=6.0, acwt=0.5, max_active=100_000)
    lazy = BiglmDecoder(compose(words, small), TID2PDF, options, small, large, BACKOFF)
    static = LatticeDecoder(compose(words, without_backing_off(large)), TID2PDF, options)
    for frames in (6, 3, 9) if kept else (7,):  # states are kept from one utterance to the next
        loglikes = rng.normal(0, 3, (frames, PHONES)).astype(np.float32)
        ours, theirs = lazy.decode(loglikes), static.decode(loglikes)
        assert (ours is None) == (theirs is None)
        if ours is None or theirs is None:
            continue
        assert ours.reached_final == theirs.reached_final
        one, other = best_path(ours, 0.5), best_path(theirs, 0.5)
        assert one.graph + 0.5 * one.acoustic == pytest.approx(other.graph + 0.5 * other.acoustic, abs=1e-3)
        if ours.reached_final:
            assert one.words == other.words
            assert sorted(ours.word[ours.word > 0].tolist()) == sorted(theirs.word[theirs.word > 0].tolist())


def test_a_grammar_that_is_no_ngram_model_is_refused() -> None:
    two = Fst.from_arcs(0, np.zeros(2), np.zeros(2, int), np.full(2, BACKOFF), np.zeros(2, int), np.zeros(2), np.array([0, 1]))
    with pytest.raises(UserError, match="several back-off arcs"):
        backoff_model(two, BACKOFF, "the old language model")
    two.ilabel[:] = 3
    with pytest.raises(UserError, match="two arcs of one word"):
        backoff_model(two, BACKOFF, "the old language model")
