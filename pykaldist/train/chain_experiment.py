"""An experiment of chain (LF-MMI) training: it trains an nnet3 network on a folder of chunks, and writes `final.mdl`.

The folder has the frame stores `train` and `dev`, their chunks with numerators (`train_chunks`, `dev_chunks`), the denominator graph
`den.fst`, the transition model `0.trans_mdl`, and what decoding needs beside the network. Otherwise as in `nnet3_experiment.py`.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from pykaldist.errors import IVECTORS, UserError
from pykaldist.feats.pipeline import GLOBAL_STATS, ONLINE_CMVN
from pykaldist.frames.chunk_store import ChunkStore
from pykaldist.frames.chunks import ChunkSampler
from pykaldist.frames.minibatch_rule import MinibatchRule
from pykaldist.frames.sampler import Partition, Sampler
from pykaldist.io import provenance
from pykaldist.io.fst import Fst
from pykaldist.nnet.chain_denominator import Denominator, TensorDenominator, denominator_on
from pykaldist.nnet.chain_learner import ChainLearner, ChainTrainingOptions
from pykaldist.nnet.cuda_graphs import CudaGraphs
from pykaldist.nnet.nnet3.network import Nnet3Network
from pykaldist.options import option
from pykaldist.train.memory import GRAPHS, most_alive
from pykaldist.train.nnet3_experiment import Nnet3Choices, Nnet3Experiment, Nnet3StartOptions

DEN, TRANSITIONS = "den.fst", "0.trans_mdl"


@dataclass
class ChainExperimentOptions(ChainTrainingOptions, Nnet3StartOptions):
    """The options of `--objective chain`: the network, minibatches and the objective."""

    num_chunk_per_minibatch: str = option("128", "chunks in a minibatch; or rules by their length, as 150=128/300=64")

    def __post_init__(self) -> None:
        ChainTrainingOptions.__post_init__(self)
        Nnet3StartOptions.__post_init__(self)
        self.rule()

    def rule(self) -> MinibatchRule:
        """How many chunks a minibatch has."""
        return MinibatchRule(self.num_chunk_per_minibatch)


def _some(widths: list[int]) -> str:
    """The lengths of chunks in words; many by the least and the greatest."""
    return ", ".join(map(str, widths)) if len(widths) < 6 else f"{len(widths)} lengths from {min(widths)} to {max(widths)}"


class ChainExperiment(Nnet3Experiment):
    """One run of chain training in `exp` on the folder `store`: this process's part of it."""

    name, level, script, transitions_file = "chain", "utterance", "steps/nnet3/chain/train.py", TRANSITIONS
    system_files = ("tree", DEN, "phones.txt", "cmvn_opts", ONLINE_CMVN, GLOBAL_STATS)

    def __init__(self, store: Path, exp: Path, choices: Nnet3Choices) -> None:
        super().__init__(store, exp, choices)
        self.den = Fst.read(store / DEN)
        self.denominator = self._denominator(self.device)

    def _denominator(self, device: torch.device) -> Denominator:
        return denominator_on(self.den, self.transitions.num_pdfs, self.options.leaky_hmm_coefficient, device)

    def on(self, device: torch.device) -> ChainExperiment:
        other = copy.copy(self)
        other.device, other.denominator = device, self._denominator(device)
        return other

    def kept(self, samplers: Sequence[Sampler]) -> dict[str, int]:
        """What the denominator computes from and to, for each shape, and the sums over paths, which its graphs keep."""
        shapes = {shape for sampler in samplers if isinstance(sampler, ChunkSampler) for shape in sampler.shapes()}
        denominator, num_pdfs = self.denominator, self.transitions.num_pdfs
        assert isinstance(denominator, TensorDenominator)
        kept = [denominator.memory(frames, num_pdfs, sequences) for frames, sequences in shapes]
        buffers = sorted(sum(tensor.nbytes for tensor in memory) for memory in kept)
        return {"the denominator's minibatches": sum(buffers[-CudaGraphs.LIMIT:]),
                GRAPHS: max(most_alive(partial(denominator.sums, *memory)) for memory in kept)}

    def open_data(self) -> None:
        self.chunks = {name: ChunkStore(self.store / f"{name}_chunks", part) for name, part in (("train", self.train), ("dev", self.dev))}
        self.factor = self.chunks["train"].manifest.frame_subsampling_factor

    def stores(self) -> Sequence[ChunkStore]:
        return [*self.chunks.values()]

    def inputs(self) -> dict[str, Any]:
        return {DEN: provenance.checksum(self.store / DEN)}

    def check(self) -> None:
        path, chunks = self.options.initial_model, self.chunks["train"]
        dims = {name: self.nnet.dim(name) if name in self.nnet.nodes else 0 for name in ("input", "ivector", "output")}
        if dims["input"] != self.train.manifest.dim:
            raise UserError(f"{path} takes features of dimension {dims['input']}, {self.train.path} has {self.train.manifest.dim}; make "
                            "the network's configs for these features (steps/nnet3/xconfig_to_configs.py).")
        if dims["ivector"] != chunks.manifest.ivector_dim:
            raise UserError(f"{path} takes i-vectors of dimension {dims['ivector']}, {chunks.path} has {chunks.manifest.ivector_dim} (0: "
                            f"none); make both of one extractor ({IVECTORS}).")
        if dims["output"] != self.transitions.num_pdfs:
            raise UserError(f"{path} has {dims['output']} outputs, the tree {self.transitions.num_pdfs} pdfs; make the network's configs "
                            "with the tree's num-pdfs (steps/nnet3/xconfig_to_configs.py).")
        if self.chunks["dev"].manifest.frame_subsampling_factor != self.factor:
            raise UserError(f"{self.chunks['dev'].path} and {chunks.path} have other frame subsampling factors; make both again "
                            "(steps/nnet3/chain/train.py).")

    def sampler(self, part: str, partition: Partition, model: Nnet3Network) -> ChunkSampler:
        return ChunkSampler(partition.store, self.chunks[part], partition, 0, self.options.rule(), model.window,
                            self.choices.randomizer_seed, self.device, self.shared[part], self.options.edges(self.nnet, model.window))

    def learner(self, model: Nnet3Network, num_epochs: int) -> ChainLearner:
        return ChainLearner(model, self.denominator, self.options, num_epochs, self.rate_option)

    def rows(self) -> list[tuple[str, str]]:
        chunks = self.chunks["train"]
        return [("chunks", f"{len(chunks):,} of {_some(chunks.manifest.widths)} frames, {self.options.num_chunk_per_minibatch} in a "
                           f"minibatch; every {self.factor}. frame has an output")]

    def frames(self, part: str) -> int:
        return int(self.chunks[part].frames.sum())
