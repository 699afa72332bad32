"""Stacked models: several models of one shape that compute together, each with its own minibatch.

The parameters of V models with P each lie in one buffer (V, 1, P), whose rows are the models' own flat buffers. A minibatch has V times n
rows, those of the first model first. An affine map sees them as (V, n, in), and multiplies them by weights (V, out, in) in one batch of
products; everything else is done row by row, and sees V n rows of one model. So a pass launches as much for V models as for one.

    stacked = StackedModel(models)      # from now on, models[k].params is stacked.params[k, 0]
    logits = stacked.forward(inputs)    # (V n, output_dim)

The sums of a product may be taken in another order than those of one model's: results differ in the last bits.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

from torch import Tensor

from pykaldist.nnet.components import Activation, Affine, Component, GradientRule, Linear, ParameterSpec, Pass
from pykaldist.nnet.model import Model


class StackedModel(Model):
    """The models `models`, of affine maps and activations, stacked. `params` (models, 1, P), and so are gradients and momentum.

    The models go on as they are. Their parameters are rows of the stacked ones, and their activations lie in the stacked model's buffers.
    """

    def __init__(self, models: Sequence[Model]) -> None:
        first, count = models[0], len(models)
        assert not first.narrow and all(isinstance(component, (Affine, Linear, Activation)) for component in first.components)
        self.stack = count, 1
        components = [Each(component, count) if component.maps else component for component in map(copy.copy, first.components)]
        super().__init__(components, first.device, first.params.dtype)
        for model, row in zip(models, self.params[:, 0].unbind(), strict=True):
            model.lie_in(row.copy_(model.params))
            model.share_activations(self)

    def _view(self, flat: Tensor, span: slice, shape: tuple[int, ...]) -> Tensor:
        """A parameter of all models as a view of a buffer (models, 1, P): a weight (models, out, in), or a bias (models, 1, out)."""
        return flat[:, 0, span].unflatten(1, shape if len(shape) > 1 else (1, shape[0]))


class Each(Component):
    """A component with affine maps, whose weights are several models', stacked: each has its part of the rows."""

    roomy = True

    def __init__(self, component: Component, count: int) -> None:
        super().__init__(component.input_dim, component.output_dim)
        self._component, self._count = component, count
        self.maps, self.flops = component.maps, component.flops

    def specs(self) -> list[ParameterSpec]:
        return self._component.specs()

    def bind(self, params: list[Tensor]) -> None:
        self._component.bind(params)

    def _apart(self, rows: Tensor) -> Tensor:
        """Rows (models n, columns) as (models, n, columns)."""
        return rows.unflatten(0, (self._count, -1))

    def forward(self, x: Tensor, y: Tensor, run: Pass) -> None:
        self._component.forward(self._apart(x), self._apart(y), run)

    def backward(self, x: Tensor, y: Tensor, dy: Tensor, dx: Tensor | None, grads: list[Tensor], beta: float, rule: GradientRule,
                 run: Pass) -> None:
        dx = None if dx is None else self._apart(dx)
        self._component.backward(self._apart(x), self._apart(y), self._apart(dy), dx, grads, beta, rule, run)
