"""An experiment with an nnet3 network: what training by the chain objective and by cross-entropy have in common.

It trains the network, makes its statistics of batch normalisation anew, and writes `final.mdl` with what decoding needs beside it.
Otherwise as in `experiment.py`.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pykaldist.errors import UserError
from pykaldist.frames.chunk_store import ChunkStore
from pykaldist.frames.device_frames import SharedFrames
from pykaldist.frames.sampler import Minibatch, Partition, Sampler
from pykaldist.hmm.gmm.model_files import read_transition_model
from pykaldist.io import provenance
from pykaldist.io.atomic import copy_file, write_text
from pykaldist.nnet.arithmetic import arithmetic
from pykaldist.nnet.nnet3.model import Nnet3, Nnet3Model, is_nnet3_model
from pykaldist.nnet.nnet3.network import Nnet3Network, trained_outputs
from pykaldist.nnet.nnet3.plan import Plan
from pykaldist.nnet.nnet3_learner import Nnet3Learner
from pykaldist.optim.registry import make_optimizer, make_schedule
from pykaldist.optim.schedules import Fixed, FixedOptions, Schedule
from pykaldist.options import option
from pykaldist.parallel.engines.host import Host
from pykaldist.parallel.fabric.worker import Worker
from pykaldist.parallel.launch.job import JobOptions
from pykaldist.train.contract import differing, job_rows, scaling, table
from pykaldist.train.divergence import DivergenceOptions
from pykaldist.train.folder import open_stores, prepared, versions
from pykaldist.train.memory import META, Ledger, forecast, most_alive, rehearsed, settled
from pykaldist.train.run import SERIAL, TrainingRun
from pykaldist.train.trainer import Trainer, TrainerOptions

RESULT = "final.mdl"
STATISTICS_MINIBATCHES = 50  # of which the final statistics of batch normalisation are made
CURE = "use a smaller network or minibatch (--num-chunk-per-minibatch, --minibatch-size), or more GPUs, each with less of the data"
MADE = (RESULT, "history.jsonl", "frame_subsampling_factor", "ckpt", "serial", provenance.FILE)


@dataclass
class Nnet3StartOptions:
    """Where an nnet3 network starts from, and what becomes of its last models."""

    initial_model: str = option("", "nnet3 network to start from: a raw one, or a model whose network is taken")
    combine_models: int = option(1, "models of the last epochs, of which the best mean on held-out data is the result; 1: the last model")
    chunk_left_context: int = option(0, "frames that a recurrent network goes through before a chunk, beyond those that an output needs")
    chunk_right_context: int = option(0, "the same behind a chunk, of a network with layers that run backwards")
    chunk_left_context_initial: int = option(-1, "frames before an utterance's first chunk in their place; below 0: as many")
    chunk_right_context_final: int = option(-1, "frames behind an utterance's last chunk in their place; below 0: as many")
    deriv_truncate_margin: int = option(-1, "derivatives go so many frames beyond a chunk's outputs; below 0: through all of its frames")

    def __post_init__(self) -> None:
        if not self.initial_model:
            raise UserError("--optimizer nnet3 needs --initial-model, an nnet3 network; make one with nnet3-init, or train with "
                            "steps/nnet3/chain/train.py or steps/nnet3/train_dnn.py, which do that.")
        if self.combine_models < 1:
            raise UserError(f"--combine-models {self.combine_models} is not positive.")
        for name in ("chunk_left_context", "chunk_right_context"):
            if getattr(self, name) < 0:
                raise UserError(f"--{name.replace('_', '-')} {getattr(self, name)} is negative.")
        if self.chunk_left_context_initial > self.chunk_left_context or self.chunk_right_context_final > self.chunk_right_context:
            raise UserError("--chunk-left-context-initial and --chunk-right-context-final are at most --chunk-left-context and "
                            "--chunk-right-context.")

    def edges(self, nnet: Nnet3, window: tuple[int, int]) -> tuple[int, int]:
        """The frames before the first chunk of an utterance, and behind its last one; `window` are those of other chunks."""
        own = [given if given >= 0 else usual for given, usual in ((self.chunk_left_context_initial, self.chunk_left_context),
                                                                   (self.chunk_right_context_final, self.chunk_right_context))]
        left, right = self.around(nnet)
        return (window[0] - left + min(own[0], left), window[1] - right + min(own[1], right))

    def around(self, nnet: Nnet3) -> tuple[int, int]:
        """The frames more around chunks: of a network that is not recurrent none, as they would change nothing."""
        return (self.chunk_left_context, self.chunk_right_context) if Plan(nnet, trained_outputs(nnet)).loops else (0, 0)


@dataclass
class Nnet3Choices:
    """All options of a run; `objective`, `strategy`, `optimizer` and `schedule` have those of what is chosen in `job` and by name."""

    objective: Any
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


def read_network(path: str) -> Nnet3:
    """Read the network of a raw nnet3 file, or of a model."""
    return Nnet3Model.read(path).nnet if is_nnet3_model(path) else Nnet3.read(path)


class Nnet3Experiment(TrainingRun):
    """One training run in `exp` on the folder `store`: this process's part of it.

    `name`: the objective's; `level`: what is dealt out to workers; `transitions_file`: where in the store the transition model is;
    `system_files`: those of the store that belong to the network, too; `factor`: input frames to an output; `script`: what runs this.
    """

    name: str
    level: str
    transitions_file: str
    system_files: tuple[str, ...]
    script: str
    factor = 1
    choices: Nnet3Choices

    def __init__(self, store: Path, exp: Path, choices: Nnet3Choices) -> None:
        super().__init__(store, exp, choices)
        self.options = choices.objective
        self.train, self.dev = open_stores(store)
        self.transitions, self.nnet = read_transition_model(store / self.transitions_file), read_network(self.options.initial_model)
        self.open_data()
        self.check()
        if choices.job.partition_level not in (None, self.level):
            raise UserError(f"--partition-level {choices.job.partition_level}: --objective {self.name} of an nnet3 network deals out "
                            f"{self.level}s; use --partition-level {self.level}, or leave it out.")
        if choices.job.stack_workers == "true":
            raise UserError("--stack-workers true: nnet3 networks cannot be stacked; leave it at auto.")
        choices.job.set_partition_level(self.level)
        self.partition = Partition(self.train, choices.job.ngpu, choices.job.blocks, self.level, choices.randomizer_seed)
        self.open()
        self.dtypes = arithmetic(choices.dtype, self.device)

    @abstractmethod
    def open_data(self) -> None:
        """Open what is trained on beside the frame stores, and set `factor`."""

    @abstractmethod
    def check(self) -> None:
        """Raise UserError where the network is not for this data."""

    @abstractmethod
    def sampler(self, part: str, partition: Partition, model: Nnet3Network) -> Sampler:
        """Make the sampler of the part train or dev."""

    @abstractmethod
    def learner(self, model: Nnet3Network, num_epochs: int) -> Nnet3Learner:
        """Make the learner of a network."""

    @abstractmethod
    def rows(self) -> list[tuple[str, str]]:
        """The rows of the table at the start of a run that say what is trained on, and how."""

    @abstractmethod
    def frames(self, part: str) -> int:
        """The frames of the part train or dev that are trained on."""

    def stores(self) -> Sequence[ChunkStore]:
        """What is trained on beside the frame stores."""
        return ()

    def inputs(self) -> dict[str, Any]:
        """What the result depends on in the store beside the frame stores, by name."""
        return {}

    def sides(self) -> str:
        """The network's inputs and outputs in words."""
        dim = self.nnet.dim("ivector") if "ivector" in self.nnet.nodes else 0
        return f"{self.nnet.dim('input')} features{f' and i-vectors of {dim}' * bool(dim)} to {self.transitions.num_pdfs} pdfs"

    def priors(self, worker: Worker) -> np.ndarray:
        """The priors of pdfs that the model has beside its network; empty for none."""
        return np.zeros(0, np.float32)

    def config(self) -> dict[str, Any]:
        """Everything that the result depends on. A run in the same folder with an equal config is the same run."""
        c = self.choices
        return {
            "options": {**c.job.result_options(), "objective": self.name, "optimizer": c.optimizer_name, "schedule": c.schedule_name,
                        "randomizer_seed": c.randomizer_seed, "dtype": c.dtype,
                        **{name: value for part in (c.objective, c.strategy, c.optimizer, c.schedule, c.divergence)
                           for name, value in dataclasses.asdict(part).items()}},
            "ngpu": c.job.ngpu,
            "inputs": {"train": self.train.manifest.identity(), "dev": self.dev.manifest.identity(),
                       **{store.path.name: store.manifest.checksums for store in self.stores()}, **self.inputs(),
                       self.transitions_file: provenance.checksum(self.store / self.transitions_file),
                       "initial_model": provenance.checksum(self.options.initial_model)},
            "device": self.device.type,
            "versions": versions(),
        }

    def _run(self) -> None:
        c = self.choices
        notes = {"checkpoints": dataclasses.asdict(c.trainer), "store": str(self.store)}
        verification = prepared(self.job, self.exp, self.config(), notes, MADE, RESULT, (self.train, self.dev), self.stores())
        if verification is None:
            return
        self.verification = verification
        schedule = make_schedule(c.schedule_name, c.schedule)
        room, memory = settled(self.forecast(), self.device, self.host.processes, CURE) if self.device.type == "cuda" else (None, "")
        model = self._network()
        self._share_frames(model, room)
        trainer = self._trainer(model, schedule, self.exp, self.host)
        if self.job.first:
            print(self._contract(trainer, model, schedule, memory), flush=True)
        if c.job.serial_warmup and not self.host.guest:
            self.warm_up(model.params, schedule.learn_rate(0),
                         lambda serial, fraction: self._trainer(model, serial, self.exp / "serial", Host(), SERIAL, fraction))
        trainer.run()
        self.host.processes.barrier()  # each has written its last checkpoint: an error of one of them comes before the result
        verification.finish()
        if self.job.first:
            worker = trainer.workers[0]
            assert isinstance(worker.learner, Nnet3Learner)
            worker.learner.gather_statistics(itertools.islice(worker.sampler.epoch(schedule.num_epochs), STATISTICS_MINIBATCHES))
            model.compute_in(model.params.dtype)
            self._write(model, self.priors(worker))

    def forecast(self) -> Ledger:
        """Forecast what this process takes on its device, before any of it is there."""
        draft, c = self.on(META), self.choices
        schedule, model = Fixed(FixedOptions("1")), draft._network()
        draft._share_frames(model)
        trainers = [draft._trainer(model, schedule, self.exp, self.host)]
        if c.job.serial_warmup and self.job.first:
            trainers.append(draft._trainer(model, schedule, self.exp, Host()))
        workers = [worker for trainer in trainers for worker in trainer.workers]
        samplers = [*(worker.sampler for worker in workers), trainers[0].cv]
        learner, size = workers[0].learner, model.params.nbytes
        assert isinstance(learner, Nnet3Learner)
        sampler = max(samplers, key=lambda sampler: len(sampler.largest().inputs))

        def largest() -> Minibatch:
            return dataclasses.replace(sampler.largest(), epochs_done=learner.most_dropout())

        step = max(rehearsed(workers[0].optimizer, largest), most_alive(lambda: learner.gather_statistics([largest()])))
        ledger = forecast(trainers, draft.shared, step)
        if self.options.combine_models > 1:  # each of them; and their sum and mean, in double precision too, with the best one
            ledger.entries["last models"] = (self.options.combine_models + 6) * size
        ledger.entries.update(draft.kept(samplers))
        return ledger

    def on(self, device: torch.device) -> Nnet3Experiment:
        """The same run on another device."""
        other = copy.copy(self)
        other.device = device
        return other

    def kept(self, samplers: Sequence[Sampler]) -> dict[str, int]:
        """The bytes that the objective keeps on the device for these samplers' minibatches, by what takes them."""
        return {}

    def _share_frames(self, model: Nnet3Network, room: int | None = None) -> None:
        """Set the frames that all samplers of this process share; each minibatch brings its own where they do not fit in `room` bytes."""
        context = model.window[0] + self.factor, model.window[1] + self.factor  # with the shifts
        self.shared = {"train": SharedFrames(self.train, self.device, context, room), "dev": SharedFrames(self.dev, self.device, context)}

    def _network(self) -> Nnet3Network:
        return Nnet3Network(self.nnet, self.device, *self.dtypes, subsampling=self.factor, around=self.options.around(self.nnet),
                            truncation=self.options.deriv_truncate_margin)

    def _trainer(self, model: Nnet3Network, schedule: Schedule, folder: Path, host: Host, title: str = "",
                 fraction: float = 1.0) -> Trainer:
        """Make the trainer that trains `model` in `folder` with the workers of `host`, in epochs of a fraction of the data."""
        c = self.choices
        partition = self.partition if host is self.host else Partition(self.train, level=self.level)
        dev = self.sampler("dev", Partition(self.dev, level=self.level), model)
        sampler = self.sampler("train", partition, model).of_fraction(fraction)
        warms_up = c.job.serial_warmup > 0 and self.job.first  # with all of the data
        self.shared["train"].hold(None if warms_up or self.reads_all else partition.parts(host.ranks))
        self.shared["dev"].hold()
        workers = []
        for rank in host.ranks:
            own = model if rank == host.ranks[0] else self._network()
            own.share_activations(model)
            workers.append(Worker(make_optimizer(c.optimizer_name, self.learner(own, schedule.num_epochs), c.optimizer),
                                  sampler.of_split(rank)))
        return self.assembled(host, workers, dev, schedule, folder, title, combine=1 if title else self.options.combine_models)

    def _contract(self, trainer: Trainer, model: Nnet3Network, schedule: Schedule, memory: str) -> str:
        """The table at the start of a run: what is trained, and what does not depend on the number of workers."""
        c, factor = self.choices, trainer.rate_factor * trainer.strategies[0].initial_share(self.host.size)
        shifts = f" (each with one of {self.factor} frame shifts)" * (self.factor > 1)
        more = [found - own for found, own in zip(model.window, (model.left_context, model.right_context), strict=True)]
        return table([
            ("network", f"nnet3, {self.sides()}, context {model.left_context} and {model.right_context} frames, "
                        f"{f'recurrent over {more[0]} and {more[1]} more, ' * bool(sum(more))}{self.nnet.num_params:,} parameters, "
                        f"{c.dtype}"),
            ("start", self.options.initial_model), ("objective", f"{self.name}, {differing(self.options)}"), *self.rows(),
            *job_rows(self.job, c.job, c.strategy, trainer, self.frames("train"), self.frames("dev")),
            ("optimizer", f"{c.optimizer_name}, {differing(c.optimizer)}"),
            ("schedule", f"{c.schedule_name}, at most {schedule.num_epochs} epochs{shifts}; rate {factor * schedule.learn_rate(0):g} at "
                         f"first ({'not scaled' if self.host.size == 1 else scaling(c.job, trainer.strategies[0])})"),
            ("seeds", f"{self.level}s {c.randomizer_seed}"), *([("memory", memory)] if memory else [])])

    def _write(self, model: Nnet3Network, priors: np.ndarray) -> None:
        """Write the trained model, and what decoding needs beside it."""
        for name in self.system_files:
            if (self.store / name).is_file():
                copy_file(self.store / name, self.exp / name)
        made = [RESULT, *self.system_files]
        if self.factor > 1:
            write_text(self.exp / "frame_subsampling_factor", f"{self.factor}\n")
            made.append("frame_subsampling_factor")
        Nnet3Model(self.transitions, model.to_nnet3(), model.left_context, model.right_context, priors).write(self.exp / RESULT)
        folders = [self.train.path, self.dev.path, *(store.path for store in self.stores())]
        provenance.record(self.exp, self.script, [folder / "manifest.json" for folder in folders], made)
