"""Functions of components without parameters, each frame for itself: forward, and the derivatives with respect to the input.

x (n, input dim) are inputs, y (n, output dim) outputs; dy, dx derivatives with respect to them.

NormalizeComponent makes of each block of a frame (D dimensions, the mean square q = x.x / D, at least 2^-66) y = t q^-1/2 x, t the target
root mean square, and where it is asked for appends log(t) + log(q / t^2) / 2, the log of the root mean square. With f = t q^-1/2,
    dx = f dy - f (y . dy) x / (x . x),   and   x / (x . x) times the derivative of the log;
where q is at its floor, only the first term is left.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import cast

import torch
from torch import Tensor

from pykaldist.nnet.nnet3.components import Nnet3Component

NORM_FLOOR = 2.0**-66


class Function(ABC):
    """What a component computes of each frame."""

    def __init__(self, component: Nnet3Component) -> None:
        self.component = component

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """The outputs for x."""

    @abstractmethod
    def backward(self, x: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        """The derivatives with respect to x of those with respect to y."""


class Sigmoid(Function):
    """SigmoidComponent: y = 1 / (1 + exp(-x))."""

    def forward(self, x: Tensor) -> Tensor:
        return x.sigmoid()

    def backward(self, x: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        return dy * y * (1 - y)


class Tanh(Function):
    """TanhComponent."""

    def forward(self, x: Tensor) -> Tensor:
        return x.tanh()

    def backward(self, x: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        return dy * (1 - y * y)


class Softmax(Function):
    """SoftmaxComponent."""

    def forward(self, x: Tensor) -> Tensor:
        return x.softmax(1)

    def backward(self, x: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        return y * (dy - (y * dy).sum(1, keepdim=True))


class Normalise(Function):
    """NormalizeComponent."""

    def __init__(self, component: Nnet3Component) -> None:
        super().__init__(component)
        dim = component.integer("InputDim")
        self.block = component.integer("BlockDim") if "BlockDim" in component.values else dim
        self.rms, self.log_stddev = component.number("TargetRms"), bool(component.values["AddLogStddev"])

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, self.block)
        ratio = (rows.square().mean(1, keepdim=True) / self.rms**2).clamp_min(NORM_FLOOR)
        y = rows * ratio.rsqrt()
        if self.log_stddev:
            y = torch.cat([y, 0.5 * ratio.log() + math.log(self.rms)], 1)
        return y.view(len(x), -1)

    def backward(self, x: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        rows = x.reshape(-1, self.block)
        dy = dy.reshape(len(rows), -1)
        squares = rows.square().sum(1, keepdim=True)
        ratio = squares / (self.block * self.rms**2)
        factor, above = ratio.clamp_min(NORM_FLOOR).rsqrt(), ratio > NORM_FLOOR
        own = dy[:, :self.block]
        inner = (own * rows).sum(1, keepdim=True) * -factor
        if self.log_stddev:
            inner = inner + dy[:, self.block:]
        return (own * factor + rows * torch.where(above, inner / squares.clamp_min(NORM_FLOOR * 1e-3), 0)).view(x.shape)


class PNorm(Function):
    """PnormComponent: the root of the sum of squares of each group of neighbouring dimensions."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.linalg.vector_norm(x.reshape(len(x), self.component.output_dim, -1), dim=2)

    def backward(self, x: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        groups = x.reshape(len(x), self.component.output_dim, -1)
        return torch.where(y[:, :, None] > 0, groups / y[:, :, None], 0).mul(dy[:, :, None]).view(x.shape)


class Permute(Function):
    """PermuteComponent: dimension i of the output is dimension `column-map`[i] of the input."""

    def __init__(self, component: Nnet3Component) -> None:
        super().__init__(component)
        self._columns = torch.tensor(cast("list[int]", component.values["ColumnMap"]))
        self._back = self._columns.argsort()

    def _on(self, device: torch.device) -> None:
        if self._columns.device != device:
            self._columns, self._back = self._columns.to(device), self._back.to(device)

    def forward(self, x: Tensor) -> Tensor:
        self._on(x.device)
        return x.index_select(1, self._columns)

    def backward(self, x: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        self._on(dy.device)
        return dy.index_select(1, self._back)


class SumBlocks(Function):
    """SumBlockComponent: `scale` times the sum of the blocks of output's dimension that make the input."""

    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(len(x), -1, self.component.output_dim).sum(1) * self.component.number("Scale")

    def backward(self, x: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        return (dy * self.component.number("Scale")).repeat(1, x.shape[1] // dy.shape[1])


class Product(Function):
    """ElementwiseProductComponent: the product of the blocks of output's dimension that make the input."""

    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(len(x), -1, self.component.output_dim).prod(1)

    def backward(self, x: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        blocks = x.reshape(len(x), -1, self.component.output_dim)
        others = [torch.cat([blocks[:, :n], blocks[:, n + 1:]], 1).prod(1) for n in range(blocks.shape[1])]
        return torch.cat([dy * other for other in others], 1)


FUNCTIONS: dict[str, type[Function]] = {
    "SigmoidComponent": Sigmoid, "TanhComponent": Tanh, "SoftmaxComponent": Softmax, "NormalizeComponent": Normalise,
    "PnormComponent": PNorm, "PermuteComponent": Permute, "SumBlockComponent": SumBlocks, "ElementwiseProductComponent": Product}
