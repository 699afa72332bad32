"""Matrix products by the BLAS that scipy brings, OpenBLAS, for the deterministic mode (pykaldist/deterministic.py).

PyTorch's own are MKL's, which has only one code path that is the same on all CPUs, and that one is slow. OpenBLAS runs the kernels of the
CPU type that it is told, at their full speed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

_SCALARS = {torch.float32: ctypes.c_float, torch.float64: ctypes.c_double}


@cache
def _routine(dtype: torch.dtype) -> Callable[..., None]:
    """The BLAS routine sgemm or dgemm, as a function that lets other threads run."""
    import scipy.linalg.cython_blas as blas  # not loaded where nobody asks for the mode: a third of a second

    capsule = blas.__pyx_capi__["sgemm" if dtype == torch.float32 else "dgemm"]
    name, pointer = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    integer, scalar, address = ctypes.POINTER(ctypes.c_int), ctypes.POINTER(_SCALARS[dtype]), ctypes.c_void_p
    return ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_char_p, integer, integer, integer, scalar, address, integer, address, integer,
                            scalar, address, integer)(pointer(capsule, name(capsule)))


def _by_columns(x: Tensor) -> tuple[bytes, int] | None:
    """How BLAS, which has matrices column by column, reads x^T: as it lies (n) or transposed (t); and the distance of columns."""
    (rows, columns), (down, right) = x.shape, x.stride()
    if (right == 1 or columns == 1) and (down >= columns or rows == 1):
        return b"n", max(down, columns)
    if (down == 1 or rows == 1) and (right >= rows or columns == 1):
        return b"t", max(right, rows)
    return None


def multiply(out: Tensor, a: Tensor, b: Tensor, beta: float, alpha: float) -> None:
    """Matrix product on the CPU: out <- beta out + alpha a b, all float32 or all float64.

    What `out` held does not matter where beta is 0.
    """
    (m, k), n = a.shape, b.shape[1]
    if out.shape != (m, n) or b.shape[0] != k:
        raise ValueError(f"no product: {tuple(a.shape)} times {tuple(b.shape)} into {tuple(out.shape)}")
    if out.numel() == 0 or k == 0:
        out.zero_() if beta == 0.0 else out.mul_(beta)
        return
    target = _by_columns(out)
    if target is None:
        out.copy_(_multiplied(out.contiguous(), a, b, beta, alpha))
    elif target[0] == b"t":  # the rows of out^T are in one piece
        _multiplied(out.t(), b.t(), a.t(), beta, alpha)
    else:
        _multiplied(out, a, b, beta, alpha)


def _multiplied(out: Tensor, a: Tensor, b: Tensor, beta: float, alpha: float) -> Tensor:
    """`multiply` where the rows of `out`, which is returned, are each in one piece."""
    a, b = (x if _by_columns(x) else x.contiguous() for x in (a, b))
    (trans_a, lda), (trans_b, ldb), (_, ldc) = (_by_columns(x) or (b"n", x.shape[1]) for x in (a, b, out))
    byref, scalar, integer = ctypes.byref, _SCALARS[out.dtype], ctypes.c_int
    sizes = [byref(integer(value)) for value in (*out.shape, a.shape[1], lda, ldb, ldc)]
    m, n, k, by_a, by_b, by_out = sizes
    # By columns it is out^T = b^T a^T.
    _routine(out.dtype)(trans_b, trans_a, n, m, k, byref(scalar(alpha)), b.data_ptr(), by_b, a.data_ptr(), by_a,
                        byref(scalar(beta)), out.data_ptr(), by_out)
    return out
