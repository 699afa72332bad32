"""One time step of LSTM cells, but for matrix products: the element-wise part of `nnet/recurrent.py`, forward and backward.

Its head has the equations. A step is a dozen passes over small tensors. Each pass is a kernel on a GPU, which costs more than its values.
So there are three ways to make it:

    on a CPU        in compiled loops (numba), but for the forward step in float32, which is made by PyTorch's operations
    on a GPU        `torch.ops.pykaldist.lstm_cell` and `lstm_cell_backward`, one kernel each, written in Triton
                    (`nnet/cells_triton.py`)
    without Triton  the same two operators by PyTorch's operations, which compute the same numbers on any device

Triton comes with PyTorch's CUDA builds for Linux. The operators exist on every device, as one kernel each: on PyTorch's `meta`, where steps
are counted, they do nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pykaldist.kernels import kernel
from pykaldist.nnet.widening import bits, narrow, wide

_tanh_backward = torch.ops.aten.tanh_backward.grad_input
_sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
_clip_backward = torch.ops.aten.hardtanh_backward.grad_input


@dataclass(frozen=True)
class CellShape:
    """The shape of the cells of one direction, and their options; `projection_dim` 0: no projection."""

    cell_dim: int
    projection_dim: int = 0
    peepholes: bool = True
    cell_clip: float = 50.0
    diff_clip: float = 1.0

    @property
    def output_dim(self) -> int:
        return self.projection_dim or self.cell_dim


@dataclass(eq=False)
class CellStep:
    """One time step's cells. Its tensors are (rows, cells), `a` (rows, 4 cells).

    `a`: what goes into the gates, in the order g, i, f, o; `forward` makes the gates of it, and `backward` of these the derivatives of what
    went into them. `cells` and `tanh` of them. `before` (linked, cells): the cells before the first rows; None: there are none, and they
    count as 0. `kept` (linked, 1), where it is given: what the state before is multiplied by.
    """

    a: Tensor
    cells: Tensor
    tanh: Tensor
    before: Tensor | None
    kept: Tensor | None

    def forward(self, shape: CellShape, peepholes: list[Tensor], recurrent: Tensor | None, outputs: Tensor, seen: Tensor | None) -> None:
        """Compute the gates, the cells, and the `outputs`; with peepholes `seen` becomes the cells before, of all rows.

        `recurrent` (linked, 4 cells), where it is given, times `kept`, goes into the gates too.
        """
        work: Callable[..., None] = torch.ops.pykaldist.lstm_cell
        if self.a.is_cpu:
            work = _forward_compiled if outputs.dtype == torch.bfloat16 else forward_by_torch
        work(self.a, recurrent, self.before, self.kept, peepholes, shape.cell_clip, cells=self.cells, tanh=self.tanh, outputs=outputs,
             seen=seen)

    def backward(self, shape: CellShape, peepholes: list[Tensor], after: After, d_outputs: Tensor, narrow: Tensor | None) -> None:
        """Compute the derivatives, of those of the outputs; a copy of them, of another type, is written to `narrow`."""
        work = _backward_compiled if self.a.is_cpu else torch.ops.pykaldist.lstm_cell_backward
        work(self.a, after.carry, self.cells, self.tanh, d_outputs, after.follow, after.recurrent, after.kept, self.before, self.kept,
             peepholes, shape.cell_clip, shape.diff_clip, narrow=narrow)


@dataclass(eq=False)
class After:
    """What the step after sends back to the first `follow` rows, times `kept` (follow, 1) where that is given.

    `carry` (rows, cells): to the cells; it becomes what this step sends back. `recurrent` (follow, cells), where it is given: to the
    outputs.
    """

    carry: Tensor
    follow: int
    kept: Tensor | None
    recurrent: Tensor | None = None


def forward_by_torch(a: Tensor, recurrent: Tensor | None, before: Tensor | None, kept: Tensor | None, peepholes: list[Tensor], clip: float,
                     *, cells: Tensor, tanh: Tensor, outputs: Tensor, seen: Tensor | None) -> None:
    """The forward step by PyTorch's operations."""
    c, linked = cells.shape[1], 0 if before is None else len(before)
    if recurrent is not None:
        a[:linked] += recurrent if kept is None else recurrent * kept
    if before is not None and kept is not None:
        before = before * kept
    if seen is not None:
        seen.zero_() if before is None else seen[:linked].copy_(before)
        seen[linked:].zero_()
        if before is not None:
            a[:linked, c : 2 * c].addcmul_(before, peepholes[0])
            a[:linked, 2 * c : 3 * c].addcmul_(before, peepholes[1])
    torch.tanh(a[:, :c], out=a[:, :c])
    gated = a[:, c : 3 * c] if peepholes else a[:, c:]
    torch.sigmoid(gated, out=gated)
    torch.mul(a[:, :c], a[:, c : 2 * c], out=cells)
    if before is not None:
        cells[:linked].addcmul_(a[:linked, 2 * c : 3 * c], before)
    if clip:
        cells.clamp_(-clip, clip)
    out = a[:, 3 * c :]
    if peepholes:
        torch.sigmoid(out.addcmul_(cells, peepholes[2]), out=out)
    torch.tanh(cells, out=tanh)
    torch.mul(tanh, out, out=outputs)


def backward_by_torch(a: Tensor, carry: Tensor, cells: Tensor, tanh: Tensor, d_outputs: Tensor, follow: int, recurrent: Tensor | None,
                      carry_kept: Tensor | None, before: Tensor | None, kept: Tensor | None, peepholes: list[Tensor], cell_clip: float,
                      diff_clip: float, *, narrow: Tensor | None) -> None:
    """The backward step by PyTorch's operations."""
    linked, (g, i, f, o) = 0 if before is None else len(before), a.chunk(4, 1)
    d_m = d_outputs.to(a.dtype)
    if recurrent is not None:
        d_m = d_m.clone()
        d_m[:follow] += recurrent if carry_kept is None else recurrent * carry_kept
    d_c, product = torch.mul(d_m, o), torch.mul(d_m, tanh)
    _tanh_backward(d_c, tanh, grad_input=d_c)
    d_c[:follow] += carry[:follow] if carry_kept is None else carry[:follow] * carry_kept
    _sigmoid_backward(product, o, grad_input=o)
    if peepholes:
        d_c.addcmul_(o, peepholes[2])
    if cell_clip:
        _clip_backward(d_c, cells, -cell_clip, cell_clip, grad_input=d_c)
    torch.mul(d_c, f, out=carry)
    if before is not None:
        torch.mul(d_c[:linked], before if kept is None else before * kept, out=product[:linked])
        _sigmoid_backward(product[:linked], f[:linked], grad_input=f[:linked])
    f[linked:].zero_()
    torch.mul(d_c, g, out=product)
    _tanh_backward(d_c.mul_(i), g, grad_input=g)
    _sigmoid_backward(product, i, grad_input=i)
    if diff_clip:
        a.clamp_(-diff_clip, diff_clip)
    if peepholes:
        carry.addcmul_(i, peepholes[0]).addcmul_(f, peepholes[1])
    if narrow is not None:
        narrow.copy_(a)


@kernel(nogil=True, error_model="numpy", fastmath={"contract"})
def _exp(x: np.float32) -> np.float32:  # pragma: no cover - compiled
    """The exponential function within 2e-7 of its value, for x in [-87, 87], by operations that vectors have (Cephes)."""
    n = np.float32(np.floor(x * np.float32(1.44269504) + np.float32(0.5)))
    r = x - n * np.float32(0.693359375) + n * np.float32(2.12194440e-4)
    p = np.float32(1.9875691500e-4)
    p = p * r + np.float32(1.3981999507e-3)
    p = p * r + np.float32(8.3334519073e-3)
    p = p * r + np.float32(4.1665795894e-2)
    p = p * r + np.float32(1.6666665459e-1)
    p = p * r + np.float32(5.0000001201e-1)
    return (p * r * r + r + np.float32(1)) * np.int32(np.int32(np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)


@kernel(nogil=True, error_model="numpy", fastmath={"contract"})
def _logistic(x: np.float32) -> np.float32:  # pragma: no cover - compiled
    """The logistic sigmoid, within 1e-7; no number stays no number."""
    bounded = np.float32(-80) if x < -80 else (np.float32(80) if x > 80 else x)
    return np.float32(1) / (np.float32(1) + _exp(-bounded)) if x == x else x


@kernel(nogil=True, error_model="numpy", fastmath={"contract"})
def _cell_forward(a: np.ndarray, products: np.ndarray, before: np.ndarray, cells: np.ndarray, tanh: np.ndarray, hidden: np.ndarray,
                  p_i: np.ndarray, p_f: np.ndarray, p_o: np.ndarray, clip: float) -> None:  # pragma: no cover - compiled
    linked, dim, peepholes, one, two = len(before), cells.shape[1], len(p_i) > 0, np.float32(1), np.float32(2)
    for s in range(len(cells)):
        row, c_t, th, m = a[s], cells[s], tanh[s], hidden[s]
        g, i, f, o = row[:dim], row[dim : 2 * dim], row[2 * dim : 3 * dim], row[3 * dim :]  # loops over these are made with vectors
        if s < linked:
            recurrent, b = products[s], before[s]
            for j in range(len(row)):
                row[j] += wide(recurrent[j])
            if peepholes:
                for j in range(dim):
                    i[j] += p_i[j] * b[j]
                    f[j] += p_f[j] * b[j]
        for j in range(dim):
            g[j] = two * _logistic(two * g[j]) - one
        for j in range(dim):
            i[j] = _logistic(i[j])
        for j in range(dim):
            f[j] = _logistic(f[j])
        for j in range(dim):
            c_t[j] = g[j] * i[j]
        if s < linked:
            for j in range(dim):
                c_t[j] += f[j] * b[j]
        if clip > 0:
            for j in range(dim):
                c_t[j] = clip if c_t[j] > clip else (-clip if c_t[j] < -clip else c_t[j])
        if peepholes:
            for j in range(dim):
                o[j] += p_o[j] * c_t[j]
        for j in range(dim):
            o[j] = _logistic(o[j])
        for j in range(dim):
            th[j] = two * _logistic(two * c_t[j]) - one
        for j in range(dim):
            m[j] = narrow(th[j] * o[j])


def _forward_compiled(a: Tensor, recurrent: Tensor | None, before: Tensor | None, kept: Tensor | None, peepholes: list[Tensor], clip: float,
                      *, cells: Tensor, tanh: Tensor, outputs: Tensor, seen: Tensor | None) -> None:
    """The forward step on the host in a compiled loop, where `recurrent` and `outputs` are bfloat16."""
    if before is None or recurrent is None:
        before, recurrent = cells[:0], outputs[:0]
    elif kept is not None:
        before, recurrent = before * kept, (recurrent * kept).to(outputs.dtype)
    if seen is not None:
        seen[: len(before)].copy_(before)
        seen[len(before) :].zero_()
    p_i, p_f, p_o = (p.numpy() for p in peepholes or [cells[0, :0]] * 3)
    _cell_forward(a.numpy(), bits(recurrent), before.numpy(), cells.numpy(), tanh.numpy(), bits(outputs), p_i, p_f, p_o, np.float32(clip))


@kernel(error_model="numpy")
def _cell_backward(a: np.ndarray, cells: np.ndarray, tanh: np.ndarray, d_m: np.ndarray, carry: np.ndarray, follow: int,
                   before: np.ndarray, p_i: np.ndarray, p_f: np.ndarray, p_o: np.ndarray, clip: float,
                   diff_clip: float) -> None:  # pragma: no cover - compiled
    linked, dim, peepholes = len(before), cells.shape[1], len(p_i) > 0
    for s in range(len(cells)):
        for j in range(dim):
            g, i, f, o, th, dm = a[s, j], a[s, dim + j], a[s, 2 * dim + j], a[s, 3 * dim + j], tanh[s, j], d_m[s, j]
            d_o = dm * th * o * (1 - o)
            d_c = dm * o * (1 - th * th)
            if s < follow:
                d_c += carry[s, j]
            if peepholes:
                d_c += p_o[j] * d_o
            if clip > 0 and (cells[s, j] >= clip or cells[s, j] <= -clip):
                d_c *= 0
            d_f = d_c * before[s, j] * f * (1 - f) if s < linked else d_c * 0
            d_g, d_i = d_c * i * (1 - g * g), d_c * g * i * (1 - i)
            if diff_clip > 0:
                d_g, d_i = min(max(d_g, -diff_clip), diff_clip), min(max(d_i, -diff_clip), diff_clip)
                d_f, d_o = min(max(d_f, -diff_clip), diff_clip), min(max(d_o, -diff_clip), diff_clip)
            d_before = d_c * f
            if peepholes:
                d_before += p_i[j] * d_i + p_f[j] * d_f
            a[s, j], a[s, dim + j], a[s, 2 * dim + j], a[s, 3 * dim + j], carry[s, j] = d_g, d_i, d_f, d_o, d_before


def _backward_compiled(a: Tensor, carry: Tensor, cells: Tensor, tanh: Tensor, d_outputs: Tensor, follow: int, recurrent: Tensor | None,
                       carry_kept: Tensor | None, before: Tensor | None, kept: Tensor | None, peepholes: list[Tensor], cell_clip: float,
                       diff_clip: float, *, narrow: Tensor | None) -> None:
    """The backward step on the host, in a compiled loop."""
    assert recurrent is None, "on the host it is in the derivatives of the outputs already"
    before = cells[:0] if before is None else before if kept is None else before * kept
    if carry_kept is not None:
        carry[:follow].mul_(carry_kept)
    p_i, p_f, p_o = (p.numpy() for p in peepholes or [cells[0, :0]] * 3)
    number = cells.numpy().dtype.type
    _cell_backward(a.numpy(), cells.numpy(), tanh.numpy(), d_outputs.numpy(), carry.numpy(), follow, before.numpy(), p_i, p_f, p_o,
                   number(cell_clip), number(diff_clip))
    if narrow is not None:
        narrow.copy_(a)


@functools.cache
def _kernels() -> Any:
    """The operators on a GPU, by their names: Triton's kernels where it is installed, else PyTorch's operations."""
    try:
        from pykaldist.nnet import cells_triton
    except ImportError:
        return BY_TORCH
    return cells_triton.BY_TRITON


BY_TORCH = {"lstm_cell": forward_by_torch, "lstm_cell_backward": backward_by_torch}
_operators = torch.library.Library("pykaldist", "FRAGMENT")
_operators.define("lstm_cell(Tensor(a!) a, Tensor? recurrent, Tensor? before, Tensor? kept, Tensor[] peepholes, float clip, *, "
                  "Tensor(b!) cells, Tensor(c!) tanh, Tensor(d!) outputs, Tensor(e!)? seen) -> ()")
_operators.define("lstm_cell_backward(Tensor(a!) a, Tensor(b!) carry, Tensor cells, Tensor tanh, Tensor d_outputs, int follow, "
                  "Tensor? recurrent, Tensor? carry_kept, Tensor? before, Tensor? kept, Tensor[] peepholes, float cell_clip, "
                  "float diff_clip, *, Tensor(c!)? narrow) -> ()")
for _name, _work in BY_TORCH.items():
    _operators.impl(_name, lambda *args, **kwargs: None, "Meta")
    _operators.impl(_name, _work, "CPU")
    _operators.impl(_name, lambda *args, _name=_name, **kwargs: _kernels()[_name](*args, **kwargs), "CUDA")
