"""fMPE and its indirect differential: plain loops, finite differences, the maximum of the update, Kaldi's form of the file; the UBM."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pykaldist.errors import UserError
from pykaldist.hmm.gmm import fmpe as module
from pykaldist.hmm.gmm.ebw import model_stats
from pykaldist.hmm.gmm.engine import Engine
from pykaldist.hmm.gmm.fmpe import Fmpe
from pykaldist.hmm.gmm.gmm import AmDiagGmm, GmmStats
from pykaldist.hmm.gmm.indirect import following, stats_derivative
from pykaldist.hmm.gmm.ubm import (
    UbmStats,
    initial_ubm,
    occupancy_of_pdfs,
    read_ubm,
    train_ubm,
    ubm_of_frames,
    weights_of_tids,
    write_ubm,
)
from pykaldist.hmm.lang.topology import read_topology
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.hmm.tree.tree import monophone_tree
from pykaldist.io.lang import LangDir
from pykaldist.io.scratch import slices

from .test_gmm import random_gmm, slow_loglikes

OFFSETS = np.array([0, 4, 15, 20])


@pytest.fixture
def transform() -> Fmpe:
    rng = np.random.default_rng(0)
    made = Fmpe.initial(random_gmm(rng, [5], dim=3))
    made.projection[:] = rng.normal(scale=0.1, size=made.projection.shape)
    return made


@pytest.fixture
def feats() -> np.ndarray:
    return np.random.default_rng(1).normal(size=(20, 3)).astype(np.float32)


def slow_offsets(fmpe: Fmpe, feats: np.ndarray) -> np.ndarray:
    """The offsets of one utterance, frame by frame."""
    ubm, dim = fmpe.ubm, fmpe.dim
    variance = 1.0 / ubm.inv_vars.astype(float)
    mean = ubm.means_invvars * variance
    high = np.zeros((len(feats), ubm.num_gauss, dim + 1))
    for t, x in enumerate(feats.astype(float)):
        scores = np.log(ubm.weights) - 0.5 * (np.log(2 * np.pi * variance) + (x - mean) ** 2 / variance).sum(1)
        best = np.argsort(scores)[-fmpe.ngselect:]
        posterior = np.exp(scores[best]) / np.exp(scores[best]).sum()
        for g, p in zip(best, posterior, strict=True):
            high[t, g] = [*(p * (x - mean[g]) / np.sqrt(variance[g])), 5 * p]
    between = high.reshape(len(feats), -1) @ fmpe.projection
    result = np.zeros((len(feats), dim))
    for number, context in enumerate(module.CONTEXTS.split(":")):
        for pair in context.split(";"):
            frame, weight = int(pair.split(",")[0]), float(pair.split(",")[1])
            for t in range(len(feats)):
                if 0 <= t + frame < len(feats):
                    result[t] += weight * between[t + frame, number * dim:(number + 1) * dim]
    return result @ fmpe.c.T


@pytest.mark.parametrize("chunk", [20000, 6])
def test_offsets_against_loops(transform: Fmpe, feats: np.ndarray, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Contexts end with their utterance."""
    monkeypatch.setattr(module, "_CHUNK", chunk)
    found = transform.transformed(feats, OFFSETS) - feats
    expected = np.concatenate([slow_offsets(transform, feats[a:b]) for a, b in itertools.pairwise(OFFSETS)])
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert abs(expected).max() > 0.1


def test_the_first_transform_changes_nothing_and_whitens(feats: np.ndarray) -> None:
    """C C^T is the covariance of frames that the mixture makes."""
    ubm = random_gmm(np.random.default_rng(2), [4], dim=3)
    fmpe = Fmpe.initial(ubm)
    np.testing.assert_array_equal(fmpe.transformed(feats, OFFSETS), feats)
    rng = np.random.default_rng(3)
    chosen = rng.choice(4, 200000, p=ubm.weights / ubm.weights.sum(dtype=float))
    drawn = (ubm.means_invvars / ubm.inv_vars)[chosen] + rng.normal(size=(200000, 3)) / np.sqrt(ubm.inv_vars)[chosen]
    np.testing.assert_allclose(fmpe.c @ fmpe.c.T, np.cov(drawn.T), rtol=0.05, atol=0.05)


@pytest.mark.parametrize("chunk", [20000, 6])
def test_the_derivative_by_finite_differences(transform: Fmpe, feats: np.ndarray, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A weighted sum of the features is linear in the matrix."""
    monkeypatch.setattr(module, "_CHUNK", chunk)
    rng = np.random.default_rng(4)
    weights = rng.normal(size=feats.shape).astype(np.float32)
    plus, minus = transform.derivative(feats, OFFSETS, weights)
    assert (plus >= 0).all() and (minus >= 0).all()
    for row, column in rng.integers(0, transform.projection.shape, (25, 2)):
        moved = [Fmpe(transform.ubm, transform.projection.copy(), transform.c) for _ in range(2)]
        for one, step in zip(moved, (1.0, -1.0), strict=True):
            one.projection[row, column] += step
        up, down = ((one.transformed(feats, OFFSETS).astype(float) * weights).sum() for one in moved)
        assert (plus - minus)[row, column] == pytest.approx((up - down) / 2, rel=1e-3, abs=1e-3)


def test_an_update_is_the_maximum_of_its_auxiliary_function(transform: Fmpe) -> None:
    rng = np.random.default_rng(5)
    plus, minus = rng.uniform(0, 300, (2, *transform.projection.shape))
    moved, gain = transform.updated(plus, minus, 0.01, l2_weight=100.0)
    x, z = transform.projection.astype(float), moved.projection.astype(float)

    def of(z: np.ndarray) -> np.ndarray:
        return (z - x) * (plus - minus) - 0.5 * (z - x) ** 2 * (plus + minus) / 0.01 - 100.0 * z * z

    for step in (-0.001, 0.001):
        assert (of(z + step) < of(z)).all()
    assert gain == pytest.approx(((z - x) * (plus - minus)).sum(), rel=1e-4)
    still, none = transform.updated(np.zeros_like(plus), np.zeros_like(plus), 0.01)
    assert none == 0 and not still.projection.any()


@pytest.mark.parametrize("binary", [True, False])
def test_files(transform: Fmpe, feats: np.ndarray, tmp_path: Path, binary: bool) -> None:
    transform.write(tmp_path / "final.fmpe", binary)
    again = Fmpe.read(tmp_path / "final.fmpe")
    np.testing.assert_allclose(again.transformed(feats, OFFSETS), transform.transformed(feats, OFFSETS), rtol=1e-4, atol=1e-5)
    head = (tmp_path / "final.fmpe").read_bytes()[:12]
    assert head.startswith(b"\0B<DiagGMM> " if binary else b"<DiagGMM> ")
    np.testing.assert_allclose(read_ubm(tmp_path / "final.fmpe").weights, transform.ubm.weights, rtol=1e-5)  # a mixture stands first
    broken = Fmpe.read(tmp_path / "final.fmpe")
    broken.contexts = "0,1.0"
    with pytest.raises(UserError, match="needs a matrix of shape"):
        Fmpe(broken.ubm, broken.projection, broken.c, "0,1.0")
    if binary:
        (tmp_path / "final.fmpe").write_bytes((tmp_path / "final.fmpe").read_bytes()[:-30])
        with pytest.raises(UserError, match=r"final\.fmpe"):
            Fmpe.read(tmp_path / "final.fmpe")


def drawn_stats(rng: np.random.Generator, gmm: AmDiagGmm, frames: float) -> GmmStats:
    model, n = model_stats(gmm), rng.uniform(10, frames, gmm.num_gauss)
    mean = model.x + rng.normal(scale=0.4, size=model.x.shape)
    return GmmStats(n, n[:, None] * mean, n[:, None] * (mean**2 + (model.x2 - model.x**2) * rng.uniform(0.5, 1.5, mean.shape)))


def test_the_indirect_differential_by_finite_differences() -> None:
    """Of the numerator's less the denominator's log-likelihood, by the statistics that the model follows."""
    rng = np.random.default_rng(6)
    gmm = random_gmm(rng, [2, 1], dim=2)
    num, den, old = (drawn_stats(rng, gmm, 100) for _ in range(3))

    def objective(model: AmDiagGmm) -> float:
        variance = 1.0 / model.inv_vars.astype(float)
        mean, n = model.means_invvars * variance, (num.occupancy - den.occupancy)[:, None]
        return float(-0.5 * (n * np.log(variance) + (num.x2 - den.x2 - 2 * mean * (num.x - den.x) + n * mean**2) / variance).sum())

    by_x, by_x2 = stats_derivative(gmm, num, den, old)
    np.testing.assert_allclose(following(gmm, old, old).means_invvars, gmm.means_invvars, rtol=1e-5)
    for name, derivative in (("x", by_x), ("x2", by_x2)):
        for g, d in ((0, 0), (1, 1), (2, 0)):
            values = []
            for step in (0.05, -0.05):
                new = GmmStats(old.occupancy, old.x.copy(), old.x2.copy())
                getattr(new, name)[g, d] += step
                values.append(objective(following(gmm, old, new)))
            assert derivative[g, d] == pytest.approx((values[0] - values[1]) / 0.1, rel=0.02, abs=1e-3), (name, g, d)
    few = GmmStats(np.full(3, 2.0), old.x, old.x2)
    assert not stats_derivative(gmm, num, den, few)[0].any()
    np.testing.assert_allclose(following(gmm, few, old).inv_vars, gmm.inv_vars, rtol=1e-6)


def test_a_ubm_merges_what_costs_least() -> None:
    """With one pdf, whose Gaussians have the frames that their weights say, as `merged` does; pdfs count by their frames."""
    rng = np.random.default_rng(7)
    gmm = random_gmm(rng, [9], dim=3)
    found, expected = initial_ubm(gmm, np.array([50.0]), 4, 9), gmm.merged(np.array([4]))
    order, other = np.argsort(found.weights), np.argsort(expected.weights)
    np.testing.assert_allclose(found.weights[order], expected.weights[other], rtol=1e-5)
    np.testing.assert_allclose(found.inv_vars[order], expected.inv_vars[other], rtol=1e-4)
    several = random_gmm(rng, [3, 4, 2], dim=3)
    made = initial_ubm(several, np.array([10.0, 0.0, 30.0]), 5, 2000)
    assert made.num_gauss == 5 and made.num_pdfs == 1 and made.weights.sum() == pytest.approx(1, abs=1e-5)
    expected_weights = np.concatenate([several.weights[:3] / 4, several.weights[7:] * 0.75])
    np.testing.assert_allclose(np.sort(made.weights), np.sort(expected_weights), rtol=1e-5)
    with pytest.raises(UserError, match="the system has 9 Gaussians; a UBM of 10 cannot"):
        initial_ubm(several, np.ones(3), 10, 2000)


@pytest.mark.usefixtures("all_plain_lines")
def test_the_training_of_a_ubm_says_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(8)
    ubm_of_frames(rng.normal(size=(100, 2)).astype(np.float32), 2, 1, 3, 1e-5, Engine(), rng)
    assert "first training of the UBM: 3/3 (100 %) iteration" in capsys.readouterr().err


def statistics(feats: np.ndarray, weights: np.ndarray, step: int = 10**6, threads: int = 1) -> Callable[[AmDiagGmm], UbmStats | None]:
    """Those of frames with weights, which are summed up `step` at a time."""
    def found(ubm: AmDiagGmm) -> UbmStats | None:
        parts = [UbmStats.of_frames(ubm, feats[rows], weights[rows], Engine(threads)) for rows in slices(len(feats), step)]
        return functools.reduce(operator.add, (part for part in parts if part is not None)) if any(parts) else None

    return found


def test_a_ubm_is_trained_on_the_frames_that_count(tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    centre = rng.normal(scale=3, size=(3, 2))
    feats = (centre[rng.integers(0, 3, 3000)] + rng.normal(size=(3000, 2))).astype(np.float32)
    weights = np.concatenate([np.ones(1500), np.zeros(1500)])
    feats[1500:] += 100
    lines: list[str] = []
    first = random_gmm(rng, [3], dim=2)
    ubm = train_ubm(first, statistics(feats, weights), 6, lines.append)
    values = [float(line.split("log-likelihood ")[1].split()[0]) for line in lines]
    assert values == sorted(values) and "1500 frames" in lines[0]
    assert slow_loglikes(ubm, feats[:1500]).mean() > values[0]
    write_ubm(tmp_path / "final.dubm", ubm)
    np.testing.assert_array_equal(read_ubm(tmp_path / "final.dubm").inv_vars, ubm.inv_vars)
    np.testing.assert_allclose(train_ubm(first, statistics(feats, weights, 700, 2), 6).inv_vars, ubm.inv_vars, rtol=1e-4)
    with pytest.raises(UserError, match="no frame has a weight; give a --silence-weight above 0"):
        train_ubm(first, statistics(feats, 0 * weights), 1)


def test_the_frames_and_weights_of_transition_ids(toy_lang: LangDir) -> None:
    topology = read_topology(toy_lang.path / "topo")
    model = TransitionModel.from_tree(monophone_tree(toy_lang.phone_sets, topology.num_pdf_classes), topology)
    tids = np.random.default_rng(0).integers(0, model.num_transition_ids + 1, 500)
    weights = weights_of_tids(model, toy_lang.silence_phones, 0.25)[tids]
    for tid, weight in zip(tids.tolist(), weights.tolist(), strict=True):
        assert weight == (0.0 if tid == 0 else 0.25 if model.tid2phone[tid] in toy_lang.silence_phones else 1.0)
    expected = np.zeros(model.num_pdfs)
    for tid in tids[tids > 0].tolist():
        expected[model.tid2pdf[tid]] += 1
    np.testing.assert_array_equal(occupancy_of_pdfs([tids[:100], tids[100:]], model), expected)
