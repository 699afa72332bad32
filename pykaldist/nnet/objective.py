"""Training objectives: the loss of a minibatch's outputs, and its derivative.

Losses are sums over frames, as in nnet1. Nothing is read back to the host.

Softmax with cross-entropy, for logits z (n, K): frame i has the weight w_i (1 where the store has none) and gives the probability q_ik to
pdf k (1 to its target where there are no soft targets). With p = softmax(z), a_ik = w_i q_ik and m_i = sum_k a_ik,
    loss = -sum_i sum_k a_ik log p_ik,    d loss / d z_ik = m_i p_ik - a_ik.
m_i is what the frame counts: a frame whose soft target is empty counts nothing (Kaldi's nnet1 likewise). Means are over sum_i m_i.

Mean square error, for outputs y (n, D) and target features t: loss = 1/2 sum_i w_i |y_i - t_i|^2, its derivative w_i (y_i - t_i).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pykaldist.errors import UserError
from pykaldist.frames.lattice_store import LatticeStore
from pykaldist.frames.sampler import Minibatch
from pykaldist.frames.store import FrameStore
from pykaldist.nnet.cuda_graphs import ObjectiveGraphs
from pykaldist.nnet.gemm import whole_rows

MEAN_FRAMES = 1_000_000  # of which a mean target is made


@dataclass
class ObjectiveOptions:
    """The options of an objective: none, unless a class of options derives from this one."""


class Objective(ABC):
    """A training objective, made of its options.

    `totals` are float64 sums on the device: loss, what `metrics` needs beside it, frames by their weights.

    A class that has a `name` is one that --objective takes.
    """

    num_totals: int
    pdfs = True  # the outputs are log posteriors of pdfs, but for a constant
    steady = True  # the mean loss over a few thousand frames is near that over all
    patience: int | None = None  # epochs in a row in which the held-out loss may rise before training ends with the best model
    whole_utterances = False  # minibatches are of whole utterances, whatever the network
    recordable = True  # minibatches have few shapes, so that a CUDA graph of a step can have the objective in it
    advice: Sequence[str] = ()  # what a plan says about training it by many workers
    options_class: type[ObjectiveOptions] = ObjectiveOptions

    def __init__(self, options: ObjectiveOptions | None = None) -> None:
        self.options = options or self.options_class()
        self.graphs = ObjectiveGraphs()  # of what is not recorded together with a step

    def prepare(self, train: FrameStore, dev: FrameStore) -> None:
        """Read what is needed beside the frame stores; raises UserError where it does not belong to them."""
        return  # nothing is

    def stores(self) -> Sequence[LatticeStore]:
        """The stores that `prepare` has opened."""
        return ()

    @abstractmethod
    def __call__(self, outputs: Tensor, minibatch: Minibatch, totals: Tensor) -> Tensor:
        """Turn `outputs` (n, K) into their derivative in place, and return it; add the minibatch to `totals`."""

    def score(self, outputs: Tensor, minibatch: Minibatch, totals: Tensor) -> None:
        """Add a minibatch to `totals`, where no derivative is wanted; `outputs` may be written over."""
        self(outputs, minibatch, totals)

    def settle(self) -> None:
        """Add to their totals what was left to be counted later."""
        return  # nothing is

    @abstractmethod
    def metrics(self, totals: list[float]) -> dict[str, float]:
        """Means over frames, the loss first, as they stand in `history.jsonl` behind `train_` and `cv_`."""

    @abstractmethod
    def output_dim(self, store: FrameStore) -> int:
        """The outputs that a network needs; raises UserError where the store lacks what the objective takes."""

    def counts(self, store: FrameStore) -> np.ndarray | None:
        """The counts that priors are made of; None where the outputs are no posteriors."""
        return store.counts() if self.pdfs else None

    @abstractmethod
    def prior_outputs(self, store: FrameStore) -> np.ndarray:
        """The outputs (K,) of a network that has learnt which targets there are and how often, and looks at no input."""

    @abstractmethod
    def targets(self, store: FrameStore) -> str:
        """A description, in words, of the targets that a store has for this objective."""


def _sum(values: Tensor, totals: Tensor) -> Tensor:
    """The sum of frames' values; of stacked models, whose totals have rows, that of each."""
    return values.view(*totals.shape[:-1], -1).sum(-1, dtype=torch.float64)


def _without_gaps(logits: Tensor) -> Tensor:
    """Logits (n, K), on a GPU with the room behind each row, which gets no probability."""
    whole, room = whole_rows(logits)
    if room is not None:
        room.fill_(-torch.inf)
    return whole


class CrossEntropy(Objective):
    """Softmax with cross-entropy. Totals: summed loss, frames whose likeliest target has the highest logit, frames.

    Of stacked models (nnet/stacked.py), each has a row of totals and its part of the frames.
    """

    name = "xent"
    num_totals = 3

    def __call__(self, outputs: Tensor, minibatch: Minibatch, totals: Tensor) -> Tensor:
        if minibatch.weights is not None or minibatch.posterior_probs is not None:
            return self._weighted(outputs, minibatch, totals)
        targets = minibatch.targets.long().unsqueeze(1)
        whole = _without_gaps(outputs)
        correct = whole.argmax(1, keepdim=True) == targets
        torch.softmax(whole, 1, out=whole)
        chosen = outputs.gather(1, targets)
        totals[..., 0] -= _sum(chosen.clamp_min(torch.finfo(outputs.dtype).tiny).log_(), totals)
        totals[..., 1] += _sum(correct, totals)
        totals[..., 2] += len(outputs) // totals[..., 2].numel()
        return outputs.scatter_add_(1, targets, chosen.new_full((1, 1), -1.0).expand_as(chosen))

    def _weighted(self, outputs: Tensor, minibatch: Minibatch, totals: Tensor) -> Tensor:
        if minibatch.posterior_pdfs is None or minibatch.posterior_probs is None:
            pdfs, amounts = minibatch.targets.long().unsqueeze(1), outputs.new_ones(len(outputs), 1)
        else:  # the likeliest stands first
            pdfs, amounts = minibatch.posterior_pdfs.long(), minibatch.posterior_probs.to(outputs.dtype)
        if minibatch.weights is not None:
            amounts = amounts * minibatch.weights.unsqueeze(1)
        mass = amounts.sum(1, keepdim=True)
        whole = _without_gaps(outputs)
        correct = (whole.argmax(1, keepdim=True) == pdfs[:, :1]) * mass
        torch.softmax(whole, 1, out=whole)
        logs = outputs.gather(1, pdfs).clamp_min_(torch.finfo(outputs.dtype).tiny).log_()
        totals[..., 0] -= _sum(logs.mul_(amounts), totals)
        totals[..., 1] += _sum(correct, totals)
        totals[..., 2] += _sum(mass, totals)
        return outputs.mul_(mass).scatter_add_(1, pdfs, amounts.neg())

    def metrics(self, totals: list[float]) -> dict[str, float]:
        loss, correct, frames = totals
        return {"loss": loss / frames if frames else 0.0, "acc": correct / frames if frames else 0.0}

    def output_dim(self, store: FrameStore) -> int:
        return store.manifest.num_pdfs

    def prior_outputs(self, store: FrameStore) -> np.ndarray:
        """The logarithms of the priors; a pdf that is not there counts as one frame."""
        counts = np.maximum(store.counts(), 1.0)
        return np.log(counts / counts.sum())

    def targets(self, store: FrameStore) -> str:
        return "pdfs" if store.posterior_pdfs is None else f"posteriors, up to {store.manifest.num_posteriors} a frame"


class MeanSquareError(Objective):
    """Mean square error of target features. Totals: summed loss, frames."""

    name = "mse"
    num_totals = 2
    pdfs = False

    def __call__(self, outputs: Tensor, minibatch: Minibatch, totals: Tensor) -> Tensor:
        assert minibatch.target_feats is not None
        outputs.sub_(minibatch.target_feats)
        squares = outputs.square().sum(1, dtype=torch.float64)
        if minibatch.weights is None:
            totals[1] += len(outputs)
        else:
            squares *= minibatch.weights
            outputs.mul_(minibatch.weights.unsqueeze(1))
            totals[1] += minibatch.weights.sum(dtype=torch.float64)
        totals[0] += 0.5 * squares.sum()
        return outputs

    def metrics(self, totals: list[float]) -> dict[str, float]:
        loss, frames = totals
        return {"loss": loss / frames if frames else 0.0}

    def output_dim(self, store: FrameStore) -> int:
        if store.target_feats is None:
            raise UserError(f"--objective mse: {store.path} has no target features; pack it with --target-feats.")
        return store.manifest.target_dim

    def prior_outputs(self, store: FrameStore) -> np.ndarray:
        """The mean target, over up to a million frames that are spread evenly."""
        assert store.target_feats is not None
        chosen = slice(None, None, max(1, len(store) // MEAN_FRAMES))
        weights = None if store.weights is None or not store.weights[chosen].any() else store.weights[chosen]
        return np.average(store.target_feats[chosen].astype(np.float64), 0, weights)

    def targets(self, store: FrameStore) -> str:
        return "target features"

