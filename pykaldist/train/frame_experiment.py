"""Experiments of cross-entropy training of an nnet3 network, as Kaldi's steps/nnet3/train_dnn.py and train_rnn.py do it.

The folder is a frame store of steps/nnet/pack.sh, with pdfs, the model and the tree of the alignment, and, where the network has the input
`ivector`, i-vectors behind the features of each frame. `final.mdl` has the network and, as priors, its mean posteriors over training data.
Otherwise as in `nnet3_experiment.py`.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import torch

from pykaldist.errors import UserError
from pykaldist.frames.even_chunks import EvenChunkSampler
from pykaldist.frames.minibatch_rule import MinibatchRule
from pykaldist.frames.sampler import Partition, Sampler
from pykaldist.nnet.nnet3.network import Nnet3Network
from pykaldist.nnet.nnet3.plan import Plan
from pykaldist.nnet.nnet3_learner import DropoutOptions, EvenChunkLearner, FrameLearner
from pykaldist.options import option
from pykaldist.parallel.fabric.worker import Worker
from pykaldist.train.nnet3_experiment import Nnet3Experiment, Nnet3StartOptions

PRIOR_FRAMES = 20_000  # of which the priors are made; Kaldi's --trainer.prior-subset-size


@dataclass
class FrameExperimentOptions(DropoutOptions, Nnet3StartOptions):
    """The options of cross-entropy training of an nnet3 network: its start, minibatches and dropout."""

    minibatch_size: int = option(512, "frames in a minibatch")

    def __post_init__(self) -> None:
        DropoutOptions.__post_init__(self)
        Nnet3StartOptions.__post_init__(self)
        if self.minibatch_size < 1:
            raise UserError(f"--minibatch-size {self.minibatch_size} is not positive.")


class FrameExperiment(Nnet3Experiment):
    """One run of cross-entropy training in `exp` on the frame stores in `store`: this process's part of it."""

    name, level, script, transitions_file = "xent", "frame", "steps/nnet3/train_dnn.py", "final.mdl"
    system_files = ("tree", "phones.txt", "cmvn_opts", "delta_opts")
    recurrent = False

    def open_data(self) -> None:
        self.counts = self.train.counts()

    def check(self) -> None:
        if bool(Plan(self.nnet).loops) != self.recurrent:
            raise UserError(f"{self.options.initial_model} is {'' if not self.recurrent else 'not '}recurrent; train it with "
                            f"steps/nnet3/train_{'dnn' if self.recurrent else 'rnn'}.py.")
        path, dims = self.options.initial_model, {name: self.nnet.dim(name) for name in self.nnet.nodes}
        inputs = dims["input"] + dims.get("ivector", 0)
        if inputs != self.train.manifest.dim:
            raise UserError(f"{path} takes features of dimension {dims['input']} and i-vectors of {dims.get('ivector', 0)}, "
                            f"{self.train.path} has {self.train.manifest.dim} in all; make the network's configs for these features, and "
                            "pack them with its i-vectors (steps/nnet/pack.sh).")
        if dims["output"] != self.train.manifest.num_pdfs:
            raise UserError(f"{path} has {dims['output']} outputs, {self.train.path} {self.train.manifest.num_pdfs} pdfs; make the "
                            "network's configs with the alignment's num-pdfs (steps/nnet3/xconfig_to_configs.py).")

    def sampler(self, part: str, partition: Partition, model: Nnet3Network) -> Sampler:
        splice = [*range(-model.left_context, model.right_context + 1)]
        plain = torch.zeros(len(splice) * self.train.manifest.dim)
        return Sampler(partition.store, partition, 0, self.options.minibatch_size, splice, plain, plain + 1.0, self.choices.randomizer_seed,
                       self.device, self.shared[part])

    def learner(self, model: Nnet3Network, num_epochs: int) -> FrameLearner:
        return FrameLearner(model, self.options, self.log_priors(), num_epochs, self.rate_option)

    def log_priors(self) -> np.ndarray:
        """The logarithms of the pdfs' shares of the training data."""
        return np.log(np.maximum(self.counts, 0.5) / self.counts.sum()).astype(np.float32)

    def rows(self) -> list[tuple[str, str]]:
        return []

    def frames(self, part: str) -> int:
        return len(self.train if part == "train" else self.dev)

    def priors(self, worker: Worker) -> np.ndarray:
        assert isinstance(worker.learner, FrameLearner)
        minibatches = itertools.islice(worker.sampler.epoch(0), -(-PRIOR_FRAMES // worker.sampler.minibatch_size))
        return worker.learner.mean_posterior(minibatches)


@dataclass
class RecurrentExperimentOptions(DropoutOptions, Nnet3StartOptions):
    """The options of cross-entropy training of a recurrent nnet3 network: its start, chunks and dropout."""

    chunk_width: int = option(20, "frames of a chunk")
    num_chunk_per_minibatch: str = option("100", "chunks in a minibatch")

    def __post_init__(self) -> None:
        DropoutOptions.__post_init__(self)
        Nnet3StartOptions.__post_init__(self)
        if self.chunk_width < 1:
            raise UserError(f"--chunk-width {self.chunk_width} is not positive.")
        self.sequences()

    def sequences(self) -> int:
        """How many chunks a minibatch has."""
        return MinibatchRule(self.num_chunk_per_minibatch).chunks(self.chunk_width)


class RecurrentExperiment(FrameExperiment):
    """One run of cross-entropy training of a recurrent network, on chunks; otherwise like that on frames."""

    level, script, recurrent = "utterance", "steps/nnet3/train_rnn.py", True

    def sampler(self, part: str, partition: Partition, model: Nnet3Network) -> Sampler:
        return EvenChunkSampler(partition.store, partition, 0, self.options.chunk_width, self.options.sequences(), model.window,
                                self.choices.randomizer_seed, self.device, self.shared[part])

    def learner(self, model: Nnet3Network, num_epochs: int) -> FrameLearner:
        return EvenChunkLearner(model, self.options, self.log_priors(), self.options.chunk_width, num_epochs, self.rate_option)

    def rows(self) -> list[tuple[str, str]]:
        return [("chunks", f"of {self.options.chunk_width} frames, {self.options.sequences()} in a minibatch")]
