"""T takes exactly the paths of CTC to the labels they stand for; TLG decodes."""

from __future__ import annotations

import itertools

import numpy as np

from pykaldist.decode.decoder import DecoderOptions, LatticeDecoder
from pykaldist.decode.paths import best_path
from pykaldist.decode.tlg import token_graph, token_transducer
from pykaldist.io.fst import Fst
from pykaldist.nnet.ctc import collapsed

LABELS, DISAMBIG = [1, 2, 3], [4]


def outputs_of(fst: Fst, path: tuple[int, ...]) -> list[list[int]]:
    """Every output string of an input string, epsilons followed nowhere but over loops, which are left out."""
    ways = [(fst.start, [])]
    for token in path:
        ways = [(int(fst.nextstate[a]), out + [int(fst.olabel[a])] * bool(fst.olabel[a])) for state, out in ways
                for a in range(fst.offset[state], fst.offset[state + 1]) if fst.ilabel[a] == token + 1]
    return [out for state, out in ways if np.isfinite(fst.final[state])]


def test_every_path_has_its_labels_and_no_others():
    t = token_transducer(LABELS, DISAMBIG)
    for length in range(5):
        for path in itertools.product(range(4), repeat=length):
            assert outputs_of(t, path) == [collapsed(np.array(path, int)).tolist()]
    loops = (t.ilabel == 0) & (t.olabel == 4) & (t.source == t.nextstate)
    assert loops.sum() == 4  # at every state


def fst(arcs: list[tuple[int, int, int, float, int]], final: dict[int, float]) -> Fst:
    states = max(max(a[0], a[4]) for a in arcs) + 1
    return Fst.from_arcs(0, np.array([final.get(s, np.inf) for s in range(states)], np.float32),
                         *(np.array(column) for column in zip(*arcs, strict=True)))


def test_words_are_found_by_their_labels():
    """Words 1 = labels 1 2, 2 = labels 1 1, 3 = labels 3; any sequence of them."""
    lexicon = fst([(0, 1, 1, 0.0, 1), (1, 2, 0, 0.0, 0), (0, 1, 2, 0.0, 2), (2, 1, 0, 0.0, 0), (0, 3, 3, 0.0, 0)], {0: 0.0})
    grammar = fst([(0, word, word, 1.0, 0) for word in (1, 2, 3)], {0: 0.0})
    graph = token_graph(lexicon, grammar, LABELS, DISAMBIG)
    decoder = LatticeDecoder(graph, np.array([0, 0, 1, 2, 3], np.int32), DecoderOptions(acwt=1.0))
    for path, words in (((1, 1, 0, 2), [1]), ((1, 0, 1, 3), [2, 3]), ((3, 0, 3, 0), [3, 3]), ((0, 3, 1, 2, 1, 0, 1), [3, 1, 2])):
        scores = np.full((len(path), 4), -20.0, np.float32)
        scores[np.arange(len(path)), path] = 0.0
        assert list(best_path(decoder.decode(scores), 1.0).words) == words
