"""Extended Baum-Welch for subspace models."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from pykaldist.errors import UserError
from pykaldist.hmm.sgmm.discriminative import SgmmEbwOptions, ebw_update
from pykaldist.hmm.sgmm.model import AmSgmm2
from pykaldist.hmm.sgmm.posteriors import Items, SgmmStats

from .conftest import Case, joint

PARAMETERS = ("vectors", "weight_projections", "phone_projections", "precisions", "substate_weights", "speaker_projections")


def statistics(case: Case, items: Items) -> SgmmStats:
    return SgmmStats.of_frames(case.scorer, case.feats, case.terms, case.speakers, items)


def log_likelihood(case: Case, model: AmSgmm2, items: Items) -> float:
    return sum(float(weight) * float(np.log(joint(model, case.feats[frame].astype(float), pdf, case.vectors[case.speaker[frame]],
                                                  case.selected[frame])[0].sum()))
               for frame, pdf, weight in zip(items.frame, items.pdf, items.weight, strict=True))


def sides(case: Case) -> tuple[Items, Items]:
    """Frames with the right pdfs, and the same frames with some wrong ones."""
    rng = np.random.default_rng(3)
    right = Items.aligned(case.pdfs)
    return right, Items(right.frame, rng.integers(0, 6, len(right.frame)), rng.random(len(right.frame)).astype(np.float32))


def test_it_raises_the_difference_of_log_likelihoods(case: Case) -> None:
    right, wrong = sides(case)
    made = ebw_update(case.model, statistics(case, right), statistics(case, wrong), SgmmEbwOptions())
    rise = [log_likelihood(case, made.model, items) - log_likelihood(case, case.model, items) for items in (right, wrong)]
    assert rise[0] - rise[1] > 1
    assert all(gain >= -1e-9 for gain in made.gains.values()) and set(made.gains) == set("vwMScN")
    for name in PARAMETERS:
        assert not np.allclose(getattr(made.model, name), getattr(case.model, name)), name
        alone = case.model.changed(**{name: getattr(made.model, name)})
        rise = [log_likelihood(case, alone, items) - log_likelihood(case, case.model, items) for items in (right, wrong)]
        assert rise[0] - rise[1] > 0, name


def test_equal_sides_change_nothing(case: Case) -> None:
    """Where numerator and denominator are the same, there is nothing to learn."""
    stats = statistics(case, case.items)
    made = ebw_update(case.model, stats, stats, SgmmEbwOptions())
    for name in PARAMETERS:
        np.testing.assert_allclose(getattr(made.model, name), getattr(case.model, name), atol=1e-6, err_msg=name)


def test_covariances_change_by_a_factor_at_most(case: Case) -> None:
    right, wrong = sides(case)
    num, den = statistics(case, right), statistics(case, wrong)
    for one in (num, den):
        for part in fields(one):
            setattr(one, part.name, 1000 * getattr(one, part.name))
    precisions = ebw_update(case.model, num, den, SgmmEbwOptions(cov_min_value=0.9)).model.precisions
    for new, old in zip(precisions, case.model.precisions, strict=True):
        ratios = np.linalg.eigvals(np.linalg.solve(old, new)).real
        assert ratios.min() > 0.9 - 1e-6 and ratios.max() < 1 / 0.9 + 1e-6


def test_options_are_checked() -> None:
    with pytest.raises(UserError, match="--lrate-m above 0"):
        SgmmEbwOptions(lrate_m=0.0)
    with pytest.raises(UserError, match="--cov-min-value"):
        SgmmEbwOptions(cov_min_value=1.0)
