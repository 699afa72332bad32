"""The components of nnet3 networks in training: forward and backward over the rows of a minibatch, as Kaldi makes them.

The rows of a node are frame by frame: those of all sequences of its first frame, then those of its second, ... A layer keeps nothing from
one minibatch to the next but its parameters, which lie in the network's flat buffer: what backward needs of forward travels in a *memory*.

Statistics (of batch normalisation, and of the values and derivatives of rectified linear units) are parameters that follow the data: a
minibatch's sums stand in their places of the gradient, and the optimiser adds them up, decaying. Averaging of models averages counts and
sums, as Kaldi's nnet3-average does.

A rectified linear unit that is nearly always zero, or nearly never, is *repaired*, in a random half of the minibatches: a constant is
added to its derivatives, for the objective + 2 scale where the share of its frames that are above zero is at most 0.05, - 2 scale where it
is above 0.95. Derivatives here are those of a loss, the objective with the other sign.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from pykaldist.errors import UserError
from pykaldist.nnet.components import AffineMap, GradientRule, ParameterSpec, add_up
from pykaldist.nnet.gemm import affine, product
from pykaldist.nnet.nnet3.components import Nnet3Component
from pykaldist.nnet.nnet3.computing.batchnorm import BatchNorm, Normalised, mean_and_variance

REPAIR_LOWER, REPAIR_UPPER = 0.05, 0.95  # shares of frames above zero
REPAIR_PROBABILITY = 0.5
ALPHA, HISTORY, PERIOD = 4.0, 2000.0, 4  # of Fisher matrices, where a file does not say them


@dataclass(eq=False)
class Nnet3Map(AffineMap):
    """The affine map of a component, with what its file says of its training. `learn_rate_coef` is the learning-rate factor.

    `ranks`, `alphas`: of the Fisher matrices of inputs and of output derivatives; None: plain gradients. `orthonormal`: the length of rows
    that are kept orthogonal, below 0 any, 0: not kept so. `of_gradient`: the natural gradient is one of the minibatch's whole gradient,
    with Fisher matrices that remember `minibatches_history` minibatches.
    """

    ranks: tuple[int, int] | None = None
    alphas: tuple[float, float] = (ALPHA, ALPHA)
    num_samples_history: float = HISTORY
    update_period: int = PERIOD
    l2_regularize: float = 0.0
    max_change: float = 0.0
    orthonormal: float = 0.0
    of_gradient: bool = False
    minibatches_history: float = 0.0


@dataclass
class Run:
    """What a node's pass needs beside its rows: `times` are its frames, each of which has the rows of all `sequences`.

    `generator`: for dropout and repair; without one nothing is random. `taken`: the frames of its input, where it looks at several for one.
    """

    training: bool
    sequences: int
    times: np.ndarray
    generator: torch.Generator | None = None
    memory: Any = None
    taken: np.ndarray | None = None


def widened(x: Tensor) -> Tensor:
    """In single precision what is in half of it."""
    return x.float() if x.dtype == torch.bfloat16 else x


class Layer(ABC):
    """A component in training: a function of rows (n, input_dim) to rows (n, output_dim).

    `wide`: its outputs are of the parameters' type, where activations are of a narrower one.
    """

    stochastic = False
    wide = False

    def __init__(self, component: Nnet3Component) -> None:
        self.component, self.maps = component, cast("list[AffineMap]", [])
        self.input_dim, self.output_dim = component.input_dim, component.output_dim

    def specs(self) -> list[ParameterSpec]:
        return []

    def bind(self, params: list[Tensor]) -> None:
        assert not params

    def initial(self) -> list[np.ndarray]:
        """The values of its parameters in the file."""
        return []

    def to_component(self, params: list[np.ndarray], learn_rate: float | None) -> dict[str, Any]:
        """The fields of the file that its parameters, and the learning rate, change."""
        return {}

    @abstractmethod
    def forward(self, x: Tensor, run: Run) -> Tensor:
        """The outputs for x, whose backward needs `run`."""

    def gather(self, y: Tensor, run: Run, grads: list[Tensor], beta: float) -> None:
        """Put the minibatch's sums into the statistics' places of the gradient."""
        return  # it has none

    def backward(self, x: Tensor, y: Tensor, dy: Tensor, run: Run, needed: bool, grads: list[Tensor], beta: float,
                 rule: GradientRule) -> Tensor | None:
        """The derivatives with respect to x, where they are `needed`, of those with respect to y; makes the parameters' gradients.

        It may write over dy, and, where the layer has a map, over x.
        """
        dx = self.derivative(x, y, dy, run) if needed else None
        self.accumulate(x, dy, run, grads, beta, rule)
        return dx

    @abstractmethod
    def derivative(self, x: Tensor, y: Tensor, dy: Tensor, run: Run) -> Tensor:
        """The derivatives with respect to x of those with respect to y, of some rows; where the layer has no map, it may write over dy."""

    def accumulate(self, x: Tensor, dy: Tensor, run: Run, grads: list[Tensor], beta: float, rule: GradientRule) -> None:
        """Make the parameters' gradients of all rows of a minibatch, after their derivatives; it may write over x and dy."""
        return  # it has none


class Affine(Layer):
    """An affine map that is trained: of NaturalGradientAffine, Affine, Linear and TdnnComponent, the last one of spliced inputs."""

    def __init__(self, component: Nnet3Component) -> None:
        super().__init__(component)
        values = component.values
        bias = values.get("BiasParams")
        self.has_bias = isinstance(bias, np.ndarray) and len(bias) > 0
        self.output_dim, self.input_dim = component.linear.shape
        natural = component.type == "NaturalGradientAffineComponent" or bool(values.get("UseNaturalGradient"))
        ranks = cast("list[int]", values.get("RankInOut") or [values.get("RankIn"), values.get("RankOut")])
        alphas = cast("list[float]", values.get("AlphaInOut") or [values.get("Alpha", ALPHA)] * 2)
        coef = cast(float, values.get("LearningRateFactor", 1.0))
        self.map = Nnet3Map(
            self.input_dim, self.output_dim, ("weight", "bias") if self.has_bias else ("weight",), coef, coef,
            ranks=(ranks[0], ranks[1]) if natural else None, alphas=(alphas[0], alphas[1]),
            num_samples_history=cast(float, values.get("NumSamplesHistory", HISTORY)),
            update_period=cast(int, values.get("UpdatePeriod", PERIOD)), l2_regularize=cast(float, values.get("L2Regularize", 0.0)),
            max_change=cast(float, values.get("MaxChange", 0.0)), orthonormal=cast(float, values.get("OrthonormalConstraint", 0.0)))
        self.maps = [self.map]

    def specs(self) -> list[ParameterSpec]:
        weight = ParameterSpec("weight", (self.output_dim, self.input_dim))
        return [weight, ParameterSpec("bias", (self.output_dim,))] if self.has_bias else [weight]

    def bind(self, params: list[Tensor]) -> None:
        self.weight, self.bias = params[0], params[1] if self.has_bias else None
        self.dtype = torch.float32 if self.weight.dtype == torch.bfloat16 else self.weight.dtype

    def initial(self) -> list[np.ndarray]:
        return [self.component.linear, *([self.component.array("BiasParams")] if self.has_bias else [])]

    def to_component(self, params: list[np.ndarray], learn_rate: float | None) -> dict[str, Any]:
        names = ["Params" if self.component.type == "LinearComponent" else "LinearParams", "BiasParams"]
        rate = {} if learn_rate is None else {"LearningRate": learn_rate * self.map.learn_rate_coef}
        return {**rate, **dict(zip(names, params, strict=False))}

    def forward(self, x: Tensor, run: Run) -> Tensor:
        y = x.new_empty(len(x), self.output_dim, dtype=self.dtype if self.wide else x.dtype)
        if self.bias is None:
            product(x[:, :self.input_dim], self.weight.t(), y)
        else:
            affine(x[:, :self.input_dim], self.weight, self.bias, y)
        return y

    def derivative(self, x: Tensor, y: Tensor, dy: Tensor, run: Run) -> Tensor:
        return product(dy.to(x.dtype), self.weight, x.new_empty(len(dy), self.input_dim))

    def accumulate(self, x: Tensor, dy: Tensor, run: Run, grads: list[Tensor], beta: float, rule: GradientRule) -> None:
        rule(self.map, x[:, :self.input_dim], dy.to(x.dtype), grads[0], grads[1] if self.has_bias else None, beta, spent=x)


class Fixed(Layer):
    """An affine map, or a bias alone, that is not trained."""

    def __init__(self, component: Nnet3Component) -> None:
        super().__init__(component)
        self.weight: Tensor | None = None
        self.bias = torch.from_numpy(component.array("Bias" if component.type == "FixedBiasComponent" else "BiasParams").copy())
        if component.type == "FixedAffineComponent":
            self.weight = torch.from_numpy(component.linear.copy())

    def forward(self, x: Tensor, run: Run) -> Tensor:
        if self.bias.device != x.device or self.bias.dtype != x.dtype:
            self.bias = self.bias.to(x.device, x.dtype)
            self.weight = None if self.weight is None else self.weight.to(x.device, x.dtype)
        if self.weight is None:
            return x + self.bias
        y = x.new_empty(len(x), self.output_dim)
        affine(x, self.weight, self.bias, y)
        return y

    def derivative(self, x: Tensor, y: Tensor, dy: Tensor, run: Run) -> Tensor:
        return dy if self.weight is None else product(dy, self.weight, dy.new_empty(len(dy), self.input_dim))


class Rectified(Layer):
    """RectifiedLinearComponent, with self-repair and the statistics on which it depends: frames, sums of values and of derivatives."""

    def __init__(self, component: Nnet3Component) -> None:
        super().__init__(component)
        values = component.values
        self.repair = cast(float, values.get("SelfRepairScale", 0.0))
        self.thresholds = (cast(float, values.get("SelfRepairLowerThreshold", REPAIR_LOWER)),
                           cast(float, values.get("SelfRepairUpperThreshold", REPAIR_UPPER)))
        self.block = cast(int, values.get("BlockDim", self.input_dim))
        self.stochastic = self.repair != 0.0

    def specs(self) -> list[ParameterSpec]:
        return [ParameterSpec("count", (1,), True), ParameterSpec("values", (self.input_dim,), True),
                ParameterSpec("derivatives", (self.input_dim,), True)]

    def bind(self, params: list[Tensor]) -> None:
        self.count, _, self.derivatives = params

    def initial(self) -> list[np.ndarray]:
        count = self.component.number("Count")
        sums = [self.component.array(name) * count for name in ("ValueAvg", "DerivAvg")]
        return [np.full(1, count)] + [one if len(one) else np.zeros(self.input_dim) for one in sums]

    def to_component(self, params: list[np.ndarray], learn_rate: float | None) -> dict[str, Any]:
        count = float(params[0][0])
        if count <= 0:
            return {"Count": 0.0, "ValueAvg": np.zeros(0, np.float32), "DerivAvg": np.zeros(0, np.float32)}
        return {"Count": count, "ValueAvg": params[1] / count, "DerivAvg": params[2] / count}

    def forward(self, x: Tensor, run: Run) -> Tensor:
        return x.clamp_min(0)

    def gather(self, y: Tensor, run: Run, grads: list[Tensor], beta: float) -> None:
        for gradient, value in zip(grads, (torch.full_like(grads[0], len(y)), y.sum(0, dtype=grads[1].dtype),
                                           y.sign().sum(0, dtype=grads[2].dtype)), strict=True):
            add_up(gradient, value, beta)

    def derivative(self, x: Tensor, y: Tensor, dy: Tensor, run: Run) -> Tensor:
        dx = cast(Tensor, torch.ops.aten.threshold_backward(dy, y, 0))
        if self.repair and run.generator is not None:
            dx += self._repair(run.generator).to(dx.dtype)
        return dx

    def _repair(self, generator: torch.Generator) -> Tensor:
        """What is added to the derivatives (dim,) of the loss: 0 in half of the minibatches, and before there are statistics."""
        share = self.derivatives.float() / self.count.float().clamp_min(1.0)
        if self.block < self.input_dim:
            share = share.view(-1, self.block).mean(0).repeat(self.input_dim // self.block)
        lower, upper = self.thresholds
        direction = (share > upper).float() - (share <= lower).float()
        chosen = torch.rand(1, generator=generator, device=share.device) < REPAIR_PROBABILITY
        return direction * (self.repair / REPAIR_PROBABILITY) * (chosen & (self.count > 0))


class BatchNormalised(Layer):
    """BatchNormComponent: rows are normalised by the minibatch's mean and variance, in the test by the statistics."""

    def __init__(self, component: Nnet3Component) -> None:
        super().__init__(component)
        self.block = int(component.number("BlockDim"))
        self.norm = BatchNorm(component.number("TargetRms"), component.number("Epsilon"))
        if component.values["TestMode"]:
            raise UserError(f"component {component.name} is in test mode, which is not for training; take the network as it was before "
                            "--prepare-for-test.")

    def specs(self) -> list[ParameterSpec]:
        return [ParameterSpec("count", (1,), True), ParameterSpec("sum", (self.block,), True),
                ParameterSpec("squares", (self.block,), True)]

    def bind(self, params: list[Tensor]) -> None:
        self.statistics = params

    def initial(self) -> list[np.ndarray]:
        count = self.component.number("Count")
        if count <= 0:
            return [np.zeros(1), np.zeros(self.block), np.zeros(self.block)]
        mean, variance = (self.component.array(name).astype(np.float64) for name in ("StatsMean", "StatsVar"))
        return [np.full(1, count), mean * count, (variance + mean**2) * count]

    def to_component(self, params: list[np.ndarray], learn_rate: float | None) -> dict[str, Any]:
        mean, variance = mean_and_variance(*(torch.from_numpy(one.astype(np.float64)) for one in params))
        return {"Count": float(params[0][0]), "StatsMean": mean.float().numpy(), "StatsVar": variance.float().numpy()}

    def forward(self, x: Tensor, run: Run) -> Tensor:
        rows = x.reshape(-1, self.block)
        if not run.training:
            scale, offset = self.norm.scale_and_offset(*(one.to(torch.float32) if one.dtype == torch.bfloat16 else one
                                                         for one in self.statistics))
            return torch.addcmul(offset, rows, scale).to(x.dtype).view(x.shape)
        run.memory = self.norm.forward(rows)
        return cast(Normalised, run.memory).y.view(x.shape)

    def gather(self, y: Tensor, run: Run, grads: list[Tensor], beta: float) -> None:
        for gradient, value in zip(grads, cast(Normalised, run.memory).statistics(), strict=True):
            add_up(gradient, value, beta)

    def derivative(self, x: Tensor, y: Tensor, dy: Tensor, run: Run) -> Tensor:
        one = cast(Normalised, run.memory)
        return self.norm.backward(one, dy.reshape(-1, self.block)).view(x.shape)


class Dropout(Layer):
    """GeneralDropoutComponent: rows times a random mask, one a sequence and dimension, or one for each `time_period` frames of it."""

    def __init__(self, component: Nnet3Component) -> None:
        super().__init__(component)
        self.block, self.period = int(component.number("BlockDim")), int(component.number("TimePeriod"))
        self.proportion, self.continuous = component.number("DropoutProportion"), "Continuous" in component.values

    stochastic = True  # its proportion may be changed by a schedule

    def to_component(self, params: list[np.ndarray], learn_rate: float | None) -> dict[str, Any]:
        return {"DropoutProportion": self.proportion}

    def forward(self, x: Tensor, run: Run) -> Tensor:
        if not run.training or run.generator is None or self.proportion == 0.0:
            return x
        period = run.times // self.period if self.period else np.zeros(len(run.times), int)
        of_frame = np.unique(period, return_inverse=True)[1]
        mask = torch.rand(of_frame.max() + 1, run.sequences, self.block, generator=run.generator, device=x.device, dtype=torch.float32)
        if self.continuous:
            mask = mask * (4 * self.proportion) + (1 - 2 * self.proportion)
        else:
            mask = (mask > self.proportion) / (1 - self.proportion)
        mask = mask.to(x.dtype).repeat(1, 1, self.input_dim // self.block)
        run.memory = mask if len(mask) == 1 else mask[torch.from_numpy(of_frame).to(x.device)]
        return self._masked(x, run)

    def derivative(self, x: Tensor, y: Tensor, dy: Tensor, run: Run) -> Tensor:
        return dy if run.memory is None else self._masked(dy, run)

    def _masked(self, x: Tensor, run: Run) -> Tensor:
        return (x.reshape(-1, run.sequences, self.input_dim) * run.memory).view(x.shape)


class Same(Layer):
    """NoOpComponent: nothing, but for a factor of the derivatives."""

    def __init__(self, component: Nnet3Component) -> None:
        super().__init__(component)
        self.backprop_scale = component.number("BackpropScale")

    def forward(self, x: Tensor, run: Run) -> Tensor:
        return x

    def derivative(self, x: Tensor, y: Tensor, dy: Tensor, run: Run) -> Tensor:
        return dy if self.backprop_scale == 1.0 else dy * self.backprop_scale


class LogSoftmax(Layer):
    """LogSoftmaxComponent."""

    def forward(self, x: Tensor, run: Run) -> Tensor:
        return x.log_softmax(1)

    def derivative(self, x: Tensor, y: Tensor, dy: Tensor, run: Run) -> Tensor:
        return cast(Tensor, torch.ops.aten._log_softmax_backward_data(dy, y, 1, y.dtype))


LAYERS: dict[str, type[Layer]] = {
    "NaturalGradientAffineComponent": Affine, "AffineComponent": Affine, "LinearComponent": Affine, "TdnnComponent": Affine,
    "FixedAffineComponent": Fixed, "FixedBiasComponent": Fixed, "RectifiedLinearComponent": Rectified, "LogSoftmaxComponent": LogSoftmax,
    "BatchNormComponent": BatchNormalised, "GeneralDropoutComponent": Dropout, "NoOpComponent": Same}
