"""The components of neural networks, with explicit forward and backward passes, as in nnet1.

There is no autograd, for three reasons. NG-SGD needs each affine map's inputs and output derivatives. Gradients must land in one flat
buffer that strategies exchange. And on a CPU the bookkeeping of autograd costs about a tenth of a small network's step.

A component owns no memory. `bind` gives it views into the model's flat parameter buffer; `forward` and `backward` write into buffers
that the model keeps. Shapes: x (n, in), y (n, out), derivatives of the objective with respect to each likewise. Gradients are sums
over the minibatch, not means (nnet1's convention).

A component whose parameters form affine maps lists them in `maps`, and leaves the making of their gradients to the `GradientRule` that
`backward` is given: `outer_product` for SGD, the natural gradient for NG-SGD.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from pykaldist.frames.packed import Sequences
from pykaldist.nnet.factor import Factor, taken_in
from pykaldist.nnet.gemm import accumulate, accumulate_sums, accumulate_weight, affine, aligned, padded_rows, product, whole_rows
from pykaldist.pieces import pieces


@dataclass(frozen=True)
class ParameterSpec:
    """A parameter's name within its component, and its shape.

    `statistic`: it is not trained but follows the data. What stands in its place in a gradient is a sum over the minibatch's frames, and
    it becomes a running mean of what that is a frame (`Optimizer`).
    """

    name: str
    shape: tuple[int, ...]
    statistic: bool = False


@dataclass(eq=False)
class AffineMap:
    """An affine map y = x W^T + b within a component, with its learning-rate coefficients.

    The coefficients multiply the learning rate (nnet1's <LearnRateCoef>, <BiasLearnRateCoef>).

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


class GradientRule(Protocol):
    """A function that makes the gradients of an affine map from its inputs and the derivatives of its outputs."""

    def __call__(self, map: AffineMap, x: Tensor, dy: Tensor, weight: Tensor, bias: Tensor | None, beta: float, *,
                 spent: Tensor | None = None) -> None:
        """Set each gradient, `weight` (out, in) and `bias` (out,), to beta times its old value plus the minibatch's.

        It may write over dy (n, out), and "gradients" may be the parameters themselves: dx is to be made before. Where x (n, in) is not
        needed any more either, it is the beginning of the rows of `spent` (n, more than in): x may be written over, and where there is a
        bias the column beside it; those beyond hold zeros, and stay so.
        """


def outer_product(map: AffineMap, x: Tensor, dy: Tensor, weight: Tensor, bias: Tensor | None, beta: float, *,
                  spent: Tensor | None = None, by: Factor = 1.0) -> None:
    """The gradient rule of SGD: the gradient itself, dy^T x, times the map's learning-rate coefficients and `by`."""
    whole, alpha = taken_in(whole_rows(dy)[0], by)
    if bias is None:
        accumulate(weight, whole[..., : map.output_dim].mT, x, beta, alpha * map.learn_rate_coef)
    else:
        sums = partial(accumulate_sums, bias, whole[..., : map.output_dim], beta, alpha * map.bias_learn_rate_coef)
        accumulate_weight(weight, bias, whole, x, beta, alpha * map.learn_rate_coef, sums)


@dataclass(eq=False)
class Pass:
    """The data of one minibatch's pass through a network that components need beside their inputs.

    `training`: its gradient will be asked for, and dropout drops, by `generator`. `sequences`: how rows follow each other. `memory`: what
    the component at hand keeps from its forward to its backward, flat, `memory_dim` values a row.
    `factors`: likewise its `factor_dim` values a row, of the type of the activations; empty where its memory is of that type.
    """

    training: bool = False
    generator: torch.Generator | None = None
    sequences: Sequences | None = None
    memory: Tensor = field(default_factory=lambda: torch.empty(0))
    factors: Tensor = field(default_factory=lambda: torch.empty(0))


def add_up(gradient: Tensor, value: Tensor, beta: float) -> None:
    """Gradient of a parameter outside of affine maps: gradient <- beta gradient + value.

    What it held does not matter where beta is 0.
    """
    if beta == 0.0:
        gradient.copy_(value)
    else:
        gradient.mul_(beta).add_(value)


class Component(ABC):
    """A part of a network: a function from (n, input_dim) to (n, output_dim) with parameters."""

    def __init__(self, input_dim: int, output_dim: int) -> None:
        self.input_dim, self.output_dim = input_dim, output_dim
        self.maps: list[AffineMap] = []

    def specs(self) -> list[ParameterSpec]:
        """The names and shapes of the parameters, in the order in which they lie in the flat buffer."""
        return []

    def bind(self, params: list[Tensor]) -> None:
        """Take views of the parameters, shaped as `specs` says."""
        assert not params

    @abstractmethod
    def forward(self, x: Tensor, y: Tensor, run: Pass) -> None:
        """Write the outputs for `x` into `y`; `y` may be `x` itself where `in_place` says so."""

    @abstractmethod
    def backward(self, x: Tensor, y: Tensor, dy: Tensor, dx: Tensor | None, grads: list[Tensor], beta: float, rule: GradientRule,
                 run: Pass) -> None:
        """Given dy, set each gradient to beta times its old value plus the new sum, and write dx where it is not None.

        `dy` may be overwritten; `dx` may be `dy` itself where `in_place` says so.
        """

    def carried(self) -> list[tuple[Tensor, Tensor] | None]:
        """The state that a recurrent component keeps from the last minibatch for the next."""
        return []

    def set_carried(self, state: list[tuple[Tensor, Tensor] | None]) -> None:
        assert not state

    in_place = False  # forward may write over its input, backward over dy, needing only y
    roomy = False  # rows of inputs and outputs may be parts of wider ones; backward needs no y, but for that of an in-place component
    stochastic = False  # forward draws random numbers while training
    recurrent = False  # rows follow each other, as `Pass.sequences` says
    memory_dim = 0  # values a row that forward keeps for backward
    factor_dim = 0  # of them those that go into products; where there are any, its memory is of the type of the parameters
    wide = ""  # its name, where it cannot do with bfloat16
    flops = 0  # of a row's forward pass, multiplications and additions


class Affine(Component):
    """An affine layer: y = x W^T + b, W (out, in).

    After `pad`, products are padded to a multiple of 8 outputs where the rows of y and dy have room for it (`gemm.whole_rows`).
    """

    roomy = True
    _padded: tuple[Tensor, Tensor] | None = None  # weight and bias with padding

    def __init__(self, input_dim: int, output_dim: int) -> None:
        super().__init__(input_dim, output_dim)
        self.map = AffineMap(input_dim, output_dim)
        self.maps, self.flops = [self.map], 2 * input_dim * output_dim

    def specs(self) -> list[ParameterSpec]:
        return [ParameterSpec("weight", (self.output_dim, self.input_dim)), ParameterSpec("bias", (self.output_dim,))]

    def bind(self, params: list[Tensor]) -> None:
        self.weight, self.bias = params
        self._padded = None

    def pad(self) -> None:
        """Pad products to a multiple of 8 outputs from now on, which a GPU's matrix units need to be fast.

        The weights of the padding are the numbers that follow the parameters in their buffer, which has to have so many. The outputs of the
        padding are not used; its derivatives have to be zeros.
        """
        rows = aligned(self.output_dim)
        self._padded = padded_rows(self.weight, rows), padded_rows(self.bias, rows)

    def forward(self, x: Tensor, y: Tensor, run: Pass) -> None:
        weight, bias = self.weight, self.bias
        whole, room = whole_rows(y)
        if room is not None and self._padded is not None:
            (weight, bias), y = self._padded, whole
        affine(x, weight, bias, y)

    def backward(self, x: Tensor, y: Tensor, dy: Tensor, dx: Tensor | None, grads: list[Tensor], beta: float, rule: GradientRule,
                 run: Pass) -> None:
        weight, bias = grads
        if dx is not None:
            whole, room = whole_rows(dy)
            if room is not None and self._padded is not None:
                product(whole, self._padded[0], dx)
            else:
                product(dy, self.weight, dx)
        rule(self.map, x, dy, weight, bias, beta)


class Linear(Component):
    """A linear layer: y = x W^T, W (out, in)."""

    roomy = True

    def __init__(self, input_dim: int, output_dim: int) -> None:
        super().__init__(input_dim, output_dim)
        self.map = AffineMap(input_dim, output_dim, ("weight",))
        self.maps, self.flops = [self.map], 2 * input_dim * output_dim

    def specs(self) -> list[ParameterSpec]:
        return [ParameterSpec("weight", (self.output_dim, self.input_dim))]

    def bind(self, params: list[Tensor]) -> None:
        (self.weight,) = params

    def forward(self, x: Tensor, y: Tensor, run: Pass) -> None:
        product(x, self.weight.mT, y)

    def backward(self, x: Tensor, y: Tensor, dy: Tensor, dx: Tensor | None, grads: list[Tensor], beta: float, rule: GradientRule,
                 run: Pass) -> None:
        if dx is not None:
            product(dy, self.weight, dx)
        rule(self.map, x, dy, grads[0], None, beta)


def sigmoid(x: Tensor, out: Tensor) -> Tensor:
    """Compute the logistic sigmoid of x into `out`, which may be x itself and is returned."""
    for values, own in pieces(x, out):
        torch.sigmoid(values, out=own)
    return out


class Activation(Component):
    """An elementwise nonlinearity whose derivative follows from its output."""

    in_place = roomy = True

    def __init__(self, dim: int) -> None:
        super().__init__(dim, dim)


class Sigmoid(Activation):
    """The logistic sigmoid: y = 1 / (1 + exp(-x))."""

    def forward(self, x: Tensor, y: Tensor, run: Pass) -> None:
        sigmoid(x, y)

    def backward(self, x: Tensor, y: Tensor, dy: Tensor, dx: Tensor | None, grads: list[Tensor], beta: float, rule: GradientRule,
                 run: Pass) -> None:
        if dx is not None:
            for d_out, out, d_in in pieces(dy, y, dx):
                torch.ops.aten.sigmoid_backward.grad_input(d_out, out, grad_input=d_in)


class Tanh(Activation):
    """The hyperbolic tangent: y = tanh(x)."""

    def forward(self, x: Tensor, y: Tensor, run: Pass) -> None:
        for values, out in pieces(x, y):
            torch.tanh(values, out=out)

    def backward(self, x: Tensor, y: Tensor, dy: Tensor, dx: Tensor | None, grads: list[Tensor], beta: float, rule: GradientRule,
                 run: Pass) -> None:
        if dx is not None:
            for d_out, out, d_in in pieces(dy, y, dx):
                torch.ops.aten.tanh_backward.grad_input(d_out, out, grad_input=d_in)


class Relu(Activation):
    """The rectifier: y = max(x, 0)."""

    def forward(self, x: Tensor, y: Tensor, run: Pass) -> None:
        for values, out in pieces(x, y):
            torch.clamp_min(values, 0.0, out=out)

    def backward(self, x: Tensor, y: Tensor, dy: Tensor, dx: Tensor | None, grads: list[Tensor], beta: float, rule: GradientRule,
                 run: Pass) -> None:
        if dx is not None:
            for d_out, out, d_in in pieces(dy, y, dx):
                torch.ops.aten.threshold_backward.grad_input(d_out, out, 0.0, grad_input=d_in)


ACTIVATIONS: dict[str, type[Activation]] = {"sigmoid": Sigmoid, "tanh": Tanh, "relu": Relu}


class Dropout(Component):
    """Dropout, as in Kaldi's nnet1: in training y = x m / (1 - rate), m drawn anew for each minibatch; in use y = x.

    m is 0 with probability `rate`, else 1.

    Srivastava et al. (2014); "inverted", so that the expectation is that of the network in use.
    """

    stochastic = roomy = True

    def __init__(self, dim: int, rate: float) -> None:
        super().__init__(dim, dim)
        self.rate, self.memory_dim = rate, dim

    def forward(self, x: Tensor, y: Tensor, run: Pass) -> None:
        if not run.training:
            y.copy_(x)
            return
        mask = run.memory[: x.numel()].view_as(x).bernoulli_(1.0 - self.rate, generator=run.generator)
        torch.mul(x, mask.mul_(1.0 / (1.0 - self.rate)), out=y)

    def backward(self, x: Tensor, y: Tensor, dy: Tensor, dx: Tensor | None, grads: list[Tensor], beta: float, rule: GradientRule,
                 run: Pass) -> None:
        if dx is not None:
            torch.mul(dy, run.memory[: dy.numel()].view_as(dy), out=dx)
