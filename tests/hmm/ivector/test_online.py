"""Online i-vectors beside a loop over frames that solves for each exactly, and the state that a speaker's utterances leave."""

from __future__ import annotations

import numpy as np
import pytest

from pykaldist.errors import UserError
from pykaldist.feats.cmvn import OnlineCmvnOptions, cmvn_stats, online_cmvn
from pykaldist.feats.splice import SpliceOptions
from pykaldist.hmm.gmm.gmm import AmDiagGmm
from pykaldist.hmm.ivector.extractor import IvectorExtractor, packed
from pykaldist.hmm.ivector.features import IvectorFeatures
from pykaldist.hmm.ivector.online import OnlineExtractor, OnlineOptions, _solve, _statistics
from pykaldist.hmm.ivector.posteriors import PosteriorOptions, frame_posteriors

from .conftest import DIM, IVECTOR_DIM

STORED = 2  # dimensions of stored features; spliced with one neighbour on either side and transformed to DIM


def features() -> IvectorFeatures:
    rng = np.random.default_rng(7)
    stats = np.array([[3.0, -2.0, 50.0], [400.0, 300.0, 0.0]])
    return IvectorFeatures(OnlineCmvnOptions(cmn_window=12, speaker_frames=9, global_frames=4), stats, SpliceOptions(1, 1),
                           rng.normal(0, 1, (DIM, 3 * STORED + 1)).astype(np.float32))


def utterances(count: int = 3) -> list[np.ndarray]:
    rng = np.random.default_rng(8)
    return [(rng.normal(0, 2, (int(rng.integers(5, 70)), STORED)) + 1).astype(np.float32) for _ in range(count)]


def slow(extract: OnlineExtractor, utts: list[np.ndarray], frame_weights: list[np.ndarray] | None = None) -> list[np.ndarray]:
    """The i-vectors of a speaker's utterances, from the frames that have been heard, each with how much it still counts."""
    options, extractor, result = extract.options, extract.extractor, []
    heard: list[tuple[np.ndarray, int, float]] = []  # features, Gaussian, weight
    speaker = None
    for number, x in enumerate(utts):
        normalised = extract.features.normalised(x, "x", speaker)
        seen = normalised if extract.normalised_input else extract.features.spliced(x, "x")
        post = frame_posteriors(extract.ubm, normalised, extract.posteriors, None if frame_weights is None else frame_weights[number])
        rows = []
        for t in range(len(x)):
            if t > (len(x) - 1) // options.ivector_period * options.ivector_period:
                break
            heard += [(seen[t].astype(float), int(g), float(w)) for g, w in zip(post.gauss[t], post.weight[t], strict=True)]
            if t % options.ivector_period == 0:
                count = sum(w for _, _, w in heard)
                prior = max(count, options.max_count) / options.max_count if options.max_count else 1.0
                quadratic, linear = prior * np.eye(IVECTOR_DIM), prior * extractor.prior_offset * np.eye(IVECTOR_DIM)[0]
                for y, g, w in heard:
                    m, s = extractor.projections[g], extractor.precisions[g]
                    quadratic, linear = quadratic + w * m.T @ s @ m, linear + w * m.T @ s @ y
                rows.append(np.linalg.solve(quadratic, linear) - extractor.prior_offset * np.eye(IVECTOR_DIM)[0])
        result.append(np.array(rows))
        count, most = sum(w for _, _, w in heard), options.max_remembered_frames * extract.posteriors.posterior_scale
        heard = [(y, g, w * min(1.0, most / count)) for y, g, w in heard] if count else []
        speaker = cmvn_stats([x]) + (0 if speaker is None else speaker)
        speaker = speaker * min(1.0, options.max_remembered_frames / speaker[0, -1])
    return result


@pytest.mark.parametrize("normalised_input", [False, True])
@pytest.mark.parametrize(("period", "max_count", "remembered"), [
    (10, 0.0, 1000.0), (1, 0.0, 1000.0), (4, 0.0, 11.0), (7, 0.6, 11.0), (3, 2.5, 1000.0)])
def test_ivectors_are_those_of_what_was_heard(ubm: AmDiagGmm, extractor: IvectorExtractor, period: int, max_count: float, remembered: float,
                                              normalised_input: bool) -> None:
    options = OnlineOptions(period, max_count, num_cg_iters=IVECTOR_DIM + 4, max_remembered_frames=remembered)
    extract = OnlineExtractor(features(), ubm, extractor, options, PosteriorOptions(3, 0.02, 0.1), normalised_input)
    state, utts = extract.new_speaker(), utterances()
    for x, expected in zip(utts, slow(extract, utts), strict=True):
        found = extract(x, state)
        assert found.shape == (-(-len(x) // period), IVECTOR_DIM) and found.dtype == np.float32
        np.testing.assert_allclose(found, expected, atol=1e-4)


def test_frames_that_are_no_speech_do_not_count(ubm: AmDiagGmm, extractor: IvectorExtractor) -> None:
    extract = OnlineExtractor(features(), ubm, extractor, OnlineOptions(3), PosteriorOptions(3, 0.02, 0.1))
    state, utts = extract.new_speaker(), utterances()
    weights = [np.where(np.arange(len(x)) < 4, 0.0, 1.0) for x in utts]
    for x, weight, expected in zip(utts, weights, slow(extract, utts, weights), strict=True):
        found = extract(x, state, frame_weights=weight)
        np.testing.assert_allclose(found, expected, atol=1e-4)
    first = extract(utts[0], extract.new_speaker(), frame_weights=weights[0])[0]
    np.testing.assert_array_equal(first, 0)  # nothing heard: the prior's mean


@pytest.mark.parametrize(("gaussians", "feat_dim"), [(1, 3), (3, 4), (8, 5), (13, 6)])
def test_statistics_are_sums_over_frames_and_gaussians(gaussians: int, feat_dim: int) -> None:
    """Numbers of Gaussians and dimensions that are multiples of what one pass takes, and that are not."""
    rng, dim = np.random.default_rng(gaussians), 5
    feats = rng.standard_normal((40, feat_dim)).astype(np.float32)
    gauss = np.array([rng.permutation(gaussians)[:min(3, gaussians)] for _ in feats], np.int32)
    weight = (rng.random(gauss.shape) * (rng.random(gauss.shape) < 0.8)).astype(np.float32)
    linear_maps = rng.standard_normal((gaussians, feat_dim, dim)).astype(np.float32)
    quadratic_maps = rng.standard_normal((gaussians, 15)).astype(np.float32)
    linear, quadratic, part_of = np.empty(dim, np.float32), np.empty(15, np.float32), np.full(gaussians, -1)
    total = _statistics(feats, gauss, weight, linear_maps, quadratic_maps, part_of, linear, quadratic)
    assert total == pytest.approx(weight.sum(), rel=1e-6) and (part_of == -1).all()
    np.testing.assert_allclose(linear, np.einsum("tn,td,tndk->k", weight, feats, linear_maps[gauss]), atol=1e-4)
    np.testing.assert_allclose(quadratic, np.einsum("tn,tnk->k", weight, quadratic_maps[gauss]), atol=1e-4)


def test_few_steps_of_conjugate_gradients_are_those_of_the_textbook() -> None:
    rng = np.random.default_rng(3)
    root, target, x = rng.normal(0, 1, (8, 8)), rng.normal(0, 1, 8), rng.normal(0, 1, 8)
    matrix = root @ root.T + np.eye(8)
    exact, ours = np.linalg.solve(matrix, target), x.copy()
    _solve(packed(matrix), target, ours, 3)
    # the point of the space that three residuals span which has the least error in the norm of the matrix
    residual = target - matrix @ x
    space = np.array([residual, matrix @ residual, matrix @ matrix @ residual]).T
    best = x + space @ np.linalg.solve(space.T @ matrix @ space, space.T @ matrix @ (exact - x))
    np.testing.assert_allclose(ours, best, atol=1e-5)
    _solve(packed(matrix), target, ours, 15)
    np.testing.assert_allclose(ours, exact, atol=1e-5)


def test_online_cmvn_is_that_of_a_window_frame_by_frame() -> None:
    x, options, stats = utterances(1)[0], OnlineCmvnOptions(6, 5, 3, norm_vars=True), features().global_stats
    speaker = cmvn_stats([utterances(2)[1][:4]])
    for heard in (None, speaker):
        expected = []
        for t in range(len(x)):
            window = cmvn_stats([x[max(0, t - 5):t + 1]])
            if heard is not None and window[0, -1] < 6:
                window = window + heard * min(6 - window[0, -1], 5, heard[0, -1]) / heard[0, -1]
            if window[0, -1] < 6:
                window = window + stats * min(6 - window[0, -1], 3) / stats[0, -1]
            mean = window[0, :-1] / window[0, -1]
            expected.append((x[t] - mean) / np.sqrt(window[1, :-1] / window[0, -1] - mean**2))
        np.testing.assert_allclose(online_cmvn(x, stats, options, heard), expected, atol=1e-5)
    plain = online_cmvn(x, stats, OnlineCmvnOptions(skip_dims="1"))
    np.testing.assert_array_equal(plain[:, 1], x[:, 1])
    assert not np.allclose(plain[:, 0], x[:, 0])
    np.testing.assert_array_equal(online_cmvn(x, stats, OnlineCmvnOptions(norm_means=False)), x)


def test_what_does_not_fit_is_named(ubm: AmDiagGmm, extractor: IvectorExtractor) -> None:
    extract = OnlineExtractor(features(), ubm, extractor)
    with pytest.raises(UserError, match=r"utterance one: global CMVN statistics of shape \(2, 3\) do not fit features of dimension 5"):
        extract(np.zeros((9, 5), np.float32), extract.new_speaker(), "utterance one")
    for options, said in (((600, 700, 200), "--speaker-frames"), ((0, 0, 0), "--cmn-window")):
        with pytest.raises(UserError, match=said):
            OnlineCmvnOptions(*options)
    for values, said in (((0,), "--ivector-period"), ((10, -1.0), "--max-count")):
        with pytest.raises(UserError, match=said):
            OnlineOptions(*values)
