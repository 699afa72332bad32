"""An experiment of chain (LF-MMI) training: it trains an nnet3 network on a folder of chunks, and writes `final.mdl`.

The folder has the frame stores `train` and `dev`, their chunks with numerators (`train_chunks`, `dev_chunks`), the denominator graph
`den.fst`, the transition model `0.trans_mdl`, and what decoding needs beside the network. Otherwise as in `experiment.py`.
"""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pykaldist.errors import UserError
from pykaldist.frames.chunk_store import ChunkStore
from pykaldist.frames.chunks import ChunkSampler
from pykaldist.frames.device_frames import SharedFrames
from pykaldist.frames.minibatch_rule import MinibatchRule
from pykaldist.frames.sampler import Partition
from pykaldist.frames.store import FrameStore
from pykaldist.hmm.gmm.model_files import read_transition_model
from pykaldist.io import provenance
from pykaldist.io.atomic import copy_file, write_text
from pykaldist.io.fst import Fst
from pykaldist.nnet.arithmetic import arithmetic
from pykaldist.nnet.chain_denominator import denominator_on
from pykaldist.nnet.chain_learner import ChainLearner, ChainTrainingOptions
from pykaldist.nnet.nnet3.model import Nnet3, Nnet3Model, is_nnet3_model
from pykaldist.nnet.nnet3.network import Nnet3Network
from pykaldist.optim.registry import make_optimizer, make_schedule
from pykaldist.optim.schedules import Schedule
from pykaldist.options import option
from pykaldist.parallel.engines.host import Host
from pykaldist.parallel.fabric.worker import Worker
from pykaldist.parallel.launch.job import JobOptions
from pykaldist.train.contract import differing, job_rows, scaling, table
from pykaldist.train.divergence import DivergenceOptions
from pykaldist.train.folder import open_stores, prepared, versions
from pykaldist.train.run import SERIAL, TrainingRun
from pykaldist.train.trainer import Trainer, TrainerOptions

DEN, TRANSITIONS = "den.fst", "0.trans_mdl"
SYSTEM_FILES = ("tree", DEN, "phones.txt", "cmvn_opts")  # of the store, that belong to the network, too
RESULT = "final.mdl"
STATISTICS_MINIBATCHES = 50  # of which the final statistics of batch normalisation are made
MADE = (RESULT, "history.jsonl", "frame_subsampling_factor", "ckpt", "serial", provenance.FILE)


@dataclass
class ChainExperimentOptions(ChainTrainingOptions):
    """The options of `--objective chain`: the network, minibatches and the objective."""

    initial_model: str = option("", "nnet3 network to start from: a raw one, or a model whose network is taken")
    num_chunk_per_minibatch: str = option("128", "chunks in a minibatch; or rules by their length, as 150=128/300=64")
    combine_models: int = option(1, "models of the last epochs, of which the best mean on held-out data is the result; 1: the last model")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.initial_model:
            raise UserError("--objective chain needs --initial-model, an nnet3 network; make one with nnet3-init, or train with "
                            "steps/nnet3/chain/train.py, which does that.")
        if self.combine_models < 1:
            raise UserError(f"--combine-models {self.combine_models} is not positive.")
        self.rule()

    def rule(self) -> MinibatchRule:
        """How many chunks a minibatch has."""
        return MinibatchRule(self.num_chunk_per_minibatch)


@dataclass
class ChainChoices:
    """All options of a run of chain training; `strategy`, `optimizer` and `schedule` have those of what is chosen in `job` and by name."""

    objective: ChainExperimentOptions
    job: JobOptions
    strategy: Any
    optimizer_name: str
    optimizer: Any
    schedule_name: str
    schedule: Any
    randomizer_seed: int
    dtype: str
    trainer: TrainerOptions
    divergence: DivergenceOptions


def _some(widths: list[int]) -> str:
    """The lengths of chunks in words; many by the least and the greatest."""
    return ", ".join(map(str, widths)) if len(widths) < 6 else f"{len(widths)} lengths from {min(widths)} to {max(widths)}"


def read_network(path: str) -> Nnet3:
    """Read the network of a raw nnet3 file, or of a model."""
    return Nnet3Model.read(path).nnet if is_nnet3_model(path) else Nnet3.read(path)


class ChainExperiment(TrainingRun):
    """One training run in `exp` on the folder `store`: this process's part of it."""

    choices: ChainChoices

    def __init__(self, store: Path, exp: Path, choices: ChainChoices) -> None:
        super().__init__(store, exp, choices)
        self.options = choices.objective
        self.train, self.dev = open_stores(store)
        self.train_chunks, self.dev_chunks = ChunkStore(store / "train_chunks", self.train), ChunkStore(store / "dev_chunks", self.dev)
        self.transitions, self.nnet = read_transition_model(store / TRANSITIONS), read_network(self.options.initial_model)
        self.factor = self.train_chunks.manifest.frame_subsampling_factor
        self._check()
        if choices.job.partition_level == "frame":
            raise UserError("--partition-level frame: --objective chain trains on chunks of utterances; use --partition-level utterance, "
                            "or leave it out.")
        if choices.job.stack_workers == "true":
            raise UserError("--stack-workers true: nnet3 networks cannot be stacked; leave it at auto.")
        choices.job.set_partition_level("utterance")
        self.partition = Partition(self.train, choices.job.ngpu, choices.job.blocks, "utterance", choices.randomizer_seed)
        self.open()
        self.dtypes = arithmetic(choices.dtype, self.device)
        self.denominator = denominator_on(Fst.read(store / DEN), self.transitions.num_pdfs, self.options.leaky_hmm_coefficient, self.device)

    def _check(self) -> None:
        """Raise UserError where the network is not for this data."""
        path, manifest = self.options.initial_model, self.train_chunks.manifest
        dims = {name: self.nnet.dim(name) if name in self.nnet.nodes else 0 for name in ("input", "ivector", "output")}
        if dims["input"] != self.train.manifest.dim:
            raise UserError(f"{path} takes features of dimension {dims['input']}, {self.train.path} has {self.train.manifest.dim}; make "
                            "the network's configs for these features.")
        if dims["ivector"] != manifest.ivector_dim:
            raise UserError(f"{path} takes i-vectors of dimension {dims['ivector']}, {self.train_chunks.path} has {manifest.ivector_dim} "
                            "(0: none); make both of one extractor.")
        if dims["output"] != self.transitions.num_pdfs:
            raise UserError(f"{path} has {dims['output']} outputs, the tree {self.transitions.num_pdfs} pdfs; make the network's configs "
                            "with the tree's num-pdfs.")
        if self.dev_chunks.manifest.frame_subsampling_factor != self.factor:
            raise UserError(f"{self.dev_chunks.path} and {self.train_chunks.path} have other frame subsampling factors; pack both again.")

    def config(self) -> dict[str, Any]:
        """Everything that the result depends on. A run in the same folder with an equal config is the same run."""
        c = self.choices
        return {
            "options": {**c.job.result_options(), "objective": "chain", "optimizer": c.optimizer_name, "schedule": c.schedule_name,
                        "randomizer_seed": c.randomizer_seed, "dtype": c.dtype,
                        **{name: value for part in (c.objective, c.strategy, c.optimizer, c.schedule, c.divergence)
                           for name, value in dataclasses.asdict(part).items()}},
            "ngpu": c.job.ngpu,
            "inputs": {"train": self.train.manifest.checksums, "dev": self.dev.manifest.checksums,
                       "train_chunks": self.train_chunks.manifest.checksums, "dev_chunks": self.dev_chunks.manifest.checksums,
                       **{name: provenance.checksum(self.store / name) for name in (DEN, TRANSITIONS)},
                       "initial_model": provenance.checksum(self.options.initial_model)},
            "device": self.device.type,
            "versions": versions(),
        }

    def _run(self) -> None:
        c = self.choices
        if prepared(self.job, self.exp, self.config(), {"checkpoints": dataclasses.asdict(c.trainer), "store": str(self.store)}, MADE,
                    RESULT, (self.train, self.dev), (self.train_chunks, self.dev_chunks)):
            return
        schedule = make_schedule(c.schedule_name, c.schedule)
        model = self._network()
        context = model.left_context + self.factor, model.right_context + self.factor  # with the shifts
        self.shared = {"train": SharedFrames(self.train, self.device, context), "dev": SharedFrames(self.dev, self.device, context)}
        trainer = self._trainer(model, schedule, self.exp, self.host)
        if self.job.first:
            print(self._contract(trainer, model, schedule), flush=True)
        if c.job.serial_warmup and not self.host.guest:
            self.warm_up(model.params, schedule.learn_rate(0),
                         lambda serial, fraction: self._trainer(model, serial, self.exp / "serial", Host(), SERIAL, fraction))
        trainer.run()
        self.host.processes.barrier()  # each has written its last checkpoint: an error of one of them comes before the result
        if self.job.first:
            worker = trainer.workers[0]
            assert isinstance(worker.learner, ChainLearner)
            worker.learner.gather_statistics(itertools.islice(worker.sampler.epoch(schedule.num_epochs), STATISTICS_MINIBATCHES))
            model.compute_in(model.params.dtype)
            self._write(model)

    def _network(self) -> Nnet3Network:
        return Nnet3Network(self.nnet, self.device, *self.dtypes, subsampling=self.factor)

    def _sampler(self, store: FrameStore, chunks: ChunkStore, shared: SharedFrames, partition: Partition,
                 model: Nnet3Network) -> ChunkSampler:
        """Make the sampler of a store."""
        return ChunkSampler(store, chunks, partition, 0, self.options.rule(), (model.left_context, model.right_context),
                            self.choices.randomizer_seed, self.device, shared)

    def _trainer(self, model: Nnet3Network, schedule: Schedule, folder: Path, host: Host, title: str = "",
                 fraction: float = 1.0) -> Trainer:
        """Make the trainer that trains `model` in `folder` with the workers of `host`, in epochs of a fraction of the data."""
        c = self.choices
        partition = self.partition if host is self.host else Partition(self.train, level="utterance")
        dev = self._sampler(self.dev, self.dev_chunks, self.shared["dev"], Partition(self.dev, level="utterance"), model)
        sampler = self._sampler(self.train, self.train_chunks, self.shared["train"], partition, model).of_fraction(fraction)
        warms_up = c.job.serial_warmup > 0 and self.job.first  # with all of the data
        self.shared["train"].hold(None if warms_up or self.reads_all else partition.parts(host.ranks))
        self.shared["dev"].hold()
        workers = []
        for rank in host.ranks:
            own = model if rank == host.ranks[0] else self._network()
            own.share_activations(model)
            learner = ChainLearner(own, self.denominator, self.options, schedule.num_epochs, self.rate_option)
            workers.append(Worker(make_optimizer(c.optimizer_name, learner, c.optimizer), sampler.of_split(rank)))
        return self.assembled(host, workers, dev, schedule, folder, title, combine=1 if title else self.options.combine_models)

    def _contract(self, trainer: Trainer, model: Nnet3Network, schedule: Schedule) -> str:
        """The table at the start of a run: what is trained, and what does not depend on the number of workers."""
        c, manifest = self.choices, self.train_chunks.manifest
        ivectors = f" and i-vectors of {manifest.ivector_dim}" * bool(manifest.ivector_dim)
        factor = trainer.rate_factor * trainer.strategies[0].initial_share(self.host.size)
        rows = [("network", f"nnet3, {self.train.manifest.dim} features{ivectors} to {self.transitions.num_pdfs} pdfs, context "
                            f"{model.left_context} and {model.right_context} frames, {self.nnet.num_params:,} parameters, {c.dtype}"),
                ("start", self.options.initial_model),
                ("objective", f"chain, {differing(self.options)}"),
                ("chunks", f"{len(self.train_chunks):,} of {_some(manifest.widths)} frames, "
                           f"{self.options.num_chunk_per_minibatch} in a minibatch; every {self.factor}. frame has an output"),
                *job_rows(self.job, c.job, c.strategy, trainer, int(self.train_chunks.frames.sum()), int(self.dev_chunks.frames.sum())),
                ("optimizer", f"{c.optimizer_name}, {differing(c.optimizer)}"),
                ("schedule", f"{c.schedule_name}, at most {schedule.num_epochs} epochs (each with one of {self.factor} frame shifts); rate "
                             f"{factor * schedule.learn_rate(0):g} at first "
                             f"({'not scaled' if self.host.size == 1 else scaling(c.job, trainer.strategies[0])})"),
                ("seeds", f"chunks {c.randomizer_seed}")]
        return table(rows)

    def _write(self, model: Nnet3Network) -> None:
        """Write the trained model, and what decoding needs beside it."""
        for name in SYSTEM_FILES:
            if (self.store / name).is_file():
                copy_file(self.store / name, self.exp / name)
        write_text(self.exp / "frame_subsampling_factor", f"{self.factor}\n")
        Nnet3Model(self.transitions, model.to_nnet3(), model.left_context, model.right_context).write(self.exp / RESULT)
        provenance.record(self.exp, "steps/nnet3/chain/train.py", [self.store / name / "manifest.json" for name in
                                                                   ("train", "dev", "train_chunks", "dev_chunks")],
                          [RESULT, "frame_subsampling_factor", *SYSTEM_FILES])
