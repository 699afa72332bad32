"""Matrix products whose result may be wider than their factors: bfloat16 in, float32 out.

PyTorch 2.8 and later accumulate such products in one call on a GPU. With an older one, and on a CPU, the product, summed up in float32, is
rounded to bfloat16 before it is widened; on a CPU it lies in a buffer that all of them share, as fresh memory costs more than its use.
In the deterministic mode the products of a CPU are nnet/blas.py's.

On AMD's CPUs PyTorch has float32 products made by MKL, which does not use their vectors of 512 bits; oneDNN, which it takes for bfloat16,
does, and is up to twice as fast (docs/benchmarks.md). What NG-SGD multiplies goes there (`multiplied`), but for the statistics of its
Fisher models, whose smallest eigenvalues are those of rounding.

`affine`, `product`, `accumulate` and `accumulate_sums` also take stacked factors of one type, with a dimension (models,) in front: each
model has a product of its own, and its bias, or a sum in its place, is (1, out) (nnet/stacked.py).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from pykaldist import deterministic
from pykaldist.nnet import arithmetic, blas, widening
from pykaldist.nnet.factor import Factor, factor, root
from pykaldist.pieces import pieces

_PINNED = deterministic.enabled()
_WIDENS = hasattr(torch.ops.aten.addmm, "dtype_out")  # on a GPU


def aligned(dim: int) -> int:
    """Round `dim` up so that rows start where a GPU's matrix units can read them."""
    return -(-dim // 8) * 8


def whole_rows(values: Tensor) -> tuple[Tensor, Tensor | None]:
    """Rows (n, dim) of a model on a GPU, without gaps: with the room behind them, (n, aligned dim), and that room alone, which is free.

    Elsewhere, and where there is no room, the rows as they are, and None.
    """
    if values.is_cpu or values.dim() != 2 or values.shape[1] == (row := aligned(values.shape[1])) or values.stride() != (row, 1):
        return values, None
    whole = values.as_strided((len(values), row), (row, 1))
    return whole, whole[:, values.shape[1] :]


def padded_rows(values: Tensor, rows: int) -> Tensor:
    """A view of a parameter (out, in) or (out,) with padding up to `rows` rows: the numbers that follow it in its flat buffer."""
    return values.as_strided((rows, *values.shape[1:]), values.stride())


def padded_gradient(weight: Tensor, bias: Tensor, rows: int, beta: float) -> Tensor | None:
    """A view of a weight's gradient (out, in) with padding up to `rows` rows, which lies in the gradient of the bias; None if too small.

    It is for a sum with factor `beta` that adds zeros to the padding. Where beta is 0, this sets a part of the bias' gradient to 0, which
    is to be made afterwards.
    """
    if weight.dim() != 2 or (rows - len(weight)) * weight.shape[1] > len(bias) or beta not in (0.0, 1.0):
        return None
    assert bias.data_ptr() == weight.data_ptr() + weight.nbytes, "a map's parameters are neighbours"
    return padded_rows(weight, rows)


def _pinned(a: Tensor, out: Tensor) -> bool:
    """Whether nnet/blas.py makes this product (in the deterministic mode, on a CPU)."""
    return _PINNED and out.device.type == "cpu" and a.dtype == out.dtype in (torch.float32, torch.float64)


@cache
def _onednn_is_faster() -> bool:
    """Whether oneDNN multiplies float32 matrices faster on this CPU than what PyTorch takes: AMD's with AVX-512, where that is MKL."""
    found = arithmetic.cpu()
    return (found.vendor == "AuthenticAMD" and "avx512f" in found.flags and torch.backends.mkl.is_available()
            and torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise") and not _PINNED)


def by_onednn(a: Tensor) -> bool:
    """Whether `multiplied` has products of the matrix `a` made by oneDNN."""
    return a.dtype == torch.float32 and a.is_cpu and a.dim() == 2 and _onednn_is_faster()


class _Buffers(threading.local):
    """A thread's memory for products on the CPU, of one use at a time; kept, as fresh memory costs more than what it is used for."""

    def __init__(self) -> None:
        self._flat = torch.empty(0)
        self._views: dict[tuple[int, int], Tensor] = {}  # of it; making one costs as much as a small pass

    def of_shape(self, rows: int, columns: int, dtype: torch.dtype) -> Tensor:
        """The memory as a matrix (rows, columns)."""
        if self._flat.numel() < rows * columns or self._flat.dtype != dtype:
            self._flat = torch.empty(rows * columns, dtype=dtype)
            self._views.clear()
        view = self._views.get((rows, columns))
        if view is None:
            view = self._views[rows, columns] = self._flat[: rows * columns].view(rows, columns)
        return view


_buffers = _Buffers()


def rounded(a: Tensor, b: Tensor) -> Tensor:
    """Matrix product a b, rounded to the type of its factors; on a CPU it stands until this thread's next one."""
    return torch.mm(a, b, out=_buffers.of_shape(a.shape[0], b.shape[1], a.dtype)) if a.is_cpu else torch.mm(a, b)


def _dense(x: Tensor) -> bool:
    """Whether a matrix lies row by row or column by column, with nothing between."""
    return x.is_contiguous() or x.t().is_contiguous()


def multiplied(a: Tensor, b: Tensor) -> Tensor:
    """Matrix product a b as `rounded` has it, or by oneDNN where that is the faster.

    Of matrices with gaps between their rows oneDNN makes it by a loop that is a thousand times slower: these are not given to it.
    """
    if not (by_onednn(a) and _dense(a) and _dense(b)):
        return rounded(a, b)
    out: Tensor = torch.ops.mkldnn._linear_pointwise(a, b.t(), None, "none", [], None)  # as compiled models of PyTorch call it
    return out


def _add(out: Tensor, value: Tensor, beta: float, alpha: float) -> None:
    """Add: out <- beta out + alpha value; what `out` held does not matter where beta is 0."""
    if beta == 0.0:
        out.copy_(value)
        if alpha != 1.0:
            out.mul_(alpha)
    else:
        (out if beta == 1.0 else out.mul_(beta)).add_(value, alpha=alpha)


def affine(x: Tensor, weight: Tensor, bias: Tensor, y: Tensor) -> None:
    """Affine map: y <- x W^T + b; x (n, in), weight (out, in), y (n, out) of the same type or wider."""
    if _pinned(x, y):
        blas.multiply(y.copy_(bias), x, weight.t(), 1.0, 1.0)
    elif weight.dim() == 3:
        torch.baddbmm(bias, x, weight.mT, out=y)
    elif x.dtype == y.dtype:
        parts = list(pieces(y))
        if len(parts) == 1:
            torch.addmm(bias, x, weight.t(), out=y)
        else:  # as addmm does it
            for (part,) in parts:
                part.copy_(bias)
            y.addmm_(x, weight.t())
    elif _WIDENS and not x.is_cpu:
        torch.mm(x, weight.t(), out_dtype=y.dtype, out=y)
        y.add_(bias)
    elif x.is_cpu:
        widening.with_bias(y, rounded(x, weight.t()), bias)
    else:
        y.copy_(torch.mm(x, weight.t())).add_(bias)


def product(a: Tensor, b: Tensor, out: Tensor) -> Tensor:
    """Matrix product: out <- a b, `out` of the same type or wider."""
    if _pinned(a, out):
        blas.multiply(out, a, b, 0.0, 1.0)
        return out
    if a.dtype == out.dtype:
        return (torch.bmm if a.dim() == 3 else torch.mm)(a, b, out=out)
    if _WIDENS and not a.is_cpu:
        return torch.mm(a, b, out_dtype=out.dtype, out=out)
    return out.copy_(rounded(a, b))


def accumulate(out: Tensor, a: Tensor, b: Tensor, beta: float, alpha: float = 1.0) -> None:
    """Matrix product with sum: out <- beta out + alpha a b, `out` of the same type or wider.

    What `out` held does not matter where beta is 0.

    With b a vector, so is `out`; such a product is rounded before it is widened.
    """
    vector = b.dim() == 1
    if _pinned(a, out):
        blas.multiply(*((out[:, None], a, b[:, None]) if vector else (out, a, b)), beta, alpha)
    elif out.dim() == 3:
        out.baddbmm_(a, b, beta=beta, alpha=alpha)
    elif a.dtype == out.dtype:
        (out.addmv_ if vector else out.addmm_)(a, b, beta=beta, alpha=alpha)
    elif _WIDENS and not (a.is_cpu or vector):
        torch.addmm(out, a, b, out_dtype=out.dtype, beta=beta, alpha=alpha, out=out)
    elif vector or not a.is_cpu:
        _add(out, torch.matmul(a, b), beta, alpha)
    else:
        widening.add(out, rounded(a, b), beta, alpha)


def accumulate_affine(weight: Tensor, bias: Tensor, dy: Tensor, x: Tensor, beta: float, alpha: float, bias_alpha: float) -> None:
    """Two matrix products with sums: weight, bias <- beta weight, beta bias + alpha, bias_alpha times their columns of dy^T x.

    weight (m, k) and bias (m,), of one type, have the first columns of dy^T x; x may have more, and dy zeros in more than m columns. Where
    beta is 0, what they held does not matter.
    """
    m, columns = weight.shape
    a = dy.t()
    if by_onednn(a):
        found = multiplied(a, x)
        _add(weight, found[:, :columns], beta, alpha)
        _add(bias, found[:, columns], beta, bias_alpha)
    elif a.dtype == weight.dtype or not a.is_cpu:
        accumulate_weight(weight, bias, dy, x[:, :columns], beta, alpha, lambda: accumulate(bias, a[:m], x[:, columns], beta, bias_alpha))
    else:
        widening.add_affine(weight, bias, rounded(a, x), beta, alpha, bias_alpha)


def accumulate_weight(weight: Tensor, bias: Tensor, dy: Tensor, x: Tensor, beta: float, alpha: float, to_bias: Callable[[], None]) -> None:
    """Matrix product with sum: weight <- beta weight + alpha dy^T x, together with what `to_bias` does to the gradient of the bias.

    dy may be padded with columns of zeros; the gradient is padded, too, where it can be (`padded_gradient`). Otherwise the bias comes
    first: the larger product leaves little of dy in the cache.
    """
    m = weight.shape[-2]
    wide = padded_gradient(weight, bias, dy.shape[-1], beta) if dy.shape[-1] > m else None
    if wide is None:
        to_bias()
        accumulate(weight, dy[..., :m].mT, x, beta, alpha)
    else:
        accumulate(wide, dy.mT, x, beta, alpha)
        to_bias()


def accumulate_sums(out: Tensor, x: Tensor, beta: float, alpha: float = 1.0) -> None:
    """Sums of columns: out <- beta out + alpha times the sum of the rows of x, in the type of `out`.

    What `out` held does not matter where beta is 0.
    """
    if x.is_cpu and x.dtype != out.dtype:
        _add(out, widening.sums(x), beta, alpha)
    elif beta == 0.0:
        torch.sum(x, -2, keepdim=x.dim() == 3, dtype=out.dtype, out=out)
        if alpha != 1.0:
            out.mul_(alpha)
    else:
        _add(out, x.sum(-2, keepdim=x.dim() == 3, dtype=out.dtype), beta, alpha)


def norm(x: Tensor, dtype: torch.dtype) -> Factor:
    """Compute the norm of all of x (n, columns), in type `dtype`."""
    if not x.is_cpu:
        return torch.linalg.vector_norm(x, dtype=dtype)
    if x.dtype != dtype:
        return math.sqrt(widening.squares(x)[1])
    flat = x.reshape(-1)
    return root(factor(torch.dot(flat, flat)))


def row_norms(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Compute the norms (n,) of the rows of x (n, columns), in type `dtype`."""
    if x.dtype == dtype or not x.is_cpu:
        return torch.linalg.vector_norm(x, dim=1, dtype=dtype)
    return widening.squares(x)[0].sqrt_()


def subtract_product(x: Tensor, a: Tensor, b: Tensor, dtype: torch.dtype) -> tuple[Tensor, Factor, Factor]:
    """Matrix product taken off: x <- x - a b, all of the same type.

    Returns the norms of the rows of the new x (n,), the norm of all of the old x, and that of the new one, in type `dtype`.
    """
    if x.dtype == dtype or not x.is_cpu:
        before = norm(x, dtype)
        if by_onednn(x):
            x.sub_(multiplied(a, b))
        else:
            accumulate(x, a, b, 1.0, -1.0)
        norms = row_norms(x, dtype)
        return norms, before, norm(norms, dtype)
    norms, old, new = widening.subtract(x, rounded(a, b))
    return norms, math.sqrt(old), math.sqrt(new)


def root_(x: Tensor) -> Tensor:
    """Take the square root of x in place, without torch.sqrt.

    On a CPU torch.sqrt is MKL's, whose last bits are the CPU's (of its approximate rsqrt).
    """
    return x.rsqrt_().reciprocal_()
