"""The statistics of the E-step against loops over frames, substates and Gaussians."""

from __future__ import annotations

import numpy as np
import pytest

from pykaldist.hmm.sgmm.frames import SgmmScorer, Speakers
from pykaldist.hmm.sgmm.posteriors import Items, SgmmStats

from .conftest import Case, joint, make_case, total_log_likelihood


def slow_stats(case: Case, items: Items) -> dict[str, np.ndarray]:
    """All sums by the paper's equations 40 to 50, and the report's 40, 53 and 54."""
    model = case.model
    k, i, d, s, t = model.num_substates, model.num_gauss, model.dim, model.phone_dim, model.speaker_dim
    shapes = {"gamma": (k, i), "y": (k, s), "gamma_c": (len(model.substate_weights),), "big_y": (i, d, s), "big_s": (i, d, d),
              "big_z": (i, d, t), "big_r": (i, t, t), "a": (k, i), "t": (i, t), "big_u": (i, t, t)}
    sums = {name: np.zeros(shape) for name, shape in shapes.items()}
    gains = np.exp(case.vectors @ model.speaker_weight_projections.T) if model.symmetric else np.ones((2, i))
    weights = np.exp(model.vectors @ model.weight_projections.T)
    weights /= weights.sum(1, keepdims=True)
    occupancy, a_s = np.zeros((2, i)), np.zeros((2, i))
    for frame, pdf, weight in zip(items.frame, items.pdf, items.weight, strict=True):
        x, speaker, chosen = case.feats[frame].astype(float), int(case.speaker[frame]), case.selected[frame]
        v_s = case.vectors[speaker]
        densities, substates = joint(model, x, pdf, v_s, chosen)
        posterior = weight * densities / densities.sum()
        for m, substate in enumerate(substates):
            v = model.vectors[substate]
            norm = weights[substate] @ gains[speaker]
            sums["a"][substate] += posterior[m].sum() * gains[speaker] / norm
            a_s[speaker] += posterior[m].sum() * weights[substate] / norm
            sums["gamma_c"][model.weight_offsets[pdf] + m] += posterior[m].sum()
            for g, gauss in enumerate(chosen):
                own = posterior[m, g]
                shifted = x - model.speaker_projections[gauss] @ v_s
                sums["gamma"][substate, gauss] += own
                sums["y"][substate] += own * model.phone_projections[gauss].T @ model.precisions[gauss] @ shifted
                sums["big_y"][gauss] += own * np.outer(shifted, v)
                sums["big_s"][gauss] += own * np.outer(shifted, shifted)
                sums["big_z"][gauss] += own * np.outer(x - model.phone_projections[gauss] @ v, v_s)
                sums["big_r"][gauss] += own * np.outer(v_s, v_s)
                occupancy[speaker, gauss] += own
    for speaker, v_s in enumerate(case.vectors):
        sums["t"] += np.outer(occupancy[speaker] - a_s[speaker] * gains[speaker], v_s)
        sums["big_u"] += (a_s[speaker] * gains[speaker])[:, None, None] * np.outer(v_s, v_s)
    return sums


def test_statistics(case: Case) -> None:
    """Sums of frames with several pdfs, each with its weight."""
    rng = np.random.default_rng(0)
    frame = np.sort(rng.integers(0, len(case.feats), 300))
    items = Items(frame, rng.integers(0, 6, 300), rng.random(300).astype(np.float32))
    stats = SgmmStats.of_frames(case.scorer, case.feats, case.terms, case.speakers, items)
    for name, expected in slow_stats(case, items).items():
        found = getattr(stats, name)
        if not case.model.symmetric and name in ("a", "t", "big_u"):
            assert found.size == 0
            continue
        np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-3 * np.abs(expected).max(), err_msg=name)
    assert stats.frames == pytest.approx(items.weight.sum())


def test_log_likelihood(case: Case) -> None:
    stats = SgmmStats.of_frames(case.scorer, case.feats, case.terms, case.speakers, case.items)
    assert stats.log_likelihood == pytest.approx(total_log_likelihood(case, case.model), rel=1e-5)
    assert stats.frames == len(case.feats)
    np.testing.assert_allclose(stats.pdf_occupancy(case.model), np.bincount(case.pdfs, minlength=6), rtol=1e-5)


def test_parts_of_items() -> None:
    items = Items(np.array([0, 2, 2, 5]), np.array([1, 0, 3, 2]), np.ones(4, np.float32))
    part = items.part(2, 5)
    assert part.frame.tolist() == [0, 0] and part.pdf.tolist() == [0, 3]
    aligned = Items.aligned(np.array([3, -1, 0]))
    assert aligned.frame.tolist() == [0, 2] and aligned.pdf.tolist() == [3, 0]


def test_statistics_for_another_model() -> None:
    """Frames are divided by one model, and summed up for its twin without speakers, whose features are not shifted."""
    case = make_case()
    twin = case.model.without_speakers()
    scorer, target = case.scorer, SgmmScorer(twin)
    own = target.terms(case.feats, case.selected, Speakers.without_vectors(twin))
    stats = SgmmStats.of_frames(scorer, case.feats, case.terms, case.speakers, case.items, target, own)
    alone = SgmmStats.of_frames(scorer, case.feats, case.terms, case.speakers, case.items)
    np.testing.assert_allclose(stats.gamma, alone.gamma)
    expected = np.zeros_like(stats.big_s)
    for x, pdf, speaker, chosen in zip(case.feats.astype(float), case.pdfs, case.speaker, case.selected, strict=True):
        densities = joint(case.model, x, pdf, case.vectors[speaker], chosen)[0]
        for own_share, gauss in zip((densities / densities.sum()).sum(0), chosen, strict=True):
            expected[gauss] += own_share * np.outer(x, x)
    np.testing.assert_allclose(stats.big_s, expected, rtol=1e-3, atol=1e-2)
    assert stats.a.size == stats.big_z.size == 0
