"""The optimiser nnet3 beside Kaldi's nnet3-chain-train: parameters and objectives after a few minibatches of a small TDNN-F."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch
from chain_egs import MergedEgs, merged_egs
from torch import Tensor

from pykaldist.frames.sampler import Minibatch
from pykaldist.io.fst import Fst
from pykaldist.io.kaldi import KaldiReader
from pykaldist.nnet.chain_denominator import Denominator
from pykaldist.nnet.chain_objective import ChainOptions, chain_objective
from pykaldist.nnet.components import GradientRule, outer_product
from pykaldist.nnet.learner import Learner
from pykaldist.nnet.nnet3.model import Nnet3
from pykaldist.nnet.nnet3.network import Nnet3Network
from pykaldist.optim.nnet3 import Nnet3 as Optimizer
from pykaldist.optim.nnet3 import Nnet3Options

PDFS, SEQUENCES, CONTEXT_OF_EGS = 112, 6, 6
XENT_REGULARIZE = 0.1


class ChainTest(Learner):
    """The objective of nnet3-chain-train on minibatches of Kaldi's examples; its totals: objf, l2 term, xent, frames."""

    num_totals = 4

    def __init__(self, network: Nnet3Network, egs: list[MergedEgs], denominator: Denominator, options: ChainOptions,
                 apply_deriv_weights: bool) -> None:
        self.model: Nnet3Network = network
        self.egs, self.denominator, self.options, self.apply_deriv_weights = egs, denominator, options, apply_deriv_weights

    def gradient(self, minibatch: Minibatch, grads: Tensor, beta: float, totals: Tensor, rule: GradientRule = outer_product) -> None:
        egs = self.egs[minibatch.index % len(self.egs)]
        feats = egs.feats[CONTEXT_OF_EGS - self.model.left_context:].flatten(0, 1).to(self.model.params.dtype)
        outputs = self.model.forward_chunks(feats, None, egs.frames, SEQUENCES, True, torch.Generator().manual_seed(minibatch.seed))
        found = chain_objective(outputs["output"], egs.numerators, self.denominator, self.options)
        xent = (found.posterior * outputs["output-xent"]).sum()
        totals += torch.stack([found.objf, found.l2_term, xent, torch.tensor(found.weight)])
        weights = egs.deriv_weights[:, None] if self.apply_deriv_weights else 1.0
        self.model.backward_chunks({"output": -found.derivative * weights, "output-xent": -XENT_REGULARIZE * found.posterior * weights},
                                   grads, beta, rule)

    def score(self, minibatch: Minibatch, totals: Tensor) -> None:
        raise NotImplementedError

    score_priors = score

    def metrics(self, totals: list[float]) -> dict[str, float]:
        return {}


def minibatch(egs: list[MergedEgs], index: int) -> Minibatch:
    return Minibatch(egs[index % 2].feats, torch.zeros(0), index, False, seed=index)


@pytest.fixture(scope="module")
def chain(golden: Path) -> Path:
    return golden / "chain"


@pytest.fixture(scope="module")
def egs(chain: Path) -> list[MergedEgs]:
    return [*merged_egs(chain, PDFS, SEQUENCES).values()]


def raw(path: Path) -> Nnet3:
    return Nnet3.parse(KaldiReader(gzip.decompress(path.read_bytes()), str(path)))


def trained(chain: Path, egs: list[MergedEgs], steps: int, rate: float, options: Nnet3Options, l2: float, deriv_weights: bool
            ) -> tuple[Nnet3, Tensor]:
    network = Nnet3Network(Nnet3.read(chain / "net/train.0.raw"))
    denominator = Denominator(Fst.read(chain / "den.fst"), PDFS, 0.1)
    learner = ChainTest(network, egs, denominator, ChainOptions(0.1, l2), deriv_weights)
    optimizer, totals = Optimizer(learner, options), torch.zeros(4, dtype=torch.float64)
    for index in range(steps):
        optimizer.local_step(minibatch(egs, index), rate, totals)
    return network.to_nnet3(rate), totals


CASES = {"train_small_rate.1": (1, 0.0001, Nnet3Options(max_param_change=0.0), 0.0, True),
         "train.1": (1, 0.01, Nnet3Options(), 0.0001, False), "train.2": (2, 0.01, Nnet3Options(), 0.0001, False),
         "train.4": (4, 0.01, Nnet3Options(), 0.0001, False), "train.8": (8, 0.01, Nnet3Options(), 0.0001, False),
         "train_maxchange.2": (2, 0.3, Nnet3Options(max_param_change=0.5, l2_regularize_factor=0.5), 0.0001, False)}


@pytest.mark.parametrize("name", CASES)
def test_parameters_are_kaldis(chain: Path, egs: list[MergedEgs], name: str) -> None:
    ours, totals = trained(chain, egs, *CASES[name])
    kaldis, before = raw(chain / f"net/{name}.raw.txt.gz"), Nnet3.read(chain / "net/train.0.raw")
    objective, _, xent, frames = totals.tolist()
    moved = {}
    for component in kaldis.components.values():
        mine = ours.components[component.name]
        for token in ("LinearParams", "Params", "BiasParams", "StatsMean", "StatsVar"):
            if token in component.values:
                start, want, got = (one.array(token) for one in (before.components[component.name], component, mine))
                if want.size:
                    moved[component.name, token] = np.abs(got - want).max(), np.abs(want - start).max()
                np.testing.assert_allclose(got, want, atol=1e-4, rtol=1e-4, err_msg=f"{component.name} {token}")
        if component.type == "BatchNormComponent":
            assert mine.number("Count") == pytest.approx(component.number("Count"), rel=1e-6)
    print(objective / frames, xent / frames, moved)
