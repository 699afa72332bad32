"""A learner: a model together with the training criterion, as optimisers and strategies see it.

An optimiser asks a learner for the gradient of a minibatch in a flat buffer. The learner makes it, by backpropagation of an objective or by
contrastive divergence of an RBM. So every strategy trains every learner.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from pykaldist.frames.sampler import Minibatch
from pykaldist.nnet.components import GradientRule, outer_product
from pykaldist.nnet.flat_model import FlatModel
from pykaldist.nnet.model import Model
from pykaldist.nnet.objective import Objective


class Learner(ABC):
    """A model and its training criterion.

    `model` holds the flat parameters; `num_totals` is the length of the float64 totals that minibatches add to.
    """

    model: FlatModel
    num_totals: int
    rate_option = "--learn-rate"  # what a user changes where training diverges
    steady = True  # the mean loss over a few thousand frames is near that over all
    patience: int | None = None  # epochs in a row in which the held-out loss may rise before training ends with the best model

    def reserve(self, rows: int) -> None:
        """Make all buffers for minibatches of up to so many rows, before the first one."""
        self.model.reserve(rows)

    @property
    def step_values(self) -> int:
        """The values of the widest layer that a step goes through, for a minibatch as large as the buffers."""
        return self.model.step_values

    @abstractmethod
    def gradient(self, minibatch: Minibatch, grads: Tensor, beta: float, totals: Tensor, rule: GradientRule = outer_product) -> None:
        """Make a minibatch's gradient: grads <- beta grads + gradient, summed over the minibatch; adds to `totals`.

        Nothing is read back from the device.
        """

    def gradient_in_parts(self, minibatch: Minibatch, grads: Tensor, beta: float, totals: Tensor,
                          rule: GradientRule = outer_product) -> Iterator[int]:
        """Do what `gradient` does; yields the place in `grads` from which on everything is made, at last 0."""
        self.gradient(minibatch, grads, beta, totals, rule)
        yield 0

    @abstractmethod
    def score(self, minibatch: Minibatch, totals: Tensor) -> None:
        """Add held-out data to `totals`."""

    @abstractmethod
    def score_priors(self, minibatch: Minibatch, totals: Tensor) -> None:
        """Add held-out data to `totals` as scored by a model that gives the targets' means and looks at no input."""

    @abstractmethod
    def metrics(self, totals: list[float]) -> dict[str, float]:
        """Means over frames, the loss first, as they stand in `history.jsonl` behind `train_` and `cv_`."""

    def settle(self) -> None:
        """Add to their totals what was left to be counted later; to be called before totals are read."""
        return  # nothing is left, unless an objective says so

    def training_generator(self, minibatch: Minibatch) -> torch.Generator:
        """The generator of a minibatch's own random numbers: the same wherever and whenever that minibatch is trained on.

        While a step is recorded as a CUDA graph, it is the recorder who seeds it.
        """
        device = self.model.device
        if not hasattr(self, "_generator"):
            self._generator = torch.Generator("cpu" if device.type == "meta" else device)
        recording = device.type == "cuda" and torch.cuda.is_current_stream_capturing()
        return self._generator if recording else self._generator.manual_seed(minibatch.seed)


class Supervised(Learner):
    """The learner that trains by an objective: forward, objective, backward.

    `gradient` does all three. Where a step is recorded but for its objective, `forward_alone` and `objective_alone` do the first two, and
    `gradient` what is left, until `end_of_step`.

    `prior_outputs`: the objective's, of the training data.
    """

    model: Model

    def __init__(self, model: Model, objective: Objective, prior_outputs: np.ndarray | None = None,
                 rate_option: str = "--learn-rate") -> None:
        self.model, self.objective, self.num_totals = model, objective, objective.num_totals
        self.prior_outputs, self.rate_option, self.steady = prior_outputs, rate_option, objective.steady
        self.patience = objective.patience
        self._outputs: dict[int, Tensor] = {}  # of `forward_alone`, by the number of rows: buffers that stay in place
        self._derivative: Tensor | None = None  # by these, of `objective_alone`

    def gradient(self, minibatch: Minibatch, grads: Tensor, beta: float, totals: Tensor, rule: GradientRule = outer_product) -> None:
        for _ in self.gradient_in_parts(minibatch, grads, beta, totals, rule):
            pass

    def gradient_in_parts(self, minibatch: Minibatch, grads: Tensor, beta: float, totals: Tensor,
                          rule: GradientRule = outer_product) -> Iterator[int]:
        derivative = self._derivative if self._derivative is not None else self.objective(self._forward(minibatch), minibatch, totals)
        yield from self.model.backward_in_parts(derivative, grads, beta, rule)

    def _forward(self, minibatch: Minibatch) -> Tensor:
        generator = self.training_generator(minibatch) if self.model.stochastic else None
        return self.model.forward(minibatch.inputs, generator, minibatch.sequences, training=True)

    def forward_alone(self, minibatch: Minibatch) -> None:
        """Compute the outputs of a minibatch for `objective_alone`."""
        self._outputs[len(minibatch.inputs)] = self._forward(minibatch)

    def objective_alone(self, minibatch: Minibatch, totals: Tensor) -> None:
        """Compute the derivative by the outputs of a minibatch; adds to `totals`."""
        self._derivative = self.objective(self._outputs[len(minibatch.inputs)], minibatch, totals)

    def end_of_step(self) -> None:
        """Forget the derivative: the next `gradient` does all three parts."""
        self._derivative = None

    def score(self, minibatch: Minibatch, totals: Tensor) -> None:
        self.objective.score(self.model.forward(minibatch.inputs, sequences=minibatch.sequences), minibatch, totals)

    def score_priors(self, minibatch: Minibatch, totals: Tensor) -> None:
        assert self.prior_outputs is not None
        like = self.model.params
        outputs = torch.from_numpy(self.prior_outputs).to(like.device, like.dtype)
        self.objective.score(outputs.repeat(len(minibatch.inputs), 1), minibatch, totals)

    def settle(self) -> None:
        self.objective.settle()

    def metrics(self, totals: list[float]) -> dict[str, float]:
        return self.objective.metrics(totals)
