"""Viterbi against a slow reference, beams, the order of transition-ids, the flat start."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykaldist.errors import UserError
from pykaldist.hmm.alignments.align import AlignOptions, align, equal_alignments, loops_behind
from pykaldist.hmm.alignments.corpus import Corpus
from pykaldist.hmm.alignments.graphs import GraphCompiler, TrainingGraph
from pykaldist.hmm.gmm.engine import Engine
from pykaldist.hmm.gmm.gmm import AmDiagGmm
from pykaldist.hmm.lang.topology import read_topology
from pykaldist.hmm.training.mono import MonoOptions, train_mono
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.hmm.tree.tree import monophone_tree
from pykaldist.io.lang import LangDir

UNPRUNED = AlignOptions(beam=1e9)


@pytest.fixture(scope="module")
def compiler(toy_lang: LangDir) -> GraphCompiler:
    topology = read_topology(toy_lang.path / "topo")
    tree = monophone_tree(toy_lang.phone_sets, topology.num_pdf_classes)
    return GraphCompiler(toy_lang, tree, TransitionModel.from_tree(tree, topology))


@pytest.fixture(scope="module")
def graphs(compiler: GraphCompiler, toy_corpus: Corpus) -> list[TrainingGraph]:
    return [compiler.compile(words) for words in toy_corpus.words]


def random_gmm(num_pdfs: int, seed: int = 0, dim: int = 6) -> AmDiagGmm:
    rng = np.random.default_rng(seed)
    return AmDiagGmm(np.arange(num_pdfs + 1), np.ones(num_pdfs), rng.standard_normal((num_pdfs, dim)), np.ones((num_pdfs, dim)))


def path_score(graph: TrainingGraph, tids: np.ndarray, arc_scores: np.ndarray, loglikes: np.ndarray, scale: float) -> float:
    """The best score of any path whose transition_ids, in Kaldi's order, are `tids`; -inf if there is none."""
    return _sweep(graph, arc_scores, loglikes, scale, allowed=tids)


def slow_viterbi(graph: TrainingGraph, arc_scores: np.ndarray, loglikes: np.ndarray, scale: float) -> float:
    return _sweep(graph, arc_scores, loglikes, scale)


def _sweep(graph: TrainingGraph, arc_scores: np.ndarray, loglikes: np.ndarray, scale: float,
           allowed: np.ndarray | None = None) -> float:
    """Max-plus dynamic programming over all states of all frames, without pruning."""
    score = np.full(graph.num_states + 1, -np.inf)
    np.maximum.at(score, graph.start_states, -graph.start_costs.astype(float))
    for t, frame in enumerate(loglikes):
        arcs = score[graph.source] + arc_scores + scale * frame[graph.column]
        if t < len(loglikes) - 1:
            arcs[graph.destination == graph.num_states] = -np.inf
        if allowed is not None:
            arcs[graph.tid != allowed[t]] = -np.inf
        score = np.full(graph.num_states + 1, -np.inf)
        np.maximum.at(score, graph.destination, arcs)
    return float(score[-1])


def loops_before(tids: np.ndarray, is_self_loop: np.ndarray) -> np.ndarray:
    """Back to the order of time: of each run `way out, loops of the same state` the loops first."""
    runs: list[list[int]] = []
    for tid in tids.tolist():
        if is_self_loop[tid]:
            runs[-1].insert(0, tid)
        else:
            runs.append([tid])
    return np.array([tid for run in runs for tid in run])


@pytest.mark.parametrize("seed", range(3))
def test_viterbi_finds_the_best_path(compiler: GraphCompiler, toy_corpus: Corpus, graphs: list[TrainingGraph], seed: int) -> None:
    model = compiler.transition_model
    gmm = random_gmm(model.num_pdfs, seed)
    found = align(toy_corpus, graphs, model, gmm, UNPRUNED)
    assert not found.failed and not found.retried
    log_probs = model.scaled_log_probs(UNPRUNED.transition_scale, UNPRUNED.self_loop_scale)
    for number, (graph, (_, tids)) in enumerate(zip(graphs, found.labels(toy_corpus).items(), strict=True)):
        arc_scores = log_probs[graph.tid] - graph.cost
        loglikes = gmm.loglikes(toy_corpus.utterance_feats(number), graph.pdfs).astype(float)
        best = slow_viterbi(graph, arc_scores, loglikes, UNPRUNED.acoustic_scale)
        in_time = loops_before(tids, model.tid_is_self_loop)
        assert path_score(graph, in_time, arc_scores, loglikes, UNPRUNED.acoustic_scale) == pytest.approx(best, abs=1e-3)


def test_threads_change_nothing(compiler: GraphCompiler, toy_corpus: Corpus, graphs: list[TrainingGraph]) -> None:
    model, gmm = compiler.transition_model, random_gmm(compiler.transition_model.num_pdfs)
    one, three = (align(toy_corpus, graphs, model, gmm, AlignOptions(), engine=Engine(n)) for n in (1, 3))
    np.testing.assert_array_equal(one.tids, three.tids)


def test_beams(compiler: GraphCompiler, toy_corpus: Corpus, graphs: list[TrainingGraph]) -> None:
    """A beam too narrow is retried with the second; where that is too narrow as well, the utterance fails and has zeros."""
    model, gmm = compiler.transition_model, random_gmm(compiler.transition_model.num_pdfs)
    wide = align(toy_corpus, graphs, model, gmm, UNPRUNED)
    retried = align(toy_corpus, graphs, model, gmm, AlignOptions(beam=0.05, retry_beam=1e9))
    assert len(retried.retried) > 30 and not retried.failed
    failed = align(toy_corpus, graphs, model, gmm, AlignOptions(beam=0.05, retry_beam=0.1))
    assert len(failed.failed) > 30
    for number, utt in enumerate(toy_corpus.utts):
        part = slice(toy_corpus.offsets[number], toy_corpus.offsets[number + 1])
        if utt in retried.retried:
            np.testing.assert_array_equal(retried.tids[part], wide.tids[part])
        assert (utt in failed.failed) == (not failed.tids[part].any())
    assert len(list(failed.labels(toy_corpus))) == len(toy_corpus) - len(failed.failed)
    with pytest.raises(UserError, match="of 60 utterances cannot be aligned: utt"):
        failed.check(toy_corpus, graphs)
    wide.check(toy_corpus, graphs)


def test_careful(toy_corpus: Corpus, graphs: list[TrainingGraph], toy_lang: LangDir) -> None:
    """Of an utterance that says its transcript twice, careful alignment makes nothing; another one comes out as ever."""
    system = train_mono(toy_corpus, toy_lang, MonoOptions(num_starts=1, num_iters=10), AlignOptions(), log=lambda line: None)
    model, gmm = system.transition_model, system.gmm
    twice = Corpus(["once", "twice"], np.concatenate([toy_corpus.utterance_feats(0)] * 3), toy_corpus.offsets[1] * np.array([0, 1, 3]),
                   [toy_corpus.words[0]] * 2, toy_corpus.unknown)
    plain, careful = (align(twice, [graphs[0]] * 2, model, gmm, AlignOptions(beam=20, retry_beam=20, careful=on)) for on in (False, True))
    assert not plain.failed and careful.failed == ["twice"]
    frames = toy_corpus.offsets[1]
    np.testing.assert_array_equal(careful.tids[:frames], plain.tids[:frames])
    again, states = graphs[0].repeated(), graphs[0].num_states
    assert again.num_states == 2 * states and (again.source[again.destination == again.num_states] < states).all()


def test_too_short_utterances_are_named(compiler: GraphCompiler, toy_corpus: Corpus, graphs: list[TrainingGraph]) -> None:
    short = Corpus(["brief"], toy_corpus.feats[:graphs[0].min_frames - 1], np.array([0, graphs[0].min_frames - 1]),
                   toy_corpus.words[:1], toy_corpus.unknown)
    model = compiler.transition_model
    for made in (align(short, graphs[:1], model, random_gmm(model.num_pdfs), UNPRUNED),
                 equal_alignments(short, graphs[:1], model, np.random.default_rng(0))):
        assert made.failed == ["brief"]
        with pytest.raises(UserError, match="1 of them are too short for their transcripts, such as brief"):
            made.check(short, graphs[:1])


def test_boosted_silence_takes_more_frames(compiler: GraphCompiler, toy_lang: LangDir, toy_corpus: Corpus,
                                           graphs: list[TrainingGraph]) -> None:
    model, gmm = compiler.transition_model, random_gmm(compiler.transition_model.num_pdfs)
    frames = [np.isin(model.tid2phone[align(toy_corpus, graphs, model, gmm, AlignOptions(beam=1e9, boost_silence=boost),
                                            [toy_lang.optional_silence]).tids], toy_lang.silence_phones).sum()
              for boost in (0.01, 1.0, 100.0)]
    assert frames[0] < frames[1] < frames[2]


def test_equal_alignments(compiler: GraphCompiler, toy_corpus: Corpus, graphs: list[TrainingGraph]) -> None:
    """Each is a path of its graph, and the states of a path with self-loops get the same number of frames, give or take one."""
    model = compiler.transition_model
    made = equal_alignments(toy_corpus, graphs, model, np.random.default_rng(0))
    assert not made.failed
    silences = 0
    for number, (_, tids) in enumerate(made.labels(toy_corpus).items()):
        graph = graphs[number]
        zeros = np.zeros((len(tids), len(graph.pdfs)))
        assert path_score(graph, loops_before(tids, model.tid_is_self_loop), np.zeros(len(graph.tid)), zeros, 1.0) > -np.inf
        lengths = np.diff([*np.flatnonzero(~model.tid_is_self_loop[tids]), len(tids)])
        assert lengths.max() - lengths.min() <= 1
        silences += model.tid2phone[tids[0]] == 1
    assert 10 < silences < 50  # silence at the start is drawn


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=10))
def test_order_of_self_loops(visits: list[tuple[int, int]]) -> None:
    """State s has the self-loop 2 s + 1 and the way out 2 s + 2."""
    is_self_loop = np.array([False, *[True, False] * 4])
    in_time = np.array([tid for s, n in visits for tid in [2 * s + 1] * n + [2 * s + 2]], dtype=np.int32)
    kaldis = np.array([tid for s, n in visits for tid in [2 * s + 2] + [2 * s + 1] * n], dtype=np.int32)
    loops_behind(in_time, is_self_loop)
    np.testing.assert_array_equal(in_time, kaldis)


@pytest.mark.parametrize("wrong", [{"beam": 0.0}, {"retry_beam": -1.0}, {"acoustic_scale": float("nan")}, {"boost_silence": 0.0}])
def test_options_without_sense_are_refused(wrong):
    with pytest.raises(UserError, match=f"--{next(iter(wrong)).replace('_', '-')} must be above 0"):
        AlignOptions(**wrong)
