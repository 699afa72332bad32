"""A trained acoustic model in one file, `final.pt`: network, feature transform, pdf counts.

Scores for decoding are log p(pdf | x) - log p(pdf): Bayes' rule without the constant p(x) (Bourlard & Morgan, 1994).
"""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pykaldist.devices import computing_on
from pykaldist.errors import FEATURES, UserError
from pykaldist.frames.packed import Sequences
from pykaldist.frames.sequences import Chunk, windows
from pykaldist.io import container
from pykaldist.nnet.arithmetic import arithmetic
from pykaldist.nnet.forwarding import ForwardOptions
from pykaldist.nnet.int8 import QuantisedModel
from pykaldist.nnet.kinds import KINDS, kind_of, make_nnet
from pykaldist.nnet.lstm import BlstmOptions
from pykaldist.nnet.model import Model
from pykaldist.nnet.priors import log_priors

ROWS = 4096  # frames sent through the network at a time


@dataclass
class FeatureTransform:
    """The feature transform of a network: splice, then (x - shift) scale, as nnet1's <Splice> <AddShift> <Rescale>.

    shift and scale: (len(splice) x dim,).
    """

    splice: list[int]
    shift: Tensor
    scale: Tensor

    def __call__(self, feats: Tensor) -> Tensor:
        """Transform (T, dim) -> (T, len(splice) x dim), edge frames repeated."""
        rows = torch.arange(len(feats))[:, None] + torch.tensor(self.splice)
        return (feats[rows.clamp_(0, len(feats) - 1)].flatten(1) - self.shift) * self.scale


class Network:
    """A network with its feature transform, pdf counts and options.

    `counts` (num_pdfs,): frames of each pdf in training; None where the outputs are features, not pdfs. `options` are those of its kind
    (`nnet/kinds.py`); `forwarding` says how utterances go through it.
    """

    def __init__(self, options: Any, model: Model, transform: FeatureTransform, counts: Tensor | None) -> None:
        self.options, self.model, self.transform, self.counts = options, model, transform, counts
        self._forwarding = ForwardOptions()
        self._quantised: QuantisedModel | None = None

    @property
    def forwarding(self) -> ForwardOptions:
        return self._forwarding

    @forwarding.setter
    def forwarding(self, forwarding: ForwardOptions) -> None:
        if forwarding.dtype != self._forwarding.dtype:
            int8 = forwarding.dtype == "int8"
            _, compute = arithmetic("float32" if int8 else forwarding.dtype, self.model.device)
            self.model.compute_in(compute)
            self._quantised = QuantisedModel(self.model) if int8 else None
        self._forwarding = forwarding

    def save(self, path: str | os.PathLike[str]) -> None:
        container.save(path, {
            "nnet": kind_of(self.options), "options": dataclasses.asdict(self.options), "input_dim": self.model.input_dim,
            "output_dim": self.model.output_dim, "params": self.model.params.to("cpu", copy=True), "splice": self.transform.splice,
            "shift": self.transform.shift, "scale": self.transform.scale, "counts": self.counts})

    @classmethod
    def load(cls, path: str | os.PathLike[str], device: str = "cpu") -> Network:
        state: dict[str, Any] = container.load(path)
        try:
            options = KINDS[state["nnet"]].options(**state["options"])
            model = make_nnet(options, state["input_dim"], state["output_dim"], len(state["splice"]), device)
            model.params.copy_(state["params"])
            transform = FeatureTransform(state["splice"], state["shift"], state["scale"])
            return cls(options, model, transform, state["counts"])
        except (KeyError, TypeError, RuntimeError) as error:
            raise UserError(f"{path} is no network of this version ({error}); train again (steps/nnet/train.sh).") from error

    def loglikes(self, feats: np.ndarray) -> np.ndarray:
        """Compute scaled log-likelihoods (T, num_pdfs) float32 of (T, dim) features, as the model's pipeline makes them."""
        if self.counts is None:
            raise UserError("the network was trained on target features (--objective mse): its outputs are no pdfs, and cannot be decoded; "
                            "`nnet-forward` gives them.")
        return self.log_posteriors(feats) - log_priors(self.counts.numpy())

    def log_posteriors(self, feats: np.ndarray) -> np.ndarray:
        """Compute log-posteriors (T, num_pdfs) float32 of (T, dim) features."""
        if feats.shape[1] * len(self.transform.splice) != self.model.input_dim:
            raise UserError(f"the network takes features of dimension {self.model.input_dim // len(self.transform.splice)}, found "
                            f"{feats.shape[1]}; make them with the config of the training data ({FEATURES}).")
        inputs = self.transform(torch.from_numpy(np.require(feats, np.float32, ["C", "W"])))
        return self._log_posteriors(inputs).numpy() if len(inputs) else np.zeros((0, self.model.output_dim), np.float32)

    def _log_posteriors(self, inputs: Tensor) -> Tensor:
        """Compute log-posteriors (T, num_pdfs) of transformed features (T, input_dim)."""
        model, o, frames = self.model, self.forwarding, len(inputs)
        if o.forward == "whole":
            size = frames if model.recurrent else ROWS
            return torch.cat([self._part(part, Sequences([1] * len(part), len(part))) for part in inputs.split(size)])
        if not isinstance(self.options, BlstmOptions):
            raise UserError(f"--forward {o.forward} is for bidirectional networks, and this is none; leave it out.")
        if o.forward_chunk is None and self.options.sequences != "chunks":
            raise UserError(f"--forward {o.forward}: the network was trained on whole utterances; say --forward-chunk.")
        chunk = self.options.parts() if o.forward_chunk is None else Chunk.parse(o.forward_chunk)
        if o.forward == "chunks" and o.forward_overlap >= chunk.size:
            raise UserError(f"--forward-overlap {o.forward_overlap}: expected less than a chunk's {chunk.size} frames.")
        if o.forward == "latency-controlled":
            return self._latency_controlled(inputs, chunk)
        rows, inside, sequences = windows(frames, chunk, o.forward_overlap)
        posteriors = self._part(inputs[rows], sequences)[inside].exp_()
        total = torch.zeros(frames, model.output_dim).index_add_(0, rows[inside], posteriors)
        return total.div_(torch.bincount(rows[inside], minlength=frames)[:, None]).clamp_min_(torch.finfo(torch.float32).tiny).log_()

    def _part(self, inputs: Tensor, sequences: Sequences) -> Tensor:
        if self._quantised is not None:
            return torch.log_softmax(self._quantised.forward(inputs), 1)
        with computing_on(self.model.device):
            return torch.log_softmax(self.model.forward(inputs.to(self.model.device), sequences=sequences).cpu(), 1)

    def _latency_controlled(self, inputs: Tensor, chunk: Chunk) -> Tensor:
        parts = []
        for number, first in enumerate(range(0, len(inputs), chunk.size)):
            part = inputs[first : first + chunk.size + chunk.right]
            own = min(chunk.size, len(part))
            sequences = Sequences([1] * len(part), own, continues=number > 0, leaves=own - 1, place=(0, 0, number))
            parts.append(self._part(part, sequences)[:own])
        return torch.cat(parts)
