"""Basis fMLLR: gradients against differences, the basis against its definition, estimates against unrestricted ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykaldist.errors import UserError
from pykaldist.hmm.adaptation.basis_fmllr import (
    BasisFmllr,
    BasisFmllrOptions,
    GradientScatter,
    estimate_basis,
    gradient_of,
    preconditioner,
    read_basis,
    write_basis,
)
from pykaldist.hmm.adaptation.fmllr import FmllrOptions, FmllrStats, estimate_fmllr, identity
from pykaldist.hmm.gmm.engine import Engine
from pykaldist.hmm.gmm.gmm import AmDiagGmm
from pykaldist.io.kaldi import KaldiWriter

from ..gmm.test_gmm import random_gmm
from ..gmm.test_mllt_fmllr import drawn

DIM = 3
GROUPS, EACH = 60, 120


@pytest.fixture(scope="module")
def gmm() -> AmDiagGmm:
    made = random_gmm(np.random.default_rng(8), [2, 1, 2], DIM)
    return AmDiagGmm(made.offsets, made.weights, made.means_invvars * 3, made.inv_vars)


def spoken(gmm: AmDiagGmm, frames: int, seed: int, strength: float = 0.2) -> tuple[np.ndarray, np.ndarray]:
    """Frames of a speaker, of whom one direction of speakers' differences is known, and their expected parameters."""
    feats, aligned = drawn(gmm, frames, seed)
    rng = np.random.default_rng(seed)
    turn = np.random.default_rng(1).normal(size=(DIM, DIM + 1))
    x = np.concatenate([feats, np.ones((frames, 1))], axis=1)
    feats = (feats + strength * rng.normal() * x @ turn.T).astype(np.float32)
    return feats, Engine().expected_parameters(gmm, feats, aligned)


@pytest.fixture(scope="module")
def trained(gmm: AmDiagGmm) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The basis of 60 speakers, their features and expected parameters."""
    feats, expected = (np.concatenate(parts) for parts in zip(*(spoken(gmm, EACH, 10 + s) for s in range(GROUPS)), strict=True))
    rows = {str(number): mine for number, mine in enumerate(np.arange(len(feats)).reshape(GROUPS, EACH))}
    found = GradientScatter.of_frames(feats, expected, np.ones(len(feats), np.float32), rows, rows)
    return estimate_basis(gmm, found.scatter, found.total)[0], feats, expected


def stats_of(feats: np.ndarray, expected: np.ndarray) -> FmllrStats:
    return FmllrStats.of_frames(feats, expected, float(len(feats)))


def test_the_gradient_is_that_of_the_log_likelihood(gmm: AmDiagGmm) -> None:
    stats = stats_of(*spoken(gmm, 200, 3))
    transform = identity(DIM) + 0.1 * np.random.default_rng(2).normal(size=(DIM, DIM + 1))
    gradient, scatter = gradient_of(stats, transform)
    small = 1e-5
    for place in np.ndindex(DIM, DIM + 1):
        step = np.zeros((DIM, DIM + 1))
        step[place] = small
        found = (stats.objective(transform + step) - stats.objective(transform - step)) / (2 * small)
        assert gradient[place] == pytest.approx(found, rel=1e-5, abs=1e-3)
    assert scatter == pytest.approx(np.stack([stats.g[d] @ transform[d] for d in range(DIM)]))


def test_the_scatter_of_gradients(gmm: AmDiagGmm) -> None:
    """One by one from the statistics; with weights, a group that has none, and frames of a group that come in two parts."""
    feats, expected = spoken(gmm, 90, 4)
    weights = np.random.default_rng(5).random(90).astype(np.float32)
    weights[60:] = 0
    expected = expected * weights[:, None]
    rows = [np.arange(0, 40), np.arange(40, 60), np.arange(60, 90)]
    scatter = np.zeros((DIM * (DIM + 1),) * 2)
    for mine in rows[:2]:
        beta = float(weights[mine].sum())
        gradient = gradient_of(FmllrStats.of_frames(feats[mine], expected[mine], beta), identity(DIM))[0].ravel()
        scatter += np.outer(gradient, gradient) / beta
    whole = GradientScatter.of_frames(feats, expected, weights, dict(zip("abc", rows, strict=True)), "abc")
    one = GradientScatter.of_frames(feats[:50], expected[:50], weights[:50], {"a": np.arange(40), "b": np.arange(40, 50)}, "a")
    two = GradientScatter.of_frames(feats[50:], expected[50:], weights[50:], {"b": np.arange(10), "c": np.arange(10, 40)}, "c")
    assert list(one.open) == list(two.open) == ["b"] and not whole.open
    for found in (whole, (one + two).closed()):
        np.testing.assert_allclose(found.scatter, scatter, rtol=1e-3, atol=1e-3)
        assert found.total == pytest.approx(weights.sum())


def test_the_preconditioner_is_the_negative_hessian_of_many_frames(gmm: AmDiagGmm) -> None:
    """Drawn from the model, with pdfs equally often, the curvature of a frame comes to H."""
    feats, aligned = drawn(gmm, 60000, 6)
    stats = stats_of(feats, Engine().expected_parameters(gmm, feats, aligned))
    size = DIM * (DIM + 1)
    hessian, small = np.zeros((size, size)), 1e-4
    for column in range(size):
        step = np.zeros(size)
        step[column] = small
        above, below = (gradient_of(stats, identity(DIM) + sign * step.reshape(DIM, DIM + 1))[0] for sign in (1, -1))
        hessian[:, column] = (below - above).ravel() / (2 * small)
    expected = preconditioner(gmm)
    assert np.abs(hessian / stats.beta - expected).max() < 0.05 * np.abs(expected).max()
    assert (np.linalg.eigvalsh(expected) > 0).all()


def test_the_basis_is_orthonormal_in_units_of_the_likelihood(gmm: AmDiagGmm, trained) -> None:
    basis = trained[0].reshape(DIM * (DIM + 1), -1)
    np.testing.assert_allclose(basis @ preconditioner(gmm) @ basis.T, np.eye(len(basis)), atol=1e-8)


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.integers(200, 600), st.floats(0.0, 0.2))
def test_more_matrices_are_never_worse_and_all_are_an_unrestricted_transform(gmm, trained, seed, frames, strength) -> None:
    stats = stats_of(*spoken(gmm, frames, seed, strength))
    heights = []
    for count in (1, 4, len(trained[0])):
        options = BasisFmllr(fmllr_min_count=10, basis=trained[0][:count], search=BasisFmllrOptions(num_iters=200, size_scale=1.0))
        heights.append(stats.objective(options.estimate(stats)))
    plain = stats.objective(identity(DIM))
    best = stats.objective(estimate_fmllr(stats, FmllrOptions(fmllr_min_count=10)))
    slack = 1e-3 * frames
    assert plain <= heights[0] + 1e-9 and heights[0] <= heights[1] + slack and heights[1] <= heights[2] + slack
    assert heights[2] <= best + slack
    assert best - heights[2] < 0.02 * (best - plain) + slack


def test_few_frames_gain_where_a_whole_transform_would_fit_noise(gmm: AmDiagGmm, trained) -> None:
    """The first matrix is the direction in which these speakers differ: of 30 frames it predicts the next ones better."""
    better = 0
    for seed in range(200, 230):
        feats, expected = spoken(gmm, 330, seed)
        few, rest = stats_of(feats[:30], expected[:30]), stats_of(feats[30:], expected[30:])
        one = BasisFmllr(fmllr_min_count=10, basis=trained[0][:1]).estimate(few)
        whole = estimate_fmllr(few, FmllrOptions(fmllr_min_count=10))
        better += rest.objective(one) > rest.objective(whole)
    assert better >= 25


def test_the_number_of_matrices_grows_with_the_frames(gmm: AmDiagGmm, trained) -> None:
    stats = stats_of(*spoken(gmm, 20, 77))
    narrow = BasisFmllr(fmllr_min_count=10, basis=trained[0], search=BasisFmllrOptions(size_scale=0.05)).estimate(stats)
    np.testing.assert_array_equal(narrow, BasisFmllr(fmllr_min_count=10, basis=trained[0][:1]).estimate(stats))
    for few in (BasisFmllr(fmllr_min_count=21, basis=trained[0]), BasisFmllr(fmllr_min_count=10, basis=trained[0][:0].reshape(0, 3, 4))):
        np.testing.assert_array_equal(few.estimate(stats), identity(DIM))


def test_the_file_is_kaldis(tmp_path: Path, trained) -> None:
    write_basis(tmp_path / "fmllr.basis", trained[0][:2])
    content = (tmp_path / "fmllr.basis").read_bytes()
    assert content.startswith(b"\0B<BASISFMLLRPARAM> <NUMBASIS> \xfc\2\0\0\0<BASIS> FM \4\3\0\0\0\4\4\0\0\0")
    assert content.endswith(b"</BASISFMLLRPARAM> ")
    np.testing.assert_allclose(read_basis(tmp_path / "fmllr.basis"), trained[0][:2], rtol=1e-6)
    with open(tmp_path / "text", "wb") as stream:
        writer = KaldiWriter(stream, binary=False)
        writer.token("<BASISFMLLRPARAM>", "<NUMBASIS>")
        writer.integer(1, unsigned=True)
        writer.token("<BASIS>")
        writer.matrix(trained[0][0].astype(np.float32))
        writer.token("</BASISFMLLRPARAM>")
    np.testing.assert_allclose(read_basis(tmp_path / "text"), trained[0][:1], rtol=1e-5)


@pytest.mark.parametrize(("damage", "said"), [
    (lambda content: content[:60], "fmllr.basis"),
    (lambda content: content.replace(b"\xfc\2", b"\xfc\xff"), "expected a number of matrices"),
    (lambda content: content.replace(b"\4\4\0\0\0", b"\4\3\0\0\0"), "fmllr.basis"),
    (lambda content: content[: content.index(b"FM ") + 13] + b"\0\0\xc0\x7f" + content[content.index(b"FM ") + 17 :],
     "expected matrices of finite numbers")])
def test_damage_is_said(tmp_path: Path, trained, damage, said) -> None:
    write_basis(tmp_path / "fmllr.basis", trained[0][:2])
    content = (tmp_path / "fmllr.basis").read_bytes()
    (tmp_path / "fmllr.basis").write_bytes(damage(content))
    with pytest.raises(UserError, match=said):
        read_basis(tmp_path / "fmllr.basis")


def test_what_does_not_fit_is_refused(gmm: AmDiagGmm, trained) -> None:
    with pytest.raises(UserError, match="matrices of 2 x 3, expected 3 x 4"):
        BasisFmllr(basis=np.zeros((1, 2, 3))).estimate(stats_of(*spoken(gmm, 20, 1)))
    with pytest.raises(UserError, match="--fmllr-update-type diag"):
        BasisFmllr(fmllr_update_type="diag", basis=trained[0])
    with pytest.raises(UserError, match="--size-scale"):
        BasisFmllrOptions(size_scale=0.0)
