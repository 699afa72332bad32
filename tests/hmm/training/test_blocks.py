"""A corpus in many blocks, whose arrays lie in files, gives what the same corpus in memory gives; a corpus of one block the same bits."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pykaldist.feats.splice import SpliceOptions
from pykaldist.hmm.adaptation.fmllr import FmllrOptions
from pykaldist.hmm.alignments import corpus as corpus_module
from pykaldist.hmm.alignments.align import AlignOptions, align
from pykaldist.hmm.alignments.corpus import Corpus, WordLists
from pykaldist.hmm.alignments.graphs import GraphCompiler, TrainingGraphs
from pykaldist.hmm.gmm.engine import Engine
from pykaldist.hmm.training.accumulate import accumulate
from pykaldist.hmm.training.iterations import State
from pykaldist.hmm.training.lda_mllt import LdaMlltOptions, Spliced, train_lda_mllt
from pykaldist.hmm.training.mono import MonoOptions, moments, train_mono
from pykaldist.hmm.training.sat import SatOptions, adapted, estimate_aligned, train_sat
from pykaldist.hmm.tree.context import convert_alignments
from pykaldist.hmm.tree.tree_stats import TreeStats, accumulate_tree_stats
from pykaldist.io.lang import LangDir
from pykaldist.io.scratch import RowWriter

SPEAKERS = 7


def silent(line: str) -> None:
    pass


@pytest.fixture(scope="module")
def system(toy_corpus: Corpus, toy_lang: LangDir) -> State:
    return train_mono(toy_corpus, toy_lang, MonoOptions(num_starts=1, num_iters=4), AlignOptions(), log=silent)


@pytest.fixture
def in_blocks(toy_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Corpus]:
    """The toy corpus in some ten blocks, its features in a file."""
    monkeypatch.setattr(corpus_module, "BLOCK", 200)
    rows = RowWriter(200, tmp_path)
    for number in range(len(toy_corpus)):
        rows.append(toy_corpus.utterance_feats(number))
    made = replace(toy_corpus, feats=rows.array(), scratch=tmp_path)
    assert len(made.blocks()) > 8
    yield made
    assert not list(tmp_path.iterdir())  # the files have no names


def speaker_of(corpus: Corpus, apart: bool) -> dict[str, str]:
    """Speakers whose utterances follow each other, or are far apart."""
    return {utt: f"s{n % SPEAKERS if apart else n * SPEAKERS // len(corpus)}" for n, utt in enumerate(corpus.utts)}


def test_blocks_are_the_corpus(in_blocks: Corpus, toy_corpus: Corpus) -> None:
    tids = in_blocks.new_rows(None, np.int32)
    tids[:] = np.arange(len(tids))
    utts, words, feats, numbers = [], [], [], []
    for part, mine in in_blocks.parts(tids):
        utts += part.utts
        words += part.words
        numbers += mine.tolist()
        feats += [part.utterance_feats(n) for n in range(len(part))]
        assert len(part.feats) == len(mine) == part.offsets[-1] < 200 + max(np.diff(toy_corpus.offsets))
    assert utts == toy_corpus.utts and words == list(toy_corpus.words) and numbers == list(range(len(tids)))
    np.testing.assert_array_equal(np.concatenate(feats), toy_corpus.feats)


@pytest.mark.parametrize("most", [1, 2, 3, 100])
def test_word_lists_are_lists_of_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """In memory, and where some or all but the last lie in a file."""
    monkeypatch.setattr(corpus_module, "BLOCK", most)
    for folder in (None, tmp_path):
        words = WordLists(folder)
        for one in ([3, 1], [], [70_000]):
            words.append(one)
        assert list(words) == [[3, 1], [], [70_000]] and words[-1] == [70_000] and words[1:] == [[], [70_000]] and len(words) == 3
        with pytest.raises(IndexError):
            words[3]
    assert not list(tmp_path.iterdir())


def test_graphs_come_back_as_they_were(toy_corpus: Corpus, toy_lang: LangDir, system: State, tmp_path: Path,
                                       monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = GraphCompiler(toy_lang, system.tree, system.transition_model)
    made = [compiler.compile(words) for words in toy_corpus.words]
    for limit in (1 << 24, 100):
        monkeypatch.setattr(TrainingGraphs, "limit", limit)
        kept = compiler.compile_all(toy_corpus.words, tmp_path)
        kept.release()
        for one, other in zip(made, kept, strict=True):
            assert one.min_frames == other.min_frames
            for name in ("offsets", "source", "destination", "tid", "cost", "column", "pdfs", "start_states", "start_costs"):
                np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
                assert getattr(one, name).dtype == getattr(other, name).dtype


def test_mean_and_variance_are_numpys(toy_corpus: Corpus, in_blocks: Corpus) -> None:
    for corpus in (toy_corpus, in_blocks):
        mean, variance = moments(corpus)
        np.testing.assert_allclose(mean, toy_corpus.feats.mean(axis=0, dtype=np.float64), rtol=1e-12)
        np.testing.assert_allclose(variance, toy_corpus.feats.var(axis=0, dtype=np.float64), rtol=1e-12)


def test_statistics_are_those_of_one_pass(toy_corpus: Corpus, in_blocks: Corpus, system: State) -> None:
    tids = system.alignments.tids.copy()
    tids[:400] = 0  # so that the first blocks have nothing that is aligned
    one, many = (accumulate(Engine(), system.gmm, corpus, tids, system.transition_model) for corpus in (toy_corpus, in_blocks))
    np.testing.assert_array_equal(one.transition_counts, many.transition_counts)
    assert one.num_frames == many.num_frames and many.log_likelihood == pytest.approx(one.log_likelihood, rel=1e-6)
    for name in ("occupancy", "x", "x2"):
        np.testing.assert_allclose(getattr(many.gmm, name), getattr(one.gmm, name), rtol=1e-5, atol=1e-3)


def test_alignments_are_the_same(toy_corpus: Corpus, in_blocks: Corpus, toy_lang: LangDir, system: State) -> None:
    compiler = GraphCompiler(toy_lang, system.tree, system.transition_model)
    one, many = (align(corpus, compiler.compile_all(corpus.words, corpus.scratch), system.transition_model, system.gmm, AlignOptions(),
                       engine=Engine(2)) for corpus in (toy_corpus, in_blocks))
    np.testing.assert_array_equal(one.tids, many.tids)
    labels = many.labels(in_blocks)
    assert list(labels) == toy_corpus.utts and all(np.array_equal(ids, one.labels(toy_corpus)[utt]) for utt, ids in labels.items())


def test_statistics_for_trees_are_those_of_one_pass(toy_corpus: Corpus, in_blocks: Corpus, toy_lang: LangDir, system: State) -> None:
    tids, model = system.alignments.tids, system.transition_model

    def stats(corpus: Corpus) -> TreeStats:
        found = [accumulate_tree_stats(part.feats, mine, part.offsets, model, toy_lang.silence_phones) for part, mine in corpus.parts(tids)]
        return functools.reduce(operator.add, found)

    one, many = stats(toy_corpus), stats(in_blocks)
    order = np.lexsort(one.values.T[::-1])
    np.testing.assert_array_equal(one.values[order], many.values)
    np.testing.assert_array_equal(one.in_context[order], many.in_context)
    np.testing.assert_allclose(one.sums[order], many.sums, rtol=1e-9)


@pytest.mark.parametrize("apart", [False, True])
def test_transforms_of_speakers_are_those_of_one_pass(toy_corpus: Corpus, in_blocks: Corpus, toy_lang: LangDir, system: State,
                                                      apart: bool) -> None:
    tids, utt2spk = system.alignments.tids, speaker_of(toy_corpus, apart)
    found = [estimate_aligned(corpus, utt2spk, tids, system.gmm, system.transition_model, toy_lang.silence_phones,
                              FmllrOptions(fmllr_min_count=50)) for corpus in (toy_corpus, in_blocks)]
    (one, gain), (many, other_gain) = found
    assert sorted(one) == sorted(many) and len(one) == SPEAKERS and other_gain == pytest.approx(gain, rel=1e-4)
    for speaker, transform in one.items():
        np.testing.assert_allclose(many[speaker], transform, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(adapted(in_blocks, utt2spk, one), adapted(toy_corpus, utt2spk, one), rtol=1e-5, atol=1e-5)


def test_lda_is_that_of_one_pass(toy_corpus: Corpus, in_blocks: Corpus, system: State) -> None:
    one, many = (Spliced(corpus, SpliceOptions(2, 2), Engine()).lda(system.alignments.tids, system.transition_model.tid2pdf,
                                                          system.gmm.num_pdfs) for corpus in (toy_corpus, in_blocks))
    np.testing.assert_allclose(one, many, rtol=1e-6, atol=1e-8)
    np.testing.assert_array_equal(*(Spliced(corpus, SpliceOptions(2, 2), Engine()).through(one[:4]) for corpus in (toy_corpus, in_blocks)))


def test_whole_trainings_agree(toy_corpus: Corpus, in_blocks: Corpus, toy_lang: LangDir, system: State) -> None:
    tids, old, utt2spk = system.alignments.tids, system.transition_model, speaker_of(toy_corpus, False)
    lda = LdaMlltOptions(num_iters=5, mllt_iters="2", realign_iters="3", dim=6)
    sat = SatOptions(num_iters=4, fmllr_iters="2", realign_iters="3")
    start = {speaker: np.eye(6, 7) for speaker in utt2spk.values()}
    spoken = []
    for corpus in (toy_corpus, in_blocks):
        one, matrix, _ = train_lda_mllt(corpus, toy_lang, tids, old, 20, 30, SpliceOptions(1, 1), lda, AlignOptions(), log=silent)
        two, twin, transforms = train_sat(corpus, utt2spk, toy_lang, tids, old, start, 20, 30, sat, AlignOptions(), FmllrOptions(),
                                          log=silent)
        spoken.append((one, matrix, two, twin, transforms))
    (one, matrix, two, twin, transforms), (others, other_matrix, other_two, other_twin, other_transforms) = spoken
    np.testing.assert_allclose(other_matrix, matrix, rtol=1e-3, atol=1e-4)
    assert others.log_likelihood == pytest.approx(one.log_likelihood, abs=2e-3)
    assert other_two.log_likelihood == pytest.approx(two.log_likelihood, abs=2e-3) and other_twin.num_gauss == twin.num_gauss
    assert (other_two.alignments.tids == two.alignments.tids).mean() > 0.999 and sorted(transforms) == sorted(other_transforms)


def test_converted_alignments_are_the_same(in_blocks: Corpus, toy_corpus: Corpus, system: State) -> None:
    tids, model = system.alignments.tids, system.transition_model
    whole = convert_alignments(tids, toy_corpus.offsets, model, system.tree, model)
    np.testing.assert_array_equal(whole, np.concatenate([convert_alignments(mine, part.offsets, model, system.tree, model)
                                                         for part, mine in in_blocks.parts(tids)]))
