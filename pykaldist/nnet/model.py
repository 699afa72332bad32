"""A neural network: a stack of components over one flat parameter buffer.

    model = Model(components, device)      # model.params: (P,) float32; each component's W and b are views into it
    logits = model.forward(inputs)         # activations live in buffers that the model reuses
    model.backward(dlogits, grads, beta)   # grads: a flat (P,) buffer; grads <- beta grads + gradient

With beta the momentum, `grads` is the momentum buffer v <- m v + g, made inside the matrix product, without a pass of its own.

A hidden layer's activations are the inputs of the next layer's affine map and what the nonlinearity's derivative is made of. Once both
derivatives are made nobody needs them, and the map's gradient is made last, by a rule that may write over them. They lie in rows with
room for a one beside them, as natural gradients want their inputs.

On a GPU the rows of logits begin where its matrix units can read them: 8,806 of them have room for 8,808 (`gemm.whole_rows`), and the
output layer's products are padded to so many. Otherwise its three products take 1.3 to 3.8 times as long (on an H100, in bfloat16).

With `compute` bfloat16, parameters and gradients stay float32; activations and the factors of matrix products are bfloat16, made from the
parameters at each forward pass; logits are float32.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from pykaldist.errors import UserError
from pykaldist.frames.packed import Sequences
from pykaldist.nnet.components import Affine, AffineMap, Component, GradientRule, Pass, outer_product
from pykaldist.nnet.flat_model import FlatModel
from pykaldist.nnet.gemm import aligned, whole_rows


class Model(FlatModel):
    """A network of components in sequence, from (n, input_dim) to (n, output_dim) logits."""

    def __init__(self, components: list[Component], device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32,
                 compute: torch.dtype | None = None) -> None:
        for before, after in itertools.pairwise(components):
            if before.output_dim != after.input_dim:
                raise ValueError(f"component of output {before.output_dim} before one of input {after.input_dim}")
        super().__init__(components, device, dtype)
        self.components = components
        self._activations: Activations
        self.compute_in(compute or dtype)
        self._place: tuple[int, int, int] | None = None  # of the minibatch that left the state that recurrent components carry

    def share_activations(self, other: Model) -> None:
        """Use the buffers of a model of the same shape: of the models in one process, one computes at a time."""
        assert self.shapes == other.shapes and self.compute == other.compute
        self._activations = other._activations

    def reserve(self, rows: int) -> None:
        """Make the buffers for minibatches of up to so many rows.

        Raises RuntimeError where a recorded CUDA graph writes to smaller ones.
        """
        self._activations.reserve(rows)

    @property
    def capacity(self) -> int:
        """The rows for which there are buffers."""
        return self._activations.capacity

    @property
    def step_values(self) -> int:
        """The values of the widest layer for as many rows as the buffers have."""
        return self.capacity * max(max(c.input_dim, c.output_dim) for c in self.components)

    def scratch(self, size: int, like: Tensor) -> Tensor:
        """A flat buffer of `size` values or more, of the type of `like`, for whoever computes with the activations."""
        return self._activations.scratch_of(size, like)

    def compute_in(self, dtype: torch.dtype) -> None:
        """As every model's; raises UserError for a narrower type where a component computes in that of the parameters alone."""
        wide = next((component.wide for component in self.components if component.wide), None)
        if dtype != self.params.dtype and wide:
            raise UserError(f"--dtype bf16 is not for {wide}, whose sums need more digits; use float32.")
        super().compute_in(dtype)
        self._activations = Activations(self)
        if self.device.type != "cpu" and (self.narrow or self._own) and isinstance(last := self.components[-1], Affine):
            last.pad()

    @property
    def stochastic(self) -> bool:
        """True where training draws random numbers (dropout)."""
        return any(component.stochastic for component in self.components)

    @property
    def recurrent(self) -> bool:
        """True where the rows of a minibatch have to be sequences."""
        return any(component.recurrent for component in self.components)

    @property
    def recurrent_layers(self) -> int:
        """How many components go through the steps of sequences one after the other."""
        return sum(component.recurrent for component in self.components)

    @property
    def input_dim(self) -> int:
        return self.components[0].input_dim

    @property
    def output_dim(self) -> int:
        return self.components[-1].output_dim

    def forward(self, inputs: Tensor, generator: torch.Generator | None = None, sequences: Sequences | None = None,
                training: bool = False, changed: bool = True) -> Tensor:
        """Compute logits (n, output_dim); valid, as `inputs` must stay, until the next forward.

        `training`: for a gradient; `generator`: for dropout in it. `sequences`: how the rows follow each other, for recurrent components.
        `changed`: the parameters may not be those of the last forward.
        """
        n, buffers = len(inputs), self._activations
        buffers.reserve(n)
        if self.device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            buffers.recorded = True
        if sequences is not None:
            sequences = dataclasses.replace(sequences, continues=self.continues(sequences))
            self.left_by(sequences)
        if changed and self.narrow:
            self._working.copy_(self.params)
        self._run = run = Pass(training or generator is not None, generator, sequences)
        self._inputs = x = buffers.inputs[:n].copy_(inputs) if self.narrow else inputs.to(self.compute)
        for i, (component, buffer) in enumerate(zip(self.components, buffers.outputs, strict=True)):
            y, run.memory, run.factors = buffer[:n], buffers.memories[i], buffers.factors[i]
            component.forward(x, y, run)
            x = y
        return x

    def parts(self, least: int) -> list[slice]:
        """The parts in which `backward_in_parts` makes a flat gradient, the last layers' first, of `least` values or more but for the last.
        """
        parts, stop = [], self.params.shape[-1]
        for i in range(len(self.components) - 1, 0, -1):
            if not self.components[i - 1].in_place and stop - self._starts[i] >= least:
                parts.append(slice(self._starts[i], stop))
                stop = self._starts[i]
        return [*parts, slice(0, stop)] if stop else parts

    def backward(self, dlogits: Tensor, grads: Tensor, beta: float = 0.0, rule: GradientRule = outer_product) -> None:
        """Compute the gradient of the minibatch of the last `forward`, once: grads <- beta grads + gradient.

        `dlogits` (n, output_dim) is overwritten.
        """
        for _ in self.backward_in_parts(dlogits, grads, beta, rule):
            pass

    def backward_in_parts(self, dlogits: Tensor, grads: Tensor, beta: float = 0.0, rule: GradientRule = outer_product) -> Iterator[int]:
        """Do what `backward` does, layer by layer; yields the place in `grads` from which on everything is made."""
        n, buffers, run = len(dlogits), self._activations, self._run
        if (room := whole_rows(dlogits)[1]) is not None:
            room.zero_()
        dy = buffers.narrowed(dlogits) if self.narrow else dlogits.to(self.compute)
        views, starts = self._grad_views(grads), self._starts
        free = 0
        kept: list[Callable[[], None]] = []  # gradients to be made when the inputs of their maps are not needed any more
        for i in range(len(self.components) - 1, -1, -1):
            component = self.components[i]
            x = buffers.outputs[i - 1][:n] if i else self._inputs
            dx: Tensor | None = None
            if i and component.in_place:
                dx = dy
            elif i:
                dx = buffers.derivatives[free][: n * component.input_dim].view(n, component.input_dim)
                free = 1 - free
            run.memory, run.factors = buffers.memories[i], buffers.factors[i]
            component.backward(x, buffers.outputs[i][:n], dy, dx, views[i], beta, self._later(rule, i, n, kept), run)
            if not (i and self.components[i - 1].in_place):
                for gradient in kept:
                    gradient()
                kept.clear()
                yield starts[i]
            if dx is not None:
                dy = dx

    def _later(self, rule: GradientRule, i: int, n: int, kept: list[Callable[[], None]]) -> GradientRule:
        """The rule for component i, which delays the gradient where the component's inputs lie in rows with room.

        There the call of `rule`, with those rows, is put into `kept`.
        """
        rows = self._activations.rows[i - 1] if i else self._activations.input_rows
        if rows is None:
            return rule

        def later(map: AffineMap, x: Tensor, dy: Tensor, weight: Tensor, bias: Tensor | None, beta: float, *,
                  spent: Tensor | None = None) -> None:
            kept.append(partial(rule, map, x, dy, weight, bias, beta, spent=rows[:n]))

        return later

    def continues(self, sequences: Sequences) -> bool:
        """Whether a minibatch begins with the state that is there: where it has to, and that is the state of the minibatch before.

        It is another one's where workers take minibatches from one another's part of the data, and in a run resumed with other workers.
        """
        epoch, split, index = sequences.place
        return sequences.continues and self._place == (epoch, split, index - 1)

    def left_by(self, sequences: Sequences) -> None:
        """Note whose state is there after a minibatch. `forward` does; so does whoever replays a recorded one."""
        if sequences.leaves >= 0:
            self._place = sequences.place

    def state_dict(self) -> dict[str, Any]:
        """What the model keeps from one minibatch to the next."""
        carried = [state for component in self.components if component.recurrent for state in component.carried()]
        return {"place": self._place, "carried": [None if self._place is None else state for state in carried]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._place = None if state["place"] is None else tuple(state["place"])
        carried = iter(state["carried"])
        for component in self.components:
            if component.recurrent:
                own = [next(carried) for _ in component.carried()]
                component.set_carried([None if one is None else tuple(part.to(self.device) for part in one) for one in own])


class Activations:
    """Buffers for each component's output and for derivatives, for as many rows as the largest minibatch had."""

    def __init__(self, model: Model) -> None:
        self._dims = [(c.output_dim, c.in_place) for c in model.components]
        self._roomy = [_has_room(model.components[i:]) for i in range(len(model.components))]
        narrow = model.narrow
        self._memories = [(c.memory_dim, model.params.dtype if c.factor_dim else model.compute) for c in model.components]
        self._factor_dims = [c.factor_dim * narrow for c in model.components]
        self._device, self._dtypes = model.device, [model.compute] * (len(self._dims) - 1) + [model.params.dtype]
        self._compute, self._ends = model.compute, (model.input_dim, model.output_dim) if narrow else (0, 0)
        self._wide_inputs = narrow and bool(model.components[0].maps) and model.components[0].roomy
        self.capacity = 0  # rows that there is room for
        self.recorded = False  # a CUDA graph has the buffers' addresses in it
        self.outputs: list[Tensor] = []
        self.rows: list[Tensor | None] = []  # of which the outputs are the beginning, with place for a one and zeros; None: without
        self.inputs = self.dlogits = torch.empty(0)  # in the type of the activations, where that is another
        self.input_rows: Tensor | None = None  # likewise of the inputs
        self.derivatives: list[Tensor] = []
        self.memories: list[Tensor] = []
        self.factors: list[Tensor] = []
        self._scratch = torch.empty(0)
        self._kept: list[Tensor] = []  # scratch buffers that a recorded graph still writes to

    def scratch_of(self, size: int, like: Tensor) -> Tensor:
        """The scratch buffer, with `size` values or more of the type of `like`. A recorded one is kept beside a larger one."""
        if self._scratch.numel() < size or self._scratch.dtype != like.dtype:
            if self.recorded:
                self._kept.append(self._scratch)
            self._scratch = like.new_empty(size)
        return self._scratch

    def reserve(self, rows: int) -> None:
        """Make room for so many rows; raises RuntimeError where a recorded graph would go on with the buffers that there were before."""
        if rows <= self.capacity:
            return
        if self.recorded:
            raise RuntimeError(f"a minibatch of {rows} rows after CUDA graphs were recorded with buffers for {self.capacity}, which must "
                               "not move; reserve the largest minibatch before the first step")
        self.outputs, self.rows = [], []
        for (dim, in_place), roomy, dtype in zip(self._dims, self._roomy, self._dtypes, strict=True):
            if in_place and self.outputs:  # shares its input's buffer
                self.outputs.append(self.outputs[-1])
                self.rows.append(self.rows[-1])
                continue
            last = len(self.outputs) == len(self._dims) - 1
            row = aligned(dim + 1) if roomy else self._row(dim) if last else dim
            buffer = torch.zeros(rows, row, device=self._device, dtype=dtype)
            self.outputs.append(buffer[:, :dim])
            self.rows.append(buffer if roomy else None)
        dim = self._ends[0]
        wide = torch.zeros(rows, aligned(dim + 1) if self._wide_inputs else dim, device=self._device, dtype=self._compute)
        self.inputs, self.input_rows = wide[:, :dim], wide if self._wide_inputs else None
        self.dlogits = torch.empty(rows, self._row(self._ends[1]), device=self._device, dtype=self._compute)
        widest = max((dim for dim, _ in self._dims[:-1]), default=0)
        self.derivatives = [torch.empty(rows * widest, device=self._device, dtype=self._compute) for _ in range(2)]
        self.memories = [torch.empty(rows * dim, device=self._device, dtype=dtype) for dim, dtype in self._memories]
        self.factors = [torch.empty(rows * dim, device=self._device, dtype=self._compute) for dim in self._factor_dims]
        self.capacity = rows

    def _row(self, dim: int) -> int:
        """The values of a row of logits with the room behind it."""
        return dim if self._device.type == "cpu" else aligned(dim)

    def narrowed(self, dlogits: Tensor) -> Tensor:
        """The derivatives of logits (n, output_dim), or of those of a RBM, in the type of the activations."""
        n, dim = dlogits.shape
        wide = whole_rows(dlogits)[0]
        if wide.shape[1] == self.dlogits.shape[1]:
            self.dlogits[:n].copy_(wide)
        else:
            self.dlogits[:n, :dim].copy_(dlogits)
        return self.dlogits[:n, :dim]


def _has_room(components: list[Component]) -> bool:
    """Whether the outputs of the first component are the inputs of an affine map, and may lie in wider rows.

    Components that work on them in place count with the first.
    """
    own = [components[0], *itertools.takewhile(lambda c: c.in_place, components[1:])]
    after = components[len(own) :]
    return bool(after) and bool(after[0].maps) and all(c.roomy for c in [*own, after[0]])
