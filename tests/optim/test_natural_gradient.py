"""The online natural gradient against Kaldi's own numbers, and against the Fisher matrix written out in full."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pykaldist.nnet import gemm
from pykaldist.optim.natural_gradient import (
    FisherUpdate,
    OnlineNaturalGradient,
    Spectrum,
    fisher_update,
    orthonormalise_in_place,
    orthonormalised,
)

RUNS = {"d9_n32_r80_p1": (5e-4, 2e-4), "d40_n64_r20_p4": (5e-4, 2e-4), "d200_n128_r80_p4": (5e-4, 2e-4),
        "d64_n32_r40_p1": (5e-3, 1e-3)}  # in the last one Kaldi's own single precision shows


def train(natural, x):
    """One minibatch as an optimiser does it: (Xhat, gamma)."""
    if natural.calls == 0:
        natural.start(x)
    xhat = x.clone()
    norms, gamma = natural.precondition(xhat)
    assert torch.allclose(norms, xhat.norm(dim=1))
    if natural.collecting:
        natural.finish(natural.update())
    natural.advance()
    return xhat, gamma


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", RUNS)
def test_every_call_equals_kaldi(golden, name, dtype):
    recorded = np.load(golden / "ngsgd" / f"{name}.npz")
    xs, ys, scales = ([recorded[k] for k in sorted(recorded) if k.startswith(kind)] for kind in ("x_", "y_", "scale_"))
    natural = OnlineNaturalGradient(xs[0].shape[1], int(recorded["rank"]), int(recorded["update_period"]),
                                    float(recorded["num_samples_history"]), float(recorded["alpha"]), dtype=dtype)
    for t, (x, y, scale) in enumerate(zip(xs, ys, scales, strict=True)):
        xhat, gamma = train(natural, torch.from_numpy(x).to(dtype))
        assert np.linalg.norm(xhat.numpy() - y) <= RUNS[name][0] * np.linalg.norm(y), t
        assert abs(gamma - scale) <= RUNS[name][1] * scale, t


def minibatches(count, rows=48, dim=12, seed=0):
    rng = np.random.default_rng(seed)
    mix = rng.normal(size=(dim, dim)) * np.logspace(0, -2, dim)[:, None]
    return [torch.from_numpy(rng.normal(size=(rows, dim)) @ mix + 0.3) for _ in range(count)]


def test_columns_of_zeros_change_nothing():
    plain = OnlineNaturalGradient(12, 5, update_period=2, dtype=torch.float64)
    wide = OnlineNaturalGradient(12, 5, update_period=2, columns=16, dtype=torch.float64)
    for x in minibatches(30):
        one, gamma = train(wide, torch.cat([x, torch.zeros(len(x), 4, dtype=torch.float64)], 1))
        other, expected = train(plain, x)
        assert torch.allclose(one[:, :12], other, atol=1e-10) and not one[:, 12:].any() and gamma == pytest.approx(expected, rel=1e-10)


class Slow:
    """The same method with its D x D matrices: F is kept whole, and brought back to its best rank R + identity by eigenvectors."""

    def __init__(self, dim, rank, alpha, history):
        self.dim, self.rank, self.alpha, self.history = dim, rank, alpha, history

    def load(self, natural):
        basis = natural.w[:, : self.dim].numpy() / natural.spectrum.root[:, None]
        self.fisher = basis.T @ np.diag(natural.spectrum.d) @ basis + natural.spectrum.rho * np.eye(self.dim)

    def precondition(self, x):
        smoothed = self.fisher + self.alpha / self.dim * np.trace(self.fisher) * np.eye(self.dim)
        xhat = x @ np.linalg.inv(smoothed)
        xhat *= np.linalg.norm(x) / np.linalg.norm(xhat)
        eta = 1 - np.exp(-len(x) / self.history)
        target = eta / len(x) * x.T @ x + (1 - eta) * self.fisher
        values, vectors = np.linalg.eigh(target)
        top, rest = values[-self.rank :], values[: -self.rank].mean()
        self.fisher = vectors[:, -self.rank :] @ np.diag(top - rest) @ vectors[:, -self.rank :].T + rest * np.eye(self.dim)
        return xhat


def test_direction_is_that_of_the_inverse_fisher_matrix():
    """From the same model: the same direction to rounding. Over many minibatches, subspace iteration follows the exact eigenvectors."""
    natural = OnlineNaturalGradient(12, 5, update_period=1, num_samples_history=400.0, dtype=torch.float64)
    slow = Slow(12, 5, 4.0, 400.0)
    for t, x in enumerate(minibatches(60)):
        if t == 0:
            natural.start(x)
        if t % 20 == 0:
            slow.load(natural)
        xhat, gamma = train(natural, x)
        expected = slow.precondition(x.numpy())
        assert np.linalg.norm(gamma * xhat.numpy() - expected) <= (1e-9 if t % 20 == 0 else 0.05) * np.linalg.norm(expected), t


def test_one_update_is_one_step_of_subspace_iteration():
    """R' spans the rows of R T, T the wanted Fisher matrix in full; its eigenvalues are those of R T T R^T."""
    natural = OnlineNaturalGradient(12, 5, dtype=torch.float64)
    batches = minibatches(8)
    for x in batches[:-1]:
        train(natural, x)
    slow, x = Slow(12, 5, 4.0, 2000.0), batches[-1]
    slow.load(natural)
    eta = 1 - np.exp(-len(x) / 2000.0)
    target = eta / len(x) * x.numpy().T @ x.numpy() + (1 - eta) * slow.fisher
    y = natural.w[:, :12].numpy() / natural.spectrum.root[:, None] @ target
    train(natural, x)
    basis = natural.w[:, :12].numpy() / natural.spectrum.root[:, None]
    assert np.allclose(basis @ basis.T, np.eye(5), atol=1e-6)
    assert np.allclose(y @ basis.T @ basis, y, atol=1e-9)
    sigma = np.linalg.svd(y, compute_uv=False)
    rho = (np.trace(target) - sigma.sum()) / 7
    assert natural.spectrum.rho == pytest.approx(rho) and np.allclose(natural.spectrum.d, sigma - rho)


def test_a_singular_basis_is_made_orthonormal_by_gram_schmidt():
    rng = np.random.default_rng(3)
    w, root = rng.normal(size=(4, 9)), np.linspace(0.9, 0.5, 4)
    w[2] = w[1]
    rows = orthonormalised(w, root) / root[:, None]
    assert np.allclose(rows @ rows.T, np.eye(4), atol=1e-12)
    assert np.allclose(rows[0], w[0] / np.linalg.norm(w[0]))
    regular = orthonormalised(rng.normal(size=(4, 9)), root) / root[:, None]
    assert np.allclose(regular @ regular.T, np.eye(4), atol=1e-12)


def test_a_device_makes_the_same_basis_orthonormal():
    rng = np.random.default_rng(4)
    root = np.linspace(0.9, 0.5, 4)
    singular = rng.normal(size=(4, 9))
    singular[2] = singular[1]
    orthonormal = np.linalg.qr(rng.normal(size=(9, 4)))[0].T * root[:, None]
    for w in (rng.normal(size=(4, 9)), orthonormal, singular):
        rows = torch.from_numpy(w.copy())
        orthonormalise_in_place(rows, torch.from_numpy(root))
        if w is singular:
            basis = rows.numpy() / root[:, None]
            assert np.allclose(basis @ basis.T, np.eye(4), atol=1e-12) and np.allclose(basis[0], w[0] / np.linalg.norm(w[0]))
        else:
            assert np.allclose(rows, orthonormalised(w, root), rtol=0, atol=1e-12)
    assert np.array_equal(orthonormalised(orthonormal, root), orthonormal)


@pytest.mark.gpu
def test_a_basis_is_made_orthonormal_without_waiting_for_the_device(cuda):
    natural = OnlineNaturalGradient(6, 3, device="cuda", dtype=torch.float64)
    natural.start(torch.randn(8, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to("cuda"))
    natural.m.copy_(natural.w)
    update = FisherUpdate(np.eye(3) + 0.3, natural.spectrum, True)
    torch.cuda.set_sync_debug_mode("error")
    natural.finish(update)
    torch.cuda.set_sync_debug_mode("default")
    basis = natural.w[:, :6].cpu().numpy() / natural.spectrum.root[:, None]
    assert np.allclose(basis @ basis.T, np.eye(3), atol=1e-12) and not natural.w[:, 6:].any()


def test_silence_changes_nothing_and_breaks_nothing():
    natural = OnlineNaturalGradient(6, 3, dtype=torch.float64)
    for _ in range(15):
        xhat, gamma = train(natural, torch.zeros(8, 6, dtype=torch.float64))
        assert gamma == 0.0 and not xhat.any()
    assert np.isfinite(natural.spectrum.d).all() and natural.spectrum.rho > 0


def test_a_dimension_of_one_is_left_alone():
    x = torch.randn(5, 1, dtype=torch.float64)
    natural = OnlineNaturalGradient(1, 80, dtype=torch.float64)
    assert natural.rank == 0 and not natural.collecting
    assert torch.equal(train(natural, x)[0], x)


def test_when_updates_happen():
    natural = OnlineNaturalGradient(6, 3, update_period=4)
    updates = []
    for t in range(25):
        if natural.collecting:
            updates.append(t)
        natural.advance()
    assert updates == [*range(11), 14, 18, 22]


def test_onednn_gets_matrices_without_gaps(monkeypatch):
    """The basis of a dimension that is no multiple of eight has padding; oneDNN would take a thousand times as long over it."""
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this PyTorch has no oneDNN")
    monkeypatch.setattr(gemm, "_onednn_is_faster", lambda: True)
    made, linear = [], torch.ops.mkldnn._linear_pointwise
    monkeypatch.setattr(torch.ops.mkldnn, "_linear_pointwise", lambda *args: made.append(args) or linear(*args))
    natural, other = (OnlineNaturalGradient(13, 4, update_period=2) for _ in range(2))
    for x in minibatches(20, dim=13):
        found, _ = train(natural, x.float())
        with monkeypatch.context() as patch:
            patch.setattr(gemm, "_onednn_is_faster", lambda: False)
            expected, _ = train(other, x.float())
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
    assert len(made) == 20 * 2 + 3 and natural.w.shape == (4, 16)  # three updates begin the first minibatch


def test_the_fisher_update_is_a_pure_function():
    rng = np.random.default_rng(0)
    m = rng.normal(size=(3, 8))
    spectrum = Spectrum(np.array([0.5, 0.3, 0.2]), 0.1, 8, 4.0)
    one, other = (fisher_update(m @ m.T, 30.0, 20, spectrum, 2000.0) for _ in range(2))
    assert np.array_equal(one.a, other.a) and spectrum.d.tolist() == [0.5, 0.3, 0.2]


def test_a_fisher_matrix_written_out_and_taken_over_again():
    one, other = (OnlineNaturalGradient(12, 4, dtype=torch.float64) for _ in range(2))
    for x in minibatches(6):
        train(one, x)
    other.set_matrix(one.matrix())
    assert torch.allclose(one.matrix(), other.matrix(), rtol=1e-6)
    assert np.allclose(one.spectrum.d, other.spectrum.d, rtol=1e-5) and one.spectrum.rho == pytest.approx(other.spectrum.rho)
    xs = [minibatches(1, seed=5)[0].clone() for _ in range(2)]
    for natural, x in zip((one, other), xs, strict=True):
        natural.precondition(x)
    assert torch.allclose(*xs, atol=1e-6)


def test_of_a_matrix_of_full_rank_the_largest_eigenvalues_stay():
    natural = OnlineNaturalGradient(6, 2, dtype=torch.float64)
    basis = torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))).Q
    natural.set_matrix(basis @ torch.diag(torch.tensor([9.0, 5.0, 1.2, 1.0, 0.9, 0.9], dtype=torch.float64)) @ basis.t())
    assert torch.allclose(natural.matrix(), basis @ torch.diag(torch.tensor([9.0, 5, 1, 1, 1, 1], dtype=torch.float64)) @ basis.t())
