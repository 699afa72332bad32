"""Learners with which the optimiser nnet3 is tried."""

from __future__ import annotations

import torch
from chain_egs import MergedEgs
from torch import Tensor

from pykaldist.frames.sampler import Minibatch
from pykaldist.nnet.chain_denominator import Denominator
from pykaldist.nnet.chain_objective import ChainOptions, chain_objective
from pykaldist.nnet.components import GradientRule, outer_product
from pykaldist.nnet.learner import Learner
from pykaldist.nnet.nnet3.network import Nnet3Network

CONTEXT_OF_EGS, XENT_REGULARIZE, ULP = 6, 0.1, 2.0**-23


class Untested(Learner):
    """What all of them leave out: held-out data."""

    def score(self, minibatch: Minibatch, totals: Tensor) -> None:
        raise NotImplementedError

    score_priors = score

    def metrics(self, totals: list[float]) -> dict[str, float]:
        raise NotImplementedError


class Given(Untested):
    """A learner whose minibatches are inputs (frames, sequences, dim) and derivatives of an objective (rows, dim), by their index."""

    num_totals = 1

    def __init__(self, network: Nnet3Network, inputs: list[Tensor], derivatives: list[Tensor]) -> None:
        self.model: Nnet3Network = network
        self.inputs, self.derivatives = inputs, derivatives
        self.outputs: list[Tensor] = []

    def gradient(self, minibatch: Minibatch, grads: Tensor, beta: float, totals: Tensor, rule: GradientRule = outer_product) -> None:
        x, dy = self.inputs[minibatch.index], self.derivatives[minibatch.index]
        self.outputs.append(self.model.forward_chunks(x.flatten(0, 1), None, len(dy) // x.shape[1], x.shape[1], True,
                                                      self.training_generator(minibatch))["output"].clone())
        self.model.backward_chunks({"output": -dy}, grads, beta, rule)


class Chain(Untested):
    """The objective of nnet3-chain-train on minibatches of Kaldi's examples; its totals: objf, l2 term, xent, frames.

    Where `rounding` is given, each derivative of the output is multiplied by 1 + or - 2^-23, drawn from it.
    """

    num_totals = 4
    rounding: torch.Generator | None = None

    def __init__(self, network: Nnet3Network, egs: list[MergedEgs], denominator: Denominator, options: ChainOptions,
                 apply_deriv_weights: bool) -> None:
        self.model: Nnet3Network = network
        self.egs, self.denominator, self.options, self.apply_deriv_weights = egs, denominator, options, apply_deriv_weights

    def gradient(self, minibatch: Minibatch, grads: Tensor, beta: float, totals: Tensor, rule: GradientRule = outer_product) -> None:
        egs = self.egs[minibatch.index % len(self.egs)]
        feats = egs.feats[CONTEXT_OF_EGS - self.model.window[0]:].flatten(0, 1).to(self.model.params)
        outputs = self.model.forward_chunks(feats, None, egs.frames, egs.feats.shape[1], True, self.training_generator(minibatch))
        found = chain_objective(outputs["output"], egs.numerators, self.denominator, self.options)
        xent = (found.posterior * outputs["output-xent"]).sum()
        totals += torch.stack([found.objf, found.l2_term, xent, torch.tensor(found.weight)])
        if self.rounding is not None:
            found.derivative.mul_(1.0 + ULP * (2.0 * torch.randint(2, found.derivative.shape, generator=self.rounding) - 1.0))
        weights = egs.deriv_weights[:, None] if self.apply_deriv_weights else 1.0
        self.model.backward_chunks({"output": -found.derivative * weights, "output-xent": -XENT_REGULARIZE * found.posterior * weights},
                                   grads, beta, rule)


def minibatch_of(index: int) -> Minibatch:
    return Minibatch(torch.zeros(1, 1), torch.zeros(0), index, False, seed=index)
