"""Matrix products whose result may be wider than their factors: bfloat16 in, float32 out.

PyTorch 2.8 and later accumulate such products in one call on a GPU; with an older one the product is rounded to bfloat16 first.
"""

from __future__ import annotations

import torch
from torch import Tensor

_WIDENS = hasattr(torch.ops.aten.addmm, "dtype_out")


def aligned(dim: int) -> int:
    """`dim` rounded up so that rows start where a GPU's matrix units can read them."""
    return -(-dim // 8) * 8


def affine(x: Tensor, weight: Tensor, bias: Tensor, y: Tensor) -> None:
    """y <- x W^T + b; x (n, in), weight (out, in), y (n, out) of the same type or wider."""
    if x.dtype == y.dtype:
        torch.addmm(bias, x, weight.t(), out=y)
    elif _WIDENS:
        torch.mm(x, weight.t(), out_dtype=y.dtype, out=y)
        y.add_(bias)
    else:
        y.copy_(torch.addmm(bias, x, weight.t()))


def product(a: Tensor, b: Tensor, out: Tensor) -> Tensor:
    """out <- a b, `out` of the same type or wider."""
    if a.dtype == out.dtype:
        return torch.mm(a, b, out=out)
    if _WIDENS:
        return torch.mm(a, b, out_dtype=out.dtype, out=out)
    return out.copy_(torch.mm(a, b))


def accumulate(out: Tensor, a: Tensor, b: Tensor, beta: float, alpha: float = 1.0) -> None:
    """out <- beta out + alpha a b, `out` of the same type or wider; what `out` held does not matter where beta is 0.

    With b a vector, so is `out`; such a product is rounded before it is widened.
    """
    vector = b.dim() == 1
    if a.dtype == out.dtype:
        (out.addmv_ if vector else out.addmm_)(a, b, beta=beta, alpha=alpha)
    elif _WIDENS and not vector:
        torch.addmm(out, a, b, out_dtype=out.dtype, beta=beta, alpha=alpha, out=out)
    elif beta == 0.0:
        out.copy_(torch.matmul(a, b)).mul_(alpha)
    else:
        out.mul_(beta).add_(torch.matmul(a, b), alpha=alpha)
