"""A feed-forward model: a stack of components over one flat parameter buffer.

    model = Model(components, device)      # model.params: (P,) float32; each component's W and b are views into it
    logits = model.forward(inputs)         # activations live in buffers that the model reuses
    model.backward(dlogits, grads, beta)   # grads: a flat (P,) buffer; grads <- beta grads + gradient

With beta the momentum, `grads` is the momentum buffer v <- m v + g, made inside the matrix product, without a pass of its own.

With `compute` bfloat16, parameters and gradients stay float32; activations and the factors of matrix products are bfloat16, made from the
parameters at each forward pass; logits are float32.
"""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor

from pykaldist.nnet.components import AffineMap, Component, GradientRule, outer_product


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

    def names(self) -> list[str]:
        """`<component>.<parameter>` for each view, in order."""
        return [f"{i}.{spec.name}" for i, c in enumerate(self.components) for spec in c.specs()]

    def forward(self, inputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Logits (n, output_dim); valid, as `inputs` must stay, until the next forward. `generator`: while training, for dropout."""
        n = len(inputs)
        self._activations.reserve(n)
        if self._working is not self.params:
            self._working.copy_(self.params)
        self._inputs = x = inputs.to(self.compute)
        for component, buffer in zip(self.components, self._activations.outputs, strict=True):
            y = buffer[:n]
            component.forward(x, y, generator)
            x = y
        return x

    def backward(self, dlogits: Tensor, grads: Tensor, beta: float = 0.0, rule: GradientRule = outer_product) -> None:
        """grads <- beta grads + gradient, for the minibatch of the last `forward`; `dlogits` (n, output_dim) is overwritten."""
        n, dy = len(dlogits), dlogits.to(self.compute)
        views, outputs = self._grad_views(grads), self._activations.outputs
        free = 0
        for i in range(len(self.components) - 1, -1, -1):
            component = self.components[i]
            x = outputs[i - 1][:n] if i else self._inputs
            dx: Tensor | None = None
            if i and component.in_place:
                dx = dy
            elif i:
                dx = self._activations.derivatives[free][: n * component.input_dim].view(n, component.input_dim)
                free = 1 - free
            component.backward(x, outputs[i][:n], dy, dx, views[i], beta, rule)
            if dx is not None:
                dy = dx

    def _grad_views(self, grads: Tensor) -> list[list[Tensor]]:
        cached = getattr(self, "_cached_views", None)
        if cached is None or cached[0] is not grads:
            self._cached_views = cached = (grads, self.views(grads))
        return cached[1]


class Activations:
    """Buffers for each component's output and for derivatives, for as many rows as the largest minibatch had."""

    def __init__(self, model: Model) -> None:
        self._dims = [(c.output_dim, c.in_place) for c in model.components]
        self._device, self._dtypes = model.device, [model.compute] * (len(self._dims) - 1) + [model.params.dtype]
        self._capacity = 0
        self.outputs: list[Tensor] = []
        self.derivatives: list[Tensor] = []
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
        self._capacity = rows
