"""MLLT and fMLLR: statistics against loops over frames, estimates against general-purpose optimisers and against the truth."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from pykaldist.errors import UserError
from pykaldist.hmm.adaptation.fmllr import FmllrOptions, FmllrStats, compose, estimate_fmllr, estimate_speakers, identity, transformed
from pykaldist.hmm.gmm.aligned_frames import AlignedFrames
from pykaldist.hmm.gmm.engine import Engine
from pykaldist.hmm.gmm.gmm import AmDiagGmm
from pykaldist.hmm.gmm.mllt import MlltSums, estimate_mllt, mllt_stats

from .test_gmm import random_gmm

DIM = 4
FULL = FmllrOptions(fmllr_min_count=50)


def drawn(gmm: AmDiagGmm, frames: int, seed: int) -> tuple[np.ndarray, AlignedFrames]:
    """Frames (T, D) drawn from the mixtures, and which pdf each is of."""
    rng = np.random.default_rng(seed)
    pdfs = np.sort(rng.integers(0, gmm.num_pdfs, frames))
    chosen = np.array([rng.choice(np.arange(gmm.offsets[p], gmm.offsets[p + 1]), p=weights_of(gmm, p)) for p in pdfs])
    deviation = 1 / np.sqrt(gmm.inv_vars[chosen])
    x = gmm.means_invvars[chosen] * deviation**2 + deviation * rng.standard_normal((frames, gmm.dim))
    order = rng.permutation(frames)  # frames of one pdf do not stand together
    feats = np.empty_like(x)
    feats[order] = x
    bounds = np.searchsorted(pdfs, np.arange(gmm.num_pdfs + 1))
    return feats.astype(np.float32), AlignedFrames(order, bounds, np.zeros(1))


def weights_of(gmm: AmDiagGmm, pdf: int) -> np.ndarray:
    weights = gmm.weights[gmm.offsets[pdf]:gmm.offsets[pdf + 1]].astype(np.float64)
    return weights / weights.sum()


def posteriors(gmm: AmDiagGmm, pdf: int, x: np.ndarray) -> np.ndarray:
    """Of each Gaussian of a pdf in one frame, in float64."""
    part = slice(gmm.offsets[pdf], gmm.offsets[pdf + 1])
    v = gmm.inv_vars[part].astype(np.float64)
    scores = np.log(gmm.weights[part]) + 0.5 * (np.log(v) - v * (x - gmm.means_invvars[part] / v) ** 2).sum(axis=1)
    return np.exp(scores - np.logaddexp.reduce(scores))


def triples(gmm: AmDiagGmm, feats: np.ndarray, frames: AlignedFrames) -> list[tuple[np.ndarray, float, np.ndarray, np.ndarray]]:
    """(frame, posterior, mean, precision) for every frame and Gaussian, one by one."""
    return [(feats[row].astype(np.float64), gamma, gmm.means_invvars[g] / gmm.inv_vars[g].astype(np.float64),
             gmm.inv_vars[g].astype(np.float64))
            for pdf in range(gmm.num_pdfs) for row in frames.order[frames.bounds[pdf]:frames.bounds[pdf + 1]]
            for g, gamma in enumerate(posteriors(gmm, pdf, feats[row]), gmm.offsets[pdf])]


@pytest.fixture(scope="module")
def gmm() -> AmDiagGmm:
    rng = np.random.default_rng(3)
    drawn_gmm = random_gmm(rng, [3, 1, 2], DIM)
    return AmDiagGmm(drawn_gmm.offsets, drawn_gmm.weights, drawn_gmm.means_invvars * 3, drawn_gmm.inv_vars)


def test_outer_products() -> None:
    rng = np.random.default_rng(0)
    x, weights = rng.normal(size=(5000, 3)).astype(np.float32), rng.random((5000, 2)).astype(np.float32)
    expected = np.einsum("td,ti,tj->dij", weights.astype(float), x.astype(float), x.astype(float))
    np.testing.assert_allclose(Engine().outer_products(x, weights), expected, rtol=1e-4, atol=1e-2)


def test_expected_parameters(gmm: AmDiagGmm) -> None:
    """Hard alignments and posteriors; another model's parameters; a frame without a pdf has zeros."""
    feats, frames = drawn(gmm, 60, 1)
    feats = np.concatenate([feats, feats[:1]])
    twin = AmDiagGmm(gmm.offsets, gmm.weights, gmm.means_invvars + 1, gmm.inv_vars * 2)
    for target in (None, twin):
        other = target or gmm
        found = Engine(2).expected_parameters(gmm, feats, frames, None if target is None else target.projection)
        parameters = np.concatenate([other.means_invvars, other.inv_vars], axis=1)
        for pdf in range(3):
            for row in frames.order[frames.bounds[pdf]:frames.bounds[pdf + 1]]:
                expected = posteriors(gmm, pdf, feats[row]) @ parameters[gmm.offsets[pdf]:gmm.offsets[pdf + 1]]
                np.testing.assert_allclose(found[row], expected, rtol=1e-4, atol=1e-4)
        assert not found[-1].any()
    rows = np.arange(60)
    soft = AlignedFrames(np.concatenate([rows, rows]), np.array([0, 60, 120, 120]), np.zeros(1), np.repeat([0.25, 0.5], 60))
    one, two = (Engine().expected_parameters(gmm, feats, AlignedFrames(rows, np.array(b), np.zeros(1)))
                for b in ([0, 60, 60, 60], [0, 0, 60, 60]))
    np.testing.assert_allclose(Engine().expected_parameters(gmm, feats, soft), 0.25 * one + 0.5 * two, rtol=1e-5, atol=1e-6)


def test_statistics_of_other_features(gmm: AmDiagGmm) -> None:
    """The second features are summed up under the posteriors of the first."""
    feats, frames = drawn(gmm, 50, 2)
    other = np.random.default_rng(5).normal(size=feats.shape).astype(np.float32)
    stats, value = Engine().accumulate(gmm, feats, frames, other=other)
    plain, same = Engine().accumulate(gmm, feats, frames)
    np.testing.assert_allclose(stats.occupancy, plain.occupancy)
    assert value == same
    gammas = np.zeros((50, gmm.num_gauss))
    for pdf in range(3):
        for row in frames.order[frames.bounds[pdf]:frames.bounds[pdf + 1]]:
            gammas[row, gmm.offsets[pdf]:gmm.offsets[pdf + 1]] = posteriors(gmm, pdf, feats[row])
    np.testing.assert_allclose(stats.x, gammas.T @ other, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(stats.x2, gammas.T @ other.astype(float) ** 2, rtol=1e-4, atol=1e-4)


def test_mllt_statistics_and_estimate(gmm: AmDiagGmm) -> None:
    """Statistics against the definition, frame by frame; the estimate is where a quasi-Newton search ends."""
    turn = np.eye(DIM) + 0.3 * np.random.default_rng(1).normal(size=(DIM, DIM))
    feats, frames = drawn(gmm, 400, 4)
    feats = (feats @ turn.T).astype(np.float32)
    stats, beta = mllt_stats(gmm, MlltSums.of_frames(gmm, feats, frames, Engine(2)))
    expected = np.zeros((DIM, DIM, DIM))
    for x, gamma, mean, precision in triples(gmm, feats, frames):
        expected += gamma * precision[:, None, None] * np.outer(x - mean, x - mean)
    assert beta == pytest.approx(400)
    np.testing.assert_allclose(stats, expected, rtol=1e-3, atol=1e-2)
    matrix, gain = estimate_mllt(stats, beta)

    def loss(flat: np.ndarray) -> float:
        m = flat.reshape(DIM, DIM)
        return -(beta * np.linalg.slogdet(m)[1] - 0.5 * np.einsum("di,dij,dj->", m, stats, m)) / beta

    found = minimize(loss, np.eye(DIM).ravel(), options={"gtol": 1e-7, "maxiter": 5000})
    assert loss(matrix.ravel()) == pytest.approx(found.fun, abs=1e-5)
    assert gain == pytest.approx(loss(np.eye(DIM).ravel()) - loss(matrix.ravel())) and gain > 0


def test_mllt_gain_is_the_likelihoods(gmm: AmDiagGmm) -> None:
    """What is promised is what frames gain with turned features and means, the Jacobian counted, if none changes its Gaussian."""
    one = AmDiagGmm(np.arange(gmm.num_gauss + 1), np.ones(gmm.num_gauss), gmm.means_invvars, gmm.inv_vars)
    feats, frames = drawn(one, 500, 6)
    feats = (feats @ (np.eye(DIM) + 0.2 * np.ones((DIM, DIM))).T).astype(np.float32)
    matrix, gain = estimate_mllt(*mllt_stats(one, MlltSums.of_frames(one, feats, frames, Engine())))
    before, after = Engine().accumulate(one, feats, frames)[1], Engine().accumulate(one.with_means_transformed(matrix),
                                                                  feats @ matrix.T.astype(np.float32), frames)[1]
    assert after + np.linalg.slogdet(matrix)[1] - before == pytest.approx(gain, abs=1e-3)


def stats_of(gmm: AmDiagGmm, feats: np.ndarray, frames: AlignedFrames) -> FmllrStats:
    return FmllrStats.of_frames(feats, Engine().expected_parameters(gmm, feats, frames), float(len(feats)))


def test_fmllr_statistics(gmm: AmDiagGmm) -> None:
    feats, frames = drawn(gmm, 200, 7)
    stats = stats_of(gmm, feats, frames)
    k, g = np.zeros((DIM, DIM + 1)), np.zeros((DIM, DIM + 1, DIM + 1))
    for x, gamma, mean, precision in triples(gmm, feats, frames):
        ext = np.append(x, 1)
        k += gamma * np.outer(mean * precision, ext)
        g += gamma * precision[:, None, None] * np.outer(ext, ext)
    np.testing.assert_allclose(stats.k, k, rtol=1e-3, atol=1e-2)
    np.testing.assert_allclose(stats.g, g, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("kind", ["full", "diag", "offset"])
def test_fmllr_against_a_general_optimiser(gmm: AmDiagGmm, kind: str) -> None:
    feats, frames = drawn(gmm, 400, 8)
    feats = (feats * np.linspace(0.5, 2, DIM) + feats[:, ::-1] * 0.2 + 1).astype(np.float32)
    stats = stats_of(gmm, feats, frames)
    free = {"full": np.ones((DIM, DIM + 1), bool), "diag": np.eye(DIM, DIM + 1, dtype=bool), "offset": np.zeros((DIM, DIM + 1), bool)}[kind]
    free[:, -1] = True

    def loss(values: np.ndarray) -> float:
        transform = identity(DIM)
        transform[free] = values
        return -stats.objective(transform) / stats.beta

    best = minimize(loss, identity(DIM)[free], options={"gtol": 1e-7, "maxiter": 5000})
    found = estimate_fmllr(stats, FmllrOptions(fmllr_update_type=kind, fmllr_min_count=50))
    assert not (found - identity(DIM))[~free].any()
    assert loss(found[free]) == pytest.approx(best.fun, abs=1e-5)


@settings(max_examples=15)
@given(st.integers(0, 10**6))
def test_fmllr_undoes_what_a_speaker_does(seed: int) -> None:
    """Of speech that went through a known affine map, the estimate takes it back; it never lowers the likelihood."""
    rng = np.random.default_rng(seed)
    gmm = random_gmm(rng, [2, 3, 1, 2, 2, 1], DIM)
    gmm = AmDiagGmm(gmm.offsets, gmm.weights, gmm.means_invvars * 5, gmm.inv_vars)
    feats, frames = drawn(gmm, 3000, seed)
    speaker = np.concatenate([np.eye(DIM) + 0.1 * rng.normal(size=(DIM, DIM)), 0.2 * rng.normal(size=(DIM, 1))], axis=1)
    heard = transformed(feats, {"s": np.arange(3000)}, {"s": speaker})
    total = identity(DIM)
    for _ in range(5):  # frames find their Gaussians better from time to time
        now = transformed(heard, {"s": np.arange(3000)}, {"s": total})
        stats = stats_of(gmm, now, frames)
        change = estimate_fmllr(stats, FULL)
        assert stats.objective(change) >= stats.objective(identity(DIM))
        total = compose(change, total)
    np.testing.assert_allclose(compose(total, speaker), identity(DIM), atol=0.15)


def test_speakers(gmm: AmDiagGmm) -> None:
    """Each has his own; one with too few frames keeps the identity; weights of frames count; threads do not."""
    feats, frames = drawn(gmm, 900, 9)
    feats[:400] += 2
    rows = {"loud": np.arange(400), "plain": np.arange(400, 860), "brief": np.arange(860, 900)}
    expected = Engine().expected_parameters(gmm, feats, frames)
    made = [estimate_speakers(feats, expected, np.ones(900), rows, FULL, Engine(threads)) for threads in (1, 3)]
    (transforms, gain), (again, _) = made
    assert list(transforms) == list(rows) and gain > 0
    assert all(np.array_equal(transforms[s], again[s]) for s in rows)
    np.testing.assert_array_equal(transforms["brief"], identity(DIM))
    # the frames with the +2 are shifted back along the diagonal
    assert (transforms["loud"][:, -1] < -0.5).all() and np.abs(transforms["plain"] - identity(DIM)).max() < 0.5
    half = np.ones(900)
    half[200:400] = 0  # as if not there
    weighted, _ = estimate_speakers(feats, expected, half, rows, FULL)
    alone, _ = estimate_speakers(feats, expected, np.ones(900), {"loud": np.arange(200)}, FULL)
    np.testing.assert_allclose(weighted["loud"], alone["loud"])


def test_speech_that_does_not_vary_keeps_the_identity(gmm: AmDiagGmm) -> None:
    feats = np.ones((600, DIM), np.float32)
    frames = AlignedFrames(np.arange(600), np.array([0, 600, 600, 600]), np.zeros(1))
    np.testing.assert_array_equal(estimate_fmllr(stats_of(gmm, feats, frames), FULL), identity(DIM))


def test_compose() -> None:
    rng = np.random.default_rng(0)
    a, b, x = rng.normal(size=(3, 4)), rng.normal(size=(3, 4)), rng.normal(size=3)
    np.testing.assert_allclose(compose(a, b) @ np.append(x, 1), a @ np.append(b @ np.append(x, 1), 1))


@pytest.mark.parametrize(("options", "message"), [({"fmllr_update_type": "half"}, "expected one of full, diag, offset, none, found half"),
                                                  ({"silence_weight": 2.0}, "--silence-weight must be 0 to 1, found 2")])
def test_options_without_sense(options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        FmllrOptions(**options)
