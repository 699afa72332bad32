"""Training on padded minibatches of sequences is training on packed ones: SGD and NG-SGD, every cut, in float64."""

from __future__ import annotations

import pytest
import torch

from pykaldist.frames.sampler import Partition
from pykaldist.frames.sequences import SequenceOptions, SequenceSampler
from pykaldist.nnet.kinds import init_nnet, make_nnet
from pykaldist.nnet.learner import Supervised
from pykaldist.nnet.lstm import BlstmOptions, LstmOptions
from pykaldist.nnet.objectives import OBJECTIVES
from pykaldist.optim.adam import Adam
from pykaldist.optim.registry import FRAME_OPTIMIZERS, make_optimizer

LENGTHS = [13, 5, 21, 1, 8, 14, 9]
CUTS = {"whole": ("whole", 3), "chunks": ("chunks", 3, "2-5+4"), "streams": ("streams", 3, "4")}
SHAPE = {"hid_layers": 2, "hid_dim": 8, "projection_dim": 6, "peepholes": True}
CASES = [("lstm", cut) for cut in CUTS] + [("blstm", cut) for cut in ("whole", "chunks")]


def trained(store, kind, cut, optimizer, objective, padded, **options):
    """(parameters, totals) after an epoch."""
    nnet = {"lstm": LstmOptions, "blstm": BlstmOptions}[kind](*CUTS[cut], **SHAPE)
    criterion, dim = OBJECTIVES[objective](), store.manifest.dim
    sampler = SequenceSampler(store, Partition(store, 1, 1, "utterance"), 0, SequenceOptions(*CUTS[cut]), [0], torch.zeros(dim),
                              torch.ones(dim), 3, torch.device("cpu"), padded=padded)
    model = make_nnet(nnet, dim, criterion.output_dim(store), 1, "cpu", torch.float64)
    init_nnet(model, nnet, torch.Generator().manual_seed(0))
    own = make_optimizer(optimizer, Supervised(model, criterion), FRAME_OPTIMIZERS[optimizer][0](**options))
    totals, minibatches = torch.zeros(criterion.num_totals, dtype=torch.float64), 0
    for minibatch in sampler.epoch(0):
        own.local_step(minibatch, 0.02, totals)
        minibatches += 1
    assert minibatches > 2
    return model.params, totals


@pytest.mark.parametrize(("kind", "cut"), CASES)
@pytest.mark.parametrize("optimizer", FRAME_OPTIMIZERS)
def test_it_is_training_on_packed_ones(make_store, kind, cut, optimizer):
    store = make_store(LENGTHS, dim=6, num_pdfs=7, extras=("weights", "target_feats") if optimizer == "ngsgd" else ("target_feats",))
    ranks = {"rank_in": 4, "rank_out": 4} if optimizer == "ngsgd" else {}  # fewer than a minibatch's frames: else rounding decides
    momentum = {} if issubclass(FRAME_OPTIMIZERS[optimizer][1], Adam) else {"momentum": 0.5}
    for objective, options in (("xent", ranks), ("mse", {**ranks, **momentum, "l2_penalty": 1e-3})):
        (params, totals), (expected, counted) = (trained(store, kind, cut, optimizer, objective, padded, **options)
                                                 for padded in (True, False))
        assert torch.allclose(params, expected, rtol=0, atol=1e-9) and torch.allclose(totals, counted, rtol=1e-9)
