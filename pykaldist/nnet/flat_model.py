"""The parameters of a network in one flat buffer, of which those of its components are views: what optimisers and strategies see.

A strategy exchanges a model, and an optimiser changes it, in one call on `params`. How the components follow each other is the matter of
the classes derived from this one: in `Model` in a sequence, in `nnet3.network.Nnet3Network` in a graph.
"""

from __future__ import annotations

import functools
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from pykaldist.frames.packed import Sequences
from pykaldist.nnet.components import AffineMap, ParameterSpec
from pykaldist.nnet.gemm import aligned


class Parametric(Protocol):
    """A component as its model's parameters see it: its affine maps, and what lies in the flat buffer for it."""

    maps: list[AffineMap]

    def specs(self) -> list[ParameterSpec]:
        """The names and shapes of the parameters, in the order in which they lie in the flat buffer."""

    def bind(self, params: list[Tensor]) -> None:
        """Take views of the parameters, shaped as `specs` says."""


class FlatModel(ABC):
    """A model whose parameters lie in one flat buffer `params` (P,), on `device`."""

    stack: tuple[int, ...] = ()  # dimensions before that of the parameters, of stacked models

    def __init__(self, components: Sequence[Parametric], device: torch.device | str, dtype: torch.dtype) -> None:
        self._parametric, self.device, self.compute = components, torch.device(device), dtype
        self.shapes = [[spec.shape for spec in c.specs()] for c in components]
        size = sum(math.prod(s) for shapes in self.shapes for s in shapes)
        self.params = torch.zeros(*self.stack, size, device=self.device, dtype=dtype) if self.stack else self._flat(size, dtype)
        self._working, self._own = self.params, not self.stack  # whether the parameters lie where `_flat` has put them

    def compute_in(self, dtype: torch.dtype) -> None:
        """Compute in this type from now on. In that of the parameters, the components show the parameters themselves."""
        self.compute = dtype
        self._working = self._flat(len(self.params), dtype) if self.narrow else self.params
        for component, views in zip(self._parametric, self.views(self._working), strict=True):
            component.bind(views)

    def _flat(self, size: int, dtype: torch.dtype) -> Tensor:
        """A flat buffer of zeros; on a GPU with more of them behind it, for padded products of the last map (`Affine.pad`)."""
        last = next((component.maps[-1] for component in reversed(self._parametric) if component.maps), None)
        behind = 0 if self.device.type == "cpu" or last is None else (aligned(last.output_dim) - last.output_dim) * last.input_dim
        return torch.zeros(size + behind, device=self.device, dtype=dtype)[:size]

    def lie_in(self, params: Tensor) -> None:
        """Take parameters that lie elsewhere, flat, in place of its own: those of stacked models are rows of one buffer."""
        self.params, self._own = params, False
        self.compute_in(self.compute)

    @property
    def narrow(self) -> bool:
        """True where activations and the factors of products are of a narrower type than the parameters."""
        return self.compute != self.params.dtype

    @property
    def stochastic(self) -> bool:
        """True where training draws random numbers (dropout)."""
        return False

    @property
    def recurrent(self) -> bool:
        """True where the rows of a minibatch have to be sequences."""
        return False

    @property
    def recurrent_layers(self) -> int:
        """How many components go through the steps of sequences one after the other."""
        return 0

    def continues(self, sequences: Sequences) -> bool:
        """Whether a minibatch begins with the state that the one before has left."""
        return False

    def left_by(self, sequences: Sequences) -> None:
        """Note whose state is there after a minibatch; a model that is not recurrent has none to leave."""
        assert sequences.leaves < 0

    @property
    @abstractmethod
    def input_dim(self) -> int:
        """The dimension of a row of inputs."""

    @property
    @abstractmethod
    def output_dim(self) -> int:
        """The dimension of a row of outputs."""

    @abstractmethod
    def reserve(self, rows: int) -> None:
        """Make the buffers for minibatches of up to so many rows."""

    @property
    @abstractmethod
    def capacity(self) -> int:
        """The rows for which there are buffers."""

    @property
    @abstractmethod
    def step_values(self) -> int:
        """The values of the widest layer for as many rows as the buffers have."""

    @abstractmethod
    def scratch(self, size: int, like: Tensor) -> Tensor:
        """A flat buffer of `size` values or more, of the type of `like`, for whoever computes with the activations."""

    @property
    def maps(self) -> list[AffineMap]:
        """Every component's affine maps, from the input to the output."""
        return [m for component in self._parametric for m in component.maps]

    def views(self, flat: Tensor) -> list[list[Tensor]]:
        """The parameters of each component as shaped views of a flat buffer like `params`."""
        views, start = [], 0
        for shapes in self.shapes:
            own = []
            for shape in shapes:
                length = math.prod(shape)
                own.append(self._view(flat, slice(start, start + length), shape))
                start += length
            views.append(own)
        return views

    def _view(self, flat: Tensor, span: slice, shape: tuple[int, ...]) -> Tensor:
        """A parameter as a shaped view of its span of a flat buffer."""
        return flat[span].view(shape)

    def map_slices(self) -> list[slice]:
        """The slice of the flat buffer with the parameters of each affine map."""
        slices, start = [], 0
        for component in self._parametric:
            places = {}
            for spec in component.specs():
                places[spec.name] = slice(start, start := start + math.prod(spec.shape))
            for m in component.maps:
                own = [places[name] for name in m.params]
                assert all(one.stop == other.start for one, other in itertools.pairwise(own)), "a map's parameters are neighbours"
                slices.append(slice(own[0].start, own[-1].stop))
        return slices

    def statistics(self) -> list[slice]:
        """The slices of the flat buffer with parameters that follow the data (`ParameterSpec.statistic`)."""
        slices, start = [], 0
        for spec in (spec for component in self._parametric for spec in component.specs()):
            stop = start + math.prod(spec.shape)
            if spec.statistic:
                slices.append(slice(start, stop))
            start = stop
        return slices

    def names(self) -> list[str]:
        """`<component>.<parameter>` for each view, in order."""
        return [f"{i}.{spec.name}" for i, c in enumerate(self._parametric) for spec in c.specs()]

    def parts(self, least: int) -> list[slice]:
        """The parts in which a flat gradient is made, the last layers' first, of `least` values or more but for the last."""
        return [slice(0, self.params.shape[-1])] if self.params.shape[-1] else []

    @functools.cached_property
    def _starts(self) -> list[int]:
        """Where each component's parameters begin in the flat buffer."""
        sizes = [sum(math.prod(shape) for shape in shapes) for shapes in self.shapes]
        return list(itertools.accumulate(sizes, initial=0))[:-1]

    def _grad_views(self, grads: Tensor) -> list[list[Tensor]]:
        cached = getattr(self, "_cached_views", None)
        if cached is None or cached[0] is not grads:
            self._cached_views = cached = (grads, self.views(grads))
        return cached[1]

    def state_dict(self) -> dict[str, Any]:
        """What the model keeps from one minibatch to the next."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take what another model has kept."""
        assert not state
