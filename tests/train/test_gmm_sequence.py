"""Discriminative training of GMMs on lattices: Kaldi's derivatives, finite differences, objectives that rise."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from test_forward_backward import LENGTH, alignments, posteriors, random_lattice

from pykaldist.decode.lattice import read_lattices
from pykaldist.decode.lattice_arrays import as_arrays
from pykaldist.errors import UserError
from pykaldist.frames.lattice_store import LatticeStore, pack_lattices
from pykaldist.hmm.alignments.corpus import Corpus
from pykaldist.hmm.gmm.ebw import EbwOptions
from pykaldist.hmm.gmm.engine import Engine, Scorer
from pykaldist.hmm.gmm.fmpe import Fmpe
from pykaldist.hmm.gmm.gmm import AmDiagGmm
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.io.kaldi import KaldiReader
from pykaldist.io.tables import read_archive
from pykaldist.train import gmm_sequence
from pykaldist.train.gmm_sequence import Accuracy, Criterion, Mmi, Objective, Objectives, feature_iteration, model_iteration

TID2PDF, TID2PHONE = np.array([0, 0, 1, 2, 2], np.int32), np.array([0, 1, 2, 2, 3], np.int32)  # transition-ids 1 to 4; phone 1 is silence
MODEL = cast(TransitionModel, SimpleNamespace(tid2pdf=TID2PDF, tid2phone=TID2PHONE, num_pdfs=3, num_transition_ids=4))
CRITERIA = [Mmi(), Mmi(boost=0.5), Mmi(cancel=False), Accuracy(), Accuracy(criterion="smbr", one_silence_class=True),
            Accuracy(criterion="smbr")]
NAMES = ["mmi", "boosted", "not cancelled", "mpe", "smbr", "smbr, silence wrong"]


def toy(folder: Path, utts: int = 8) -> tuple[Corpus, np.ndarray, LatticeStore, AmDiagGmm]:
    """Utterances of five frames with random lattices and references; frames have something of their reference's pdf."""
    rng = np.random.default_rng(0)
    tids = rng.integers(1, 5, utts * LENGTH).astype(np.int32)
    lattices = [(f"utt{n}", as_arrays(random_lattice(n)), tids[LENGTH * n:LENGTH * (n + 1)]) for n in range(utts - 1)]
    pack_lattices(lattices, TID2PDF, TID2PHONE, [1], {}, folder)
    gmm = AmDiagGmm(np.array([0, 2, 3, 5]), np.array([0.4, 0.6, 1, 0.7, 0.3]), rng.normal(size=(5, 3)), rng.uniform(0.5, 2, (5, 3)))
    feats = (rng.normal(size=(3, 3))[TID2PDF[tids]] + rng.normal(size=(len(tids), 3))).astype(np.float32)
    corpus = Corpus([f"utt{n}" for n in range(utts)], feats, np.arange(utts + 1) * LENGTH, [[]] * utts, Counter())
    return corpus, tids, LatticeStore(folder), gmm


def objectives_of(made: tuple[Corpus, np.ndarray, LatticeStore, AmDiagGmm], criterion: Criterion, acwt: float = 0.3) -> Objectives:
    corpus, tids, store, _ = made
    return Objectives(corpus, tids, store, MODEL, criterion, acwt, Engine())


@pytest.mark.parametrize("chunk", [100000, 12])
@pytest.mark.parametrize("criterion", CRITERIA, ids=NAMES)
def test_statistics_are_the_objectives_derivative(tmp_path: Path, criterion: Criterion, chunk: int,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    """By central differences of the objective for the means; an utterance without a lattice counts for nothing."""
    monkeypatch.setattr(gmm_sequence, "_CHUNK", chunk)
    made = toy(tmp_path)
    gmm, feats = made[3], made[0].feats
    objectives = objectives_of(made, criterion)
    found = objectives.statistics(gmm, feats)
    num, den, total = found.num, found.den, found.total
    assert total.frames == 7 * LENGTH
    variance = 1.0 / gmm.inv_vars.astype(float)
    mean = gmm.means_invvars * variance
    expected = 0.3 * (num.x - den.x - (num.occupancy - den.occupancy)[:, None] * mean) / variance
    for g, d in ((0, 0), (1, 2), (2, 1), (3, 0), (4, 2)):
        values = []
        for step in (0.02, -0.02):
            moved = mean.copy()
            moved[g, d] += step
            value = Objective()
            shifted = AmDiagGmm(gmm.offsets, gmm.weights, moved / variance, gmm.inv_vars)
            list(objectives.lattices.passes(objectives.corpus, objectives.engine, objectives.engine.scorer(shifted, feats), value))
            values.append(value.value)
        assert expected[g, d] == pytest.approx((values[0] - values[1]) / 0.04, rel=0.02, abs=2e-3), (g, d)
    if isinstance(criterion, Mmi):
        assert total.value == pytest.approx(objectives_of(made, Mmi(boost=criterion.boost)).statistics(gmm, feats).total.value)


@pytest.mark.usefixtures("all_plain_lines")
def test_a_pass_says_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(gmm_sequence, "_CHUNK", 12)
    made = toy(tmp_path)
    objectives_of(made, Mmi()).statistics(made[3], made[0].feats)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4
    assert lines[0].startswith("MMI of lattices: 2/7 (29 %) utt") and lines[-1].startswith("MMI of lattices: 7/7 (100 %) utt")


@pytest.mark.parametrize("criterion", [*CRITERIA, Accuracy(smooth_to_model=False)], ids=[*NAMES, "mpe, smoothed to the reference"])
def test_objective_and_auxiliary_function_rise(tmp_path: Path, criterion: Criterion) -> None:
    made = toy(tmp_path, utts=30)
    gmm, objectives, lines = made[3], objectives_of(made, criterion), []
    for _ in range(5):
        gmm, line = model_iteration(objectives, gmm, made[0].feats, EbwOptions(tau=10, weight_tau=5))
        lines.append(line)
    values = [float(line.split("objective ")[1].split()[0]) for line in lines]
    gains = [float(line.split("auxiliary function ")[1].split()[0]) for line in lines]
    assert all(gain > 0 for gain in gains)
    assert values == sorted(values) and values[-1] > values[0] + 1e-3


def test_dropped_frames_and_cancelled_statistics(tmp_path: Path) -> None:
    """Cancelling takes as much from numerator as from denominator; frames without their reference weigh nothing when they are dropped."""
    made = toy(tmp_path)
    gmm, feats = made[3], made[0].feats
    whole, less, dropped = (objectives_of(made, criterion).statistics(gmm, feats)
                            for criterion in (Mmi(cancel=False), Mmi(), Mmi(drop_frames=True)))
    np.testing.assert_allclose(whole.num.occupancy - whole.den.occupancy, less.num.occupancy - less.den.occupancy, atol=1e-4)
    for stats in (whole.num, whole.den):
        assert stats.occupancy.sum() == pytest.approx(7 * LENGTH, rel=1e-5)
    assert less.num.occupancy.sum() < whole.num.occupancy.sum() - 1
    missing = less.total.missing
    assert 0 < missing < 7 * LENGTH
    assert less.num.occupancy.sum() - dropped.num.occupancy.sum() == pytest.approx(missing, rel=1e-4)


@pytest.mark.parametrize("indirect", [False, True])
def test_fmmi_raises_the_objective(tmp_path: Path, indirect: bool) -> None:
    """Offsets of the features; with the indirect differential the model follows them."""
    made = toy(tmp_path, utts=30)
    corpus, gmm = made[0], made[3]
    objectives = objectives_of(made, Mmi())
    fmpe = Fmpe.initial(AmDiagGmm(np.array([0, 5]), gmm.weights / 3, gmm.means_invvars, gmm.inv_vars))
    before, after = Objective(), Objective()
    list(objectives.lattices.passes(corpus, objectives.engine, objectives.engine.scorer(gmm, corpus.feats), before))
    lines = []
    for _ in range(4):
        gmm, fmpe, feats, line = feature_iteration(objectives, gmm, fmpe, 0.05, indirect)
        lines.append(line)
    list(objectives.lattices.passes(corpus, objectives.engine, objectives.engine.scorer(gmm, feats), after))
    np.testing.assert_allclose(feats, fmpe.transformed(corpus.feats, corpus.offsets))
    assert after.value > before.value and abs(feats - corpus.feats).max() > 0
    assert (gmm is made[3]) == (not indirect)
    assert all(float(line.split("linear, ")[1].split()[0]) > 0 for line in lines)


def test_lattices_of_another_model_or_length_are_refused(tmp_path: Path) -> None:
    corpus, tids, store, gmm = toy(tmp_path)
    other = cast(TransitionModel, SimpleNamespace(tid2pdf=TID2PDF[::-1].copy(), tid2phone=TID2PHONE))
    with pytest.raises(UserError, match="lattices of another model than the alignment"):
        Objectives(corpus, tids, store, other, Mmi(), 0.1, Engine())
    short = Corpus(corpus.utts, corpus.feats[:-1], corpus.offsets - (corpus.offsets > 0), corpus.words, Counter())
    with pytest.raises(UserError, match=r"utt0: the lattice has 5 frames, the features 4; make lattices of the same features"):
        objectives_of((short, tids[:-1], store, gmm), Mmi()).statistics(gmm, short.feats)


class GivenScores(Engine):
    """An engine whose frames' scores are given, whatever the model."""

    def __init__(self, scores: np.ndarray) -> None:
        super().__init__()
        self.scores = scores

    def scorer(self, gmm: AmDiagGmm, feats: np.ndarray) -> Scorer:
        return lambda first, end, pdfs: self.scores[first:end][:, pdfs]


@pytest.mark.parametrize(("prefix", "stem", "criterion"), [
    ("", "mmi", Mmi()), ("", "mmi_nodrop", Mmi(cancel=False)), ("wrong_", "mmi", Mmi(drop_frames=True)),
    ("", "smbr", Accuracy(criterion="smbr", one_silence_class=True))])
def test_weights_are_kaldis_derivatives(golden: Path, tmp_path: Path, prefix: str, stem: str, criterion: Criterion) -> None:
    """Those of nnet1 for the pdfs of each frame, whose sign is the other one.

    Frames are dropped whose transition-id is not in the lattice (Kaldi's sum-post); nnet1 drops those whose pdf is not, which are fewer.
    """
    folder = golden / "seq"
    model = TransitionModel.read(KaldiReader(gzip.decompress((folder / "trans.mdl.txt.gz").read_bytes()), "trans.mdl"))
    reference = alignments(folder / ("wrong_ali.txt" if prefix else "ref_ali.txt"))
    lattices = {utt: as_arrays(lattice) for utt, lattice in read_lattices(folder / "lat.gz") if utt in reference}
    pack_lattices(((utt, lattice, reference[utt]) for utt, lattice in lattices.items()), model.tid2pdf, model.tid2phone,
                  [int(phone) for phone in (folder / "silence.csl").read_text().split(":")], {}, tmp_path)
    loglikes = dict(read_archive(golden / "an4_kaldi/dnn/loglikes.ark"))
    utts = list(lattices)
    offsets = np.concatenate([[0], np.cumsum([len(reference[utt]) for utt in utts])])
    engine = GivenScores(np.concatenate([loglikes[utt] for utt in utts]))
    corpus = Corpus(utts, np.zeros((offsets[-1], 1), np.float32), offsets, [[]] * len(utts), Counter())
    objectives = Objectives(corpus, np.concatenate([reference[utt] for utt in utts]), LatticeStore(tmp_path), model, criterion, 0.1, engine)
    total, found = Objective(), np.zeros((offsets[-1], model.num_pdfs))
    for weights in objectives.lattices.passes(corpus, engine, engine.scorer(cast(AmDiagGmm, None), corpus.feats), total):
        np.add.at(found, (weights.frame + weights.rows.start, model.tid2pdf[weights.tid]), weights.weight)
    expected: Any = posteriors(folder / f"{prefix}nnet1_{stem}_diff.txt.gz")
    for number, utt in enumerate(utts):
        for t, frame in enumerate(expected[utt]):
            row = np.zeros(model.num_pdfs)
            for pdf, value in frame.items() if isinstance(frame, dict) else frame:
                row[int(pdf)] += value
            dropped = reference[utt][t] not in lattices[utt].transition_id[lattices[utt].frame == t]
            row *= not (dropped and criterion == Mmi(drop_frames=True))
            np.testing.assert_allclose(found[offsets[number] + t], -row, atol=2e-3, err_msg=f"{utt} {t}")
