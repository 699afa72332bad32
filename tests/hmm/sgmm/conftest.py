"""A small random subspace model, frames that it fits badly, and its equations, one frame at a time, straight from the paper."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from pykaldist.hmm.sgmm.frames import FrameTerms, SgmmScorer, Speakers
from pykaldist.hmm.sgmm.full_gmm import FullGmm
from pykaldist.hmm.sgmm.model import AmSgmm2
from pykaldist.hmm.sgmm.posteriors import Items

DIM, GAUSS, PHONES, SPEAKERS = 3, 5, 4, 2


def random_ubm(rng: np.random.Generator, count: int = GAUSS, dim: int = DIM) -> FullGmm:
    factors = rng.normal(size=(count, dim, dim))
    weights = rng.random(count) + 0.5
    means = 2 * rng.normal(size=(count, dim))
    return FullGmm.of_moments(weights / weights.sum(), means, np.eye(dim) + factors @ factors.transpose(0, 2, 1))


def random_model(symmetric: bool = True, seed: int = 0) -> AmSgmm2:
    """A model of 6 pdfs in 3 groups, with 3, 1 and 2 substates."""
    rng = np.random.default_rng(seed)
    model = AmSgmm2.initial(random_ubm(rng), np.array([0, 1, 0, 2, 2, 0]), PHONES, SPEAKERS, symmetric, 0.9)
    offsets = np.array([0, 3, 4, 6])
    vectors = np.concatenate([np.ones((6, 1)), 0.7 * rng.normal(size=(6, PHONES - 1))], axis=1)
    sizes = [3, 1, 3, 2, 2, 3]
    weights = np.concatenate([rng.dirichlet(np.full(size, 3.0)) for size in sizes])
    parts = {"offsets": offsets, "vectors": vectors, "substate_weights": weights,
             "weight_projections": 0.5 * rng.normal(size=(GAUSS, PHONES)),
             "phone_projections": model.phone_projections + 0.3 * rng.normal(size=model.phone_projections.shape)}
    if symmetric:
        parts["speaker_weight_projections"] = 0.4 * rng.normal(size=(GAUSS, SPEAKERS))
    return model.changed(**parts)


@dataclass
class Case:
    """A model, frames of two speakers with their vectors, pdfs of frames, and what the library makes of them."""

    model: AmSgmm2
    feats: np.ndarray
    speaker: np.ndarray
    vectors: np.ndarray
    pdfs: np.ndarray
    selected: np.ndarray

    @property
    def scorer(self) -> SgmmScorer:
        return SgmmScorer(self.model)

    @property
    def speakers(self) -> Speakers:
        return Speakers.of(self.model, self.vectors)

    @property
    def terms(self) -> FrameTerms:
        return self.scorer.terms(self.feats, self.selected, self.speakers, self.speaker)

    @property
    def items(self) -> Items:
        return Items.aligned(self.pdfs)


def make_case(symmetric: bool = True, frames: int = 260, count: int = 3, seed: int = 0) -> Case:
    rng = np.random.default_rng(seed + 10)
    model = random_model(symmetric, seed)
    feats = (2.5 * rng.normal(size=(frames, DIM)) + 0.5).astype(np.float32)
    selected = SgmmScorer(model).selector(count).select(feats)[0]
    return Case(model, feats, rng.integers(0, 2, frames), rng.normal(size=(2, SPEAKERS)), rng.integers(0, 6, frames), selected)


@pytest.fixture(params=[True, False], ids=["symmetric", "plain"])
def case(request: pytest.FixtureRequest) -> Case:
    return make_case(request.param)


def joint(model: AmSgmm2, x: np.ndarray, pdf: int, vector: np.ndarray, selected: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The densities p(x, m, i | pdf) (M, G) of a frame, by the paper's equations 1 to 3, and the substates."""
    group = int(model.pdf2group[pdf])
    substates = np.arange(model.offsets[group], model.offsets[group + 1])
    weights = model.substate_weights[model.weight_offsets[pdf]:model.weight_offsets[pdf + 1]]
    densities = np.zeros((len(substates), len(selected)))
    for row, k in enumerate(substates):
        logits = model.weight_projections @ model.vectors[k]
        if model.symmetric:
            logits = logits + model.speaker_weight_projections @ vector
        gauss = np.exp(logits) / np.exp(logits).sum()
        for column, i in enumerate(selected):
            rest = x - model.phone_projections[i] @ model.vectors[k] - model.speaker_projections[i] @ vector
            precision = model.precisions[i]
            density = np.sqrt(np.linalg.det(precision) / (2 * np.pi) ** model.dim) * np.exp(-0.5 * rest @ precision @ rest)
            densities[row, column] = weights[row] * gauss[i] * density
    return densities, substates


def total_log_likelihood(case: Case, model: AmSgmm2, vectors: np.ndarray | None = None) -> float:
    """The log-likelihood of all frames along their pdfs, by the equations."""
    vectors = case.vectors if vectors is None else vectors
    return float(sum(np.log(joint(model, x, pdf, vectors[s], selected)[0].sum()) for x, pdf, s, selected in zip(
        case.feats.astype(np.float64), case.pdfs, case.speaker, case.selected, strict=True)))
