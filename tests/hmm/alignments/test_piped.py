"""Features that each pass reads anew are those that are kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pykaldist.errors import UserError
from pykaldist.feats.pipeline import FeaturePipeline
from pykaldist.hmm.alignments.corpus import Corpus
from pykaldist.hmm.alignments.piped import PipedFeatures
from pykaldist.hmm.training.sat import adapted
from pykaldist.io.datadir import DataDir, write_table
from pykaldist.io.lang import LangDir


@pytest.mark.parametrize("block", [1, 900, 10**6])
def test_blocks_have_the_rows_of_an_array(tmp_path: Path, toy_data: DataDir, toy_lang: LangDir, block: int) -> None:
    pipeline = FeaturePipeline()
    kept, anew = (Corpus.load(toy_data, toy_lang, pipeline, tmp_path, block, keep) for keep in (True, False))
    assert isinstance(anew.feats, PipedFeatures) == (block < 10**6)  # one block stays in memory
    assert len(anew.feats) == len(kept.feats) and anew.feats.shape == kept.feats.shape
    np.testing.assert_array_equal(anew.offsets, kept.offsets)
    rows = anew.new_rows(None, np.int32)
    parts = list(zip(kept.parts(rows), anew.parts(rows), strict=True))
    assert len(parts) == len(kept.blocks())
    for (one, _), (other, numbers) in parts:
        np.testing.assert_array_equal(one.feats, other.feats)
        assert other.utts == one.utts and len(numbers) == len(one.feats)
    some = slice(int(kept.offsets[2]), int(kept.offsets[5]))
    np.testing.assert_array_equal(anew.feats[some], kept.feats[some])


@pytest.mark.parametrize("block", [900, 2500])
def test_adapted_blocks_have_the_bits_of_kept_ones(tmp_path: Path, toy_data: DataDir, toy_lang: LangDir, block: int) -> None:
    rng = np.random.default_rng(0)
    kept, anew = (Corpus.load(toy_data, toy_lang, FeaturePipeline(), tmp_path, block, keep) for keep in (True, False))
    dim = kept.feats.shape[1]
    transforms = {speaker: rng.normal(size=(dim, dim + 1)) for speaker in toy_data.spk2utt}
    rows, piped = (adapted(corpus, toy_data.utt2spk, transforms) for corpus in (kept, anew))
    assert isinstance(piped, PipedFeatures) and not np.array_equal(rows, kept.feats)
    for first, end in kept.blocks():
        frames = slice(int(kept.offsets[first]), int(kept.offsets[end]))
        np.testing.assert_array_equal(piped[frames], rows[frames])
        np.testing.assert_array_equal(anew.feats[frames], kept.feats[frames])


def test_speech_is_counted_once(tmp_path: Path, toy_data: DataDir, toy_lang: LangDir, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the number of passes, the stage's last line says how much speech there is."""
    counted: list[int] = []
    monkeypatch.setattr("pykaldist.feats.pipeline.heard", counted.append)
    corpus = Corpus.load(toy_data, toy_lang, FeaturePipeline(), tmp_path, 900, keep=False)
    transforms = {speaker: np.eye(corpus.feats.shape[1]) for speaker in toy_data.spk2utt}
    for read in (corpus, replace(corpus, feats=corpus.feats.adapted(transforms)), corpus):
        list(read.parts())
    assert sum(counted) == len(corpus.feats)


def test_frames_that_are_not_as_many_as_the_table_says(tmp_path: Path, toy_data: DataDir, toy_lang: LangDir) -> None:
    lengths = {utt: len(toy_data.feats[utt]) + (utt == "utt07") for utt in toy_data.utterances()}
    write_table(toy_data.path / "utt2num_frames", {utt: str(length) for utt, length in lengths.items()})
    corpus = Corpus.load(DataDir(toy_data.path), toy_lang, FeaturePipeline(), tmp_path, 900, keep=False)
    with pytest.raises(UserError, match=r"utt07: expected features of \d+ frames and \d+ dimensions, found .*utt2num_frames"):
        list(corpus.parts())
