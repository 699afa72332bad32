"""Kaldi's context-dependent systems on all of AN4's training set: our aligner finds Kaldi's alignments."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from pykaldist.feats.pipeline import FeaturePipeline
from pykaldist.hmm.alignments.align import AlignOptions, align
from pykaldist.hmm.alignments.alignment_dir import AlignmentDir
from pykaldist.hmm.alignments.corpus import Corpus
from pykaldist.hmm.alignments.graphs import GraphCompiler
from pykaldist.hmm.gmm.engine import Engine
from pykaldist.hmm.gmm.model_files import read_model, read_tree
from pykaldist.io.datadir import DataDir
from pykaldist.io.lang import LangDir
from pykaldist.io.tables import read_archive

from .test_mono import an4


def agreement(corpus: Corpus, kaldi: Path, system: str) -> tuple[float, float]:
    """The share of frames with Kaldi's transition-id, and with its pdf."""
    lang, (model, gmm) = LangDir(kaldi / "lang"), read_model(kaldi / system / "final.mdl")
    compiler = GraphCompiler(lang, read_tree(kaldi / system / "tree"), model)
    found = align(corpus, [compiler.compile(words) for words in corpus.words], model, gmm, AlignOptions(), engine=Engine(2))
    expected = AlignmentDir(kaldi / system).labels
    theirs = np.concatenate([expected[utt] for utt in corpus.utts])
    assert not found.failed
    return float(np.mean(found.tids == theirs)), float(np.mean(model.tid2pdf[found.tids] == model.tid2pdf[theirs]))


def fmllr_corpus(kaldi: Path, utts: int | None) -> Corpus:
    """Kaldi's own features of speaker-adapted speech."""
    lang, text = LangDir(kaldi / "lang"), DataDir(kaldi / "data/train").text
    feats = {utt: np.asarray(matrix, np.float32) for utt, matrix in read_archive(kaldi / "fmllr/train.ark")}
    chosen = sorted(feats)[:utts]
    offsets = np.concatenate([[0], np.cumsum([len(feats[utt]) for utt in chosen])])
    words = [lang.word_ids(text[utt])[0] for utt in chosen]
    return Corpus(chosen, np.concatenate([feats[utt] for utt in chosen]), offsets, words, Counter())


@pytest.mark.parametrize("utts", [60, pytest.param(None, marks=pytest.mark.slow)])
def test_speaker_adapted_alignments(golden: Path, utts: int | None) -> None:
    """Aligned with final.mdl on these very features: 99.88 % of all transition-ids."""
    tids, pdfs = agreement(fmllr_corpus(golden / "an4_kaldi", utts), golden / "an4_kaldi", "tri3_ali")
    assert tids > 0.995 and pdfs > 0.998


@pytest.mark.slow
def test_triphone_alignments(shared: Path, golden: Path, tmp_path: Path) -> None:
    """Kaldi's are of iteration 30 of 35, on features with dither: 99.67 % of the pdfs, 99.46 % of the transition-ids."""
    pipeline = FeaturePipeline.from_dir(golden / "an4_kaldi/tri1")
    corpus = Corpus.load(an4(shared, tmp_path, None), LangDir(golden / "an4_kaldi/lang"), pipeline)
    tids, pdfs = agreement(corpus, golden / "an4_kaldi", "tri1")
    assert tids > 0.994 and pdfs > 0.995
