"""Learners of nnet3 networks: what all have in common, and that of cross-entropy on frames.

Dropout follows a *schedule* over the whole training, as Kaldi writes it: `0,0@0.20,0.3@0.50,0` is 0 up to a fifth of the training, rises to
0.3 in its midst, and falls to 0 at its end.

On frames, a minibatch has n sequences of one output each: the frames that the output needs, one behind the other, are the columns of an
input. Where the network has the input `ivector`, each frame's features have its i-vector behind them, of which that of the output's frame
is taken. The network ends in a log-softmax, through which the derivative of cross-entropy goes back as it is. Recurrent networks are
trained on chunks of frames, one behind the other, in place of single ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pykaldist.errors import UserError
from pykaldist.frames.sampler import Minibatch
from pykaldist.nnet.components import GradientRule, outer_product
from pykaldist.nnet.learner import Learner
from pykaldist.nnet.nnet3.network import Nnet3Network
from pykaldist.nnet.objective import CrossEntropy
from pykaldist.options import option

MIDST = 0.5  # of the training: where a value of a dropout schedule stands that does not say where


@dataclass
class DropoutOptions:
    """When dropout has which proportion."""

    dropout_schedule: str = option("", "dropout over the training, as 0,0@0.20,0.3@0.50,0 (as the network has it)")

    def __post_init__(self) -> None:
        if self.dropout_schedule:
            parse_dropout_schedule(self.dropout_schedule)


def parse_dropout_schedule(text: str) -> tuple[list[float], list[float]]:
    """Read a dropout schedule: (fractions of the training, proportions), between which it is linear; raises UserError where it is none."""
    parts = [part.partition("@") for part in text.split(",")]
    try:
        values = [float(value) for value, _, _ in parts]
        places = [float(place) if at else MIDST for _, at, place in parts[1:-1]]
    except ValueError:
        values, places = [], []
    fractions = [0.0, *places, 1.0]
    if len(parts) < 2 or parts[0][1] or parts[-1][1] or not values or sorted(fractions) != fractions or not all(0 <= v < 1 for v in values):
        raise UserError(f"--dropout-schedule {text}: expected proportions in [0, 1), the first at the beginning, the last at the end, "
                        "those between at rising fractions of the training, as 0,0@0.20,0.3@0.50,0.")
    return fractions, values


class Nnet3Learner(Learner):
    """Trains an nnet3 network over `num_epochs` epochs (for the dropout schedule)."""

    model: Nnet3Network

    def __init__(self, model: Nnet3Network, options: DropoutOptions, num_epochs: int, rate_option: str) -> None:
        self.model, self.num_epochs, self.rate_option = model, num_epochs, rate_option
        self._dropout = parse_dropout_schedule(options.dropout_schedule) if options.dropout_schedule else None

    def set_dropout(self, minibatch: Minibatch) -> None:
        """Set the proportion that dropout has in a minibatch by the schedule, where there is one."""
        if self._dropout is not None:
            self.model.set_dropout(float(np.interp(minibatch.epochs_done / self.num_epochs, *self._dropout)))

    def most_dropout(self) -> float:
        """The epochs after which the schedule has the most dropout."""
        fractions, values = self._dropout or ([0.0], [0.0])
        return self.num_epochs * fractions[int(np.argmax(values))]

    def has_statistics(self) -> bool:
        """Whether all batch normalisation has seen data; the count stands first."""
        return all(float(self.model.params[part.start]) > 0 for part in self.model.batchnorm_statistics())

    def gather_statistics(self, minibatches: Iterable[Minibatch]) -> None:
        """Make the statistics of batch normalisation anew, from these minibatches, for the parameters as they are now."""
        model, own = self.model, self.model.batchnorm_statistics()
        grads, totals = torch.empty_like(model.params), torch.zeros(self.num_totals, dtype=torch.float64, device=model.device)
        sums = [torch.zeros_like(model.params[part]) for part in own]
        for minibatch in minibatches:
            self.gradient(minibatch, grads, 0.0, totals)
            for total, part in zip(sums, own, strict=True):
                total += grads[part]
        for total, part in zip(sums, own, strict=True):
            model.params[part] = total


class FrameLearner(Nnet3Learner):
    """Trains an nnet3 network by cross-entropy with the frames' pdfs; `prior_outputs` as in `learner.py`."""

    num_totals = CrossEntropy.num_totals

    def __init__(self, model: Nnet3Network, options: DropoutOptions, prior_outputs: np.ndarray, num_epochs: int = 1,
                 rate_option: str = "--learn-rate") -> None:
        super().__init__(model, options, num_epochs, rate_option)
        self.objective, self.prior_outputs = CrossEntropy(), torch.from_numpy(prior_outputs)

    def outputs(self, minibatch: Minibatch, training: bool = False, generator: torch.Generator | None = None) -> Tensor:
        """The network's outputs (n, K) for a minibatch."""
        rows, width = len(minibatch.inputs), self.model.left_context + 1 + self.model.right_context
        frames = minibatch.inputs.view(rows, width, -1).transpose(0, 1)
        feats = frames[:, :, :self.model.input_dim].reshape(rows * width, -1)
        ivectors = frames[self.model.left_context, :, self.model.input_dim:] if frames.shape[2] > self.model.input_dim else None
        return self.model.forward_chunks(feats, ivectors, 1, rows, training, generator)["output"]

    def gradient(self, minibatch: Minibatch, grads: Tensor, beta: float, totals: Tensor, rule: GradientRule = outer_product) -> None:
        self.set_dropout(minibatch)
        outputs = self.outputs(minibatch, True, self.training_generator(minibatch))
        self.model.backward_chunks({"output": self.objective(outputs.clone(), minibatch, totals)}, grads, beta, rule)

    def score(self, minibatch: Minibatch, totals: Tensor) -> None:
        self.objective.score(self.outputs(minibatch, training=not self.has_statistics()).clone(), minibatch, totals)

    def score_priors(self, minibatch: Minibatch, totals: Tensor) -> None:
        like = self.model.params
        self.objective.score(self.prior_outputs.to(like.device, like.dtype).repeat(len(minibatch.targets), 1), minibatch, totals)

    def metrics(self, totals: list[float]) -> dict[str, float]:
        return self.objective.metrics(totals)

    def mean_posterior(self, minibatches: Iterable[Minibatch]) -> np.ndarray:
        """The mean of the posteriors of these minibatches' frames, by which the outputs' likelihoods are divided."""
        total, frames = torch.zeros(self.model.output_dim, dtype=torch.float64, device=self.model.device), 0
        for minibatch in minibatches:
            outputs = self.outputs(minibatch)
            total += outputs.softmax(1).sum(0, dtype=torch.float64)
            frames += len(outputs)
        return (total / frames).float().cpu().numpy()


class EvenChunkLearner(FrameLearner):
    """Trains a recurrent network by cross-entropy on chunks of `width` frames, each with the i-vector of its middle where there is one."""

    def __init__(self, model: Nnet3Network, options: DropoutOptions, prior_outputs: np.ndarray, width: int, num_epochs: int = 1,
                 rate_option: str = "--learn-rate") -> None:
        super().__init__(model, options, prior_outputs, num_epochs, rate_option)
        self.width = width

    def outputs(self, minibatch: Minibatch, training: bool = False, generator: torch.Generator | None = None) -> Tensor:
        model = self.model
        frames = minibatch.inputs.view(self.width + sum(model.window), -1, minibatch.inputs.shape[1])
        ivectors = frames[model.window[0] + self.width // 2, :, model.input_dim:] if frames.shape[2] > model.input_dim else None
        feats = frames[:, :, :model.input_dim].reshape(-1, model.input_dim)
        return model.forward_chunks(feats, ivectors, self.width, frames.shape[1], training, generator)["output"]
