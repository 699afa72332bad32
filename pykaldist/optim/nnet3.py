"""The optimiser `nnet3`: the training of nnet3 networks as Kaldi's nnet3-chain-train and nnet3-train do it.

A minibatch of N sequences gives each affine map m (a NaturalGradientAffine, Affine, Linear or TdnnComponent) the gradient
    g = f (gamma_in gamma_out Yhat^T [X 1]hat + 2 N l2 W),
f its learning-rate factor, l2 its `l2-regularize` times --l2-regularize-factor, X its inputs (a TdnnComponent's at its time offsets, one
behind the other), Y the derivatives of the loss with respect to its outputs, preconditioned by the map's own Fisher models
(`natural_gradient.py`). With the learning rate r, the momentum u and the velocity v <- u v + g, the step is r (1 - u) v, but
    of a map no longer than its `max-change`,
    then of all maps together no longer than --max-param-change; a step that is not finite is not made, and the velocity forgotten.
After it, a map with `orthonormal-constraint` makes a step towards that (`nnet/nnet3/computing/orthonormal.py`), in every fourth
minibatch on average; in which ones is drawn from the number of the step, so that all workers that make the same steps draw the same.

A convolution is an affine map of patches, so many that Kaldi preconditions its gradient G = Y^T [X 1] as a whole: first its rows by one
Fisher model, then its columns by another. Both forget by `num-minibatches-history` minibatches; here they are updated together with the
others, in every fourth minibatch, by as much as Kaldi's updates of four.

With --proportional-shrink P all parameters shrink in proportion to the rate: in F frames, --shrink-frames, they are multiplied by 1 - P r,
so in a minibatch of T frames by (1 - P r)^(T / F). Kaldi does so once in each iteration, of F frames of each job. Factors are collected
until they come to a ten-thousandth, which single precision can multiply by.

Statistics of batch normalisation are s <- c (s + those of the minibatch), c = --batchnorm-stats-scale. Those of rectified linear units
decay likewise, slower; Kaldi begins them anew in each of its iterations.

Where n of N workers train, which take n / N of the rate, --l2-regularize-factor counts N / n times: it is 1 / n of Kaldi's n jobs then.
Where workers send gradients, g is what they send, so that l2 counts all sequences.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from pykaldist.errors import UserError
from pykaldist.frames.sampler import generator_of
from pykaldist.nnet.components import AffineMap, add_up, outer_product
from pykaldist.nnet.factor import Factor
from pykaldist.nnet.learner import Learner
from pykaldist.nnet.nnet3.computing.orthonormal import constrain_orthonormal
from pykaldist.nnet.nnet3.layers import Nnet3Map
from pykaldist.nnet.nnet3.network import Nnet3Network
from pykaldist.optim.ngsgd import MapState, NaturalGradient
from pykaldist.options import option

CONSTRAIN_EVERY = 4  # minibatches, on average
RECTIFIED_SCALE = 0.98  # of the statistics of rectified linear units, a minibatch
TINY = 1e-30
MOST_SHRINK, LEAST_SHRINK = 0.5, 1e-4  # of all parameters: in an iteration, and at once


@dataclass
class Nnet3Options:
    """The options of the optimiser nnet3, with Kaldi's names and defaults; what differs from component to component is in the network."""

    momentum: float = option(0.0, "momentum u; a step's total effect does not depend on it")
    max_param_change: float = option(2.0, "largest change of all parameters in a minibatch; 0: no limit")
    l2_regularize_factor: float = option(1.0, "factor of the components' l2-regularize; Kaldi gives 1 / jobs where it averages models")
    proportional_shrink: float = option(0.0, "P: in --shrink-frames frames parameters are multiplied by 1 - P r, r the rate")
    shrink_frames: int = option(800_000, "frames of a worker in which they do, those of an iteration of Kaldi's")
    batchnorm_stats_scale: float = option(0.8, "factor of the statistics of batch normalisation, after each minibatch")
    average_fisher: bool = option(False, "average the workers' Fisher matrices at each epoch's end; else each keeps its own")

    def __post_init__(self) -> None:
        for name, top in (("momentum", 1.0), ("max_param_change", float("inf")), ("l2_regularize_factor", float("inf")),
                          ("proportional_shrink", float("inf"))):
            if not 0.0 <= getattr(self, name) < top:
                raise UserError(f"--{name.replace('_', '-')} {getattr(self, name):g} is outside [0, {top:g}).")
        if not 0.0 <= self.batchnorm_stats_scale <= 1.0:
            raise UserError(f"--batchnorm-stats-scale {self.batchnorm_stats_scale:g} is outside [0, 1].")
        if self.shrink_frames < 1:
            raise UserError(f"--shrink-frames {self.shrink_frames}: expected at least one frame.")

    def check_shrink(self, rate: float) -> None:
        """Raise UserError, as Kaldi does, where parameters would shrink to half or less at a learning rate."""
        if self.proportional_shrink * rate >= MOST_SHRINK:
            most = math.floor(100.0 * MOST_SHRINK / rate) / 100.0
            raise UserError(f"--proportional-shrink {self.proportional_shrink:g} is too large at a learning rate of {rate:g}: parameters "
                            f"would be multiplied by {1.0 - self.proportional_shrink * rate:g} in an iteration; give less than "
                            f"{most:.12g}.")


class GradientState(MapState):
    """The two Fisher models of a map whose gradient is preconditioned as a whole: of its rows, and of its columns."""

    def __init__(self, map: Nnet3Map, like: Tensor) -> None:
        assert map.ranks is not None
        super().__init__(map, map.ranks, map.alphas, map.update_period, map.num_samples_history, like)
        forgotten = -map.update_period * math.log(1.0 - 1.0 / map.minibatches_history)  # by an update, e^-this is left
        self.input.num_samples_history = map.output_dim / forgotten
        self.output.num_samples_history = (map.input_dim + map.bias) / forgotten

    def precondition(self, gradient: Tensor) -> tuple[Tensor, Factor]:
        """Precondition a gradient (out, in and bias); returns its transpose, and the factor with which it is to be multiplied."""
        rows = torch.nn.functional.pad(gradient, (0, self.width - gradient.shape[1]))
        if self.input.calls == 0:
            self.input.start(rows)
        _, by_rows = self.input.precondition(rows)
        columns = rows[:, :gradient.shape[1]].t().contiguous()
        if self.output.calls == 0:
            self.output.start(columns)
        _, by_columns = self.output.precondition(columns)
        return columns, by_rows * by_columns


class Nnet3(NaturalGradient):
    """The optimiser nnet3; `steps` counts its updates."""

    name = "nnet3"
    trains = Nnet3Network
    records = False  # the host decides what a step is made of: its chunks' shape, which maps are constrained
    options: Nnet3Options
    model: Nnet3Network

    def __init__(self, learner: Learner, options: Nnet3Options) -> None:
        if not isinstance(learner.model, Nnet3Network):
            raise UserError("--optimizer nnet3 trains nnet3 networks (steps/nnet3); use --optimizer ngsgd for this one.")
        model = learner.model
        maps = cast("list[Nnet3Map]", model.maps)
        if len({m.update_period for m in maps if m.ranks}) > 1:
            raise UserError("the components of the network have different update-periods of their natural gradients; give them one.")
        super().__init__(learner, options, {
            m: GradientState(m, model.params) if m.of_gradient else
            MapState(m, m.ranks, m.alphas, m.update_period, m.num_samples_history, model.params) for m in maps if m.ranks})
        self.steps, self._log_shrunk = 0, 0.0
        params = model.params
        self._own = {m: params[part][:m.output_dim * m.input_dim].view(m.output_dim, m.input_dim)
                     for m, part in zip(maps, model.map_slices(), strict=True)}
        self._biases = {m: params[part][m.output_dim * m.input_dim:] for m, part in zip(maps, model.map_slices(), strict=True)}
        self._max_changes = torch.tensor([m.max_change or float("inf") for m in maps], dtype=params.dtype, device=params.device)
        self._scales = [(part, options.batchnorm_stats_scale) for part in model.batchnorm_statistics()] + \
            [(part, RECTIFIED_SCALE) for part in model.rectified_statistics()] + [(part, 1.0) for part in model.cell_statistics()]

    @property
    def additive(self) -> bool:
        return False

    def set_rate(self, learn_rate: float) -> None:
        self.options.check_shrink(learn_rate)
        super().set_rate(learn_rate)

    def _kind(self) -> int:
        return int(bool(self._sides) and self._sides[0].collecting)

    def _rule(self, map: AffineMap, x: Tensor, dy: Tensor, weight: Tensor, bias: Tensor | None, beta: float, *,
              spent: Tensor | None = None, by: Factor = 1.0) -> None:
        """The gradient rule: the natural gradient and the l2 penalty's."""
        state = self._state_of.get(map)
        if isinstance(state, GradientState):
            assert bias is not None  # convolutions have one
            gradient = weight.new_empty(map.output_dim, map.input_dim), bias.new_empty(map.output_dim)
            outer_product(map, x, dy, *gradient, 0.0, by=by)
            columns, scale = state.precondition(torch.cat([gradient[0], gradient[1][:, None]], 1))
            add_up(weight, columns[:-1].t() * scale, beta)
            add_up(bias, columns[-1] * scale, beta)
        elif state is not None:
            found = self._precondition(self._state_of[map], x, dy, spent)
            found.accumulate(map, weight, bias, beta, found.scale * by)
        else:
            outer_product(map, x, dy, weight, bias, beta, by=by)
        assert isinstance(map, Nnet3Map)
        pull = 2.0 * self.model.num_sequences * map.l2_regularize * self.options.l2_regularize_factor / self.share * map.learn_rate_coef
        if pull:
            weight.add_(self._own[map], alpha=pull)
            if bias is not None:
                bias.add_(self._biases[map], alpha=pull)

    def _follow(self, velocity: Tensor, frames: Factor) -> None:
        """Update the statistics, whose sums over the minibatch stand in the velocity."""
        for part, scale in self._scales:
            self.model.params[part].add_(velocity[part]).mul_(scale)
            velocity[part].zero_()

    def _update(self, gradient: Tensor, frames: Factor) -> None:
        """Make the update by the velocity, within the bounds on change, and the steps towards the semi-orthogonal constraint."""
        parts, rate = self.model.map_slices(), self.rate * (1.0 - self.options.momentum)
        norms = torch.stack([torch.linalg.vector_norm(gradient[part]) for part in parts]) * rate
        factors = (self._max_changes / norms.clamp_min(TINY)).clamp_max_(1.0)
        change = torch.linalg.vector_norm(norms * factors)
        finite = change.isfinite()
        if self.options.max_param_change > 0.0:
            factors = factors * (self.options.max_param_change / change.clamp_min(TINY)).clamp_max_(1.0)
        gradient.masked_fill_(~finite, 0.0)
        factors = torch.where(finite, factors * rate, 0.0)
        for part, step in zip(parts, factors.unbind(), strict=True):
            self.model.params[part].addcmul_(gradient[part], step, value=-1.0)
        self._shrink(parts)
        self._constrain_orthonormal()
        self.steps += 1

    def _shrink(self, parts: Sequence[slice]) -> None:
        """Shrink the parameters in proportion to the rate, where what was collected of that is enough."""
        share = self._host_frames / self.options.shrink_frames
        self._log_shrunk += share * math.log1p(-self.options.proportional_shrink * self._host_rate)
        if self._log_shrunk <= -LEAST_SHRINK:
            for part in parts:
                self.model.params[part].mul_(math.exp(self._log_shrunk))
            self._log_shrunk = 0.0

    def _constrain_orthonormal(self) -> None:
        """Make steps towards the semi-orthogonal constraint, of the maps that are drawn."""
        constrained = [m for m in cast("list[Nnet3Map]", self.model.maps) if m.orthonormal]
        drawn = generator_of(self.steps).integers(CONSTRAIN_EVERY, size=len(constrained)) == 0
        for m, chosen in zip(constrained, drawn, strict=True):
            if chosen:
                constrain_orthonormal(self._own[m], m.orthonormal)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "steps": self.steps, "log_shrunk": self._log_shrunk}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.steps, self._log_shrunk = state["steps"], state["log_shrunk"]
