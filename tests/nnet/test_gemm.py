"""Matrix products by another BLAS, as in the deterministic mode, and by oneDNN."""

from __future__ import annotations

import itertools

import pytest
import torch

from pykaldist.nnet import blas, gemm
from pykaldist.nnet.arithmetic import Cpu


def lying(shape, layout, generator, dtype):
    """A matrix of random numbers: row by row, column by column, as part of a wider one, or with every other column."""
    rows, columns = shape
    if layout == "columns":
        return torch.randn(columns, rows, generator=generator, dtype=dtype).t()
    if layout == "part":
        return torch.randn(rows, columns + 3, generator=generator, dtype=dtype)[:, 1 : columns + 1]
    if layout == "apart":
        return torch.randn(rows, 2 * columns, generator=generator, dtype=dtype)[:, ::2]
    return torch.randn(rows, columns, generator=generator, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("m", "k", "n"), [(5, 7, 3), (1, 4, 9), (4, 1, 1), (1, 1, 1), (64, 33, 40), (0, 3, 2), (2, 0, 3)])
def test_products_however_matrices_lie(dtype, m, k, n):
    generator = torch.Generator().manual_seed(m * k * n)
    for layouts in itertools.product(("rows", "columns", "part", "apart"), repeat=3):
        a, b, out = (lying(shape, layout, generator, dtype) for shape, layout in zip(((m, k), (k, n), (m, n)), layouts, strict=True))
        expected = 0.5 * out.double() + 2.0 * (a.double() @ b.double())
        blas.multiply(out, a, b, 0.5, 2.0)
        torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-4 if dtype == torch.float32 else 1e-12)


def test_what_stood_there_does_not_matter_with_beta_zero():
    out = torch.full((2, 2), float("nan"))
    blas.multiply(out, torch.eye(2), torch.eye(2), 0.0, 1.0)
    assert torch.equal(out, torch.eye(2))


def test_shapes_that_do_not_fit_are_an_error():
    with pytest.raises(ValueError, match="no product"):
        blas.multiply(torch.empty(2, 2), torch.empty(2, 3), torch.empty(2, 2), 0.0, 1.0)


def test_in_the_mode_all_products_of_a_cpu_go_there(monkeypatch):
    calls = []
    monkeypatch.setattr(gemm, "_PINNED", True)
    monkeypatch.setattr(blas, "multiply", lambda out, *rest: calls.append(out.shape))
    x, w, y = torch.ones(3, 4), torch.ones(2, 4), torch.zeros(3, 2)
    gemm.affine(x, w, torch.ones(2), y)
    gemm.product(x, w.t(), y)
    gemm.accumulate(w, y.t(), x, 1.0)
    gemm.accumulate(torch.zeros(2), y.t(), torch.ones(3), 1.0)
    assert calls == [(3, 2), (3, 2), (2, 4), (2, 1)]
    gemm.product(x.bfloat16(), w.t().bfloat16(), y.bfloat16())
    assert len(calls) == 4  # other types stay PyTorch's


def test_roots():
    x = torch.tensor([0.0, 1.0, 2.0, 1e-12])
    torch.testing.assert_close(gemm.root_(x.clone()), x.sqrt())


CPUS = {("AuthenticAMD", "avx2 avx512f"): True, ("AuthenticAMD", "avx2"): False, ("GenuineIntel", "avx2 avx512f"): False,
        ("unknown", ""): False}


@pytest.mark.parametrize(("found", "faster"), CPUS.items())
def test_onednn_is_asked_on_amds_cpus_with_avx512(monkeypatch, found, faster):
    monkeypatch.setattr(gemm.arithmetic, "cpu", lambda: Cpu("a CPU", found[0], set(found[1].split())))
    assert gemm._onednn_is_faster.__wrapped__() == (faster and torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available())
    monkeypatch.setattr(gemm, "_PINNED", True)
    assert not gemm._onednn_is_faster.__wrapped__()


@pytest.fixture
def onednn(monkeypatch):
    """The products that oneDNN makes where it is asked."""
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this PyTorch has no oneDNN")
    monkeypatch.setattr(gemm, "_onednn_is_faster", lambda: True)
    made = []
    linear = torch.ops.mkldnn._linear_pointwise

    def counted(a, b, *others):
        made.append((*a.shape, b.shape[0]))
        return linear(a, b, *others)

    monkeypatch.setattr(torch.ops.mkldnn, "_linear_pointwise", counted)
    return made


@pytest.mark.parametrize(("m", "k", "n"), [(5, 7, 3), (1, 4, 9), (4, 1, 1), (20, 64, 41), (80, 33, 256)])
def test_products_by_onednn_however_matrices_lie(onednn, m, k, n):
    generator = torch.Generator().manual_seed(m * k * n)
    shapes = ((m, k), (k, n))
    for layouts in itertools.product(("rows", "columns", "part", "apart"), repeat=2):
        a, b = (lying(shape, layout, generator, torch.float32) for shape, layout in zip(shapes, layouts, strict=True))
        given = len(onednn)
        torch.testing.assert_close(gemm.multiplied(a, b).double(), a.double() @ b.double(), rtol=1e-5, atol=1e-4)
        gaps = [x for x in (a, b) if 4 * x.numel() != x.untyped_storage().size() and min(x.shape) > 1]
        assert (len(onednn) == given + 1) == (not gaps) or min(m, k, n) == 1  # with gaps it would take a thousand times as long


@pytest.mark.parametrize("beta", [0.0, 1.0, 0.5])
def test_what_ngsgd_makes_by_onednn_is_what_it_makes_without(onednn, beta):
    generator = torch.Generator().manual_seed(0)
    dy, x, h, w = (torch.randn(*shape, generator=generator) for shape in ((50, 12), (50, 16), (50, 3), (3, 16)))
    weight, bias = torch.randn(12, 9, generator=generator), torch.randn(12, generator=generator)
    whole = dy.double().t() @ x.double()
    sums = (weight.double() * beta + 0.1 * whole[:, :9], bias.double() * beta + 0.2 * whole[:, 9])
    gemm.accumulate_affine(weight, bias, dy, x, beta, 0.1, 0.2)
    torch.testing.assert_close((weight.double(), bias.double()), sums, rtol=1e-5, atol=1e-5)
    rest = x.double() - h.double() @ w.double()
    norms, old, new = gemm.subtract_product(x.clone(), h, w, torch.float32)
    torch.testing.assert_close(norms.double(), rest.norm(dim=1), rtol=1e-5, atol=1e-5)
    assert float(old) == pytest.approx(x.double().norm().item()) and float(new) == pytest.approx(rest.norm().item())
    assert onednn == [(12, 50, 16), (50, 3, 16)]
