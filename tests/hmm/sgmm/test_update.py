"""The M-step: each update raises the auxiliary function, and EM the likelihood."""

from __future__ import annotations

import numpy as np
import pytest

from pykaldist.errors import UserError
from pykaldist.hmm.sgmm.frames import SgmmScorer, Speakers
from pykaldist.hmm.sgmm.model import AmSgmm2, vector_precisions
from pykaldist.hmm.sgmm.posteriors import SgmmStats
from pykaldist.hmm.sgmm.update import UpdateOptions, floored, solve, solve_projections, update, updated_phone_projections, updated_vectors

from .conftest import Case, joint, make_case, total_log_likelihood

EXACT = UpdateOptions(tau_c=0.0, cov_floor=1e-6)


def statistics(case: Case, model: AmSgmm2) -> SgmmStats:
    scorer, speakers = SgmmScorer(model), Speakers.of(model, case.vectors)
    return SgmmStats.of_frames(scorer, case.feats, scorer.terms(case.feats, case.selected, speakers, case.speaker), speakers, case.items)


def auxiliary(case: Case, old: AmSgmm2, new: AmSgmm2) -> float:
    """Expected log-density of frames, substates and Gaussians under `new`, by the posteriors of `old`: straight from the definition."""
    value = 0.0
    for x, pdf, speaker, chosen in zip(case.feats.astype(float), case.pdfs, case.speaker, case.selected, strict=True):
        before, after = (joint(model, x, pdf, case.vectors[speaker], chosen)[0] for model in (old, new))
        value += float((before / before.sum() * np.log(after)).sum())
    return value


@pytest.mark.parametrize("parameter", "vMNwcSu")
def test_each_update_raises_the_auxiliary_function(case: Case, parameter: str) -> None:
    """It rises, and for parameters with an exact maximum by the gain that is told."""
    if parameter == "u":
        if not case.model.symmetric:
            return
        case = make_case(frames=1200)  # of which Gaussians have the 200 that an update asks for
    made = update(case.model, statistics(case, case.model), parameter, EXACT, renormalize=False)
    told = made.gains[parameter] * len(case.feats)
    rise = auxiliary(case, case.model, made.model) - auxiliary(case, case.model, case.model)
    assert rise > 0.1
    if parameter in "MNcS":
        assert rise == pytest.approx(told, rel=0.02)
    assert {name for name, value in vars(made.model).items() if isinstance(value, np.ndarray) and not np.array_equal(
        value, getattr(case.model, name))} <= {"vectors", "phone_projections", "speaker_projections", "weight_projections",
                                               "substate_weights", "precisions", "speaker_weight_projections", "weight_offsets",
                                               "log_weights", "normalizers", "gauss_weights"}


def test_maxima_have_no_slope() -> None:
    """No small change of M, N or a covariance raises the auxiliary function further."""
    case, rng = make_case(), np.random.default_rng(0)
    stats = statistics(case, case.model)
    for parameter, name in (("M", "phone_projections"), ("N", "speaker_projections"), ("S", "precisions")):
        best = update(case.model, stats, parameter, EXACT, renormalize=False).model
        highest = auxiliary(case, case.model, best)
        for _ in range(3):
            change = 0.01 * rng.normal(size=getattr(best, name).shape)
            change = change if name != "precisions" else 0.1 * (change + change.transpose(0, 2, 1))
            assert auxiliary(case, case.model, best.changed(**{name: getattr(best, name) + change})) < highest


def test_em_raises_the_likelihood(case: Case) -> None:
    """Six iterations, phones' and speakers' projections by turns, vectors in new coordinates each time."""
    model, values = case.model, [total_log_likelihood(case, case.model)]
    for iteration in range(6):
        parameters = ("vMwcS" if iteration % 2 == 0 else "vNwcS") + "u" * case.model.symmetric
        model = update(model, statistics(case, model), parameters, EXACT).model
        values.append(total_log_likelihood(case, model))
    assert (np.diff(values) > 0).all() and values[-1] > values[0] + 0.3 * len(case.feats)


def test_starved_parts_stay() -> None:
    """Gaussians with fewer frames than dimensions keep M; a substate without frames keeps its vector."""
    case = make_case(frames=40)
    stats = statistics(case, case.model)
    stats.gamma[:, 2], stats.gamma[5] = 0.0, 0.0
    stats.y[5] = 0.0
    projections = updated_phone_projections(case.model, stats)[0]["phone_projections"]
    np.testing.assert_array_equal(projections[2], case.model.phone_projections[2])
    vectors = updated_vectors(case.model, stats, vector_precisions(case.model), 0.0)[0]["vectors"]
    np.testing.assert_array_equal(vectors[5], case.model.vectors[5])
    assert not np.array_equal(vectors[0], case.model.vectors[0])


def test_solve() -> None:
    """The maximum where the problem has one; the start where there is nothing to know, or no rise."""
    rng = np.random.default_rng(1)
    root = rng.normal(size=(3, 4, 4))
    h, g, start = root @ root.transpose(0, 2, 1) + 0.1 * np.eye(4), rng.normal(size=(3, 4)), rng.normal(size=(3, 4))
    h[2] = 0.0
    found = solve(h, g, start)
    np.testing.assert_allclose(found[:2], np.linalg.solve(h[:2], g[:2, :, None])[..., 0])
    np.testing.assert_array_equal(found[2], start[2])
    y, precisions = rng.normal(size=(2, 3, 4)), np.tile(np.eye(3), (2, 1, 1))
    best, gain = solve_projections(h[:2], y, precisions, np.zeros_like(y))
    np.testing.assert_allclose(best, y @ np.linalg.inv(h[:2]))
    assert gain == pytest.approx(0.5 * np.einsum("ids,ids->", best, y))


def test_floored() -> None:
    rng = np.random.default_rng(2)
    root = rng.normal(size=(3, 3))
    floor, matrices = root @ root.T + np.eye(3), np.stack([1e-3 * np.eye(3), 100 * np.eye(3)])
    found = floored(matrices, floor)
    np.testing.assert_allclose(found[0], floor, atol=1e-9)
    np.testing.assert_allclose(found[1], matrices[1], atol=1e-9)


def test_options_are_checked() -> None:
    with pytest.raises(UserError, match="--cov-floor must not be negative"):
        UpdateOptions(cov_floor=-1.0)
