"""A small UBM, a small extractor, and frames, all random."""

from __future__ import annotations

import numpy as np
import pytest

from pykaldist.hmm.gmm.gmm import AmDiagGmm
from pykaldist.hmm.ivector.estimate import TrainingFrames, frame_offsets
from pykaldist.hmm.ivector.extractor import IvectorExtractor
from pykaldist.hmm.ivector.posteriors import Posteriors

GAUSS, DIM, IVECTOR_DIM = 5, 3, 4


@pytest.fixture
def ubm() -> AmDiagGmm:
    rng = np.random.default_rng(1)
    weights, inv_vars = rng.dirichlet(np.full(GAUSS, 5.0)), rng.uniform(0.5, 2.0, (GAUSS, DIM))
    return AmDiagGmm(np.array([0, GAUSS]), weights, rng.normal(0, 2, (GAUSS, DIM)) * inv_vars, inv_vars)


@pytest.fixture
def extractor(ubm: AmDiagGmm) -> IvectorExtractor:
    """One with full covariances, and a prior offset other than a new one's."""
    rng = np.random.default_rng(2)
    made = IvectorExtractor.initial(ubm, IVECTOR_DIM, rng)
    roots = rng.normal(0, 0.3, (GAUSS, DIM, DIM)) + np.eye(DIM)
    return IvectorExtractor(made.weights, made.projections * np.array([20.0, 1, 1, 1]), roots @ roots.transpose(0, 2, 1), 5.0)


def random_frames(lengths: list[int], most: int = 3, seed: int = 3) -> TrainingFrames:
    """Utterances of these lengths, with the posteriors of at most `most` Gaussians a frame; some frames have fewer, some none."""
    rng, total = np.random.default_rng(seed), sum(lengths)
    gauss = np.array([rng.permutation(GAUSS)[:most] for _ in range(total)], np.int32)
    weight = rng.dirichlet(np.ones(most), total).astype(np.float32) * (rng.random((total, most)) < 0.8)
    speaker = np.repeat(rng.normal(0, 1, (len(lengths), DIM)), lengths, axis=0)
    feats = (rng.normal(0, 1, (total, DIM)) + speaker + np.arange(GAUSS)[gauss[:, :1]]).astype(np.float32)
    return TrainingFrames(feats, frame_offsets(lengths), Posteriors(gauss, weight.astype(np.float32)))
