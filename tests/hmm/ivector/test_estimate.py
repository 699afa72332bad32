"""EM beside sums frame by frame, beside the density of all frames at once, and by what must hold after an iteration."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from pykaldist.errors import UserError
from pykaldist.hmm.alignments.corpus import Corpus
from pykaldist.hmm.gmm.engine import Engine
from pykaldist.hmm.ivector.estimate import ExtractorTraining, TrainingFrames, _solved, _with_prior, floored, frame_offsets
from pykaldist.hmm.ivector.extractor import IvectorExtractor, packed, unpacked
from pykaldist.hmm.ivector.posteriors import Posteriors

from .conftest import DIM, GAUSS, IVECTOR_DIM, random_frames


def training_of(frames: TrainingFrames, threads: int = 1, block: int = 0) -> ExtractorTraining:
    """The training on frames as a corpus, in blocks of so many of them (0: one block)."""
    corpus = Corpus.of_lengths([f"utt{n}" for n in range(len(frames.offsets) - 1)], frames.offsets, block=block)
    return ExtractorTraining(corpus, frames.feats, frames.posteriors.gauss, frames.posteriors.weight, GAUSS, Engine(threads))


def slow_statistics(frames: TrainingFrames, extractor: IvectorExtractor) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Y, R, and the sum and the scatter of the i-vectors, from the density of each i-vector, frame after frame."""
    linear, quadratic = np.zeros((GAUSS, DIM, IVECTOR_DIM)), np.zeros((GAUSS, IVECTOR_DIM, IVECTOR_DIM))
    total, scatter = np.zeros(IVECTOR_DIM), np.zeros((IVECTOR_DIM, IVECTOR_DIM))
    for u in range(len(frames.offsets) - 1):
        precision, shift = np.eye(IVECTOR_DIM), np.eye(IVECTOR_DIM)[0] * extractor.prior_offset
        cells = [(frames.feats[t].astype(float), int(g), float(w)) for t in range(frames.offsets[u], frames.offsets[u + 1])
                 for g, w in zip(frames.posteriors.gauss[t], frames.posteriors.weight[t], strict=True)]
        for x, g, w in cells:
            m, s = extractor.projections[g], extractor.precisions[g]
            precision = precision + w * m.T @ s @ m
            shift = shift + w * m.T @ s @ x
        mean, covariance = np.linalg.solve(precision, shift), np.linalg.inv(precision)
        for x, g, w in cells:
            linear[g] += w * np.outer(x, mean)
            quadratic[g] += w * (covariance + np.outer(mean, mean))
        total += mean
        scatter += covariance + np.outer(mean, mean)
    return linear, quadratic, total, scatter


@pytest.mark.parametrize(("threads", "block"), [(1, 0), (3, 0), (2, 8)])
def test_the_sums_are_those_frame_after_frame(extractor: IvectorExtractor, threads: int, block: int,
                                              monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pykaldist.hmm.ivector.estimate._BATCH_BYTES", 8 * GAUSS * DIM * 2)  # two utterances at a time
    monkeypatch.setattr("pykaldist.hmm.ivector.estimate.MIN_COUNT", 1.0)
    frames = random_frames([7, 1, 12, 5, 9])
    stats = training_of(frames, threads, block).e_step(extractor)
    linear, quadratic, total, scatter = slow_statistics(frames, extractor)
    np.testing.assert_allclose(stats.linear, linear, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(unpacked(stats.quadratic, IVECTOR_DIM), quadratic, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(stats.ivector_sum, total, rtol=1e-9)
    np.testing.assert_allclose(stats.ivector_scatter, scatter, rtol=1e-9, atol=1e-9)
    assert stats.num_ivectors == 5


@pytest.mark.parametrize(("most", "frames", "expected"), [
    (2, 1000, [(0, 2), (2, 4), (4, 5)]), (9, 13, [(0, 2), (2, 3), (3, 4), (4, 5)]), (9, 1, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]),
    (9, 1000, [(0, 5)])])
def test_batches_have_few_utterances_and_few_frames(most: int, frames: int, expected: list[tuple[int, int]], extractor: IvectorExtractor,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pykaldist.hmm.ivector.estimate._BATCH_FRAMES", frames)
    monkeypatch.setattr("pykaldist.hmm.ivector.estimate._BATCH_BYTES", 8 * GAUSS * DIM * most)
    assert random_frames([7, 1, 12, 5, 9]).batches(extractor) == expected


def test_scatters_are_those_frame_after_frame() -> None:
    frames = random_frames([20, 9])
    found = frames.scatter(GAUSS)
    expected = np.zeros((GAUSS, DIM, DIM))
    for x, gauss, weight in zip(frames.feats.astype(float), frames.posteriors.gauss, frames.posteriors.weight, strict=True):
        for g, w in zip(gauss, weight, strict=True):
            expected[g] += w * np.outer(x, x)
    np.testing.assert_allclose(unpacked(found.packed, DIM), expected, rtol=1e-9, atol=1e-9)
    assert found.occupancy.sum() == pytest.approx(frames.posteriors.weight.sum(), rel=1e-6)


def test_the_log_likelihood_is_the_density_of_all_frames_at_once(extractor: IvectorExtractor, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one Gaussian a frame an utterance is one Gaussian vector, in which the i-vector ties its frames together."""
    monkeypatch.setattr("pykaldist.hmm.ivector.estimate.MIN_COUNT", 1.0)
    frames = random_frames([6, 4], most=1)
    frames = TrainingFrames(frames.feats, frames.offsets, Posteriors(frames.posteriors.gauss, np.ones_like(frames.posteriors.weight)))
    expected = 0.0
    for first, end in zip(frames.offsets, frames.offsets[1:], strict=False):
        gauss = frames.posteriors.gauss[first:end, 0]
        maps = np.concatenate([extractor.projections[g] for g in gauss])
        covariance = maps @ maps.T
        for n, g in enumerate(gauss):
            covariance[n * DIM:(n + 1) * DIM, n * DIM:(n + 1) * DIM] += np.linalg.inv(extractor.precisions[g])
        density = multivariate_normal(maps[:, 0] * extractor.prior_offset, covariance)
        expected += density.logpdf(frames.feats[first:end].astype(float).ravel())
        expected += np.log(extractor.weights[gauss]).sum()
    assert training_of(frames).e_step(extractor).log_likelihood == pytest.approx(expected, rel=1e-9)


def test_the_log_likelihood_rises_and_the_maps_are_diagonal(extractor: IvectorExtractor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pykaldist.hmm.ivector.estimate.MIN_COUNT", 5.0)
    training = training_of(random_frames([15] * 40))
    values = []
    for _ in range(12):
        stats = training.e_step(extractor)
        values.append(stats.log_likelihood)
        extractor = training.m_step(extractor, stats)
    assert (np.diff(values) > -1e-9 * abs(values[0])).all() and values[-1] > values[0] + 1
    average = unpacked(extractor.weights @ extractor.quadratic_maps, IVECTOR_DIM)[1:, 1:]
    np.testing.assert_allclose(average, np.diag(np.diagonal(average)), atol=1e-8 * average.max())
    assert (np.diff(np.diagonal(average)) <= 0).all()


def test_the_new_prior_is_the_distribution_of_the_ivectors(extractor: IvectorExtractor, monkeypatch: pytest.MonkeyPatch) -> None:
    """The transform of the M-step takes the i-vectors to covariance 1 and a mean along the first axis, and leaves all means M x alone."""
    monkeypatch.setattr("pykaldist.hmm.ivector.estimate.MIN_COUNT", 1.0)
    stats = training_of(random_frames([9] * 10)).e_step(extractor)
    after = _with_prior(extractor, stats)
    transform = np.linalg.lstsq(after.projections.reshape(-1, IVECTOR_DIM), extractor.projections.reshape(-1, IVECTOR_DIM), rcond=None)[0]
    np.testing.assert_allclose(after.projections @ transform, extractor.projections, atol=1e-8)
    mean = stats.ivector_sum / 10
    covariance = stats.ivector_scatter / 10 - np.outer(mean, mean)
    np.testing.assert_allclose(transform @ covariance @ transform.T, np.eye(IVECTOR_DIM), atol=1e-7)
    np.testing.assert_allclose(transform @ mean, np.eye(IVECTOR_DIM)[0] * after.prior_offset, atol=1e-7)
    assert after.prior_offset > 0


def test_too_few_frames_are_named() -> None:
    with pytest.raises(UserError, match=r"no Gaussian of the UBM has 100 frames .* the most is [0-9.]+; give more data"):
        training_of(random_frames([9] * 10))


def test_a_floor_raises_what_is_below_it() -> None:
    rng = np.random.default_rng(0)
    root = rng.normal(0, 1, (4, 4))
    floor = root @ root.T + np.eye(4)
    above, below = 3.0 * floor, np.diag([1e-6, 1.0, 100.0, 1.0])
    result = floored(np.array([above, below, 0.1 * floor]), floor)
    np.testing.assert_allclose(result[0], above)
    np.testing.assert_allclose(result[2], floor)
    assert (np.linalg.eigvalsh(result[1] - floor) > -1e-9).all() and (np.linalg.eigvalsh(result[1] - below) > -1e-9).all()


def test_projections_solve_their_equations() -> None:
    rng = np.random.default_rng(1)
    roots = rng.normal(0, 1, (3, 6, 6))
    quadratic, expected = roots @ roots.transpose(0, 2, 1) + np.eye(6), rng.normal(0, 1, (3, 2, 6))
    found = _solved(rng.normal(0, 1, (3, 2, 6)), expected @ quadratic, quadratic)
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_starved_gaussians_stay(extractor: IvectorExtractor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pykaldist.hmm.ivector.estimate.MIN_COUNT", 5.0)
    frames = random_frames([30] * 4)
    weight = np.where(frames.posteriors.gauss == 2, 0, frames.posteriors.weight).astype(np.float32)
    said: list[str] = []
    training = training_of(TrainingFrames(frames.feats, frames.offsets, Posteriors(frames.posteriors.gauss, weight)))
    trained = training.run(extractor, 1, said.append)
    assert said[0].startswith("WARNING: 1 of 5 Gaussians have fewer than 5 frames")
    np.testing.assert_array_equal(trained.precisions[2], extractor.precisions[2])
    assert not np.allclose(trained.precisions[1], extractor.precisions[1])
    assert packed(trained.precisions).shape == (GAUSS, DIM * (DIM + 1) // 2) and frame_offsets([2, 3]).tolist() == [0, 2, 5]
