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

from pykaldist.errors import UserError
from pykaldist.io import container
from pykaldist.nnet.dnn import DnnOptions, make_dnn
from pykaldist.nnet.model import Model
from pykaldist.nnet.priors import log_priors

ROWS = 4096  # frames sent through the network at a time


@dataclass
class FeatureTransform:
    """Splice, then (x - shift) scale: nnet1's <Splice> <AddShift> <Rescale>. shift and scale: (len(splice) x dim,)."""

    splice: list[int]
    shift: Tensor
    scale: Tensor

    def __call__(self, feats: Tensor) -> Tensor:
        """(T, dim) -> (T, len(splice) x dim), edge frames repeated."""
        rows = torch.arange(len(feats))[:, None] + torch.tensor(self.splice)
        return (feats[rows.clamp_(0, len(feats) - 1)].flatten(1) - self.shift) * self.scale


class Network:
    """A DNN with what surrounds it. `counts` (num_pdfs,): frames of each pdf in training; None where the outputs are features, not pdfs."""

    def __init__(self, options: DnnOptions, model: Model, transform: FeatureTransform, counts: Tensor | None) -> None:
        self.options, self.model, self.transform, self.counts = options, model, transform, counts

    def save(self, path: str | os.PathLike[str]) -> None:
        container.save(path, {
            "nnet": "dnn", "options": dataclasses.asdict(self.options), "input_dim": self.model.input_dim,
            "output_dim": self.model.output_dim, "params": self.model.params.cpu(), "splice": self.transform.splice,
            "shift": self.transform.shift, "scale": self.transform.scale, "counts": self.counts})

    @classmethod
    def load(cls, path: str | os.PathLike[str], device: str = "cpu") -> Network:
        state: dict[str, Any] = container.load(path)
        try:
            options = DnnOptions(**state["options"])
            model = make_dnn(options, state["input_dim"], state["output_dim"], device)
            model.params.copy_(state["params"])
            transform = FeatureTransform(state["splice"], state["shift"], state["scale"])
            return cls(options, model, transform, state["counts"])
        except (KeyError, TypeError, RuntimeError) as error:
            raise UserError(f"{path} is no network of this version ({error}); train again.") from error

    def loglikes(self, feats: np.ndarray) -> np.ndarray:
        """(T, dim) features, as the model's pipeline makes them -> (T, num_pdfs) scaled log-likelihoods, float32."""
        if self.counts is None:
            raise UserError("the network was trained on target features (--objective mse): its outputs are no pdfs, and cannot be decoded; "
                            "pykaldist nnet-forward gives them.")
        if feats.shape[1] * len(self.transform.splice) != self.model.input_dim:
            raise UserError(f"the network takes features of dimension {self.model.input_dim // len(self.transform.splice)}, found "
                            f"{feats.shape[1]}; make them with the config of the training data.")
        inputs = self.transform(torch.from_numpy(np.require(feats, np.float32, ["C", "W"])))
        priors, scores = torch.from_numpy(log_priors(self.counts.numpy())), []
        for first in range(0, len(inputs), ROWS):
            logits = self.model.forward(inputs[first : first + ROWS].to(self.model.device)).cpu()
            scores.append(torch.log_softmax(logits, 1) - priors)
        return torch.cat(scores).numpy() if scores else np.zeros((0, self.model.output_dim), np.float32)
