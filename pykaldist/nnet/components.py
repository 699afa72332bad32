"""Components of a feed-forward network, with explicit forward and backward passes, as in nnet1.

Why not autograd: NG-SGD needs each affine map's inputs and output derivatives; gradients must land in one flat buffer that strategies
exchange; and on a CPU the bookkeeping of autograd costs about a tenth of a small network's step.

A component owns no memory. `bind` gives it views into the model's flat parameter buffer; `forward` and `backward` write into buffers
that the model keeps. Shapes: x (n, in), y (n, out), derivatives of the objective with respect to each likewise. Gradients are sums
over the minibatch, not means (nnet1's convention).

A component whose parameters form affine maps lists them in `maps`, and leaves the making of their gradients to the `GradientRule` that
`backward` is given: `outer_product` for SGD, the natural gradient for NG-SGD.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pykaldist.nnet.gemm import accumulate, affine, product


@dataclass(frozen=True)
class ParameterSpec:
    """A parameter's name within its component, and its shape."""

    name: str
    shape: tuple[int, ...]


@dataclass(eq=False)
class AffineMap:
    """y = x W^T + b within a component; the coefficients multiply the learning rate (nnet1's <LearnRateCoef>, <BiasLearnRateCoef>).

    `params` names the component's parameters W and, where there is one, b; they are neighbours in `specs`.
    """

    input_dim: int
    output_dim: int
    params: tuple[str, ...] = ("weight", "bias")
    learn_rate_coef: float = 1.0
    bias_learn_rate_coef: float = 1.0

    @property
    def bias(self) -> bool:
        return len(self.params) > 1


# (map, x (n, in), dy (n, out), weight gradient (out, in), bias gradient (out,) or None, beta): sets each gradient to beta times its old
# value plus the minibatch's. It may write over dy, and "gradients" may be the parameters themselves: dx is to be made before.
GradientRule = Callable[[AffineMap, Tensor, Tensor, Tensor, "Tensor | None", float], None]


def outer_product(map: AffineMap, x: Tensor, dy: Tensor, weight: Tensor, bias: Tensor | None, beta: float) -> None:
    """The gradient itself, dy^T x, times the map's learning-rate coefficients."""
    accumulate(weight, dy.t(), x, beta, map.learn_rate_coef)
    if bias is None:
        return
    if beta == 0.0:
        torch.sum(dy, 0, dtype=bias.dtype, out=bias)
        if map.bias_learn_rate_coef != 1.0:
            bias.mul_(map.bias_learn_rate_coef)
    else:
        bias.mul_(beta).add_(dy.sum(0, dtype=bias.dtype), alpha=map.bias_learn_rate_coef)


class Component(ABC):
    """A map from (n, input_dim) to (n, output_dim)."""

    def __init__(self, input_dim: int, output_dim: int) -> None:
        self.input_dim, self.output_dim = input_dim, output_dim
        self.maps: list[AffineMap] = []

    def specs(self) -> list[ParameterSpec]:
        """The parameters, in the order in which they lie in the flat buffer."""
        return []

    def bind(self, params: list[Tensor]) -> None:
        """Take views of the parameters, shaped as `specs` says."""
        assert not params

    @abstractmethod
    def forward(self, x: Tensor, y: Tensor, generator: torch.Generator | None) -> None:
        """Write the outputs for `x` into `y`; `y` may be `x` itself where `in_place` says so.

        `generator` is what dropout draws from while training, and None where the model is used, not trained.
        """

    @abstractmethod
    def backward(self, x: Tensor, y: Tensor, dy: Tensor, dx: Tensor | None, grads: list[Tensor], beta: float, rule: GradientRule) -> None:
        """Given dy, set each gradient to beta times its old value plus the new sum, and write dx where it is not None.

        `dy` may be overwritten; `dx` may be `dy` itself where `in_place` says so.
        """

    in_place = False  # forward may write over its input, backward over dy, needing only y
    stochastic = False  # forward draws random numbers while training


class Affine(Component):
    """y = x W^T + b, W (out, in)."""

    def __init__(self, input_dim: int, output_dim: int) -> None:
        super().__init__(input_dim, output_dim)
        self.map = AffineMap(input_dim, output_dim)
        self.maps = [self.map]

    def specs(self) -> list[ParameterSpec]:
        return [ParameterSpec("weight", (self.output_dim, self.input_dim)), ParameterSpec("bias", (self.output_dim,))]

    def bind(self, params: list[Tensor]) -> None:
        self.weight, self.bias = params

    def forward(self, x: Tensor, y: Tensor, generator: torch.Generator | None) -> None:
        affine(x, self.weight, self.bias, y)

    def backward(self, x: Tensor, y: Tensor, dy: Tensor, dx: Tensor | None, grads: list[Tensor], beta: float, rule: GradientRule) -> None:
        weight, bias = grads
        if dx is not None:
            torch.mm(dy, self.weight, out=dx)
        rule(self.map, x, dy, weight, bias, beta)


class Linear(Component):
    """y = x W^T, W (out, in)."""

    def __init__(self, input_dim: int, output_dim: int) -> None:
        super().__init__(input_dim, output_dim)
        self.map = AffineMap(input_dim, output_dim, ("weight",))
        self.maps = [self.map]

    def specs(self) -> list[ParameterSpec]:
        return [ParameterSpec("weight", (self.output_dim, self.input_dim))]

    def bind(self, params: list[Tensor]) -> None:
        (self.weight,) = params

    def forward(self, x: Tensor, y: Tensor, generator: torch.Generator | None) -> None:
        product(x, self.weight.t(), y)

    def backward(self, x: Tensor, y: Tensor, dy: Tensor, dx: Tensor | None, grads: list[Tensor], beta: float, rule: GradientRule) -> None:
        if dx is not None:
            torch.mm(dy, self.weight, out=dx)
        rule(self.map, x, dy, grads[0], None, beta)


class Activation(Component):
    """An elementwise nonlinearity whose derivative follows from its output."""

    in_place = True

    def __init__(self, dim: int) -> None:
        super().__init__(dim, dim)


class Sigmoid(Activation):
    def forward(self, x: Tensor, y: Tensor, generator: torch.Generator | None) -> None:
        torch.sigmoid(x, out=y)

    def backward(self, x: Tensor, y: Tensor, dy: Tensor, dx: Tensor | None, grads: list[Tensor], beta: float, rule: GradientRule) -> None:
        if dx is not None:
            torch.ops.aten.sigmoid_backward.grad_input(dy, y, grad_input=dx)


class Tanh(Activation):
    def forward(self, x: Tensor, y: Tensor, generator: torch.Generator | None) -> None:
        torch.tanh(x, out=y)

    def backward(self, x: Tensor, y: Tensor, dy: Tensor, dx: Tensor | None, grads: list[Tensor], beta: float, rule: GradientRule) -> None:
        if dx is not None:
            torch.ops.aten.tanh_backward.grad_input(dy, y, grad_input=dx)


class Relu(Activation):
    def forward(self, x: Tensor, y: Tensor, generator: torch.Generator | None) -> None:
        torch.clamp_min(x, 0.0, out=y)

    def backward(self, x: Tensor, y: Tensor, dy: Tensor, dx: Tensor | None, grads: list[Tensor], beta: float, rule: GradientRule) -> None:
        if dx is not None:
            torch.ops.aten.threshold_backward.grad_input(dy, y, 0.0, grad_input=dx)


ACTIVATIONS: dict[str, type[Activation]] = {"sigmoid": Sigmoid, "tanh": Tanh, "relu": Relu}


class Dropout(Component):
    """In training y = x m / (1 - rate), m drawn anew for each minibatch, 0 with probability `rate`, else 1; in use y = x (Kaldi's nnet1).

    Srivastava et al. (2014); "inverted", so that the expectation is that of the network in use.
    """

    stochastic = True

    def __init__(self, dim: int, rate: float) -> None:
        super().__init__(dim, dim)
        self.rate = rate
        self._mask = torch.empty(0)

    def forward(self, x: Tensor, y: Tensor, generator: torch.Generator | None) -> None:
        if generator is None:
            y.copy_(x)
            return
        if self._mask.numel() < x.numel() or self._mask.dtype != x.dtype:
            self._mask = torch.empty(x.numel(), device=x.device, dtype=x.dtype)
        mask = self._mask[: x.numel()].view_as(x).bernoulli_(1.0 - self.rate, generator=generator)
        torch.mul(x, mask.mul_(1.0 / (1.0 - self.rate)), out=y)

    def backward(self, x: Tensor, y: Tensor, dy: Tensor, dx: Tensor | None, grads: list[Tensor], beta: float, rule: GradientRule) -> None:
        if dx is not None:
            torch.mul(dy, self._mask[: dy.numel()].view_as(dy), out=dx)
