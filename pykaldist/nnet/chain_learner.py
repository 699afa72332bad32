"""The learner of chain (LF-MMI) models: an nnet3 network, the chain objective of its output, cross-entropy of a second one.

A minibatch has chunks of one length. The derivatives of the output are those of `chain_objective.py`. The output `output-xent`, where the
network has it, ends in a log-softmax. It is trained towards the posteriors of the numerators, with the weight `xent_regularize`, and
regularises the layers below; decoding does not look at it. Both derivatives are multiplied by the weights of frames that several chunks
share (`apply_deriv_weights`). A random half of the minibatches has the penalty of outputs that are out of range, as in nnet3-chain-train.

Losses are means over output frames, with the sign that falls: that of the chain objective, without its l2 term, is `loss`, that of
cross-entropy `xent`. Held-out chunks go through the network with its statistics of batch normalisation; before there are any, with those of
their minibatch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pykaldist.errors import UserError
from pykaldist.frames.chunk_store import Chunks
from pykaldist.frames.sampler import Minibatch
from pykaldist.nnet.chain_denominator import Denominator
from pykaldist.nnet.chain_objective import ChainObjective, ChainOptions, chain_objective
from pykaldist.nnet.components import GradientRule, outer_product
from pykaldist.nnet.nnet3.network import Nnet3Network
from pykaldist.nnet.nnet3_learner import DropoutOptions, Nnet3Learner
from pykaldist.options import option


@dataclass
class ChainTrainingOptions(DropoutOptions, ChainOptions):
    """The options of chain training."""

    xent_regularize: float = option(0.0, "weight of cross-entropy at output-xent (0.1 in recipes)")
    apply_deriv_weights: bool = option(True, "frames that several chunks share count less")

    def __post_init__(self) -> None:
        DropoutOptions.__post_init__(self)
        ChainOptions.__post_init__(self)
        if self.xent_regularize < 0:
            raise UserError(f"--xent-regularize {self.xent_regularize:g} is negative.")


class ChainLearner(Nnet3Learner):
    """Trains an nnet3 network by the chain objective with a denominator graph, over `num_epochs` epochs (for the dropout schedule).

    Totals: minus the objective, minus its l2 term, minus that of cross-entropy, output frames.
    """

    num_totals = 4

    def __init__(self, model: Nnet3Network, denominator: Denominator, options: ChainTrainingOptions, num_epochs: int = 1,
                 rate_option: str = "--learn-rate") -> None:
        if model.nnet.dim("output") != denominator.num_pdfs:
            raise UserError(f"the network has {model.nnet.dim('output')} outputs, the denominator graph {denominator.num_pdfs} pdfs; make "
                            "the network's configs with the number of pdfs of this tree (tree-info, steps/nnet3/xconfig_to_configs.py).")
        super().__init__(model, options, num_epochs, rate_option)
        self.denominator, self.options = denominator, options
        self._has_xent = "output-xent" in model.outputs

    def gradient(self, minibatch: Minibatch, grads: Tensor, beta: float, totals: Tensor, rule: GradientRule = outer_product) -> None:
        chunks = minibatch.chunks
        assert chunks is not None
        self.set_dropout(minibatch)
        generator = self.training_generator(minibatch)
        penalize = bool(torch.rand((), generator=torch.Generator().manual_seed(minibatch.seed)) < 0.5)
        outputs = self.model.forward_chunks(minibatch.inputs, chunks.ivectors, chunks.output_frames, chunks.sequences, True, generator,
                                            window=chunks.context)
        found = self._objective(outputs, chunks, totals, penalize)
        derivatives = {"output": found.derivative.neg_()}
        if self._has_xent:
            derivatives["output-xent"] = found.posterior.mul_(-self.options.xent_regularize)
        if self.options.apply_deriv_weights:
            for derivative in derivatives.values():
                derivative.mul_(chunks.weights[:, None])
        self.model.backward_chunks(derivatives, grads, beta, rule)

    def _objective(self, outputs: dict[str, Tensor], chunks: Chunks, totals: Tensor, penalize: bool) -> ChainObjective:
        """The objective of a minibatch's outputs, which is added to `totals`."""
        found = chain_objective(outputs["output"], chunks.numerators, self.denominator, self.options, penalize)
        totals[0] -= found.objf
        totals[1] -= found.l2_term
        if self._has_xent:
            totals[2] -= (found.posterior * outputs["output-xent"]).sum(dtype=torch.float64)
        totals[3] += found.weight
        return found

    def score(self, minibatch: Minibatch, totals: Tensor) -> None:
        chunks = minibatch.chunks
        assert chunks is not None
        outputs = self.model.forward_chunks(minibatch.inputs, chunks.ivectors, chunks.output_frames, chunks.sequences,
                                            training=not self.has_statistics(), window=chunks.context)
        self._objective(outputs, chunks, totals, False)

    def score_priors(self, minibatch: Minibatch, totals: Tensor) -> None:
        chunks = minibatch.chunks
        assert chunks is not None
        rows = chunks.output_frames * chunks.sequences
        equal = self.model.params.new_zeros(rows, self.denominator.num_pdfs)
        self._objective({name: equal for name in self.model.outputs}, chunks, totals, False)

    def metrics(self, totals: list[float]) -> dict[str, float]:
        objf, l2_term, xent, frames = totals
        found = {"loss": objf, **({"xent": xent} if self._has_xent else {}), **({"l2": l2_term} if self.options.l2_regularize else {})}
        return {name: value / frames if frames else 0.0 for name, value in found.items()}
