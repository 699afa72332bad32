"""LDA+MLLT, SAT and alignment with fMLLR: on toy speech that each speaker distorts in his way, and with Kaldi's own system."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pykaldist.errors import UserError
from pykaldist.feats.pipeline import FeaturePipeline
from pykaldist.feats.transforms import SpeakerTransforms, apply_transform, read_matrix
from pykaldist.hmm.adaptation.fmllr import FmllrOptions
from pykaldist.hmm.alignments.align import AlignOptions
from pykaldist.hmm.alignments.alignment_dir import AlignmentDir
from pykaldist.hmm.alignments.corpus import Corpus
from pykaldist.hmm.gmm.aligned_frames import AlignedFrames
from pykaldist.hmm.gmm.engine import Engine
from pykaldist.hmm.gmm.model_files import read_model, write_model
from pykaldist.hmm.training import adapted_experiment
from pykaldist.hmm.training.adapted_experiment import align_fmllr_dir, train_lda_mllt_dir, train_quick_dir, train_sat_dir
from pykaldist.hmm.training.experiment import train_mono_dir
from pykaldist.hmm.training.lda_mllt import LdaMlltOptions
from pykaldist.hmm.training.mono import MonoOptions
from pykaldist.hmm.training.quick import QuickOptions
from pykaldist.hmm.training.sat import SatOptions
from pykaldist.io.datadir import DataDir, write_datadir
from pykaldist.io.lang import LangDir
from pykaldist.io.tables import MatrixWriter

from .test_mono import an4

SHORT = {"num_iters": 10, "max_iter_inc": 6, "realign_iters": "4 8"}
FILES = {"final.mdl", "tree", "ali.1.gz", "ali.2.gz", "num_jobs", "cmvn_opts", "delta_opts", "phones.txt", "inputs.json", "texts.crc",
         ".lock"}
LDA, SAT, FMLLR = LdaMlltOptions(**SHORT, mllt_iters="2 5", dim=6), SatOptions(**SHORT, fmllr_iters="2 5"), FmllrOptions(fmllr_min_count=50)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory, toy_corpus: Corpus, toy_lang: LangDir) -> Iterator[Path]:
    """`data`: six speakers, ten utterances each, each speaker's features through an affine map of his own; `mono` aligned it."""
    base, rng = tmp_path_factory.mktemp("adapted"), np.random.default_rng(7)
    text = {utt: " ".join(map(toy_lang.words.symbol, words)) for utt, words in zip(toy_corpus.utts, toy_corpus.words, strict=True)}
    data = write_datadir(base / "data", {u: "none" for u in text}, text, {u: u[:4] for u in text})
    maps = {s: np.concatenate([np.eye(6) + 0.12 * rng.normal(size=(6, 6)), rng.normal(size=(6, 1))], axis=1) for s in data.spk2utt}
    with MatrixWriter(base / "feats.ark", data.path / "feats.scp") as writer:
        for number, utt in enumerate(toy_corpus.utts):
            writer.write(utt, apply_transform(toy_corpus.utterance_feats(number), maps[utt[:4]], "toy"))
    train_mono_dir(data.path, toy_lang.path, base / "mono", MonoOptions(num_iters=10, totgauss=40), AlignOptions(),
                   "--norm-means=false", "--delta-order=0", log=quiet)
    yield base


def quiet(line: str) -> None:
    """No log."""


def test_lda_mllt(work: Path, toy_lang: LangDir) -> None:
    """The directory says how its features are made; the model fits them as the log says."""
    lines: list[str] = []
    line = train_lda_mllt_dir(work / "data", toy_lang.path, work / "mono", work / "lda", 40, 60, LDA, AlignOptions(), "--norm-means=false",
                              "--left-context=2 --right-context=1", nj=2, log=lines.append)
    assert "60 of 60 utterances aligned" in line and sum("MLLT + " in one for one in lines) == 2
    assert {p.name for p in (work / "lda").iterdir()} == FILES | {"splice_opts", "final.mat", "full.mat"}
    matrix, full = read_matrix(work / "lda/final.mat"), read_matrix(work / "lda/full.mat")
    assert matrix.shape == (6, 24) and full.shape == (24, 24)
    turn = matrix @ np.linalg.pinv(full[:6])  # what MLLT made of LDA's first directions
    np.testing.assert_allclose(turn @ full[:6], matrix, atol=1e-4)
    assert np.abs(turn - np.eye(6)).max() > 0.01
    model, gmm = read_model(work / "lda/final.mdl")
    corpus = Corpus.load(DataDir(work / "data"), toy_lang, FeaturePipeline.from_dir(work / "lda"))
    frames = AlignedFrames.group(np.concatenate([AlignmentDir(work / "lda").labels[u] for u in corpus.utts]), model)
    assert Engine().accumulate(gmm, corpus.feats, frames)[1] >= float(lines[-1].split("log-likelihood ")[1].split()[0]) - 0.01
    with pytest.raises(UserError, match="--dim must be 1 to 24"):
        train_lda_mllt_dir(work / "data", toy_lang.path, work / "mono", work / "no", 40, 60, LdaMlltOptions(dim=25), AlignOptions(),
                           "--norm-means=false", "--left-context=2 --right-context=1", log=quiet)


def test_sat(work: Path, toy_lang: LangDir) -> None:
    """Adaptation takes the speakers' maps back, as far as the likelihood tells; alignment with it finds transforms like training's."""
    lines: list[str] = []
    line = train_sat_dir(work / "data", toy_lang.path, work / "mono", work / "sat", 40, 60, SAT, AlignOptions(), FMLLR, nj=2,
                         log=lines.append)
    assert line.endswith("6 speakers") and sum("fMLLR + " in one for one in lines) == 2
    assert {p.name for p in (work / "sat").iterdir()} == FILES | {"final.alimdl", "trans.1", "trans.2"}
    none = train_sat_dir(work / "data", toy_lang.path, work / "mono", work / "none", 40, 60, SAT, AlignOptions(),
                         FmllrOptions(fmllr_update_type="none"), log=quiet)
    transforms = SpeakerTransforms.read(work / "sat")
    assert likelihood(line) + mean_logdet(transforms) > likelihood(none) + 0.5
    (model, gmm), (_, unadapted) = read_model(work / "sat/final.mdl"), read_model(work / "sat/final.alimdl")
    np.testing.assert_array_equal(gmm.offsets, unadapted.offsets)
    measured = {}
    frames = None
    for name, transform_dir in (("plain", None), ("adapted", work / "sat")):
        corpus = Corpus.load(DataDir(work / "data"), toy_lang, FeaturePipeline.from_dir(work / "sat", transform_dir))
        frames = frames or AlignedFrames.group(np.concatenate([AlignmentDir(work / "sat").labels[u] for u in corpus.utts]), model)
        measured[name] = [Engine().accumulate(one, corpus.feats, frames)[1] for one in (gmm, unadapted)]
    assert measured["adapted"][0] > measured["adapted"][1] and measured["plain"][1] > measured["plain"][0]

    ali = align_fmllr_dir(work / "data", toy_lang.path, work / "sat", work / "sat_ali", AlignOptions(), FMLLR, nj=3, log=quiet)
    assert "60 of 60 utterances aligned" in ali
    assert {p.name for p in (work / "sat_ali").glob("trans.*")} == {f"trans.{job}" for job in (1, 2, 3)}
    assert (work / "sat_ali/final.alimdl").read_bytes() == (work / "sat/final.alimdl").read_bytes()
    again = SpeakerTransforms.read(work / "sat_ali")
    assert likelihood(ali) + mean_logdet(again) > likelihood(line) + mean_logdet(transforms) - 0.4
    ours, theirs = AlignmentDir(work / "sat_ali"), AlignmentDir(work / "sat")
    assert np.mean(np.concatenate([ours.phones(u) == theirs.phones(u) for u in ours.labels])) > 0.99
    # from an alignment that has transforms, training begins with these
    begun: list[str] = []
    train_sat_dir(work / "data", toy_lang.path, work / "sat_ali", work / "sat2", 40, 60, SatOptions(num_iters=2), AlignOptions(), FMLLR,
                  log=begun.append)
    assert not any("first transforms" in one for one in begun)
    next(iter((work / "sat_ali").glob("trans.1"))).unlink()
    with pytest.raises(UserError, match="has no transform of speaker"):
        train_sat_dir(work / "data", toy_lang.path, work / "sat_ali", work / "sat2", 40, 60, SAT, AlignOptions(), FMLLR, log=quiet)


def test_quick(work: Path, toy_lang: LangDir) -> None:
    """The features and transforms are the alignment's; the model for unadapted features serves its own alignment."""
    train_sat_dir(work / "data", toy_lang.path, work / "mono", work / "sat3", 40, 60, SAT, AlignOptions(), FMLLR, log=quiet)
    align_fmllr_dir(work / "data", toy_lang.path, work / "sat3", work / "sat3_ali", AlignOptions(), FMLLR, log=quiet)
    line = train_quick_dir(work / "data", toy_lang.path, work / "sat3_ali", work / "quick", 40, 60, QuickOptions(
        num_iters=5, max_iter_inc=3, realign_iters="3"), AlignOptions(), nj=2, log=quiet)
    assert "60 of 60 utterances aligned" in line
    assert {p.name for p in (work / "quick").iterdir()} == FILES | {"final.alimdl", "trans.1", "trans.2"}
    old, new = SpeakerTransforms.read(work / "sat3_ali"), SpeakerTransforms.read(work / "quick")
    assert all(np.array_equal(old[speaker], new[speaker]) for speaker in old) and len(old) == len(new) == 6
    (model, gmm), (_, unadapted) = read_model(work / "quick/final.mdl"), read_model(work / "quick/final.alimdl")
    np.testing.assert_array_equal(gmm.offsets, unadapted.offsets)
    frames, measured = None, {}
    for name, transform_dir in (("plain", None), ("adapted", work / "quick")):
        corpus = Corpus.load(DataDir(work / "data"), toy_lang, FeaturePipeline.from_dir(work / "quick", transform_dir))
        frames = frames or AlignedFrames.group(np.concatenate([AlignmentDir(work / "quick").labels[u] for u in corpus.utts]), model)
        measured[name] = [Engine().accumulate(one, corpus.feats, frames)[1] for one in (gmm, unadapted)]
    assert measured["adapted"][0] > measured["adapted"][1] and measured["plain"][1] > measured["plain"][0]
    again = align_fmllr_dir(work / "data", toy_lang.path, work / "quick", work / "quick_ali", AlignOptions(), FMLLR, log=quiet)
    assert "60 of 60 utterances aligned" in again and likelihood(again) > likelihood(line) - 0.5


@pytest.mark.parametrize(("stage", "step", "kept"), [(2, "estimate_aligned", "pre_ali.1.gz"), (3, "finish", "trans.1")])
def test_an_alignment_with_fmllr_goes_on(work: Path, toy_lang: LangDir, monkeypatch: pytest.MonkeyPatch, stage: int, step: str,
                                         kept: str) -> None:
    """From what was left before `step`, with the same files as without the interruption."""
    def interrupted(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    whole, parts = work / f"whole{stage}", work / f"parts{stage}"
    align = (work / "data", toy_lang.path, work / "mono")
    align_fmllr_dir(*align, whole, AlignOptions(), FMLLR, nj=2, log=quiet)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(adapted_experiment, step, interrupted)
        align_fmllr_dir(*align, parts, AlignOptions(), FMLLR, nj=2, log=quiet)
    assert (parts / kept).exists() and not (parts / "final.mdl").exists()
    align_fmllr_dir(*align, parts, AlignOptions(), FMLLR, nj=2, log=quiet, stage=stage)
    made = [{path.name: path.read_bytes() for path in one.iterdir() if path.name not in (".lock", "inputs.json")} for one in (whole, parts)]
    assert made[0] == made[1] and "pre_ali.1.gz" not in made[0]
    with pytest.raises(UserError, match=r"has no alignments \(pre_ali\.\*\.gz\)" if stage == 2 else "has no trans.1"):
        align_fmllr_dir(*align, work / f"nothing{stage}", AlignOptions(), FMLLR, nj=2, log=quiet, stage=stage)


def mean_logdet(transforms: dict[str, np.ndarray]) -> float:
    """What the space of the transformed features adds to log-likelihoods a frame."""
    return float(np.mean([np.linalg.slogdet(t[:, :-1])[1] for t in transforms.values()]))


def likelihood(line: str) -> float:
    return float(line.split("log-likelihood ")[1].split()[0])


def test_models_of_two_trainings_are_refused(work: Path, toy_lang: LangDir) -> None:
    shutil.copytree(work / "mono", work / "broken")
    model, gmm = read_model(work / "mono/final.mdl")
    more = gmm.split(np.diff(gmm.offsets) + 1, np.random.default_rng(0))
    write_model(work / "broken/final.alimdl", model, more)
    with pytest.raises(UserError, match=r"final\.alimdl and final\.mdl have different Gaussians"):
        align_fmllr_dir(work / "data", toy_lang.path, work / "broken", work / "broken_ali", AlignOptions(), FMLLR, log=quiet)


def test_kaldis_system_aligns_as_kaldi_did(shared: Path, golden: Path, tmp_path: Path) -> None:
    """Whole speakers through final.alimdl, fMLLR and final.mdl; Kaldi's features had dither, so that a few frames differ."""
    data, kaldis = an4(shared, tmp_path, 22), golden / "an4_kaldi/tri3_ali"
    align_fmllr_dir(data.path, golden / "an4_kaldi/lang", kaldis, tmp_path / "ali", AlignOptions(), FmllrOptions(), log=quiet)
    ours, theirs = SpeakerTransforms.read(tmp_path / "ali"), SpeakerTransforms.read(kaldis)
    whole = [s for s, utts in data.spk2utt.items() if len(utts) == len(DataDir(golden / "an4_kaldi/data/train").spk2utt[s])]
    assert whole
    for speaker in whole:
        assert np.abs(ours[speaker] - theirs[speaker]).mean() < 0.01
    found, expected = AlignmentDir(tmp_path / "ali"), AlignmentDir(kaldis)
    utts = [utt for utt in data.utterances() if data.utt2spk[utt] in whole]
    assert np.mean(np.concatenate([found.labels[u] == expected.labels[u] for u in utts])) > 0.98
