"""The steps of `nnet/cells.py` as kernels in Triton: each reads and writes every value once, and computes in the type of the gates.

A program of a kernel has up to BLOCK cells of one row. Rows may be parts of wider ones; the cells of a row are neighbours.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

BLOCK = 256


@triton.jit
def _tanh(x):  # type: ignore[no-untyped-def]  # its arguments are of Triton's types
    t = tl.exp(-2.0 * tl.abs(x))
    size = (1.0 - t) / (1.0 + t)
    return tl.where(x < 0.0, -size, size)


@triton.jit
def _bounded(x, bound):  # type: ignore[no-untyped-def]  # as above
    return tl.minimum(tl.maximum(x, -bound), bound)


@triton.jit  # type: ignore[untyped-decorator]  # Triton has no types
def _forward(a, recurrent, before, kept, p_i, p_f, p_o, cells, tanh, outputs, seen,  # type: ignore[no-untyped-def]  # as above
             dim, linked, clip, a_row, recurrent_row, before_row, kept_row, cells_row, tanh_row, outputs_row, seen_row,
             RECURRENT: tl.constexpr, BEFORE: tl.constexpr, KEPT: tl.constexpr, PEEPHOLES: tl.constexpr, CLIP: tl.constexpr,
             BLOCK: tl.constexpr):
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    row = tl.program_id(0).to(tl.int64) + tl.zeros_like(j)
    inside = j < dim
    follows = inside & (row < linked)
    at = a + row * a_row + j
    g = tl.load(at, mask=inside, other=0.0)
    i = tl.load(at + dim, mask=inside, other=0.0)
    f = tl.load(at + 2 * dim, mask=inside, other=0.0)
    o = tl.load(at + 3 * dim, mask=inside, other=0.0)
    keeps = 1.0
    if KEPT:
        keeps = tl.load(kept + row * kept_row, mask=inside & (row < linked), other=0.0).to(g.dtype)
    if RECURRENT:
        back = recurrent + row * recurrent_row + j
        g += keeps * tl.load(back, mask=follows, other=0.0)
        i += keeps * tl.load(back + dim, mask=follows, other=0.0)
        f += keeps * tl.load(back + 2 * dim, mask=follows, other=0.0)
        o += keeps * tl.load(back + 3 * dim, mask=follows, other=0.0)
    last = tl.zeros([BLOCK], g.dtype)
    if BEFORE:
        last = keeps * tl.load(before + row * before_row + j, mask=follows, other=0.0)
    if PEEPHOLES:
        tl.store(seen + row * seen_row + j, last, mask=inside)
        i += tl.load(p_i + j, mask=inside, other=0.0) * last
        f += tl.load(p_f + j, mask=inside, other=0.0) * last
    g, i, f = _tanh(g), tl.sigmoid(i), tl.sigmoid(f)
    cell = g * i + f * last
    if CLIP:
        cell = _bounded(cell, clip)
    if PEEPHOLES:
        o += tl.load(p_o + j, mask=inside, other=0.0) * cell
    o = tl.sigmoid(o)
    squashed = _tanh(cell)
    tl.store(at, g, mask=inside)
    tl.store(at + dim, i, mask=inside)
    tl.store(at + 2 * dim, f, mask=inside)
    tl.store(at + 3 * dim, o, mask=inside)
    tl.store(cells + row * cells_row + j, cell, mask=inside)
    tl.store(tanh + row * tanh_row + j, squashed, mask=inside)
    tl.store(outputs + row * outputs_row + j, squashed * o, mask=inside)


@triton.jit  # type: ignore[untyped-decorator]  # Triton has no types
def _backward(a, carry, cells, tanh, d_outputs, recurrent, carry_kept, before, kept, p_i, p_f,  # type: ignore[no-untyped-def]  # as above
              p_o, narrow,
              dim, follow, linked, cell_clip, diff_clip,
              a_row, carry_row, cells_row, tanh_row, d_outputs_row, recurrent_row, carry_kept_row, before_row, kept_row, narrow_row,
              RECURRENT: tl.constexpr, CARRY_KEPT: tl.constexpr, BEFORE: tl.constexpr, KEPT: tl.constexpr, PEEPHOLES: tl.constexpr,
              CELL_CLIP: tl.constexpr, DIFF_CLIP: tl.constexpr, NARROW: tl.constexpr, BLOCK: tl.constexpr):
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    row = tl.program_id(0).to(tl.int64) + tl.zeros_like(j)
    inside = j < dim
    followed = inside & (row < follow)
    at = a + row * a_row + j
    g = tl.load(at, mask=inside, other=0.0)
    i = tl.load(at + dim, mask=inside, other=0.0)
    f = tl.load(at + 2 * dim, mask=inside, other=0.0)
    o = tl.load(at + 3 * dim, mask=inside, other=0.0)
    cell = tl.load(cells + row * cells_row + j, mask=inside, other=0.0)
    squashed = tl.load(tanh + row * tanh_row + j, mask=inside, other=0.0)
    d_m = tl.load(d_outputs + row * d_outputs_row + j, mask=inside, other=0.0).to(g.dtype)
    sent = tl.load(carry + row * carry_row + j, mask=followed, other=0.0)
    sends = 1.0
    if CARRY_KEPT:
        sends = tl.load(carry_kept + row * carry_kept_row, mask=followed, other=0.0).to(g.dtype)
    if RECURRENT:
        d_m += sends * tl.load(recurrent + row * recurrent_row + j, mask=followed, other=0.0).to(g.dtype)
    d_o = d_m * squashed * o * (1.0 - o)
    d_c = d_m * o * (1.0 - squashed * squashed) + sends * sent
    if PEEPHOLES:
        d_c += tl.load(p_o + j, mask=inside, other=0.0) * d_o
    if CELL_CLIP:
        d_c = tl.where((cell >= cell_clip) | (cell <= -cell_clip), 0.0, d_c)
    last = tl.zeros([BLOCK], g.dtype)
    if BEFORE:
        last = tl.load(before + row * before_row + j, mask=inside & (row < linked), other=0.0)
        if KEPT:
            last *= tl.load(kept + row * kept_row, mask=inside & (row < linked), other=0.0).to(g.dtype)
    d_g = d_c * i * (1.0 - g * g)
    d_i = d_c * g * i * (1.0 - i)
    d_f = d_c * last * f * (1.0 - f)
    if DIFF_CLIP:
        d_g, d_i = _bounded(d_g, diff_clip), _bounded(d_i, diff_clip)
        d_f, d_o = _bounded(d_f, diff_clip), _bounded(d_o, diff_clip)
    back = d_c * f
    if PEEPHOLES:
        back += tl.load(p_i + j, mask=inside, other=0.0) * d_i + tl.load(p_f + j, mask=inside, other=0.0) * d_f
    tl.store(carry + row * carry_row + j, back, mask=inside)
    tl.store(at, d_g, mask=inside)
    tl.store(at + dim, d_i, mask=inside)
    tl.store(at + 2 * dim, d_f, mask=inside)
    tl.store(at + 3 * dim, d_o, mask=inside)
    if NARROW:
        to = narrow + row * narrow_row + j
        tl.store(to, d_g, mask=inside)
        tl.store(to + dim, d_i, mask=inside)
        tl.store(to + 2 * dim, d_f, mask=inside)
        tl.store(to + 3 * dim, d_o, mask=inside)


def _places(likewise: Tensor, tensors: list[Tensor | None]) -> tuple[list[Tensor], list[int]]:
    """Tensors, and how far apart their rows are. In the place of one that is not given stands `likewise`, which is not read."""
    given = [likewise if tensor is None else tensor for tensor in tensors]
    return given, [tensor.stride(0) for tensor in given]


def _grid(cells: Tensor) -> tuple[int, int]:
    """The programs of a kernel over cells (rows, dim)."""
    return len(cells), -(-cells.shape[1] // BLOCK)


def forward(a: Tensor, recurrent: Tensor | None, before: Tensor | None, kept: Tensor | None, peepholes: list[Tensor], clip: float, *,
            cells: Tensor, tanh: Tensor, outputs: Tensor, seen: Tensor | None) -> None:
    """The forward step, one kernel."""
    tensors, rows = _places(a, [a, recurrent, before, kept, cells, tanh, outputs, seen])
    _forward[_grid(cells)](*tensors[:4], *(peepholes or [a] * 3), *tensors[4:], cells.shape[1], 0 if before is None else len(before), clip,
                           *rows, recurrent is not None, before is not None, kept is not None, bool(peepholes), clip > 0.0, BLOCK)


def backward(a: Tensor, carry: Tensor, cells: Tensor, tanh: Tensor, d_outputs: Tensor, follow: int, recurrent: Tensor | None,
             carry_kept: Tensor | None, before: Tensor | None, kept: Tensor | None, peepholes: list[Tensor], cell_clip: float,
             diff_clip: float, *, narrow: Tensor | None) -> None:
    """The backward step, one kernel."""
    tensors, rows = _places(a, [a, carry, cells, tanh, d_outputs, recurrent, carry_kept, before, kept, narrow])
    linked = 0 if before is None else len(before)
    _backward[_grid(cells)](*tensors[:9], *(peepholes or [a] * 3), tensors[9], cells.shape[1], follow, linked, cell_clip,
                            diff_clip, *rows, recurrent is not None, carry_kept is not None, before is not None, kept is not None,
                            bool(peepholes), cell_clip > 0.0, diff_clip > 0.0, narrow is not None, BLOCK)


BY_TRITON = {"lstm_cell": forward, "lstm_cell_backward": backward}
