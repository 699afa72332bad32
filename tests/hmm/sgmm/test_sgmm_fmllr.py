"""fMLLR for full covariances: its statistics, and its maximum against a general optimiser."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from pykaldist.errors import UserError
from pykaldist.hmm.adaptation.fmllr import identity
from pykaldist.hmm.sgmm.frames import Speakers
from pykaldist.hmm.sgmm.sgmm_fmllr import SgmmFmllrOptions, SgmmFmllrStats, estimate_sgmm_fmllr

from .conftest import Case, joint, make_case


def statistics(case: Case) -> SgmmFmllrStats:
    speakers = Speakers.of(case.model, case.vectors[:1])
    terms = case.scorer.terms(case.feats, case.selected, speakers)
    return SgmmFmllrStats.of_frames(case.scorer, case.feats, terms, speakers, case.items)


def test_value_is_the_expected_log_density() -> None:
    """Differences of the auxiliary function are those of the frames' expected log-densities through the transforms."""
    case, rng = make_case(frames=60), np.random.default_rng(0)
    stats = statistics(case)

    def slow(transform: np.ndarray) -> float:
        value = 0.0
        for x, pdf, chosen in zip(case.feats.astype(float), case.pdfs, case.selected, strict=True):
            posterior = joint(case.model, x, pdf, case.vectors[0], chosen)[0]
            moved = joint(case.model, transform @ np.append(x, 1), pdf, case.vectors[0], chosen)[0]
            value += (posterior / posterior.sum() * np.log(moved)).sum() + np.linalg.slogdet(transform[:, :-1])[1]
        return value

    assert stats.beta == pytest.approx(60, rel=1e-5)
    one, two = identity(3), identity(3) + 0.1 * rng.normal(size=(3, 4))
    assert stats.value(case.model, two) - stats.value(case.model, one) == pytest.approx(slow(two) - slow(one), rel=1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_maximum(seed: int) -> None:
    """Ten steps come within a thousandth of the rise that a general optimiser finds."""
    case = make_case(frames=1500, seed=seed)
    stats = statistics(case)
    transform, gain = estimate_sgmm_fmllr(case.model, stats, SgmmFmllrOptions())
    best = minimize(lambda flat: -stats.value(case.model, flat.reshape(3, 4)), identity(3).ravel(), method="L-BFGS-B")
    start = stats.value(case.model, identity(3))
    assert gain == pytest.approx(stats.value(case.model, transform) - start)
    assert gain > 0.999 * (-best.fun - start) > 1


def test_few_frames() -> None:
    case = make_case()
    transform, gain = estimate_sgmm_fmllr(case.model, statistics(case), SgmmFmllrOptions())
    np.testing.assert_array_equal(transform, identity(3))
    assert gain == 0
    with pytest.raises(UserError, match="--fmllr-iters 0"):
        SgmmFmllrOptions(fmllr_iters=0)
