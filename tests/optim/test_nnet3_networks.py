"""Training of networks with LSTMs, GRUs and attention beside Kaldi's nnet3-chain-train, whose results are in kaldi_lstm and so on."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch
from chain_egs import merged_egs
from nnet3_learners import CONTEXT_OF_EGS, Chain, minibatch_of

from pykaldist.frames.sampler import Minibatch
from pykaldist.io.fst import Fst
from pykaldist.io.kaldi import KaldiReader
from pykaldist.nnet.chain_denominator import Denominator
from pykaldist.nnet.chain_objective import ChainOptions
from pykaldist.nnet.nnet3 import model as files
from pykaldist.nnet.nnet3.network import Nnet3Network
from pykaldist.optim.nnet3 import Nnet3, Nnet3Options

PDFS, SEQUENCES = 112, 6


def kaldis(kind: str, steps: int) -> files.Nnet3:
    path = Path(__file__).parent / f"kaldi_{kind}/{steps}.raw.gz"
    return files.Nnet3.parse(KaldiReader(gzip.decompress(path.read_bytes()), str(path)))


class Repairing(Chain):
    """It repairs the units of LSTM cells, which is not random."""

    def training_generator(self, minibatch: Minibatch) -> torch.Generator:
        return torch.Generator().manual_seed(minibatch.seed)


@pytest.mark.parametrize(("kind", "steps", "bound"), [  # Kaldi with other kernels of its BLAS: up to 2.5e-5, 6e-6 and 1.3e-4
    ("lstm", 1, 5e-6), ("lstm", 2, 3e-5), ("lstm", 4, 1e-4), ("attention", 1, 1e-5), ("attention", 2, 2e-5), ("attention", 4, 5e-5),
    ("gru", 1, 3e-5), ("gru", 2, 8e-5), ("gru", 4, 6e-4)])
def test_parameters_are_kaldis(golden: Path, kind: str, steps: int, bound: float) -> None:
    chain, start, expected = golden / "chain", kaldis(kind, 0), kaldis(kind, steps)
    plain = Nnet3Network(start)
    around = (CONTEXT_OF_EGS - plain.left_context, CONTEXT_OF_EGS - plain.right_context) if plain.cell_statistics() else (0, 0)
    network = Nnet3Network(start, around=around)
    learner = Repairing(network, [*merged_egs(chain, PDFS, SEQUENCES).values()], Denominator(Fst.read(chain / "den.fst"), PDFS, 0.1),
                        ChainOptions(0.1, 0.0001), False)
    optimizer, totals = Nnet3(learner, Nnet3Options()), torch.zeros(4, dtype=torch.float64)
    for index in range(steps):
        optimizer.local_step(minibatch_of(index), 0.01, totals)
    found = network.to_nnet3()
    for name, component in expected.components.items():
        for token, value in component.parameters.items():
            np.testing.assert_allclose(found.components[name].array(token), value, atol=bound, err_msg=name)
            assert np.abs(value - start.components[name].array(token)).max() > 20 * bound
    if kind == "lstm" and steps == 1:
        for token in ("ValueAvg", "DerivAvg", "Count"):
            np.testing.assert_allclose(found.components["back.lstm_nonlin"].values[token],
                                       expected.components["back.lstm_nonlin"].values[token], atol=1e-5)
