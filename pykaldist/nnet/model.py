"""A feed-forward model: a stack of components over one flat parameter buffer.

    model = Model(components, device)      # model.params: (P,) float32; each component's W and b are views into it
    logits = model.forward(inputs)         # activations live in buffers that the model reuses
    model.backward(dlogits, grads, beta)   # grads: a flat (P,) buffer; grads <- beta grads + gradient

With beta the momentum, `grads` is the momentum buffer v <- m v + g, made inside the matrix product, without a pass of its own.

With `compute` bfloat16, parameters and gradients stay float32; activations and the factors of matrix products are bfloat16, made from the
parameters at each forward pass; logits are float32.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import torch
from torch import Tensor

from pykaldist.frames.packed import Sequences
from pykaldist.nnet.components import AffineMap, Component, GradientRule, Pass, outer_product


class Model:
    """Components in sequence, from (n, input_dim) to (n, output_dim) logits."""

    def __init__(self, components: list[Component], device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32,
                 compute: torch.dtype | None = None) -> None:
        for before, after in itertools.pairwise(components):
            if before.output_dim != after.input_dim:
                raise ValueError(f"component of output {before.output_dim} before one of input {after.input_dim}")
        self.components, self.device = components, torch.device(device)
        self.shapes = [[spec.shape for spec in c.specs()] for c in components]
        size = sum(math.prod(s) for shapes in self.shapes for s in shapes)
        self.params = torch.zeros(size, device=self.device, dtype=dtype)
        self.compute = compute or dtype
        self._working = self.params if self.compute == dtype else torch.empty_like(self.params, dtype=self.compute)
        for component, views in zip(components, self.views(self._working), strict=True):
            component.bind(views)
        self._activations = Activations(self)
        self._place: tuple[int, int, int] | None = None  # of the minibatch that left the state that recurrent components carry

    def share_activations(self, other: Model) -> None:
        """Use the buffers of a model of the same shape: of models in one process, one at a time computes."""
        assert self.shapes == other.shapes and self.compute == other.compute
        self._activations = other._activations

    def scratch(self, size: int, like: Tensor) -> Tensor:
        """A flat buffer of `size` values or more, of the type of `like`, for whoever computes with the activations."""
        if self._activations.scratch.numel() < size or self._activations.scratch.dtype != like.dtype:
            self._activations.scratch = like.new_empty(size)
        return self._activations.scratch

    @property
    def stochastic(self) -> bool:
        """True where training draws random numbers (dropout)."""
        return any(component.stochastic for component in self.components)

    @property
    def recurrent(self) -> bool:
        """True where the rows of a minibatch have to be sequences."""
        return any(component.recurrent for component in self.components)

    @property
    def maps(self) -> list[AffineMap]:
        """Every component's affine maps, from the input to the output."""
        return [m for component in self.components for m in component.maps]

    @property
    def input_dim(self) -> int:
        return self.components[0].input_dim

    @property
    def output_dim(self) -> int:
        return self.components[-1].output_dim

    def views(self, flat: Tensor) -> list[list[Tensor]]:
        """A flat buffer like `params`, as each component's list of shaped views."""
        views, start = [], 0
        for shapes in self.shapes:
            own = []
            for shape in shapes:
                length = math.prod(shape)
                own.append(flat[start : start + length].view(shape))
                start += length
            views.append(own)
        return views

    def map_slices(self) -> list[slice]:
        """Where in the flat buffer the parameters of each affine map lie."""
        slices, start = [], 0
        for component in self.components:
            places = {}
            for spec in component.specs():
                places[spec.name] = slice(start, start := start + math.prod(spec.shape))
            for m in component.maps:
                own = [places[name] for name in m.params]
                assert all(one.stop == other.start for one, other in itertools.pairwise(own)), "a map's parameters are neighbours"
                slices.append(slice(own[0].start, own[-1].stop))
        return slices

    def statistics(self) -> list[slice]:
        """Where in the flat buffer lie parameters that follow the data (`ParameterSpec.statistic`)."""
        slices, start = [], 0
        for spec in (spec for component in self.components for spec in component.specs()):
            stop = start + math.prod(spec.shape)
            if spec.statistic:
                slices.append(slice(start, stop))
            start = stop
        return slices

    def names(self) -> list[str]:
        """`<component>.<parameter>` for each view, in order."""
        return [f"{i}.{spec.name}" for i, c in enumerate(self.components) for spec in c.specs()]

    def forward(self, inputs: Tensor, generator: torch.Generator | None = None, sequences: Sequences | None = None,
                training: bool = False) -> Tensor:
        """Logits (n, output_dim); valid, as `inputs` must stay, until the next forward.

        `training`: for a gradient; `generator`: for dropout in it. `sequences`: how the rows follow each other, for recurrent components.
        """
        n, buffers = len(inputs), self._activations
        buffers.reserve(n)
        if sequences is not None:
            sequences = self._followed(sequences)
        if self._working is not self.params:
            self._working.copy_(self.params)
        self._run = run = Pass(training or generator is not None, generator, sequences)
        self._inputs = x = inputs.to(self.compute)
        for component, buffer, run.memory in zip(self.components, buffers.outputs, buffers.memories, strict=True):
            y = buffer[:n]
            component.forward(x, y, run)
            x = y
        return x

    def backward(self, dlogits: Tensor, grads: Tensor, beta: float = 0.0, rule: GradientRule = outer_product) -> None:
        """grads <- beta grads + gradient, for the minibatch of the last `forward`; `dlogits` (n, output_dim) is overwritten."""
        n, dy, buffers, run = len(dlogits), dlogits.to(self.compute), self._activations, self._run
        views = self._grad_views(grads)
        free = 0
        for i in range(len(self.components) - 1, -1, -1):
            component = self.components[i]
            x = buffers.outputs[i - 1][:n] if i else self._inputs
            dx: Tensor | None = None
            if i and component.in_place:
                dx = dy
            elif i:
                dx = buffers.derivatives[free][: n * component.input_dim].view(n, component.input_dim)
                free = 1 - free
            run.memory = buffers.memories[i]
            component.backward(x, buffers.outputs[i][:n], dy, dx, views[i], beta, rule, run)
            if dx is not None:
                dy = dx

    def _followed(self, sequences: Sequences) -> Sequences:
        """The same, beginning with a zero state where it is not the minibatch before that has left the one there is.

        That happens where workers take minibatches from one another's part of the data, and in a run resumed with other workers.
        """
        epoch, split, index = sequences.place
        if sequences.continues and self._place != (epoch, split, index - 1):
            sequences = dataclasses.replace(sequences, continues=False)
        if sequences.leaves >= 0:
            self._place = sequences.place
        return sequences

    def state_dict(self) -> dict[str, Any]:
        """What the model keeps from one minibatch to the next."""
        carried = [state for component in self.components if component.recurrent for state in component.carried()]
        return {"place": self._place, "carried": [None if state is None else [part.cpu() for part in state] for state in carried]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._place = None if state["place"] is None else tuple(state["place"])
        carried = iter(state["carried"])
        for component in self.components:
            if component.recurrent:
                own = [next(carried) for _ in component.carried()]
                component.set_carried([None if one is None else tuple(part.to(self.device) for part in one) for one in own])

    def _grad_views(self, grads: Tensor) -> list[list[Tensor]]:
        cached = getattr(self, "_cached_views", None)
        if cached is None or cached[0] is not grads:
            self._cached_views = cached = (grads, self.views(grads))
        return cached[1]


class Activations:
    """Buffers for each component's output and for derivatives, for as many rows as the largest minibatch had."""

    def __init__(self, model: Model) -> None:
        self._dims = [(c.output_dim, c.in_place) for c in model.components]
        self._memory_dims = [c.memory_dim for c in model.components]
        self._device, self._dtypes = model.device, [model.compute] * (len(self._dims) - 1) + [model.params.dtype]
        self._capacity = 0
        self.outputs: list[Tensor] = []
        self.derivatives: list[Tensor] = []
        self.memories: list[Tensor] = []
        self.scratch = torch.empty(0)

    def reserve(self, rows: int) -> None:
        if rows <= self._capacity:
            return
        self.outputs = []  # an in-place component shares its input's buffer
        for (dim, in_place), dtype in zip(self._dims, self._dtypes, strict=True):
            shared = in_place and self.outputs
            self.outputs.append(self.outputs[-1] if shared else torch.empty(rows, dim, device=self._device, dtype=dtype))
        widest = max((dim for dim, _ in self._dims[:-1]), default=0)
        self.derivatives = [torch.empty(rows * widest, device=self._device, dtype=self._dtypes[0]) for _ in range(2)]
        self.memories = [torch.empty(rows * dim, device=self._device, dtype=self._dtypes[0]) for dim in self._memory_dims]
        self._capacity = rows
