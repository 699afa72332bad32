"""Matrix products whose result may be wider than their factors: bfloat16 in, float32 out.

PyTorch 2.8 and later accumulate such products in one call on a GPU; with an older one the product is rounded to bfloat16 first.
In the deterministic mode those of a CPU are nnet/blas.py's.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pykaldist import deterministic
from pykaldist.nnet import blas

_PINNED = deterministic.enabled()
_WIDENS = hasattr(torch.ops.aten.addmm, "dtype_out")


def aligned(dim: int) -> int:
    """Round `dim` up so that rows start where a GPU's matrix units can read them."""
    return -(-dim // 8) * 8


def _pinned(a: Tensor, out: Tensor) -> bool:
    """Whether nnet/blas.py makes this product (in the deterministic mode, on a CPU)."""
    return _PINNED and out.device.type == "cpu" and a.dtype == out.dtype in (torch.float32, torch.float64)


def affine(x: Tensor, weight: Tensor, bias: Tensor, y: Tensor) -> None:
    """Affine map: y <- x W^T + b; x (n, in), weight (out, in), y (n, out) of the same type or wider."""
    if _pinned(x, y):
        blas.multiply(y.copy_(bias), x, weight.t(), 1.0, 1.0)
    elif x.dtype == y.dtype:
        torch.addmm(bias, x, weight.t(), out=y)
    elif _WIDENS:
        torch.mm(x, weight.t(), out_dtype=y.dtype, out=y)
        y.add_(bias)
    else:
        y.copy_(torch.addmm(bias, x, weight.t()))


def product(a: Tensor, b: Tensor, out: Tensor) -> Tensor:
    """Matrix product: out <- a b, `out` of the same type or wider."""
    if _pinned(a, out):
        blas.multiply(out, a, b, 0.0, 1.0)
        return out
    if a.dtype == out.dtype:
        return torch.mm(a, b, out=out)
    if _WIDENS:
        return torch.mm(a, b, out_dtype=out.dtype, out=out)
    return out.copy_(torch.mm(a, b))


def accumulate(out: Tensor, a: Tensor, b: Tensor, beta: float, alpha: float = 1.0) -> None:
    """Matrix product with sum: out <- beta out + alpha a b, `out` of the same type or wider.

    What `out` held does not matter where beta is 0.

    With b a vector, so is `out`; such a product is rounded before it is widened.
    """
    vector = b.dim() == 1
    if _pinned(a, out):
        blas.multiply(*((out[:, None], a, b[:, None]) if vector else (out, a, b)), beta, alpha)
    elif a.dtype == out.dtype:
        (out.addmv_ if vector else out.addmm_)(a, b, beta=beta, alpha=alpha)
    elif _WIDENS and not vector:
        torch.addmm(out, a, b, out_dtype=out.dtype, beta=beta, alpha=alpha, out=out)
    elif beta == 0.0:
        out.copy_(torch.matmul(a, b)).mul_(alpha)
    else:
        out.mul_(beta).add_(torch.matmul(a, b), alpha=alpha)


def root_(x: Tensor) -> Tensor:
    """Take the square root of x in place, without torch.sqrt.

    On a CPU torch.sqrt is MKL's, whose last bits are the CPU's (of its approximate rsqrt).
    """
    return x.rsqrt_().reciprocal_()
