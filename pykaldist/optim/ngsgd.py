"""NG-SGD: stochastic gradient descent in which the gradients of affine maps are natural gradients.

Povey, Zhang & Khudanpur (2014), arXiv:1410.7455; Su, Chen & Xu (2015), section 4. For an affine map y = W x + b and a minibatch, let the
rows of X be the inputs with a one appended, those of Y the derivatives with respect to y. SGD steps along Y^T X. NG-SGD steps along

    gamma_in gamma_out Yhat^T Xhat,

each of Xhat, Yhat being X, Y times a smoothed inverse Fisher matrix (`optim/natural_gradient.py`): the Fisher matrix of the map is taken to
be the Kronecker product of that of its inputs and that of its output derivatives. Parameters outside of affine maps take plain steps.

Max-change keeps a step from going too far: besides the bounds of every optimiser (`optim/optimizer.py`),
  --max-change-per-sample (nnet2): the minibatch's gradient is scaled by min(1, mc N / (lr sum_i ||xhat_i|| ||yhat_i|| gamma_in gamma_out)).
Momentum is v <- m v + gradient after preconditioning and this. Penalties (L2, L1, max-norm) act on the parameters themselves, and dropout
before the natural gradient sees the inputs: all of them combine.

On a GPU nothing but the update of the Fisher models needs the host (an eigendecomposition of rank x rank, every `update_period`
minibatches). It is made by helper threads while half as many further minibatches are trained on with the models before; the delay is
counted in minibatches, so that a run is repeatable. On a CPU, and for the first minibatches, the update takes effect at once, as in Kaldi.

The update costs the same whatever the step takes, and so more beside one in bfloat16 or on a GPU, whose host has few cores for it. There it
is made less often (docs/benchmarks.md has the accuracy).
"""

from __future__ import annotations

import itertools
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pykaldist.errors import UserError
from pykaldist.frames.sampler import Minibatch
from pykaldist.nnet.components import AffineMap
from pykaldist.nnet.cuda_graphs import Parts
from pykaldist.nnet.factor import Factor, factor, least, quotient, taken_in
from pykaldist.nnet.flat_model import FlatModel
from pykaldist.nnet.gemm import accumulate, accumulate_affine, aligned, whole_rows
from pykaldist.nnet.learner import Learner
from pykaldist.optim.natural_gradient import FIRST_UPDATES, FisherUpdate, Frames, OnlineNaturalGradient, new_weight
from pykaldist.optim.optimizer import Optimizer, OptimizerOptions
from pykaldist.options import option

DEFAULT_RANK_IN, DEFAULT_RANK_OUT = 20, 80
DEFAULT_PERIOD, RARE_PERIOD = 4, 32  # no difference beyond the seeds' (docs/benchmarks.md); 4 is Kaldi's
HELPER_THREADS = 8


@dataclass
class NgSgdOptions(OptimizerOptions):
    """The options of NG-SGD."""

    rank_in: int | None = option(None, "rank of the Fisher matrix of a map's inputs (20, or half of their dimension where that is less)")
    rank_out: int | None = option(None, "rank of the Fisher matrix of a map's output derivatives (80, or half of their dimension)")
    update_period: int | None = option(None, "minibatches between updates of the Fisher matrices (4; on a GPU and with bfloat16 32)")
    num_samples_history: float = option(2000.0, "frames over which the Fisher matrices are smoothed")
    alpha: float = option(4.0, "smoothing of the Fisher matrices towards the identity")
    max_change_per_sample: float = option(0.075, "largest change a frame, of a map's parameters (nnet2); 0: no limit")
    average_fisher: bool = option(False, "average the workers' Fisher matrices at each epoch's end; else each keeps its own")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("rank_in", "rank_out", "update_period"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise UserError(f"--{name.replace('_', '-')} {getattr(self, name)} is not positive.")
        for name in ("max_change_per_sample", "alpha"):
            if getattr(self, name) < 0.0:
                raise UserError(f"--{name.replace('_', '-')} {getattr(self, name)} is negative.")
        if self.num_samples_history <= 0.0:
            raise UserError(f"--num-samples-history {self.num_samples_history} is not positive.")


class MapState:
    """The two Fisher models of one affine map, and the columns beside its inputs: ones where it has a bias, then zeros."""

    def __init__(self, map: AffineMap, ranks: tuple[int, int], alphas: tuple[float, float], update_period: int, num_samples_history: float,
                 like: Tensor) -> None:
        shared: dict[str, Any] = {"update_period": update_period, "num_samples_history": num_samples_history, "device": like.device,
                                  "dtype": like.dtype}
        dim = map.input_dim + map.bias
        self.bias, self.width = map.bias, aligned(map.input_dim + 1)
        self.input = OnlineNaturalGradient(dim, ranks[0], alpha=alphas[0], columns=self.width, **shared)
        self.output = OnlineNaturalGradient(map.output_dim, ranks[1], alpha=alphas[1], **shared)
        self._beside = torch.zeros(0, self.width - map.input_dim)

    def with_ones(self, x: Tensor, spent: Tensor | None, model: FlatModel) -> Tensor:
        """x (n, input dim) with the columns beside it, (n, width), to be written over: `spent` where it is given, else a copy."""
        n, dim = x.shape
        if spent is not None:
            if self.bias:
                spent[:, dim].fill_(1.0)
            return spent
        if self._beside.shape[0] < n:
            self._beside = torch.zeros(max(n, model.capacity), self.width - dim, device=x.device, dtype=x.dtype)
            if self.bias:
                self._beside[:, 0] = 1.0
        wide = model.scratch(n * self.width, x)[: n * self.width].view(n, self.width)  # asked for anew, as it may have become a larger one
        return torch.cat([x, self._beside[:n]], 1, out=wide)


@dataclass
class Preconditioned:
    """A minibatch's inputs and output derivatives at an affine map, preconditioned, and the factor `scale` of their product.

    The inputs x (n, more than in) have what the column of ones became beside them, dy may have zeros beside it. `x_norms`, `y_norms`
    (n,) are the norms of the rows.
    """

    x: Tensor
    dy: Tensor
    x_norms: Tensor
    y_norms: Tensor
    scale: Factor

    def accumulate(self, map: AffineMap, weight: Tensor, bias: Tensor | None, beta: float, scale: Factor) -> None:
        """Make the map's gradients: beta times what they were, plus `scale` times the product."""
        dy, alpha = taken_in(self.dy, scale)
        if bias is not None:
            accumulate_affine(weight, bias, dy, self.x, beta, alpha * map.learn_rate_coef, alpha * map.bias_learn_rate_coef)
        else:
            accumulate(weight, dy[:, : map.output_dim].t(), self.x[:, : map.input_dim], beta, alpha * map.learn_rate_coef)


class NaturalGradient(Optimizer):
    """The base of optimisers with natural gradients of affine maps, whose Fisher models are `states`.

    A subclass says in `_rule` what is made of them, and in its options `average_fisher`.
    """

    def __init__(self, learner: Learner, options: Any, states: dict[AffineMap, MapState]) -> None:
        super().__init__(learner, options)
        self.states = [*states.values()]
        self._state_of = states
        self._sides = [side for state in self.states for side in (state.input, state.output) if side.rank > 0]
        self.delayed = DelayedUpdates(self._sides) if self.model.device.type == "cuda" else None
        self._padded: Frames | None = None  # the frames of the minibatch at hand, where it is padded
        self._count: Factor = factor(self.model.params.new_zeros(()))
        self._weight: Factor = factor(self.model.params.new_zeros(()))
        self._host_count = 0

    def local_step(self, minibatch: Minibatch, learn_rate: float, totals: Tensor) -> None:
        self._before_step(minibatch)
        super().local_step(minibatch, learn_rate, totals)
        self._after_step()

    def gradient(self, minibatch: Minibatch, grads: Tensor, totals: Tensor, parts: Parts | None = None) -> None:
        self._before_step(minibatch)
        super().gradient(minibatch, grads, totals, parts)
        self._after_step()

    def shared_matrices(self) -> list[OnlineNaturalGradient]:
        if not self.options.average_fisher or not self._sides[0].calls:
            return []
        if self.delayed is not None:
            self.delayed.deliver()
        return self._sides

    def _kind(self) -> int:
        return int(self.states[0].input.collecting)

    def _precondition(self, state: MapState, x: Tensor, dy: Tensor, spent: Tensor | None) -> Preconditioned:
        """Precondition a minibatch's inputs x (n, in) and output derivatives dy (n, out), which is written over."""
        frames, dy = self._padded, whole_rows(dy)[0]
        if state.output.calls == 0:
            state.output.start(dy, frames)
        y_norms, y_scale = state.output.precondition(dy, frames)
        x = state.with_ones(x, spent, self.model)
        if frames is not None:
            x.mul_(frames.real)
        if state.input.calls == 0:
            state.input.start(x, frames)
        x_norms, x_scale = state.input.precondition(x, frames)
        return Preconditioned(x, dy, x_norms, y_norms, x_scale * y_scale)

    def _before_step(self, minibatch: Minibatch) -> None:
        if self.delayed is not None:
            self.delayed.before_step(bool(self._kind()))
        sequences = minibatch.sequences
        self._padded = None
        if sequences is not None and sequences.real is not None:
            self._set_count(len(minibatch.inputs) - sequences.padding)
            self._padded = Frames(sequences.real, self._count, self._weight)

    def _set_count(self, count: int) -> None:
        """Set the number of frames of a padded minibatch, which on a GPU recorded steps read."""
        if count == self._host_count:
            return
        self._host_count, weight = count, new_weight(count, self._sides[0].num_samples_history)
        if isinstance(self._count, Tensor) and isinstance(self._weight, Tensor):
            self._count.fill_(count)
            self._weight.fill_(weight)
        else:
            self._count, self._weight = count, weight

    def _after_step(self) -> None:
        if self._kind():
            if self.delayed is not None and self.states[0].input.calls > FIRST_UPDATES:
                self.delayed.begin()
            else:
                for side in self._sides:
                    side.finish(side.update())
        for state in self.states:
            state.input.advance()
            state.output.advance()

    def state_dict(self) -> dict[str, Any]:
        fisher = [{"input": state.input.state_dict(), "output": state.output.state_dict()} for state in self.states]
        return {**super().state_dict(), "fisher": fisher, "delayed": None if self.delayed is None else self.delayed.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        for own, saved in zip(self.states, state["fisher"], strict=True):
            own.input.load_state_dict(saved["input"])
            own.output.load_state_dict(saved["output"])
        if self.delayed is not None and state["delayed"] is not None:
            self.delayed.load_state_dict(state["delayed"])


class NgSgd(NaturalGradient):
    """The optimiser NG-SGD; `states[m]` belongs to the model's affine map number m."""

    name = "ngsgd"
    options: NgSgdOptions
    fused_step = True

    def __init__(self, learner: Learner, options: NgSgdOptions) -> None:
        if not learner.model.maps:
            raise UserError("--optimizer ngsgd: the model has no affine map to take a natural gradient of; use --optimizer sgd.")
        rare = learner.model.compute == torch.bfloat16 or learner.model.device.type != "cpu"
        period = options.update_period or (RARE_PERIOD if rare else DEFAULT_PERIOD)
        super().__init__(learner, options, {m: self._state(m, options, period, learner.model.params) for m in learner.model.maps})

    def _state(self, map: AffineMap, options: NgSgdOptions, period: int, like: Tensor) -> MapState:
        rank_in = min(DEFAULT_RANK_IN, (map.input_dim + 1) // 2) if options.rank_in is None else options.rank_in
        rank_out = min(DEFAULT_RANK_OUT, (map.output_dim + 1) // 2) if options.rank_out is None else options.rank_out
        return MapState(map, (rank_in, rank_out), (options.alpha, options.alpha), period, options.num_samples_history, like)

    def _rule(self, map: AffineMap, x: Tensor, dy: Tensor, weight: Tensor, bias: Tensor | None, beta: float, *,
              spent: Tensor | None = None, by: Factor = 1.0) -> None:
        """The gradient rule: the natural gradient, its minibatch's part times `by`."""
        rows: Factor = x.shape[0] if self._padded is None else self._padded.count
        found = self._precondition(self._state_of[map], x, dy, spent)
        scale = found.scale
        if self.options.max_change_per_sample > 0.0 and map.learn_rate_coef > 0.0:
            change = factor(torch.dot(found.x_norms, found.y_norms)) * self.rate  # times the coefficient
            scale = least(scale, quotient(self.options.max_change_per_sample * rows / map.learn_rate_coef, change))
        found.accumulate(map, weight, bias, beta, scale * by)


class DelayedUpdates:
    """Updates of the Fisher models on a GPU, which helper threads make while training goes on.

    They take effect after half of the update period, or before the next statistics. What travels to the host, of all sides, lies in one
    buffer, and so does what comes back: each is one copy.
    """

    def __init__(self, sides: list[OnlineNaturalGradient]) -> None:
        self._sides = sides
        self._cuda = any(side.small.is_cuda for side in sides)
        self._taken, self._host_taken, to_host = self._buffers([side.small.numel() for side in sides])
        self._given, self._host_given, from_host = self._buffers([side.rank**2 + side.rank for side in sides])
        self._host = [self._host_taken[part] for part in to_host]
        self._results = [self._host_given[part] for part in from_host]
        for side, taken, given in zip(sides, to_host, from_host, strict=True):
            side.lie_in(self._taken[taken], self._given[given])
        self._pool = ThreadPoolExecutor(min(max(len(sides), 1), HELPER_THREADS))
        self._pending: list[Future[FisherUpdate]] = []
        self._wait = 0

    def _buffers(self, sizes: list[int]) -> tuple[Tensor, Tensor, list[slice]]:
        """A buffer on the device, its like on the host, and the parts of so many values in both."""
        starts = list(itertools.accumulate((aligned(size) for size in sizes), initial=0))
        like = self._sides[0].small if self._sides else torch.zeros(0)
        host = torch.zeros(starts[-1], dtype=like.dtype, pin_memory=self._cuda)
        return like.new_zeros(starts[-1]), host, [slice(start, start + size) for size, start in zip(sizes, starts, strict=False)]

    def begin(self) -> None:
        """Start an update from the statistics that the device has taken, or is about to have."""
        assert not self._pending, "an update was overtaken by the next one"
        self._host_taken.copy_(self._taken, non_blocking=True)
        taken = torch.cuda.Event() if self._cuda else None
        if taken is not None:
            taken.record()

        def update(side: OnlineNaturalGradient, host: Tensor) -> FisherUpdate:
            if taken is not None:
                taken.synchronize()
            return side.update(host)

        self._pending = [self._pool.submit(update, side, host) for side, host in zip(self._sides, self._host, strict=True)]
        self._wait = self._sides[0].update_period // 2

    def before_step(self, collecting: bool) -> None:
        """Count a minibatch; deliver the updates that are due before it, or that it would overwrite."""
        if self._wait == 0 or collecting:
            self.deliver()
        self._wait -= 1

    def deliver(self) -> None:
        """Let the pending updates take effect.

        The copy of the ones before is over by now: it was launched before the event that these have waited for.
        """
        updates = [update.result() for update in self._pending]
        for update, result in zip(updates, self._results, strict=True) if updates else ():
            result.copy_(torch.from_numpy(np.concatenate([update.a.ravel(), update.spectrum.d + update.spectrum.rho])))
        if updates:
            self._given.copy_(self._host_given, non_blocking=True)
        for side, update in zip(self._sides, updates, strict=True) if updates else ():
            side.finish(update, delivered=True)
        self._pending = []

    def state_dict(self) -> dict[str, Any]:
        updates = [future.result() for future in self._pending]
        arrays = [{"a": torch.from_numpy(u.a), "d": torch.from_numpy(u.spectrum.d)} for u in updates]
        plain = [{"rho": u.spectrum.rho, "orthonormalise": u.orthonormalise} for u in updates]
        return {"wait": self._wait, "updates": [{**one, **other} for one, other in zip(arrays, plain, strict=True)],
                "m": [side.m for side in self._sides] if updates else []}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._wait, self._pending = state["wait"], []
        for side, saved, m in zip(self._sides, state["updates"], state["m"], strict=True) if state["updates"] else ():
            side.m.copy_(m)
            future: Future[FisherUpdate] = Future()
            spectrum = side.with_eigenvalues(saved["d"].numpy(), saved["rho"])
            future.set_result(FisherUpdate(saved["a"].numpy(), spectrum, saved["orthonormalise"]))
            self._pending.append(future)
