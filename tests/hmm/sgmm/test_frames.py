"""Log-likelihoods of pdfs against the paper's equations, one frame at a time."""

from __future__ import annotations

import numpy as np

from pykaldist.hmm.sgmm.frames import SgmmScorer, Speakers

from .conftest import Case, joint


def slow(case: Case, vectors: np.ndarray) -> np.ndarray:
    return np.array([[np.log(joint(case.model, x, pdf, vectors[s], selected)[0].sum()) for pdf in range(case.model.num_pdfs)]
                     for x, s, selected in zip(case.feats.astype(float), case.speaker, case.selected, strict=True)])


def test_loglikes(case: Case) -> None:
    np.testing.assert_allclose(case.scorer.loglikes(case.terms, case.speakers), slow(case, case.vectors), atol=2e-4)


def test_some_pdfs(case: Case) -> None:
    """The pdfs listed, in their order, also where they are of some of the groups."""
    everything = case.scorer.loglikes(case.terms, case.speakers)
    for pdfs in ([4, 0], [1], [5, 2, 3, 0, 1, 4]):
        np.testing.assert_allclose(case.scorer.loglikes(case.terms, case.speakers, np.array(pdfs)), everything[:, pdfs], atol=1e-5)


def test_without_vectors(case: Case) -> None:
    """Speakers without vectors are those whose vectors are 0."""
    scorer, speakers = SgmmScorer(case.model), Speakers.without_vectors(case.model, 2)
    terms = scorer.terms(case.feats, case.selected, speakers, case.speaker)
    np.testing.assert_allclose(scorer.loglikes(terms, speakers), slow(case, np.zeros((2, 2))), atol=2e-4)
