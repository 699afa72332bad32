"""Composition while searching: the same paths and costs as composition ahead, and as the static graph of a whole system."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykaldist.decode.decoder import DecoderOptions, LatticeDecoder
from pykaldist.decode.hclg import GraphOptions
from pykaldist.decode.lookahead import LookaheadDecoder, block_sums, read_decoder, together
from pykaldist.decode.lookahead_graph import LookaheadGraph, grammar_half, make_lookahead_graph
from pykaldist.decode.paths import best_path
from pykaldist.errors import UserError
from pykaldist.hmm.gmm.model_files import read_transition_model
from pykaldist.io.fst import Fst
from pykaldist.io.fst_compose import compose
from pykaldist.io.lookahead_fst import next_labels
from pykaldist.io.tables import read_archive

from .test_lazy_graph import BACKOFF, PHONES, TID2PDF, WORDS, bigram

DISAMBIG = PHONES + 1  # the input label of #0


def lexicon(rng: np.random.Generator) -> Fst:
    """A loop of words of one to three phones, each heard for one frame and more, whose last phone writes them; and a loop of #0."""
    arcs, states = [(0, DISAMBIG, BACKOFF, 0.0, 0)], 1
    for word in range(1, WORDS + 1):
        at, phones = 0, rng.integers(1, PHONES + 1, rng.integers(1, 4))
        for i, phone in enumerate(phones):
            arcs.append((at, phone, word if i == len(phones) - 1 else 0, rng.uniform(0, 1), states))
            arcs.append((states, phone, 0, rng.uniform(0, 1), states))
            at = states
            states += 1
        arcs.append((at, 0, 0, 0.1, 0))
    final = np.full(states, np.inf)
    final[0] = 0.3
    return Fst.from_arcs(0, final, *map(np.array, zip(*arcs, strict=True)))


def halves(rng: np.random.Generator) -> tuple[LookaheadGraph, Fst]:
    """The two halves, and what composition ahead makes of them: states without a future are in it, disambiguation symbols are not."""
    words, model = lexicon(rng), bigram(rng)
    whole = compose(Fst.from_arcs(0, words.final, words.source, words.ilabel, words.olabel, words.weight, words.nextstate), model)
    whole.ilabel[whole.ilabel == DISAMBIG] = 0
    sets, number = next_labels(words)
    return LookaheadGraph.of(words, sets, grammar_half(model, number, BACKOFF), np.array([DISAMBIG]), TID2PDF), whole


@given(seed=st.integers(0, 2**32 - 1))
def test_its_paths_cost_what_they_cost_in_a_graph_of_both(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph, whole = halves(rng)
    options = DecoderOptions(beam=1e4, lattice_beam=6.0, acwt=0.5, max_active=100_000)
    lazy, static = LookaheadDecoder(graph, TID2PDF, options), LatticeDecoder(whole, TID2PDF, options)
    for frames in (6, 3, 9):  # states are kept from one utterance to the next
        loglikes = rng.normal(0, 3, (frames, PHONES)).astype(np.float32)
        ours, theirs = lazy.decode(loglikes), static.decode(loglikes)
        assert (ours is None) == (theirs is None)
        if ours is None or theirs is None or not theirs.reached_final:
            continue
        one, other = best_path(ours, 0.5), best_path(theirs, 0.5)
        assert one.words == other.words
        assert one.graph + 0.5 * one.acoustic == pytest.approx(other.graph + 0.5 * other.acoustic, abs=1e-3)
        assert sorted(ours.word[ours.word > 0].tolist()) == sorted(theirs.word[theirs.word > 0].tolist())


@given(seed=st.integers(0, 2**32 - 1))
def test_the_graph_of_both_written_out_is_the_one_that_is_searched(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph, whole = halves(rng)
    options = DecoderOptions(beam=1e4, lattice_beam=6.0, acwt=0.5, max_active=100_000)
    out = LookaheadDecoder(graph, TID2PDF, options).whole()
    assert out.num_states <= whole.num_states
    loglikes = rng.normal(0, 3, (7, PHONES)).astype(np.float32)
    ours, theirs = (LatticeDecoder(one, TID2PDF, options).decode(loglikes) for one in (out, whole))
    if ours is not None and theirs is not None and theirs.reached_final:
        assert best_path(ours, 0.5).words == best_path(theirs, 0.5).words


@given(values=st.lists(st.floats(0, 9, width=32), max_size=2500), ends=st.tuples(st.integers(0, 2500), st.integers(0, 2500)))
def test_sums_of_blocks_are_sums(values: list[float], ends: tuple[int, int]) -> None:
    array = np.array(values, np.float32)
    begin, end = sorted(min(end, len(array)) for end in ends)
    blocks = block_sums(array)
    expected = -np.logaddexp.reduce(-array[begin:end].astype(np.float64)) if begin < end else np.inf
    assert together(array, blocks, block_sums(blocks), begin, end) == pytest.approx(expected, abs=1e-4)


@pytest.fixture(scope="module")
def system(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lookahead")
    make_lookahead_graph(golden / "an4_kaldi/lang", golden / "an4_kaldi/tri3_ali", folder, GraphOptions())
    return folder


def test_words_are_those_of_kaldis_static_graph(golden: Path, system: Path) -> None:
    an4 = golden / "an4_kaldi"
    tid2pdf, options = read_transition_model(an4 / "tri3_ali/final.mdl").tid2pdf, DecoderOptions(acwt=0.1, beam=22.0, max_active=50_000)
    lookahead, static = read_decoder(system, tid2pdf, options), LatticeDecoder(Fst.read(an4 / "graph_tri3/HCLG.fst"), tid2pdf, options)
    assert isinstance(lookahead, LookaheadDecoder)
    for _, matrix in list(read_archive(an4 / "dnn/loglikes.ark"))[:5]:
        ours, theirs = (best_path(decoder.decode(matrix), 0.1) for decoder in (lookahead, static))
        assert ours.words == theirs.words
        assert ours.graph == pytest.approx(theirs.graph, abs=0.02)  # the static graph's weights are rounded to 1/1024
        assert ours.acoustic == pytest.approx(theirs.acoustic, abs=1e-3)


def test_an_arpa_file_gives_what_its_grammar_gives(golden: Path, system: Path, tmp_path: Path) -> None:
    an4 = golden / "an4_kaldi"
    lines = ["\\data\\", "ngram 1=4", "", "\\1-grams:", "-99\t<s>", "-0.6\t</s>", "-0.5\tYES", "-0.4\tNO", "", "\\end\\", ""]
    (tmp_path / "lm.arpa").write_text("\n".join(lines))
    _, model = make_lookahead_graph(an4 / "lang", an4 / "tri3_ali", tmp_path / "graph", GraphOptions(), tmp_path / "lm.arpa")
    words = dict(line.split() for line in (an4 / "lang/words.txt").read_text().splitlines())
    assert sorted(set(model.olabel.tolist())) == sorted(int(words[word]) for word in ("YES", "NO"))
    number = dict(line.split() for line in (tmp_path / "graph/relabel").read_text().splitlines())
    arcs = set(zip(model.ilabel.tolist(), model.olabel.tolist(), strict=True))
    assert arcs == {(int(number[words[w]]), int(words[w])) for w in ("YES", "NO")}
    assert not (tmp_path / "graph/HCLG.fst").exists() and (tmp_path / "graph/disambig_tid.int").is_file()


def test_what_does_not_belong_together_is_refused(golden: Path, system: Path, tmp_path: Path) -> None:
    an4 = golden / "an4_kaldi"
    other = Fst.from_arcs(0, np.zeros(1), np.zeros(1, int), np.array([10**6]), np.array([10**6]), np.zeros(1), np.zeros(1, int))
    with pytest.raises(UserError, match="no word in common"):
        grammar_half(other, np.arange(5), 3)
    with pytest.raises(UserError, match=r"L_disambig\.fst does not exist"):
        make_lookahead_graph(tmp_path, an4 / "tri3_ali", tmp_path / "graph", GraphOptions())
    shutil.copytree(system, tmp_path / "graph")
    few = read_transition_model(an4 / "tri3_ali/final.mdl").tid2pdf[:20]
    with pytest.raises(UserError, match="transition-ids up to"):
        LookaheadGraph.read(tmp_path / "graph", few)
    Fst.read(tmp_path / "graph/Gr.fst").write(tmp_path / "graph/HCLr.fst")
    with pytest.raises(UserError, match="one of type olabel_lookahead is expected"):
        LookaheadGraph.read(tmp_path / "graph", few)
