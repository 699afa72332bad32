"""Subspace models: what they begin with, their splitting, and their file."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from pykaldist.errors import UserError
from pykaldist.hmm.gmm.gmm import AmDiagGmm
from pykaldist.hmm.gmm.model_files import write_model
from pykaldist.hmm.lang.topology import read_topology
from pykaldist.hmm.sgmm.frames import SgmmScorer, Speakers
from pykaldist.hmm.sgmm.model import AmSgmm2, is_sgmm, normalizing_transform, read_sgmm, write_sgmm
from pykaldist.hmm.sgmm.update import renormalized
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.io.kaldi import KaldiReader, KaldiWriter
from pykaldist.io.lang import LangDir

from ..conftest import random_tree
from .conftest import make_case, random_model, random_ubm


def scores(model: AmSgmm2, feats: np.ndarray) -> np.ndarray:
    """Log-likelihoods of all pdfs, with all Gaussians."""
    scorer, speakers = SgmmScorer(model), Speakers.without_vectors(model)
    selected = np.tile(np.arange(model.num_gauss, dtype=np.int16), (len(feats), 1))
    return scorer.loglikes(scorer.terms(feats, selected, speakers), speakers)


def test_initial_model_is_the_ubm() -> None:
    """In every pdf the Gaussians are those of the UBM with equal weights; substates' weights are as asked."""
    rng = np.random.default_rng(0)
    ubm, feats = random_ubm(rng), rng.normal(size=(20, 3)).astype(np.float32)
    model = AmSgmm2.initial(ubm, np.array([1, 0, 1, 1]), 4, 2, True, 0.8)
    assert model.num_substates == 4 and model.offsets.tolist() == [0, 1, 4] and model.weight_offsets.tolist() == [0, 3, 4, 7, 10]
    np.testing.assert_allclose(model.substate_weights, [0.8, 0.1, 0.1, 1.0, 0.1, 0.8, 0.1, 0.1, 0.1, 0.8])
    diff = feats.astype(float)[:, None] - ubm.means
    densities = np.sqrt(np.linalg.det(ubm.inv_covars) / (2 * np.pi) ** 3) * np.exp(-0.5 * np.einsum(
        "tid,ide,tie->ti", diff, ubm.inv_covars, diff))
    np.testing.assert_allclose(scores(model, feats), np.log(densities.mean(1))[:, None] * np.ones(4), atol=1e-4)
    one = AmSgmm2.initial(ubm, np.array([1, 0, 1, 1]), 4, 0, False, 1.0)
    assert one.num_substates == 2 and one.substate_weights.tolist() == [1.0] * 4 and one.speaker_dim == 0
    with pytest.raises(UserError, match="--phn-dim must be 1 to 4"):
        AmSgmm2.initial(ubm, np.array([0]), 5, 0, False, 1.0)


def test_normalizing_transform() -> None:
    """Its inverse makes the average covariance the unit matrix, and the scatter of means diagonal, from the largest on."""
    ubm = random_ubm(np.random.default_rng(1))
    inverse = np.linalg.inv(normalizing_transform(ubm))
    weights = ubm.weights.astype(float)
    within = np.einsum("i,ide->de", weights, ubm.covariances())
    centred = ubm.means - weights @ ubm.means
    np.testing.assert_allclose(inverse @ within @ inverse.T, np.eye(3), atol=1e-5)
    scatter = inverse @ ((centred.T * weights) @ centred) @ inverse.T
    np.testing.assert_allclose(scatter, np.diag(np.diag(scatter)), atol=1e-5)
    assert (np.diff(np.diag(scatter)) <= 0).all()


def test_splitting() -> None:
    """Substates go to the groups with more frames; a split moves vectors apart, and shares their weights."""
    model = random_model()
    split = model.split(np.array([900.0, 30, 900, 400, 400, 900]), 10, 0.5, np.random.default_rng(0))
    assert split.num_substates == 10 and np.diff(split.offsets).tolist()[1] == 1 and np.diff(split.offsets)[0] > 3
    np.testing.assert_allclose(np.add.reduceat(split.substate_weights, split.weight_offsets[:-1]), 1.0)
    feats = make_case().feats[:30]
    np.testing.assert_allclose(scores(split, feats), scores(model, feats), atol=0.1)
    assert model.split(np.full(6, 10.0), 9, 0.5, np.random.default_rng(0)) is model


def test_other_coordinates_are_the_same_model() -> None:
    model, feats = random_model(), make_case().feats[:30]
    average = np.diag([4.0, 3, 2, 1]) + 0.1
    turned = renormalized(model, average)
    np.testing.assert_allclose(turned.vectors.T @ turned.vectors / 6, np.eye(4), atol=1e-8)
    np.testing.assert_allclose(scores(turned, feats), scores(model, feats), atol=1e-4)


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("speakers", [True, False])
def test_file(binary: bool, speakers: bool) -> None:
    """What is written is read, and written again the same bytes; the scores are the same."""
    model, feats = random_model(), make_case().feats[:10]
    model = model if speakers else model.without_speakers()
    first, second = io.BytesIO(), io.BytesIO()
    model.write(KaldiWriter(first, binary))
    again = AmSgmm2.read(KaldiReader(first.getvalue(), "model"))
    assert again.symmetric == speakers and again.speaker_dim == (2 if speakers else 0)
    np.testing.assert_allclose(scores(again, feats), scores(model, feats), atol=1e-3)
    again.write(KaldiWriter(second, binary))
    assert first.getvalue() == second.getvalue()


def test_damaged_models_are_refused() -> None:
    stream = io.BytesIO()
    random_model().write(KaldiWriter(stream, False))
    text = stream.getvalue()
    for old, new, said in ((b"<NUMSTATES> 6", b"<NUMSTATES> 7", "groups of 7 pdfs"), (b"<NUMGAUSS> 5", b"<NUMGAUSS> 4", "model"),
                           (b"<PDF2GROUP> [ 0 ", b"<PDF2GROUP> [ 4 ", "numbered from 0"),
                           (b"<w>", b"<z>", "expected part of a subspace model")):
        with pytest.raises(UserError, match=said):
            AmSgmm2.read(KaldiReader(text.replace(old, new), "model"))


def test_model_files(tmp_path: Path, toy_lang: LangDir) -> None:
    """A file with a transition model; other kinds of models, and halves that do not belong together, are refused."""
    transition_model = TransitionModel.from_tree(random_tree(toy_lang, 3, 1), read_topology(toy_lang.file("topo")))
    rng, count = np.random.default_rng(0), transition_model.num_pdfs
    model = AmSgmm2.initial(random_ubm(rng), np.arange(count) // 2, 4, 2, True, 0.9)
    write_sgmm(tmp_path / "final.mdl", transition_model, model)
    read = read_sgmm(tmp_path / "final.mdl")
    assert is_sgmm(tmp_path / "final.mdl") and read[1].num_pdfs == count
    np.testing.assert_array_equal(read[0].tid2pdf, transition_model.tid2pdf)
    write_sgmm(tmp_path / "other.mdl", transition_model, random_model())
    with pytest.raises(UserError, match=f"{count} pdfs, the subspace model 6"):
        read_sgmm(tmp_path / "other.mdl")
    write_model(tmp_path / "gmm.mdl", transition_model, AmDiagGmm.flat_start(count, np.zeros(3), np.ones(3)))
    assert not is_sgmm(tmp_path / "gmm.mdl")
    with pytest.raises(UserError, match="is no subspace model"):
        read_sgmm(tmp_path / "gmm.mdl")
