"""Rules about single operations: which launch nothing, which make the host wait, and which the CPU computes another way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

LAUNCHES_NOTHING = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "detach", "alias", "_unsafe_view",
                    "_reshape_alias", "_use_cudnn_ctc_loss", "_use_miopen_ctc_loss", "lift_fresh"}
_READS_COUNTS = {"nonzero", "masked_select", "unique_dim", "_unique2", "unique_consecutive", "bincount", "repeat_interleave", "_ctc_loss",
                 "_ctc_loss_backward", "_linalg_eigh", "linalg_inv_ex", "linalg_cholesky_ex"}
_FACTORS = {"mm": (0, 1), "addmm": (1, 2), "addmm_": (1, 2), "bmm": (0, 1), "baddbmm": (1, 2), "baddbmm_": (1, 2)}


def needs_the_host(name: str, args: tuple[Any, ...]) -> bool:
    """Whether the host has to wait for an operation: it reads back how large the result is, or computes a part of it."""
    if name in ("index", "index_put", "index_put_", "_index_put_impl_"):
        return any(isinstance(one, Tensor) and one.dtype in (torch.bool, torch.uint8) for one in args[1])
    return name in _READS_COUNTS


def arithmetic(func: Any, name: str) -> Callable[..., Any]:
    """What computes an operation on the host."""
    if name in ("_use_cudnn_ctc_loss", "_use_miopen_ctc_loss"):
        return lambda *args, **kwargs: False
    if func._overloadname == "dtype_out":
        return {"mm": _wide_mm, "addmm": _wide_addmm}[name]
    if name in _FACTORS and torch.backends.cuda.matmul.allow_tf32:
        return lambda *args, **kwargs: func(*(_tf32(a) if i in _FACTORS[name] else a for i, a in enumerate(args)), **kwargs)
    return func


def _wide_mm(a: Tensor, b: Tensor, out_dtype: torch.dtype, *, out: Tensor) -> Tensor:
    return torch.mm(a.to(out_dtype), b.to(out_dtype), out=out)


def _wide_addmm(c: Tensor, a: Tensor, b: Tensor, out_dtype: torch.dtype, *, beta: float = 1, alpha: float = 1, out: Tensor) -> Tensor:
    return torch.addmm(c.to(out_dtype), a.to(out_dtype), b.to(out_dtype), beta=beta, alpha=alpha, out=out)


def _tf32(x: Tensor) -> Tensor:
    """A matrix rounded to 10 bits of mantissa, half away from zero."""
    return ((x.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32) if x.dtype == torch.float32 else x
