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

import torch
from torch import Tensor

from pykaldist.frames.packed import Sequences
from pykaldist.nnet.cells import After, CellShape, CellStep
from pykaldist.nnet.components import AffineMap, Component, GradientRule, ParameterSpec, Pass, add_up
from pykaldist.nnet.gemm import accumulate, affine, product, rounded


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
        n = len(x)
        gates, cells, tanh, _, before, _ = self._memory(memory, n)
        hidden = self._factors(memory, factors, n)[1] if self.w_p is not None else y
        peepholes = [p.to(cells.dtype) for p in self.peepholes]
        self._started = None
        if sequences.continues and self.carried is not None:
            self._copies = copies = _kept_in(self._copies, self.carried)
            first = sequences.sizes[0]  # of the streams, those that go on are the first ones: all but at an epoch's very end
            self._started = copies[0][:first], copies[1][:first]
        affine(x, self.w_x, self.bias, gates)
        recurrent, compiled = self.w_r.t(), x.is_cpu and hidden.dtype == torch.bfloat16
        for rows, previous, linked, kept in self._steps(sequences):
            r, cell = (None, None) if previous is None else (y[previous], cells[previous])
            if previous is None and self._started is not None:
                linked, (r, cell) = rows.stop - rows.start, self._started
            a, back = gates[rows], None
            if r is not None and compiled:
                back = rounded(r, recurrent)  # the step widens it, and multiplies it by `kept`
            elif r is not None and kept is not None and not x.is_cpu:
                back = product(r, recurrent, torch.empty_like(a[:linked]))
            elif r is not None:
                accumulate(a[:linked], r if kept is None else (r * kept).to(y.dtype), recurrent, 1.0)
            step = CellStep(a, cells[rows], tanh[rows], cell, None if cell is None else kept)
            step.forward(self.shape, peepholes, back, hidden[rows], before[rows] if peepholes else None)
            if self.w_p is not None:
                product(hidden[rows], self.w_p.t(), y[rows])
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
        self._outputs_before(y, sequences, inputs[:, self.input_dim :])
        # What goes back in time is added to the outputs' derivatives where they are projected, and on a CPU; else the cells' step adds it.
        apart = self.w_p is None and not x.is_cpu
        copied = narrow and x.is_cpu
        most = max(sequences.sizes)
        # Derivatives of the cells, sent back in time; of what is projected.
        carry, hidden = gates.new_zeros(most, c), gates.new_empty(most, c)
        later: tuple[slice, int, Tensor | None] | None = None  # rows of the step after, how many follow rows of this one, their `kept`
        steps = list(self._steps(sequences))
        for rows, previous, linked, kept in reversed(steps):
            size, d_r, after = rows.stop - rows.start, dy[rows], After(carry[: rows.stop - rows.start], 0, None)
            if later is not None:
                behind, follow, later_kept = later
                back = d_gates[behind.start : behind.start + follow]
                after = After(after.carry, follow, later_kept)
                if apart:
                    after.recurrent = product(back, self.w_r, gates.new_empty(follow, c))
                elif later_kept is None:
                    accumulate(d_r[:follow], back, self.w_r, 1.0)
                else:
                    d_r[:follow].addcmul_(product(back, self.w_r, torch.empty_like(d_r[:follow])), later_kept.to(d_r.dtype))
            if self.w_p is not None:
                product(d_r, self.w_p, hidden[:size])
            elif copied:
                hidden[:size] = d_r
            cell = None if previous is None else cells[previous]
            if previous is None and self._started is not None:
                linked, cell = size, self._started[1]
            step = CellStep(gates[rows], cells[rows], tanh[rows], cell, None if cell is None else kept)
            step.backward(self.shape, peepholes, after, hidden[:size] if copied or self.w_p is not None else d_r,
                          d_gates[rows] if narrow else None)
            later = rows, linked, kept

    def _outputs_before(self, y: Tensor, sequences: Sequences, into: Tensor) -> None:
        """Write the outputs before each row, as they went into the gates: zero where a sequence begins."""
        sizes = sequences.sizes
        steps: Iterator[tuple[slice, slice | None, int, Tensor | None]]
        kept = [kept for _, previous, _, kept in self._steps(sequences) if previous is not None]
        if min(sizes) == max(sizes) and len({one is None for one in kept}) == 1:  # all steps but the first at once
            n, size = len(y), sizes[0]
            first, rest, past = slice(0, size), slice(size, n), y[: n - size]
            if self.reverse:
                first, rest, past = slice(n - size, n), slice(0, n - size), y[size:]
                kept.reverse()
            if kept[0] is None:
                into[rest] = past
            else:
                torch.mul(past, torch.cat([one for one in kept if one is not None]), out=into[rest])
            steps = iter([(first, None, size, None if self.reverse else sequences.kept.get(0))])
        else:
            steps = self._steps(sequences)
        for rows, previous, linked, own in steps:
            r = None if previous is None else y[previous]
            if previous is None and self._started is not None:
                linked, r = rows.stop - rows.start, self._started[0]
            if r is None:
                into[rows].zero_()
                continue
            into[rows][:linked] = r if own is None else (r * own).to(y.dtype)
            into[rows][linked:].zero_()

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
