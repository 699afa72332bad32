"""LSTM layers, in one direction or two, with forget gates, peepholes and projection, forward and backward.

Sources: Hochreiter & Schmidhuber (1997); forget gates and peepholes: Gers et al. (2002); projection: Sak et al. (2014).

For the row of a sequence at time t, with inputs x_t, the outputs r_{t-1} and cells c_{t-1} of the row before it (zero at its beginning):
    a = W [x_t; r_{t-1}] + b,       its four parts the gates' and the cell's inputs, in nnet1's order g, i, f, o
    g = tanh(a_g),  i = sigmoid(a_i + p_i c_{t-1}),  f = sigmoid(a_f + p_f c_{t-1})
    c_t = clip(g i + f c_{t-1}),    to [-cell_clip, cell_clip] where that is not 0
    o = sigmoid(a_o + p_o c_t),     m_t = o tanh(c_t),      r_t = W_r m_t,     or m_t itself without projection
The peepholes p are diagonal; without them p = 0.

Backward, with dr_t from above and from the row after it (' marks what comes from t + 1):
    dr_t += W_recurrent^T da',    dm = W_r^T dr,    do = dm tanh(c),    dc = dm o (1 - tanh^2 c) + dc' f' + p_o da_o + p_i da_i' + p_f da_f'
    (0 where c was clipped),      dg = dc i,        di = dc g,          df = dc c_{t-1},     da_* through each one's nonlinearity
da is clipped to [-diff_clip, diff_clip] where that is not 0 (nnet1's DiffClip), which bounds what is sent back in time.

W is one affine map, of the inputs and the outputs before, with a bias, so that NG-SGD's Fisher matrix of its inputs is one of both; W_r is
another. The products with x, and all gradients, are made at once for all rows; only the recurrent products are made step by step. Rows
are packed (`frames/packed.py`), so that each step is a slice; the backward direction of a bidirectional layer takes the same steps from
the last to the first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pykaldist.frames.packed import Sequences
from pykaldist.kernels import kernel
from pykaldist.nnet.components import AffineMap, Component, GradientRule, ParameterSpec, Pass, add_up
from pykaldist.nnet.gemm import accumulate, affine, product, rounded
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


@dataclass(eq=False)
class CellStep:
    """The backward pass of one time step's cells, but for matrix products: one pass over them.

    `a` (rows, 4 cells): the gates, which become the derivatives of what goes into them. `cells`, `tanh` of them, `d_m` (rows, cells).
    `carry`: what the step after sends back to the first `follow` cells; it becomes what this one sends back. `before` (linked, cells): the
    cells before the first of these.
    """

    a: Tensor
    cells: Tensor
    tanh: Tensor
    d_m: Tensor
    carry: Tensor
    follow: int
    before: Tensor

    def compiled_backward(self, shape: CellShape, peepholes: list[Tensor]) -> None:
        """Compute the step on the host, in a compiled loop."""
        p_i, p_f, p_o = (p.numpy() for p in peepholes or [self.cells[0, :0]] * 3)
        number = self.cells.numpy().dtype.type
        _cell_backward(self.a.numpy(), self.cells.numpy(), self.tanh.numpy(), self.d_m.numpy(), self.carry.numpy(), self.follow,
                       self.before.numpy(), p_i, p_f, p_o, number(shape.cell_clip), number(shape.diff_clip))

    def backward(self, shape: CellShape, peepholes: list[Tensor]) -> None:
        """Compute the step on any device, by torch's operations."""
        linked, (g, i, f, o) = len(self.before), self.a.chunk(4, 1)
        d_c, product = torch.mul(self.d_m, o), torch.mul(self.d_m, self.tanh)
        _tanh_backward(d_c, self.tanh, grad_input=d_c)
        d_c[: self.follow] += self.carry[: self.follow]
        _sigmoid_backward(product, o, grad_input=o)
        if peepholes:
            d_c.addcmul_(o, peepholes[2])
        if shape.cell_clip:
            _clip_backward(d_c, self.cells, -shape.cell_clip, shape.cell_clip, grad_input=d_c)
        torch.mul(d_c, f, out=self.carry)
        torch.mul(d_c[:linked], self.before, out=product[:linked])
        _sigmoid_backward(product[:linked], f[:linked], grad_input=f[:linked])
        f[linked:] = 0.0
        torch.mul(d_c, g, out=product)
        _tanh_backward(d_c.mul_(i), g, grad_input=g)
        _sigmoid_backward(product, i, grad_input=i)
        if shape.diff_clip:
            self.a.clamp_(-shape.diff_clip, shape.diff_clip)
        if peepholes:
            self.carry.addcmul_(i, peepholes[0]).addcmul_(f, peepholes[1])


def _parts(flat: Tensor, n: int, widths: list[int]) -> list[Tensor]:
    """The first values of a flat buffer as matrices of n rows with these widths."""
    parts, start = [], 0
    for width in widths:
        parts.append(flat[start : start + n * width].view(n, width))
        start += n * width
    return parts


def _kept_in(place: tuple[Tensor, Tensor] | None, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Copy a state to where another of its shape lies, if there is one; returns the copy."""
    if place is None or (place[0].shape, place[0].dtype) != (state[0].shape, state[0].dtype):
        return state[0].clone(), state[1].clone()
    return place[0].copy_(state[0]), place[1].copy_(state[1])


class Direction:
    """One direction of an LSTM layer. `reverse`: backward in time."""

    def __init__(self, input_dim: int, shape: CellShape, prefix: str = "", reverse: bool = False) -> None:
        self.input_dim, self.shape, self.reverse, self._prefix = input_dim, shape, reverse, prefix
        self.gates = AffineMap(input_dim + shape.output_dim, 4 * shape.cell_dim, (f"{prefix}weight", f"{prefix}bias"))
        self.maps = [self.gates]
        if shape.projection_dim:
            self.projection = AffineMap(shape.cell_dim, shape.projection_dim, (f"{prefix}projection",))
            self.maps.append(self.projection)
        c = shape.cell_dim
        # Kept from forward to backward: the gates, cells, tanh of cells, what is projected, cells before, inputs beside outputs before.
        self._widths = [4 * c, c, c, c * bool(shape.projection_dim), c * shape.peepholes, input_dim + shape.output_dim]
        self.memory_dim = sum(self._widths)
        # Where these are wider than the activations, of the activations' type: derivatives of gates, what is projected, inputs beside
        # outputs before.
        self._factor_widths = [4 * c, c * bool(shape.projection_dim), input_dim + shape.output_dim]
        self.factor_dim = sum(self._factor_widths)
        self.flops = sum(2 * m.input_dim * m.output_dim for m in self.maps)
        # Outputs and cells that the last minibatch has left; those that it began with; and where these lie. All stay in place.
        self.carried: tuple[Tensor, Tensor] | None = None
        self._started: tuple[Tensor, Tensor] | None = None
        self._copies: tuple[Tensor, Tensor] | None = None

    def specs(self) -> list[ParameterSpec]:
        names = [("weight", (self.gates.output_dim, self.gates.input_dim)), ("bias", (self.gates.output_dim,))]
        if self.shape.projection_dim:
            names.append(("projection", (self.shape.projection_dim, self.shape.cell_dim)))
        if self.shape.peepholes:
            names += [(f"peephole_{gate}", (self.shape.cell_dim,)) for gate in "ifo"]
        return [ParameterSpec(self._prefix + name, shape) for name, shape in names]

    def bind(self, params: list[Tensor]) -> None:
        own = iter(params)
        self.weight, self.bias = next(own), next(own)
        self.w_x, self.w_r = self.weight[:, : self.input_dim], self.weight[:, self.input_dim :]
        self.w_p = next(own) if self.shape.projection_dim else None
        self.peepholes = list(own)

    def _memory(self, memory: Tensor, n: int) -> list[Tensor]:
        return _parts(memory, n, self._widths)

    def _factors(self, memory: Tensor, factors: Tensor, n: int) -> list[Tensor]:
        """The factors of products among what is kept: derivatives of the gates, what is projected, inputs beside outputs before."""
        if factors.numel():
            return _parts(factors, n, self._factor_widths)
        gates, _, _, hidden, _, inputs = self._memory(memory, n)
        return [gates, hidden, inputs]

    def leave(self, outputs: Tensor, cells: Tensor) -> None:
        """Keep a state for the next minibatch, in the place of the one before."""
        self.carried = _kept_in(self.carried, (outputs, cells))

    def _steps(self, sequences: Sequences) -> Iterator[tuple[slice, slice | None, int, Tensor | None]]:
        """Iterate over time steps, in the order of computation.

        A step is (its rows, those rows of the step before it that have a row in it, how many, what their state is multiplied by).
        """
        sizes, offsets = sequences.sizes, sequences.offsets()
        before: int | None = None
        for t in range(len(sizes) - 1, -1, -1) if self.reverse else range(len(sizes)):
            rows = slice(offsets[t], offsets[t] + sizes[t])
            linked = 0 if before is None else min(sizes[t], sizes[before])
            previous = None if before is None else slice(offsets[before], offsets[before] + linked)
            kept = sequences.kept.get(t)
            if self.reverse and previous is not None and sequences.real is not None:
                kept = sequences.real[previous]  # what stands behind a sequence's frames has no state
            yield rows, previous, linked, kept
            before = t

    def forward(self, x: Tensor, y: Tensor, sequences: Sequences, memory: Tensor, factors: Tensor) -> None:
        """Compute the outputs `y` (n, output_dim), which may be a part of wider rows."""
        n, c = len(x), self.shape.cell_dim
        gates, cells, tanh, _, before, _ = self._memory(memory, n)
        hidden = self._factors(memory, factors, n)[1] if self.w_p is not None else y
        peepholes = [p.to(cells.dtype) for p in self.peepholes]
        self._started = None
        if sequences.continues and self.carried is not None:
            self._started = self._copies = _kept_in(self._copies, self.carried)
        affine(x, self.w_x, self.bias, gates)
        recurrent, clip = self.w_r.t(), self.shape.cell_clip
        compiled = x.is_cpu and hidden.dtype == torch.bfloat16
        for rows, previous, linked, kept in self._steps(sequences):
            r, cell = (None, None) if previous is None else (y[previous], cells[previous])
            if previous is None and self._started is not None:
                linked, (r, cell) = rows.stop - rows.start, self._started
            a, c_t, tanh_t, hidden_t = gates[rows], cells[rows], tanh[rows], hidden[rows]
            if r is not None and cell is not None and kept is not None:
                r, cell = (r * kept).to(y.dtype), cell * kept
            if r is not None and not compiled:
                accumulate(a[:linked], r, recurrent, 1.0)
            if self.peepholes:
                before[rows].zero_() if cell is None else before[rows][:linked].copy_(cell)
                before[rows][linked:].zero_()
            if compiled:
                cell = c_t[:0] if cell is None else cell
                products = hidden_t[:0] if r is None else rounded(r, recurrent)
                p_i, p_f, p_o = (p.numpy() for p in peepholes or [c_t[0, :0]] * 3)
                _cell_forward(a.numpy(), bits(products), cell.numpy(), c_t.numpy(), tanh_t.numpy(), bits(hidden_t), p_i, p_f, p_o,
                              np.float32(clip))
                if self.w_p is not None:
                    product(hidden_t, self.w_p.t(), y[rows])
                continue
            if self.peepholes and cell is not None:
                a[:linked, c : 2 * c].addcmul_(cell, peepholes[0])
                a[:linked, 2 * c : 3 * c].addcmul_(cell, peepholes[1])
            torch.tanh(a[:, :c], out=a[:, :c])
            gated = a[:, c : 3 * c] if self.peepholes else a[:, c:]
            torch.sigmoid(gated, out=gated)
            torch.mul(a[:, :c], a[:, c : 2 * c], out=c_t)
            if cell is not None:
                c_t[:linked].addcmul_(a[:linked, 2 * c : 3 * c], cell)
            if clip:
                c_t.clamp_(-clip, clip)
            out = a[:, 3 * c :]
            if self.peepholes:
                torch.sigmoid(out.addcmul_(c_t, peepholes[2]), out=out)
            torch.tanh(c_t, out=tanh_t)
            torch.mul(tanh_t, out, out=hidden_t)
            if self.w_p is not None:
                product(hidden_t, self.w_p.t(), y[rows])
        if sequences.leaves >= 0 and not self.reverse:
            start = sum(sequences.sizes[: sequences.leaves])
            last = slice(start, start + sequences.sizes[sequences.leaves])
            self.leave(y[last], cells[last])

    def backward(self, x: Tensor, y: Tensor, dy: Tensor, sequences: Sequences, memory: Tensor, factors: Tensor) -> None:
        """Compute the derivatives through time: overwrites `dy` with those of the outputs.

        It leaves those of the gates, and what the maps multiply, in `memory` and `factors`.
        """
        n, c = len(x), self.shape.cell_dim
        gates, cells, tanh, _, _, _ = self._memory(memory, n)
        d_gates, _, inputs = self._factors(memory, factors, n)
        narrow, peepholes = d_gates.dtype != gates.dtype, [p.to(cells.dtype) for p in self.peepholes]
        inputs[:, : self.input_dim] = x
        most = max(sequences.sizes)
        # Derivatives of the cells, sent back in time; of what is projected.
        carry, hidden = gates.new_zeros(most, c), gates.new_empty(most, c)
        after: tuple[slice, int, Tensor | None] | None = None  # rows of the step after, how many follow rows of this one, their `kept`
        steps = list(self._steps(sequences))
        for rows, previous, linked, kept in reversed(steps):
            size, follow, d_r = rows.stop - rows.start, 0, dy[rows]
            if after is not None:
                later, follow, later_kept = after
                back = d_gates[later.start : later.start + follow]
                if later_kept is None:
                    accumulate(d_r[:follow], back, self.w_r, 1.0)
                else:
                    d_r[:follow].addcmul_(product(back, self.w_r, torch.empty_like(d_r[:follow])), later_kept.to(d_r.dtype))
                    carry[:follow].mul_(later_kept)
            if self.w_p is not None:
                product(d_r, self.w_p, hidden[:size])
            elif narrow:
                hidden[:size] = d_r
            d_m = hidden[:size] if narrow or self.w_p is not None else d_r
            r, cell = (None, None) if previous is None else (y[previous], cells[previous])
            if previous is None and self._started is not None:
                linked, (r, cell) = size, self._started
            if r is None or cell is None:
                inputs[rows, self.input_dim :] = 0.0
                cell = cells[:0]
            else:
                if kept is not None:
                    r, cell = (r * kept).to(y.dtype), cell * kept
                inputs[rows.start : rows.start + linked, self.input_dim :] = r
                if linked < size:
                    inputs[rows.start + linked : rows.stop, self.input_dim :] = 0.0
            step = CellStep(gates[rows], cells[rows], tanh[rows], d_m, carry[:size], follow, cell)
            (step.compiled_backward if x.is_cpu else step.backward)(self.shape, peepholes)
            if narrow:
                d_gates[rows] = gates[rows]
            after = rows, linked, kept

    def gradients(self, x: Tensor, dy: Tensor, dx: Tensor | None, add: bool, grads: list[Tensor], beta: float, rule: GradientRule,
                  memory: Tensor, factors: Tensor) -> None:
        """Compute what `backward` leaves to be done: dx, or what is added to it, and the parameters' gradients; to be called once."""
        c = self.shape.cell_dim
        gates, cells, _, _, before, _ = self._memory(memory, len(x))
        d_gates, hidden, inputs = self._factors(memory, factors, len(x))
        if dx is not None:
            accumulate(dx, d_gates, self.w_x, float(add))
        own = iter(grads)
        weight, bias = next(own), next(own)
        projection = next(own) if self.w_p is not None else None
        for number, (gradient, at) in enumerate(zip(own, (before, before, cells), strict=False), 1):
            add_up(gradient, (gates[:, number * c : (number + 1) * c] * at).sum(0), beta)
        rule(self.gates, inputs, d_gates, weight, bias, beta)
        if projection is not None:
            rule(self.projection, hidden, dy, projection, None, beta)


class Lstm(Component):
    """An LSTM layer, forward in time."""

    recurrent = True

    def __init__(self, input_dim: int, shape: CellShape) -> None:
        super().__init__(input_dim, shape.output_dim)
        self.shape = shape
        self.direction = Direction(input_dim, shape)
        self.directions = [self.direction]
        self.maps, self.memory_dim, self.flops = self.direction.maps, self.direction.memory_dim, self.direction.flops
        self.factor_dim = self.direction.factor_dim

    def specs(self) -> list[ParameterSpec]:
        return self.direction.specs()

    def bind(self, params: list[Tensor]) -> None:
        self.direction.bind(params)

    def forward(self, x: Tensor, y: Tensor, run: Pass) -> None:
        assert run.sequences is not None
        self.direction.forward(x, y, run.sequences, run.memory, run.factors)

    def backward(self, x: Tensor, y: Tensor, dy: Tensor, dx: Tensor | None, grads: list[Tensor], beta: float, rule: GradientRule,
                 run: Pass) -> None:
        assert run.sequences is not None
        self.direction.backward(x, y, dy, run.sequences, run.memory, run.factors)
        self.direction.gradients(x, dy, dx, False, grads, beta, rule, run.memory, run.factors)

    def carried(self) -> list[tuple[Tensor, Tensor] | None]:
        """The state that the last minibatch has left, of each direction that leaves one."""
        return [self.direction.carried]

    def set_carried(self, state: list[tuple[Tensor, Tensor] | None]) -> None:
        (own,) = state
        if own is not None:
            self.direction.leave(*own)


class Blstm(Component):
    """A bidirectional LSTM layer: outputs of the direction forward in time, then of the one backward."""

    recurrent = True

    def __init__(self, input_dim: int, shape: CellShape) -> None:
        super().__init__(input_dim, 2 * shape.output_dim)
        self.shape = shape
        self.directions = [Direction(input_dim, shape, "f_"), Direction(input_dim, shape, "b_", reverse=True)]
        self.maps = [m for d in self.directions for m in d.maps]
        self.flops = sum(d.flops for d in self.directions)
        self.memory_dim = sum(d.memory_dim for d in self.directions) + 2 * self.output_dim
        self.factor_dim = sum(d.factor_dim for d in self.directions) + 2 * self.output_dim

    def specs(self) -> list[ParameterSpec]:
        return [spec for d in self.directions for spec in d.specs()]

    def bind(self, params: list[Tensor]) -> None:
        half = len(params) // 2
        self.directions[0].bind(params[:half])
        self.directions[1].bind(params[half:])

    def _memories(self, run: Pass, n: int) -> Iterator[tuple[Direction, slice, Tensor, Tensor, Tensor, Tensor]]:
        """The two directions, each with its part of the outputs, and its memory, factors, outputs and derivatives, in one piece each."""
        dim, narrow, buffers, taken = self.output_dim // 2, int(run.factors.numel() > 0), (run.memory, run.factors), [0, 0]

        def take(buffer: int, size: int) -> Tensor:
            taken[buffer] += size
            return buffers[buffer][taken[buffer] - size : taken[buffer]]

        for number, d in enumerate(self.directions):
            memory, factors = take(0, n * d.memory_dim), take(1, narrow * n * d.factor_dim)
            outputs, derivatives = (take(narrow, n * dim).view(n, dim) for _ in range(2))
            yield d, slice(number * dim, (number + 1) * dim), memory, factors, outputs, derivatives

    def forward(self, x: Tensor, y: Tensor, run: Pass) -> None:
        assert run.sequences is not None
        for direction, part, memory, factors, outputs, _ in self._memories(run, len(x)):
            direction.forward(x, outputs, run.sequences, memory, factors)
            y[:, part] = outputs

    def backward(self, x: Tensor, y: Tensor, dy: Tensor, dx: Tensor | None, grads: list[Tensor], beta: float, rule: GradientRule,
                 run: Pass) -> None:
        assert run.sequences is not None
        half = len(grads) // 2
        for direction, part, memory, factors, outputs, derivatives in self._memories(run, len(x)):
            derivatives.copy_(dy[:, part])
            direction.backward(x, outputs, derivatives, run.sequences, memory, factors)
            own = grads[half:] if direction.reverse else grads[:half]
            direction.gradients(x, derivatives, dx, direction.reverse, own, beta, rule, memory, factors)

    def carried(self) -> list[tuple[Tensor, Tensor] | None]:
        """The state that the last minibatch has left, of the direction forward in time."""
        return [self.directions[0].carried]

    def set_carried(self, state: list[tuple[Tensor, Tensor] | None]) -> None:
        (own,) = state
        if own is not None:
            self.directions[0].leave(*own)
