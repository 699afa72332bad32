"""What a step computes of bfloat16 values on a CPU beside products, compiled: sums in float32, and RBMs' states.

A bfloat16 is the upper half of a float32. PyTorch has sums only for tensors of one type, so that values would be widened first,
block by block: a dozen passes over the cache, and as many calls, each of which costs as much as a pass. Threads of a process
do not share the work: a single one makes a pass in a tenth of the time of the product before it.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pykaldist.kernels import kernel

_HALF = np.uint32(16)
_ONE = np.uint16(0x3F80)  # as a bfloat16


def bits(x: Tensor) -> np.ndarray:
    """The bits of bfloat16 values on the CPU: an array of the same shape, on the same memory."""
    bits: np.ndarray = x.view(torch.uint16).numpy()
    return bits


@kernel(nogil=True)
def wide(bits: np.uint16) -> np.float32:  # pragma: no cover - compiled
    """The value of a bfloat16."""
    return np.uint32(np.uint32(bits) << _HALF).view(np.float32)


@kernel(nogil=True)
def narrow(value: np.float32) -> np.uint16:  # pragma: no cover - compiled
    """The bfloat16 that is nearest to a value; of two, the even one."""
    bits = np.float32(value).view(np.uint32)
    return np.uint16(np.uint32(bits + np.uint32(0x7FFF) + np.uint32(np.uint32(bits >> _HALF) & np.uint32(1))) >> _HALF)


@kernel(nogil=True, fastmath={"contract"})
def _add_row(row: np.ndarray, values: np.ndarray, beta: float, alpha: float) -> None:  # pragma: no cover - compiled
    if beta == 0:
        for j in range(len(row)):
            row[j] = alpha * wide(values[j])
    elif beta == 1:
        for j in range(len(row)):
            row[j] += alpha * wide(values[j])
    else:
        for j in range(len(row)):
            row[j] = beta * row[j] + alpha * wide(values[j])


@kernel(nogil=True)
def _add(out: np.ndarray, x: np.ndarray, beta: float, alpha: float) -> None:  # pragma: no cover - compiled
    for i in range(len(out)):
        _add_row(out[i], x[i], beta, alpha)


@kernel(nogil=True)
def _add_affine(weight: np.ndarray, bias: np.ndarray, x: np.ndarray, beta: float, alpha: float,
                bias_alpha: float) -> None:  # pragma: no cover - compiled
    columns = weight.shape[1]
    for i in range(len(weight)):
        _add_row(weight[i], x[i], beta, alpha)
        bias[i] = bias_alpha * wide(x[i, columns]) + (0 if beta == 0 else beta * bias[i])


@kernel(nogil=True)
def _with_bias(out: np.ndarray, x: np.ndarray, bias: np.ndarray) -> None:  # pragma: no cover - compiled
    for i in range(len(out)):
        row, values = out[i], x[i]
        for j in range(len(row)):
            row[j] = wide(values[j]) + bias[j]


@kernel(nogil=True, fastmath={"contract", "reassoc", "nsz"})
def _squares(x: np.ndarray, out: np.ndarray) -> float:  # pragma: no cover - compiled
    total = 0.0
    for i in range(len(x)):
        values, own = x[i], np.float32(0)
        for j in range(len(values)):
            value = wide(values[j])
            own += value * value
        out[i] = own
        total += own
    return total


@kernel(nogil=True, fastmath={"contract", "reassoc", "nsz"})
def _subtract(x: np.ndarray, y: np.ndarray, norms: np.ndarray) -> tuple[float, float]:  # pragma: no cover - compiled
    all_before, all_after = 0.0, 0.0
    for i in range(len(x)):
        values, others, before, after = x[i], y[i], np.float32(0), np.float32(0)
        for j in range(len(values)):
            value = wide(values[j])
            before += value * value
            values[j] = narrow(value - wide(others[j]))
            value = wide(values[j])
            after += value * value
        norms[i] = np.sqrt(after)
        all_before += before
        all_after += after
    return all_before, all_after


@kernel(nogil=True)
def _sums(out: np.ndarray, x: np.ndarray) -> None:  # pragma: no cover - compiled
    for i in range(len(x)):
        values = x[i]
        for j in range(len(out)):
            out[j] += wide(values[j])


@kernel(nogil=True)
def _draw(out: np.ndarray, words: np.ndarray, probabilities: np.ndarray) -> None:  # pragma: no cover - compiled
    for i in range(len(out)):
        row, own, chosen = out[i], probabilities[i], words[i]
        for j in range(len(row)):
            row[j] = _ONE if np.float32(chosen[j]) < np.float32(65536) * own[j] else np.uint16(0)


def add(out: Tensor, x: Tensor, beta: float, alpha: float) -> None:
    """Add: out <- beta out + alpha x, for x (m, n) in bfloat16, which may have more columns than `out`.

    What `out`, in float32, held does not matter where beta is 0.
    """
    _add(out.numpy(), bits(x), np.float32(beta), np.float32(alpha))


def with_bias(out: Tensor, x: Tensor, bias: Tensor) -> None:
    """Add a bias (n,) to the rows of x (m, n) in bfloat16: out <- x + bias, in float32."""
    _with_bias(out.numpy(), bits(x), bias.to(out.dtype).numpy())


def add_affine(weight: Tensor, bias: Tensor, x: Tensor, beta: float, alpha: float, bias_alpha: float) -> None:
    """Add a gradient of an affine map: weight <- beta weight + alpha x, likewise the bias with `bias_alpha`; as in `add`.

    Weight (m, n) and bias (m,) are float32. In x (m, more than n), bfloat16, the bias is column n.
    """
    _add_affine(weight.numpy(), bias.numpy(), bits(x), np.float32(beta), np.float32(alpha), np.float32(bias_alpha))


def squares(x: Tensor) -> tuple[Tensor, float]:
    """The sum of squares of each row of x (m, n), in float32 (m,), and that of all of them."""
    own = torch.empty(x.shape[0])
    return own, _squares(bits(x), own.numpy())


def subtract(x: Tensor, y: Tensor) -> tuple[Tensor, float, float]:
    """Subtract: x <- x - y, both (m, n) in bfloat16.

    Returns the norms of the rows of the new x, in float32 (m,), and the sums of all squares of the old one and of the new one.
    """
    norms = torch.empty(x.shape[0])
    return norms, *_subtract(bits(x), bits(y), norms.numpy())


def sums(x: Tensor) -> Tensor:
    """The sum of the rows of x (m, n), in float32 (n,)."""
    out = torch.zeros(x.shape[1])
    _sums(out.numpy(), bits(x))
    return out


def draw(out: Tensor, probabilities: Tensor, generator: torch.Generator) -> None:
    """Draw states: out (m, n) in bfloat16 becomes 1 with the probabilities (m, n), in float32, else 0.

    They are drawn with 16 random bits each, so that the probabilities are multiples of 2^-16, rounded up.
    """
    words = torch.empty(-(-out.numel() // 4), dtype=torch.int64).random_(-(2**63), None, generator=generator)
    _draw(bits(out), words.view(torch.uint16)[: out.numel()].view(out.shape).numpy(), probabilities.numpy())
