"""The arithmetics of --dtype: what a CPU must have, and products and sums of bfloat16 into float32."""

from __future__ import annotations

import math

import pytest
import torch

from pykaldist import deterministic
from pykaldist.errors import UserError
from pykaldist.nnet import arithmetic, gemm, widening

CPU = torch.device("cpu")


@pytest.fixture
def with_cpu(tmp_path, monkeypatch):
    def use(flags: str) -> None:
        path = tmp_path / "cpuinfo"
        path.write_text(f"processor\t: 0\nmodel name\t: Abacus 9\nflags\t\t: fpu {flags}\nbugs\t\t:\n\n" * 2)
        monkeypatch.setattr(arithmetic, "CPUINFO", path)

    return use


@pytest.mark.parametrize("flags", ["avx2 avx512f avx512_bf16", "avx2 avx512f amx_bf16 amx_tile"])
def test_a_cpu_that_multiplies_bfloat16(with_cpu, flags):
    with_cpu(flags)
    assert arithmetic.arithmetic("bf16", CPU) == (torch.float32, torch.bfloat16)


@pytest.mark.parametrize(("flags", "words"), [("avx2 avx512f", r"\(Abacus 9\) has AVX-512 and AVX2; use float32"), ("avx2", "has AVX2;"),
                                              ("sse2", "has neither")])
def test_a_cpu_that_does_not_is_refused_with_what_it_has(with_cpu, flags, words):
    with_cpu(flags)
    with pytest.raises(UserError, match="needs AMX or AVX512-BF16") as error:
        arithmetic.arithmetic("bf16", CPU)
    error.match(words)


def test_the_deterministic_mode_has_none(with_cpu, monkeypatch):
    with_cpu("avx512_bf16")
    monkeypatch.setenv(deterministic.VARIABLE, "true")
    with pytest.raises(UserError, match="the deterministic mode"):
        arithmetic.arithmetic("bf16", CPU)


def test_tf32_is_a_gpus():
    with pytest.raises(UserError, match="tf32 needs a GPU"):
        arithmetic.arithmetic("tf32", CPU)


@pytest.mark.parametrize(("beta", "alpha"), [(0.0, 1.0), (0.0, -0.5), (1.0, 0.25), (0.5, 2.0)])
def test_products_of_bfloat16_are_added_in_float32(beta, alpha):
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(*shape, generator=generator).bfloat16() for shape in ((37, 50), (50, 21)))
    start = torch.randn(37, 21, generator=generator)
    out, expected = start.clone(), beta * start.double() + alpha * (a.double() @ b.double())
    gemm.accumulate(out, a, b, beta, alpha)
    torch.testing.assert_close(out.double(), expected, rtol=2**-8, atol=2**-8)  # of the product, rounded once
    weight, bias = start[:, :20].clone(), start[:, 20].clone()
    gemm.accumulate_affine(weight, bias, a.t(), b, beta, alpha, 3.0 * alpha)
    torch.testing.assert_close(weight, out[:, :20])
    torch.testing.assert_close(bias.double(), beta * start[:, 20].double() + 3.0 * alpha * (a.double() @ b.double())[:, 20],
                               rtol=2**-8, atol=2**-6)


def test_small_additions_to_a_large_float32_are_kept():
    out, one = torch.full((4, 4), 1000.0), torch.ones(4, 4).bfloat16()
    for _ in range(10):
        gemm.accumulate(out, one, one, 1.0, 1e-3)
    torch.testing.assert_close(out, torch.full((4, 4), 1000.04))


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_sums_are_those_of_float32(beta):
    """In bfloat16 there is no 1001."""
    out = torch.full((5,), 2.0)
    gemm.accumulate_sums(out, torch.ones(1001, 5).bfloat16(), beta, -2.0)
    assert torch.equal(out, torch.full((5,), 2.0 * beta - 2002.0))
    assert gemm.norm(torch.ones(1001, 5).bfloat16(), torch.float32) == math.sqrt(5005)
    assert torch.equal(gemm.row_norms(torch.full((101, 4), 3.0).bfloat16(), torch.float32), torch.full((101,), 6.0))


def test_a_product_taken_off_is_that_of_float32():
    generator = torch.Generator().manual_seed(0)
    x, a, b = (torch.randn(*shape, generator=generator).bfloat16() for shape in ((37, 21), (37, 5), (5, 21)))
    x[0, 0] = torch.inf
    expected, whole = x - torch.mm(a, b), x.float().norm()
    norms, old, new = gemm.subtract_product(x, a, b, torch.float32)
    assert torch.equal(x, expected)  # rounded as torch rounds
    torch.testing.assert_close(norms, x.float().norm(dim=1))
    assert old == whole.item() == new == torch.inf
    whole = x[1:].float().norm()
    norms, old, new = gemm.subtract_product(x[1:], a[1:], b, torch.float32)
    expected[1:] -= torch.mm(a[1:], b)
    assert torch.equal(x[1:], expected[1:]) and new == pytest.approx(x[1:].float().norm().item(), rel=1e-5)
    assert whole.item() == pytest.approx(old) != pytest.approx(new)
    x[1, 1] = torch.nan
    norms, _, new = gemm.subtract_product(x[1:], a[1:], b, torch.float32)
    assert new != new and norms[0].isnan() and x[1, 1].isnan() and x[2:].isfinite().all()


def test_an_affine_map_s_gradient_is_added_in_float32():
    x = torch.arange(16.0).view(4, 4).bfloat16()  # the column after the bias counts for nothing
    for beta, before, kept in ((1.0, 1000.0, 1000.0), (0.5, 1010.0, 505.0), (0.0, torch.nan, 0.0)):
        weight, bias = torch.full((4, 2), before), torch.full((4,), before)
        widening.add_affine(weight, bias, x, beta, 0.25, 0.5)
        assert torch.equal(weight, kept + 0.25 * x[:, :2].float()) and torch.equal(bias, kept + 0.5 * x[:, 2].float())


def test_an_affine_map_of_bfloat16_is_added_to_its_bias_in_float32():
    x, weight, y = torch.full((2, 3), 0.5).bfloat16(), torch.eye(4, 3).bfloat16(), torch.full((2, 4), torch.nan)
    gemm.affine(x, weight, torch.tensor([1000.0, 2.0, 3.0, 4.0]).bfloat16(), y)
    assert y.tolist() == [[1000.5, 2.5, 3.5, 4.0]] * 2


def test_states_are_drawn_with_their_probabilities():
    probabilities = torch.tensor([0.0, 1.0, 0.25, torch.nan, 0.5]).repeat(3001, 1)
    out, again = torch.full((3001, 5), 7.0).bfloat16(), torch.empty(3001, 5).bfloat16()
    for drawn in (out, again):
        widening.draw(drawn, probabilities, torch.Generator().manual_seed(1))
    assert torch.equal(out, again) and set(out.unique().tolist()) == {0.0, 1.0}
    assert out.float().mean(0).tolist() == pytest.approx([0.0, 1.0, 0.25, 0.0, 0.5], abs=0.03)  # three standard deviations
    assert abs(torch.corrcoef(out[:, [2, 4]].float().t())[0, 1]) < 0.06
