"""Small steps of each network and optimiser, to be counted in several ways."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from pykaldist.frames.packed import Sequences
from pykaldist.frames.sampler import Minibatch
from pykaldist.frames.sequences import SequenceOptions
from pykaldist.nnet.cnn import CnnOptions
from pykaldist.nnet.dnn import DnnOptions
from pykaldist.nnet.kinds import default_splice, init_nnet, make_nnet
from pykaldist.nnet.learner import Supervised
from pykaldist.nnet.lstm import BlstmOptions, LstmOptions
from pykaldist.nnet.objective import CrossEntropy
from pykaldist.optim.registry import FRAME_OPTIMIZERS, make_optimizer

ROWS, DIM, PDFS = 10, 8, 16  # of a minibatch of frames; of features; 16 pdfs need no room behind a row
NETWORKS: dict[str, Any] = {
    "dnn": DnnOptions(hid_layers=3, hid_dim=16),
    "cnn": CnnOptions(conv="3x3x4/2,2x2x6", hid_layers=1, hid_dim=16),
    "lstm": LstmOptions(hid_layers=2, hid_dim=8, projection_dim=4, peepholes=True, num_streams=3, chunk="5"),
    "blstm": BlstmOptions(hid_layers=2, hid_dim=8, num_streams=2, chunk="2-6+2"),
}


@dataclass
class CountedStep:
    """An optimiser's steps on a minibatch, on a device; each begins where the last one has ended."""

    optimizer: Any
    minibatch: Minibatch
    totals: torch.Tensor
    index: int = 0

    @classmethod
    def make(cls, network: str, optimizer: str, device: str) -> CountedStep:
        options, rows, sequences = NETWORKS[network], ROWS, None
        if isinstance(options, SequenceOptions):
            chunk, streams = options.parts(), options.num_streams
            steps = chunk.left + chunk.size + chunk.right
            rows, continues = streams * steps, options.sequences == "streams"
            sequences = Sequences([streams] * steps, streams * chunk.size, continues=continues, leaves=steps - 1 if continues else -1)
        generator, splice = torch.Generator().manual_seed(0), default_splice(options)
        model = make_nnet(options, DIM * len(splice), PDFS, len(splice), device)
        if device != "meta":
            init_nnet(model, options, generator)
        learner = Supervised(model, CrossEntropy())
        learner.reserve(rows)
        inputs, targets = torch.randn(rows, model.input_dim, generator=generator), torch.randint(PDFS, (rows,), generator=generator)
        minibatch = Minibatch(inputs.to(device), targets.to(device), 0, False, sequences=sequences)
        totals = torch.zeros(learner.num_totals, dtype=torch.float64, device=device)
        return cls(make_optimizer(optimizer, learner, FRAME_OPTIMIZERS[optimizer][0]()), minibatch, totals)

    def step(self) -> None:
        if self.minibatch.sequences is not None:
            self.minibatch.sequences.place = 0, 0, self.index
        self.index += 1
        self.optimizer._step(self.minibatch, self.totals)
