"""The base class of the optimisers: the penalties of nnet1, the rate on the device, and steps replayed as CUDA graphs.

After the optimiser's own update, with lr the learning rate (times an affine map's coefficient) and n the frames of the minibatch:
    L2:        W <- W (1 - lr l2 n),  and to the start W_0:  W <- W + lr l2_to_start n (W_0 - W)
    L1:        W <- sign(W) max(|W| - lr l1 n, 0)
    max-norm:  a row of W whose norm exceeds the limit is scaled back to it (Srivastava et al., 2014)
on weights, never on biases. They act on the parameters, not on the gradient: NG-SGD does not precondition them.

Where no momentum or L2 penalty stands between gradient and update, a minibatch's own update is made inside the matrix products, straight
into the parameters, without the pass over all of them which a gradient in a buffer of its own would cost. Such a fused step calls neither
`_update`, `_decay` nor `_follow`, and so it is taken only by an optimiser whose class says that it may be (`fused_step`). A class that
overrides one of the three and does not say so anew has whole updates, whatever its base class says.

Whoever wants to do something with a map's parameters just before and just after that (`around`) finds them in the cache.

Bounds on change, as nnet3's, keep a step from going too far, and clip the gradients of recurrent networks: with v the velocity,
    --max-change:        a map's step lr v has at most this Euclidean norm;
    --max-param-change:  then the step of all parameters together has at most this one.

Parameters that follow the data (statistics of batch normalisation) take no steps. With s their place in the gradient of n frames, a sum
over frames of one worker or of many, they become running means: w <- w + (1 - exp(-n / 10000)) (s / n - w).

On a GPU a step is recorded as a CUDA graph the third time that its kind comes, and replayed from then on (`nnet/cuda_graphs.py`). What
changes from step to step (minibatch, rate) lies in buffers that stay in place. Likewise the two halves of a step, gradient and update,
where a strategy sends gradients. Minibatches of sequences have few kinds as they are padded (`frames/sequences.py`). What CTC and
objectives of lattices do with outputs has more kinds, by labels and lattices: they have graphs of their own for it, between that of the
forward pass and that of the rest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import chain, repeat
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from pykaldist.errors import UserError
from pykaldist.frames.sampler import Minibatch
from pykaldist.nnet.components import AffineMap, outer_product
from pykaldist.nnet.cuda_graphs import STEPS, CudaGraphs, Parts, in_turn
from pykaldist.nnet.factor import Factor, add_multiple, exponential, factor
from pykaldist.nnet.flat_model import FlatModel
from pykaldist.nnet.learner import Learner, Supervised
from pykaldist.nnet.model import Model
from pykaldist.options import option

TINY = 1e-30
STATISTICS_FRAMES = 10000.0  # over which running means go
UPDATE = ("_update", "_decay", "_follow")  # what an optimiser's own update is made of


@dataclass
class OptimizerOptions:
    """The options that all optimisers share: momentum and penalties."""

    momentum: float = option(0.0, "momentum m of v = m v + g")
    l2_penalty: float = option(0.0, "L2 penalty on weights, a frame")
    l2_to_start: float = option(0.0, "L2 penalty on what weights differ by from the network that training starts from, a frame")
    l1_penalty: float = option(0.0, "L1 penalty on weights, a frame")
    max_change: float = option(0.0, "largest change of a map's parameters in a minibatch (nnet3's is 0.75); 0: no limit")
    max_param_change: float = option(0.0, "largest change of all parameters in a minibatch (nnet3's: 2.0): clips gradients; 0: no limit")
    max_norm: float = option(0.0, "largest norm of a unit's incoming weights; 0: no limit")

    def __post_init__(self) -> None:
        if not 0.0 <= self.momentum < 1.0:
            raise UserError(f"--momentum {self.momentum} is outside [0, 1).")
        for name in ("l2_penalty", "l2_to_start", "l1_penalty", "max_change", "max_param_change", "max_norm"):
            if getattr(self, name) < 0.0:
                raise UserError(f"--{name.replace('_', '-')} {getattr(self, name)} is negative.")


class SharedMatrix(Protocol):
    """A matrix of an optimiser's state that workers can average."""

    def matrix(self) -> Tensor:
        """The matrix, float64 on the host."""

    def set_matrix(self, matrix: Tensor) -> None:
        """Take another matrix, on the host, in its place."""


class Optimizer:
    """The optimiser of one worker; `velocity` is flat, like the parameters.

    A subclass says what an update is in `_update(gradient, frames)`, which every path goes through but the fused step.
    `fused_step`: the update is params <- params - rate * gradient and nothing else, but for the options that this class knows of; so it
    may be made inside the matrix products, with `_rule`'s own gradient. Not inherited by a class that overrides a part of the update.
    `trains`: the models that it is for. `share`: the part of the learning rate that its worker takes. `records`: its steps are of a few
    kinds, which a GPU records.

    `parts`: slices of the parameters, one for each affine map, and for what lies between these. `around(part)` is entered while a step
    changes that part, where `goes_map_by_map`.
    """

    options: Any  # OptimizerOptions or a class derived from them; Cd and Nnet3 have their own
    fused_step = False
    records = True
    share = 1.0
    trains: ClassVar[type[FlatModel]] = Model

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "fused_step" not in vars(cls) and any(name in vars(cls) for name in UPDATE):
            cls.fused_step = False

    def __init__(self, learner: Learner, options: Any) -> None:
        self.learner, self.model, self.options = learner, learner.model, options
        self.velocity = torch.zeros_like(self.model.params)
        self.rate: Factor = factor(self.model.params.new_zeros(()))
        self._minus_rate = -self.rate
        self._host_rate = 0.0
        self._frames: Factor = factor(self.model.params.new_zeros(()))  # over which the gradient is summed
        self._host_frames = 0.0
        mapped = sum(part.stop - part.start for part in self.model.map_slices())
        self._statistics = self.model.statistics()
        maps = self.model.map_slices()
        self.parts = maps + between(maps, self.model.params.shape[-1])
        self.around: Callable[[slice], AbstractContextManager[None]] = lambda part: nullcontext()
        self._bounded = isinstance(options, OptimizerOptions) and (options.max_change > 0.0 or options.max_param_change > 0.0)
        self._fused = self.fused_step and not self._bounded and options.momentum == 0.0 and options.l2_penalty == 0.0 \
            and getattr(options, "l2_to_start", 0.0) == 0.0 and mapped == self.model.params.shape[-1]
        self._graphs: CudaGraphs | None = CudaGraphs(STEPS) if self.records and self.model.device.type == "cuda" else None
        self._part_of = dict(zip(self.model.maps, maps, strict=True))
        self._weights = list(zip(self._weights_of(self.model.params), [m.learn_rate_coef for m in self.model.maps], strict=True))
        self.start: Tensor | None = None
        self._starts: list[Tensor] = []

    def _weights_of(self, params: Tensor) -> list[Tensor]:
        """The weights of all maps, as views of a flat buffer."""
        return [view for shapes, views in zip(self.model.shapes, self.model.views(params), strict=True)
                for shape, view in zip(shapes, views, strict=True) if len(shape) == 2]

    def pull_to(self, start: Tensor) -> None:
        """Take the parameters (flat) of the network that the penalty `l2_to_start` pulls weights to."""
        like = self.model.params
        self.start = start.to(like.device, like.dtype)
        self._starts = self._weights_of(self.start.view(*[1] * (like.dim() - 1), -1))

    def local_step(self, minibatch: Minibatch, learn_rate: float, totals: Tensor) -> None:
        """Make the gradient of a minibatch and update the model. Nothing is read back from the device."""
        self.set_rate(learn_rate)
        self._set_frames(len(minibatch))
        self._with_minibatch(minibatch, (totals,), lambda: self._step(minibatch, totals))

    def gradient(self, minibatch: Minibatch, grads: Tensor, totals: Tensor, parts: Parts | None = None) -> None:
        """Make the minibatch's gradient, summed, in `grads`, as `apply` of this or another worker's optimiser takes it.

        With `parts` it is told which of these are made.
        """
        if parts is None:
            self._with_minibatch(minibatch, (totals, grads), lambda: self._gradient_alone(minibatch, grads, totals))
        else:
            made = self._gradient_in_parts(minibatch, grads, totals, parts.slices)
            self._with_minibatch(minibatch, (totals, grads), lambda: next(made), parts)

    def apply(self, gradient: Tensor, learn_rate: float, frames: int) -> None:
        """Update the model by a gradient made elsewhere, summed over `frames` frames, which may be changed."""
        self.set_rate(learn_rate)
        self._set_frames(frames)
        self.recorded((gradient.data_ptr(),), lambda: self._apply(gradient))

    def recorded(self, kind: tuple[float, ...], work: Callable[[], None], generator: torch.Generator | None = None,
                 steps: int = 0) -> None:
        """Do work on the device. On a GPU it is recorded as a CUDA graph the third time that its kind comes, and replayed from then on.

        So all that differs between two works of one kind lies in tensors that stay in place. `generator` is what it draws from; `steps`:
        the time steps of recurrent layers, which make a graph large.
        """
        if self._graphs is None:
            work()
        else:
            self._graphs.run(kind, work, generator, steps)

    def _with_minibatch(self, minibatch: Minibatch, tensors: tuple[Tensor, ...], work: Callable[[], None],
                        parts: Parts | None = None) -> None:
        """Do work with a minibatch and tensors that stay in place, recorded unless the minibatch has sequences that are not padded.

        With `parts` each call of `work` makes the next one.
        """
        sequences = minibatch.sequences
        if self._graphs is None or (sequences is not None and sequences.real is None):
            in_turn(work, parts)
            return
        if isinstance(self.learner, Supervised) and not self.learner.objective.recordable:
            work, parts = self._in_two(self.learner, minibatch, tensors[0], work, parts)
        kind: tuple[float, ...] = (self._kind(), *minibatch.addresses(), *(tensor.data_ptr() for tensor in tensors))
        kind = kind if parts is None else (*kind, len(parts.slices))
        if sequences is None:
            self._graphs.run(kind, work, self.learner.training_generator(minibatch), 0, parts)
            return
        steps = len(sequences.sizes)
        kind = (*kind, steps, self.model.continues(sequences), sequences.leaves)
        self._graphs.run(kind, work, self.learner.training_generator(minibatch), steps * self.model.recurrent_layers, parts)
        self.model.left_by(sequences)

    def _in_two(self, learner: Supervised, minibatch: Minibatch, totals: Tensor, work: Callable[[], None],
                parts: Parts | None) -> tuple[Callable[[], None], Parts]:
        """The work of a step in parts: the forward pass, and, behind the objective, all else, in parts of its own where it has any."""
        passes: Iterator[Callable[[], None]] = chain([partial(learner.forward_alone, minibatch)], repeat(work))
        whole = slice(0, self.model.params.shape[-1])
        slices = [whole, *([whole] if parts is None else parts.slices)]

        def ready(number: int) -> None:
            if number == 0:
                learner.objective_alone(minibatch, totals)
            elif parts is not None:
                parts.ready(number - 1)
            if number == len(slices) - 1:
                learner.end_of_step()

        return lambda: next(passes)(), Parts(slices, ready)

    def _gradient_alone(self, minibatch: Minibatch, grads: Tensor, totals: Tensor) -> None:
        """The part of `gradient` that runs on the device."""
        self.learner.gradient(minibatch, grads, 0.0, totals, self._rule)

    def _gradient_in_parts(self, minibatch: Minibatch, grads: Tensor, totals: Tensor, slices: Sequence[slice]) -> Iterator[None]:
        """Do what `_gradient_alone` does; yields when each of the slices is made."""
        left = deque(slices)
        for start in self.learner.gradient_in_parts(minibatch, grads, 0.0, totals, self._rule):
            while left and left[0].start >= start:
                left.popleft()
                yield

    def _apply(self, gradient: Tensor) -> None:
        """The part of `apply` that runs on the device."""
        velocity = gradient
        if self.options.momentum > 0.0:
            velocity = torch.add(gradient, self.velocity, alpha=self.options.momentum, out=self.velocity)
        self._follow(velocity, self._frames)
        self._update(velocity, self._frames)

    @property
    def additive(self) -> bool:
        """Whether a step only adds to the parameters, so that its result does not depend on what else is added to them first."""
        return self.options.max_norm == 0.0 and self.options.l1_penalty == 0.0 and not self._statistics

    @property
    def goes_map_by_map(self) -> bool:
        """Whether a step makes its update inside the matrix products, of one map after the other, and is not replayed as a CUDA graph."""
        return self._fused and self._graphs is None

    def shared_matrices(self) -> Sequence[SharedMatrix]:
        """The matrices that are averaged over workers at an epoch's end, beside the model."""
        return []

    def _step(self, minibatch: Minibatch, totals: Tensor) -> None:
        """The part of `local_step` that runs on the device."""
        if self._fused:
            self.learner.gradient(minibatch, self.model.params, 1.0, totals, self._update_map)
            self._constrain(self._frames)
        else:
            self.learner.gradient(minibatch, self.velocity, self.options.momentum, totals, self._rule)
            self._follow(self.velocity, self._frames)
            self._update(self.velocity, self._frames)

    def _rule(self, map: AffineMap, x: Tensor, dy: Tensor, weight: Tensor, bias: Tensor | None, beta: float, *,
              spent: Tensor | None = None, by: Factor = 1.0) -> None:
        """The gradient rule; `by` multiplies the minibatch's part."""
        outer_product(map, x, dy, weight, bias, beta, by=by)

    def _update_map(self, map: AffineMap, x: Tensor, dy: Tensor, weight: Tensor, bias: Tensor | None, beta: float, *,
                 spent: Tensor | None = None) -> None:
        """The gradient rule of a fused step: it makes the update of a map."""
        with self.around(self._part_of[map]) if self.goes_map_by_map else nullcontext():
            self._rule(map, x, dy, weight, bias, beta, spent=spent, by=self._minus_rate)

    def _kind(self) -> int:
        """The kind of a step: steps of different kinds launch different GPU kernels."""
        return 0

    def set_rate(self, learn_rate: float) -> None:
        """Set the rate of what follows; NG-SGD's `gradient` depends on it too (max-change per sample)."""
        if learn_rate == self._host_rate:
            return
        self._host_rate = learn_rate
        if isinstance(self.rate, Tensor) and isinstance(self._minus_rate, Tensor):
            self.rate.fill_(learn_rate)
            self._minus_rate.fill_(-learn_rate)
        else:
            self.rate, self._minus_rate = learn_rate, -learn_rate

    def _set_frames(self, frames: float) -> None:
        """Set the number of frames over which the gradient of what follows is summed."""
        if frames == self._host_frames:
            return
        self._host_frames = frames
        if isinstance(self._frames, Tensor):
            self._frames.fill_(frames)
        else:
            self._frames = frames

    def _update(self, gradient: Tensor, frames: Factor) -> None:
        """Make the update: params <- params - rate * gradient, within the bounds on change, and the penalties.

        `gradient` is flat, like the parameters, summed over `frames` frames, and has the momentum in it. A subclass overrides this to make
        another update of it.
        """
        o = self.options
        self._decay(frames)
        if not self._bounded:
            add_multiple(self.model.params, gradient, self._minus_rate)
            self._constrain(frames)
            return
        norms = torch.stack([torch.linalg.vector_norm(gradient[part]) for part in self.parts]).clamp_min_(TINY)
        steps = torch.ones_like(norms) * self.rate
        if o.max_change > 0.0:
            steps = torch.minimum(steps, o.max_change / norms)
        if o.max_param_change > 0.0:
            steps = steps * (o.max_param_change / torch.linalg.vector_norm(norms * steps).clamp_min_(TINY)).clamp_max_(1.0)
        for part, step in zip(self.parts, steps.unbind(), strict=True):
            self.model.params[part].addcmul_(gradient[part], step, value=-1.0)
        self._constrain(frames)

    def _follow(self, velocity: Tensor, frames: Factor) -> None:
        """Update the statistics, whose sums over the minibatch stand in the velocity."""
        for part in self._statistics:
            share = 1.0 - exponential(-frames / STATISTICS_FRAMES)
            self.model.params[part].lerp_(velocity[part].div_(frames), share)
            velocity[part].zero_()

    def _decay(self, frames: Factor) -> None:
        """Apply the L2 penalties."""
        if self.options.l2_penalty > 0.0:
            for weight, coef in self._weights:
                weight.mul_(1.0 - self.rate * (coef * self.options.l2_penalty * frames))
        for (weight, coef), start in zip(self._weights, self._starts, strict=bool(self._starts)):
            weight.add_((start - weight) * (self.rate * (coef * self.options.l2_to_start * frames)))

    def _constrain(self, frames: Factor) -> None:
        """Apply the L1 penalty and max-norm."""
        if self.options.l1_penalty > 0.0:
            for weight, coef in self._weights:
                shrink = self.rate * (coef * self.options.l1_penalty * frames)
                weight.copy_((weight.abs() - shrink).clamp_min_(0.0).copysign_(weight))
        if self.options.max_norm > 0.0:
            for weight, _ in self._weights:
                norms = torch.linalg.vector_norm(weight, dim=-1, keepdim=True)
                weight.mul_((self.options.max_norm / norms.clamp_min_(1e-20)).clamp_max_(1.0))

    def state_dict(self) -> dict[str, Any]:
        return {"velocity": self.velocity, "model": self.model.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.velocity.copy_(state["velocity"])
        self.model.load_state_dict(state["model"])


def between(parts: list[slice], size: int) -> list[slice]:
    """The slices of 0..size that lie between `parts`."""
    edges = [0, *(edge for part in sorted(parts, key=lambda p: p.start) for edge in (part.start, part.stop)), size]
    return [slice(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if a < b]
