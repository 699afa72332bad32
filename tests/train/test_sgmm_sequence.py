"""MMI of subspace models on lattices: statistics that are the objective's derivative, and an objective that rises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from test_forward_backward import LENGTH, random_lattice

from pykaldist.decode.lattice_arrays import as_arrays
from pykaldist.errors import UserError
from pykaldist.frames.lattice_store import LatticeStore, pack_lattices
from pykaldist.hmm.alignments.corpus import Corpus
from pykaldist.hmm.gmm.engine import Engine
from pykaldist.hmm.sgmm.discriminative import SgmmEbwOptions
from pykaldist.hmm.sgmm.full_gmm import FullGmm
from pykaldist.hmm.sgmm.model import AmSgmm2, vector_precisions
from pykaldist.hmm.sgmm.training import SpokenCorpus, utterance_scorer
from pykaldist.hmm.sgmm.update import expected_weights
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.train.gmm_sequence import LatticeCriterion, Mmi, Objective, Objectives, Weights
from pykaldist.train.sgmm_sequence import sgmm_iteration, statistics

TID2PDF, TID2PHONE = np.array([0, 0, 1, 2, 2], np.int32), np.array([0, 1, 2, 2, 3], np.int32)
MODEL = cast(TransitionModel, SimpleNamespace(tid2pdf=TID2PDF, tid2phone=TID2PHONE, num_pdfs=3, num_transition_ids=4))
ACWT = 0.3


def toy(folder: Path, criterion: Mmi, utts: int = 12) -> tuple[Objectives, SpokenCorpus, AmSgmm2, np.ndarray]:
    """Utterances of two speakers with random lattices and references; frames have something of their reference's pdf."""
    rng = np.random.default_rng(0)
    tids = rng.integers(1, 5, utts * LENGTH).astype(np.int32)
    pack_lattices([(f"utt{n}", as_arrays(random_lattice(n)), tids[LENGTH * n:LENGTH * (n + 1)]) for n in range(utts)], TID2PDF, TID2PHONE,
                  [1], {}, folder)
    feats = (2 * rng.normal(size=(3, 3))[TID2PDF[tids]] + rng.normal(size=(len(tids), 3))).astype(np.float32)
    corpus = Corpus([f"utt{n}" for n in range(utts)], feats, np.arange(utts + 1) * LENGTH, [[]] * utts, Counter())
    ubm = FullGmm.of_moments(np.full(4, 0.25), rng.normal(size=(4, 3)), np.tile(np.eye(3), (4, 1, 1)))
    model = AmSgmm2.initial(ubm, np.array([0, 1, 1]), 4, 2, True, 0.7)
    model = model.changed(vectors=model.vectors + 0.3 * rng.normal(size=model.vectors.shape),
                          weight_projections=0.3 * rng.normal(size=(4, 4)), speaker_weight_projections=0.3 * rng.normal(size=(4, 2)))
    spoken = SpokenCorpus.of(corpus, {f"utt{n}": f"s{n % 2}" for n in range(utts)}, model, Engine(), 4)
    return Objectives(corpus, tids, LatticeStore(folder), MODEL, criterion, ACWT, Engine()), spoken, model, rng.normal(size=(2, 2))


@pytest.mark.parametrize("criterion", [Mmi(), Mmi(boost=0.5), Mmi(cancel=False)], ids=["mmi", "boosted", "not cancelled"])
def test_statistics_are_the_objectives_derivative(tmp_path: Path, criterion: Mmi) -> None:
    """By central differences for some elements of the vectors, in a symmetric model with speakers."""
    objectives, spoken, model, vectors = toy(tmp_path, criterion)
    num, den, _ = statistics(objectives, spoken, model, vectors)
    h = vector_precisions(model)
    slopes = []
    for stats in (num, den):
        means = np.einsum("ki,ist->kst", stats.gamma, h)
        slopes.append(stats.y - np.einsum("kst,kt->ks", means, model.vectors) + (stats.gamma - expected_weights(model, stats))
                      @ model.weight_projections)
    for k, s in ((0, 0), (1, 2), (2, 1), (2, 3)):
        values = []
        for step in (0.02, -0.02):
            moved = model.vectors.copy()
            moved[k, s] += step
            total = Objective()
            corpus = spoken.corpus
            score = utterance_scorer(model.changed(vectors=moved), vectors, corpus.feats, spoken.selected, spoken.speaker)
            list(objectives.lattices.passes(corpus, Engine(), score, total))
            values.append(total.value)
        assert ACWT * (slopes[0] - slopes[1])[k, s] == pytest.approx((values[0] - values[1]) / 0.04, rel=0.03, abs=3e-3), (k, s)


def test_the_objective_rises(tmp_path: Path) -> None:
    objectives, spoken, model, vectors = toy(tmp_path, Mmi())
    values = []
    for _ in range(5):
        model, line = sgmm_iteration(objectives, spoken, model, vectors, SgmmEbwOptions(tau_m=5, tau_n=5, tau_v=5, tau_w=5, tau_sigma=20))
        values.append(float(line.split("MMI objective ")[1].split()[0]))
    assert values == sorted(values) and values[-1] > values[0] + 0.02
    assert "(v +" in line and "N +" in line


def test_lattices_without_another_path_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objectives, spoken, model, vectors = toy(tmp_path, Mmi())
    passes = LatticeCriterion.passes

    def only_right(*arguments: Any) -> Iterator[Weights]:
        for weights in passes(*arguments):
            weights.weight = np.maximum(weights.weight, 0)
            yield weights

    monkeypatch.setattr(LatticeCriterion, "passes", only_right)
    with pytest.raises(UserError, match="no path beside the reference"):
        sgmm_iteration(objectives, spoken, model, vectors, SgmmEbwOptions())
