"""Monophone training: on speech made for it, where the true segmentation is known, and on AN4 beside Kaldi's own model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pykaldist.errors import UserError
from pykaldist.feats.make import collect_parts, extract_part, speaker_cmvn
from pykaldist.feats.pipeline import FeaturePipeline
from pykaldist.hmm.alignments.align import AlignOptions, align
from pykaldist.hmm.alignments.corpus import Corpus
from pykaldist.hmm.alignments.graphs import GraphCompiler
from pykaldist.hmm.gmm.aligned_frames import AlignedFrames
from pykaldist.hmm.gmm.engine import Engine
from pykaldist.hmm.gmm.model_files import read_model, read_tree
from pykaldist.hmm.training.experiment import align_dir, train_mono_dir
from pykaldist.hmm.training.mono import MonoOptions, train_mono
from pykaldist.io.datadir import DataDir, write_datadir
from pykaldist.io.lang import LangDir
from pykaldist.io.tables import read_archive

SHORT = MonoOptions(num_starts=1, num_iters=12, max_iter_inc=8, totgauss=40, realign_iters="1 2 3 4 5 6 8 10")


def test_flat_start_finds_the_phones(toy_speech: tuple[Corpus, np.ndarray], toy_lang: LangDir) -> None:
    corpus, truth = toy_speech
    lines: list[str] = []
    system = train_mono(corpus, toy_lang, SHORT, AlignOptions(), log=lines.append)
    values = [float(line.split("log-likelihood ")[1].split()[0]) for line in lines]
    assert len(lines) == SHORT.num_iters and system.gmm.num_pdfs == 3 * 5 and 15 < system.gmm.num_gauss <= 40
    assert values[-1] > values[0] + 5 and min(np.diff(values)) > -0.1
    names = {p: toy_lang.phones.symbol(p).split("_")[0].replace("SIL", "_") for p in toy_lang.phones.values() if p}
    found = np.array([names[p] for p in system.transition_model.tid2phone[system.alignments.tids]])
    assert (found == truth).mean() > 0.99


def test_training_does_not_depend_on_threads(toy_corpus: Corpus, toy_lang: LangDir) -> None:
    one, two = (train_mono(toy_corpus, toy_lang, SHORT, AlignOptions(), Engine(n), log=lambda line: None) for n in (1, 2))
    np.testing.assert_array_equal(one.gmm.means_invvars, two.gmm.means_invvars)
    np.testing.assert_array_equal(one.alignments.tids, two.alignments.tids)


def test_frames_are_grouped_by_pdf(toy_corpus: Corpus, toy_lang: LangDir) -> None:
    system = train_mono(toy_corpus, toy_lang, MonoOptions(num_starts=1, num_iters=2), AlignOptions(), log=lambda line: None)
    tids = system.alignments.tids.copy()
    tids[:5] = 0  # frames without an alignment are left out
    frames = AlignedFrames.group(tids, system.transition_model)
    pdfs = system.transition_model.tid2pdf[tids]
    assert frames.num_frames == len(tids) - 5 and frames.transition_counts.sum() == len(tids) - 5
    for pdf in range(system.gmm.num_pdfs):
        expected = [n for n in np.flatnonzero(pdfs == pdf) if n >= 5]
        assert frames.order[frames.bounds[pdf]:frames.bounds[pdf + 1]].tolist() == expected
    stats, average = Engine().accumulate(system.gmm, toy_corpus.feats, frames)
    assert stats.occupancy.sum() == pytest.approx(frames.num_frames, rel=1e-6)
    every = system.gmm.loglikes(toy_corpus.feats)[np.arange(5, len(tids)), pdfs[5:]]
    assert average == pytest.approx(every.mean(dtype=np.float64), rel=1e-5)
    with pytest.raises(UserError, match="no utterance could be aligned"):
        AlignedFrames.group(np.zeros_like(tids), system.transition_model)


def test_directories(toy_data: DataDir, toy_lang: LangDir, tmp_path: Path) -> None:
    """What a stage leaves behind; alignments do not depend on the number of jobs; a rerun replaces all."""
    lines: list[str] = []
    train_mono_dir(toy_data.path, toy_lang.path, tmp_path / "mono", SHORT, AlignOptions(), delta_opts="--delta-order=1", nj=2,
                   log=lines.append)
    assert {p.name for p in (tmp_path / "mono").iterdir()} - {".lock"} == {"final.mdl", "tree", "ali.1.gz", "ali.2.gz", "num_jobs",
                                                               "cmvn_opts", "delta_opts", "phones.txt", "inputs.json", "texts.crc"}
    model, gmm = read_model(tmp_path / "mono/final.mdl")
    assert gmm.dim == 12 and read_tree(tmp_path / "mono/tree").num_pdfs == model.num_pdfs
    made = {}
    for nj in (3, 1):
        line = align_dir(toy_data.path, toy_lang.path, tmp_path / "mono", tmp_path / "ali", AlignOptions(), nj=nj)
        assert "60 of 60 utterances aligned" in line
        assert sorted(p.name for p in (tmp_path / "ali").glob("ali.*")) == [f"ali.{job}.gz" for job in range(1, nj + 1)]
        made[nj] = {k: v for job in range(1, nj + 1) for k, v in read_archive(tmp_path / f"ali/ali.{job}.gz")}
    assert list(made[3]) == list(made[1]) == toy_data.utterances()
    assert all(np.array_equal(made[1][utt], made[3][utt]) and len(made[1][utt]) == len(toy_data.feats[utt]) for utt in made[1])
    with pytest.raises(UserError, match="both source and target"):
        align_dir(toy_data.path, toy_lang.path, tmp_path / "mono", tmp_path / "mono", AlignOptions())
    (tmp_path / "mono/delta_opts").write_text("--delta-order=0\n")
    with pytest.raises(UserError, match=r"mono/delta_opts has changed since steps/train_mono\.sh made .*mono; run"):
        align_dir(toy_data.path, toy_lang.path, tmp_path / "mono", tmp_path / "ali", AlignOptions())
    (tmp_path / "mono/inputs.json").unlink()  # it is meant
    with pytest.raises(UserError, match=r"data: the model .*mono/final\.mdl expects features of dimension 12, found 6; make them as"):
        align_dir(toy_data.path, toy_lang.path, tmp_path / "mono", tmp_path / "ali", AlignOptions())
    assert (tmp_path / "ali/final.mdl").exists()  # the older alignment
    (tmp_path / "mono/phones.txt").write_text("<eps> 0\nSIL 2\n")
    with pytest.raises(UserError, match=r"disagree about"):
        align_dir(toy_data.path, toy_lang.path, tmp_path / "mono", tmp_path / "ali", AlignOptions())


def test_unknown_words_and_empty_transcripts(toy_data: DataDir, toy_lang: LangDir, tmp_path: Path) -> None:
    text = toy_data.path / "text"
    text.write_text(text.read_text().replace("utt00", "utt00 whatsit", 1).replace("utt01", "utt01 whatsit", 1))
    lines: list[str] = []
    train_mono_dir(toy_data.path, toy_lang.path, tmp_path / "mono", MonoOptions(num_iters=3), AlignOptions(), log=lines.append)
    assert any(line.startswith("WARNING") and "2 words" in line and "whatsit (2)" in line for line in lines)
    text.write_text("".join("utt00\n" if line.startswith("utt00") else line for line in text.read_text().splitlines(True)))
    with pytest.raises(UserError, match="utt00: the transcript is empty"):
        train_mono_dir(toy_data.path, toy_lang.path, tmp_path / "mono", MonoOptions(), AlignOptions())
    assert (tmp_path / "mono/final.mdl").exists()  # bad input is found before the old system is removed


@pytest.mark.parametrize(("options", "nj", "message"), [
    ({"num_iters": 0}, 1, "--num-iters"), ({"realign_iters": "1 two"}, 1, "--realign-iters"), ({"num_starts": 0}, 1, "--num-starts"),
    ({}, 61, "--nj: expected a number from 1 to 60"), ({}, 0, "--nj"),
])
def test_options_without_sense(toy_data: DataDir, toy_lang: LangDir, tmp_path: Path, options: dict[str, Any], nj: int,
                               message: str) -> None:
    with pytest.raises(UserError, match=message):
        train_mono_dir(toy_data.path, toy_lang.path, tmp_path / "mono", MonoOptions(**options), AlignOptions(), nj=nj)


@pytest.mark.parametrize(("asked", "frames", "starts"), [(None, 60_000, 4), (None, 60_001, 1), (2, 60_000, 2), (2, 60_001, 2)])
def test_short_corpora_get_several_flat_starts(asked: int | None, frames: int, starts: int) -> None:
    assert MonoOptions(num_starts=asked).starts(frames) == starts


def an4(shared: Path, target: Path, utts: int | None) -> DataDir:
    """The first utterances of AN4's training set, whole speakers, with MFCC and CMVN."""
    source = DataDir(shared / "golden/an4_kaldi/data/train")
    chosen = source.utterances()[:utts]
    data = write_datadir(target / "data", {u: str(shared / source.wav_scp[u]) for u in chosen},
                         {u: " ".join(source.text[u]) for u in chosen}, {u: source.utt2spk[u] for u in chosen})
    (target / "mfcc.conf").write_text("--use-energy=false\n--dither=0\n")
    extract_part(data, target / "mfcc", str(target / "mfcc.conf"), "mfcc", 1, 1, -1, False, 0)
    collect_parts(data, target / "mfcc", "mfcc", 1)
    data = DataDir(data.path)
    speaker_cmvn(data, target / "mfcc")
    return DataDir(data.path)


def golden_alignments(golden: Path) -> dict[str, np.ndarray]:
    return {k: v for job in (1, 2) for k, v in read_archive(golden / f"an4_kaldi/mono/ali.{job}.gz")}


def test_kaldis_model_aligns_as_kaldi_did(shared: Path, golden: Path, tmp_path: Path) -> None:
    """Kaldi's last alignments are older than its final model by one iteration, so a few frames differ."""
    data, lang = an4(shared, tmp_path, 22), LangDir(golden / "an4_kaldi/lang")  # two speakers
    corpus = Corpus.load(data, lang, FeaturePipeline.from_dir(golden / "an4_kaldi/mono"))
    (model, gmm), tree = read_model(golden / "an4_kaldi/mono/final.mdl"), read_tree(golden / "an4_kaldi/mono/tree")
    compiler = GraphCompiler(lang, tree, model)
    found = align(corpus, [compiler.compile(words) for words in corpus.words], model, gmm, AlignOptions())
    expected = golden_alignments(golden)
    kaldis = np.concatenate([expected[utt] for utt in corpus.utts])
    assert not found.failed
    assert (found.tids == kaldis).mean() > 0.97
    ours, theirs = (Engine().accumulate(gmm, corpus.feats, AlignedFrames.group(tids, model))[1] for tids in (found.tids, kaldis))
    assert ours == pytest.approx(theirs, abs=0.02)


@pytest.mark.slow
def test_an4_reaches_kaldis_likelihood(shared: Path, golden: Path, tmp_path: Path) -> None:
    data, lang = an4(shared, tmp_path, None), LangDir(golden / "an4_kaldi/lang")
    subprocess.run([sys.executable, "-m", "pykaldist", "train-mono", "--nj", "2", data.path, lang.path, tmp_path / "mono"],
                   check=True, cwd=Path(__file__).parents[2])
    corpus = Corpus.load(data, lang, FeaturePipeline.from_dir(tmp_path / "mono"))
    measured = []
    for system in (tmp_path / "mono", golden / "an4_kaldi/mono"):
        model, gmm = read_model(system / "final.mdl")
        ali = {k: v for job in (1, 2) for k, v in read_archive(system / f"ali.{job}.gz")}
        tids = np.concatenate([ali[utt] for utt in corpus.utts])
        measured.append((Engine().accumulate(gmm, corpus.feats, AlignedFrames.group(tids, model))[1], gmm.num_gauss, model.tid2phone[tids]))
    ours, kaldis = measured
    assert ours[0] > kaldis[0] - 0.1 and abs(ours[1] - kaldis[1]) < 10
    assert (ours[2] == kaldis[2]).mean() > 0.85
