"""Layers of recurrent networks in training: cells of LSTMs, derivatives that go back so far and no further, masks of gates' dropout.

Peepholes (3, C) have the natural gradient of Kaldi's LstmNonlinearityComponent: the three rows of a minibatch's gradient are preconditioned
as if they were its samples.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from pykaldist.nnet.components import GradientRule, ParameterSpec, add_up
from pykaldist.nnet.nnet3.components import Nnet3Component
from pykaldist.nnet.nnet3.computing.gru import GruFunction
from pykaldist.nnet.nnet3.computing.lstm import GATES, backward, gates_and_cells
from pykaldist.nnet.nnet3.layers import REPAIR_PROBABILITY, Layer, Nnet3Map, Run, widened

PEEPHOLE_RANK, PEEPHOLE_HISTORY = 20, 1000.0  # Kaldi's, which no file says


class LstmCells(Layer):
    """LstmNonlinearityComponent (`lstm.py`): gates and cells, with self-repair and the statistics on which it depends."""

    def __init__(self, component: Nnet3Component) -> None:
        super().__init__(component)
        self.cells = component.array("Params").shape[1]
        values = component.values
        coef = cast(float, values.get("LearningRateFactor", 1.0))
        self.map = Nnet3Map(self.cells, 3, ("peepholes",), coef, coef, ranks=(PEEPHOLE_RANK, 0), num_samples_history=PEEPHOLE_HISTORY,
                            l2_regularize=cast(float, values.get("L2Regularize", 0.0)),
                            max_change=cast(float, values.get("MaxChange", 0.0)))
        self.maps = [self.map]
        self.thresholds, self.repair = (torch.from_numpy(part.copy())[:, None] for part in np.split(component.array("SelfRepairConfig"), 2))

    def specs(self) -> list[ParameterSpec]:
        return [ParameterSpec("peepholes", (3, self.cells)), ParameterSpec("count", (1,), True),
                ParameterSpec("values", (len(GATES) * self.cells,), True), ParameterSpec("slopes", (len(GATES) * self.cells,), True)]

    def bind(self, params: list[Tensor]) -> None:
        self.peepholes, self.count, _, slopes = params
        self.slopes = slopes.view(-1, self.cells)

    def initial(self) -> list[np.ndarray]:
        count = self.component.number("Count")
        sums = (self.component.array(token).reshape(-1) * count for token in ("ValueAvg", "DerivAvg"))
        return [self.component.array("Params"), np.full(1, count), *sums]

    def to_component(self, params: list[np.ndarray], learn_rate: float | None) -> dict[str, Any]:
        rate = {} if learn_rate is None else {"LearningRate": learn_rate * self.map.learn_rate_coef}
        count = float(params[1][0])
        means = {token: sums.reshape(-1, self.cells) / max(count, 1.0)
                 for token, sums in (("ValueAvg", params[2]), ("DerivAvg", params[3]))}
        return {**rate, **means, "Params": params[0], "Count": max(count, 0.0)}

    def forward(self, x: Tensor, run: Run) -> Tensor:
        run.memory = gates_and_cells(widened(x[:, :self.input_dim]), widened(self.peepholes))
        return run.memory.outputs().to(x.dtype)

    def derivative(self, x: Tensor, y: Tensor, dy: Tensor, run: Run) -> Tensor:
        parts = backward(run.memory, widened(self.peepholes), widened(dy), self._repair(run))
        masked = x.new_zeros(len(x), self.input_dim - 5 * self.cells)
        return torch.cat([*(part.to(x.dtype) for part in parts), masked], 1)

    def accumulate(self, x: Tensor, dy: Tensor, run: Run, grads: list[Tensor], beta: float, rule: GradientRule) -> None:
        peepholes = widened(self.peepholes)
        found = gates_and_cells(widened(x[:, :self.input_dim]), peepholes)
        p_i, p_f, _, p_o, _ = backward(found, peepholes, widened(dy), self._repair(run))
        gradient = torch.stack([(found.before * p_i).sum(0), (found.before * p_f).sum(0), (found.c * p_o).sum(0)]).to(grads[0].dtype)
        sums = (torch.full_like(grads[1], len(x)), torch.cat([getattr(found, gate).sum(0) for gate in GATES]),
                torch.cat([found.slope(gate).sum(0) for gate in GATES]))
        for statistic, value in zip(grads[1:], sums, strict=True):
            add_up(statistic, value.to(statistic.dtype), beta)
        rule(self.map, gradient, torch.eye(3, dtype=gradient.dtype, device=gradient.device), grads[0], None, beta)

    def _repair(self, run: Run) -> Tensor | None:
        """The constants (5, C) of units that are repaired, 0 of others; none where no training draws."""
        if run.generator is None:
            return None
        self.thresholds, self.repair = self.thresholds.to(self.slopes.device), self.repair.to(self.slopes.device)
        return (self.slopes.float() / (self.count.float() + 1.0) < self.thresholds) * self.repair


class GruCells(Layer):
    """The components of a GRU's cells (`gru.py`), with self-repair of the tanh and the statistics on which it depends."""

    def __init__(self, component: Nnet3Component) -> None:
        super().__init__(component)
        self.function, values = GruFunction(component), component.values
        self.cells = self.function.cells
        self.shape = (self.cells, self.function.recurrent) if self.function.resets else (1, self.cells)
        coef, alpha = cast(float, values.get("LearningRateFactor", 1.0)), component.number("Alpha")
        ranks = cast("list[int]", values["RankInOut"]) if self.function.resets else [component.integer("Rank"), 0]
        self.map = Nnet3Map(self.shape[1], self.shape[0], ("weights",), coef, coef, ranks=(ranks[0], ranks[1]), alphas=(alpha, alpha),
                            l2_regularize=cast(float, values.get("L2Regularize", 0.0)),
                            max_change=cast(float, values.get("MaxChange", 0.0)))
        self.maps = [self.map]
        self.threshold, self.repair = component.number("SelfRepairThreshold"), component.number("SelfRepairScale")
        self.stochastic = self.repair != 0

    def specs(self) -> list[ParameterSpec]:
        return [ParameterSpec("weights", self.shape), ParameterSpec("count", (1,), True), ParameterSpec("values", (self.cells,), True),
                ParameterSpec("slopes", (self.cells,), True)]

    def bind(self, params: list[Tensor]) -> None:
        self.weights, self.count, _, self.slopes = params

    def initial(self) -> list[np.ndarray]:
        count = self.component.number("Count")
        return [self.component.array("w_h").reshape(self.shape), np.full(1, count),
                *(self.component.array(token) * count for token in ("ValueAvg", "DerivAvg"))]

    def to_component(self, params: list[np.ndarray], learn_rate: float | None) -> dict[str, Any]:
        rate = {} if learn_rate is None else {"LearningRate": learn_rate * self.map.learn_rate_coef}
        count = float(params[1][0])
        means = {token: sums / max(count, 1.0) for token, sums in (("ValueAvg", params[2]), ("DerivAvg", params[3]))}
        return {**rate, **means, "w_h": params[0].reshape(self.component.array("w_h").shape), "Count": max(count, 0.0)}

    def forward(self, x: Tensor, run: Run) -> Tensor:
        return self.function.forward(widened(x[:, :self.input_dim]), widened(self.weights)).to(x.dtype)

    def derivative(self, x: Tensor, y: Tensor, dy: Tensor, run: Run) -> Tensor:
        own = widened(x[:, :self.input_dim])
        return self.function.backward(own, widened(y), widened(self.weights), widened(dy), self._repair(run))[0].to(x.dtype)

    def accumulate(self, x: Tensor, dy: Tensor, run: Run, grads: list[Tensor], beta: float, rule: GradientRule) -> None:
        x, weights = widened(x[:, :self.input_dim]), widened(self.weights)
        y = self.function.forward(x, weights)
        _, p = self.function.backward(x, y, weights, widened(dy))
        h, u = y[:, :self.cells], self.function.sources(x)
        for statistic, value in zip(grads[1:], (torch.full_like(grads[1], len(x)), h.sum(0), (1 - h * h).sum(0)), strict=True):
            add_up(statistic, value.to(statistic.dtype), beta)
        inputs, outputs = (u, p) if self.function.resets else (u * p, p.new_ones(len(p), 1))
        rule(self.map, inputs.to(grads[0].dtype), outputs.to(grads[0].dtype), grads[0], None, beta)

    def _repair(self, run: Run) -> Tensor | None:
        """The constants (C,) of units that are repaired, 0 of others and in half of the minibatches; none where no training draws."""
        if run.generator is None or not self.repair:
            return None
        flat = self.slopes.float() < self.threshold * self.count.float()
        chosen = torch.rand(1, generator=run.generator, device=self.slopes.device) < REPAIR_PROBABILITY
        return (flat & chosen & (self.count > 0)) * (self.repair / REPAIR_PROBABILITY)


class Truncated(Layer):
    """BackpropTruncationComponent: its inputs; derivatives of a frame are shortened to a length, and long ones are 0 every so many frames.

    These frames differ from sequence to sequence.
    """

    def __init__(self, component: Nnet3Component) -> None:
        super().__init__(component)
        self.scale = component.number("Scale")
        self.longest, self.long = (component.number(token) for token in ("ClippingThreshold", "ZeroingThreshold"))
        self.interval, self.recurrence = component.integer("ZeroingInterval"), component.integer("RecurrenceInterval")

    def forward(self, x: Tensor, run: Run) -> Tensor:
        return x * self.scale if self.scale != 1 else x

    def derivative(self, x: Tensor, y: Tensor, dy: Tensor, run: Run) -> Tensor:
        dx = dy * self.scale
        norms = torch.linalg.vector_norm(dx.float(), dim=1)
        factors = (self.longest / norms).clamp_max(1.0) if self.longest > 0 else torch.ones_like(norms)
        if self.long > 0:
            frames = run.times[:, None] - np.arange(run.sequences)
            ends = frames // self.interval != (frames - self.recurrence) // self.interval
            factors = factors.masked_fill(torch.from_numpy(ends.ravel()).to(dx.device) & (norms > self.long), 0.0)
        return dx * factors[:, None].to(dx.dtype)


class DropoutMask(Layer):
    """DropoutMaskComponent: a random row of zeros and ones for each frame, as the scales of gates; of the first two one is left."""

    stochastic = True

    def __init__(self, component: Nnet3Component) -> None:
        super().__init__(component)
        self.proportion, self.continuous = component.number("DropoutProportion"), "Continuous" in component.values

    def to_component(self, params: list[np.ndarray], learn_rate: float | None) -> dict[str, Any]:
        return {"DropoutProportion": self.proportion}

    def forward(self, x: Tensor, run: Run) -> Tensor:
        """The masks for as many frames as x has rows, which are empty."""
        if not run.training or run.generator is None or self.proportion == 0:
            return x.new_full((len(x), self.output_dim), 1.0 if self.continuous else 1.0 - self.proportion)
        drawn = torch.rand(len(x), self.output_dim, generator=run.generator, device=x.device)
        if self.continuous:
            return (drawn * (4 * self.proportion) + (1 - 2 * self.proportion)).to(x.dtype)
        if self.output_dim in (2, 3):
            drawn[:, 1] = 1 - drawn[:, 0]
        return (drawn > self.proportion).to(x.dtype)

    def derivative(self, x: Tensor, y: Tensor, dy: Tensor, run: Run) -> Tensor:
        return x
