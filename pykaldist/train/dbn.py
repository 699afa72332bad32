"""Pretraining of a DBN: it trains one RBM after the other from a frame store, and writes `dbn.pt`.

Each RBM is trained by the Trainer, with a Worker and a Strategy.
The first RBM has Gaussian visible units and trains for twice `rbm_iter` epochs at `rbm_lrate_low`. The others have Bernoulli units and
train for `rbm_iter` epochs at `rbm_lrate`, on the hidden probabilities of the layers below, which are computed when needed. The settings
are those of Kaldi's pretrain_dbn.sh. Its momentum rises over 40 x 500,000 frames, which is right for 300 hours. Here the same fraction of
the data at hand is used.

The last checkpoint of a layer holds the trained layer. So a run that was stopped goes on with the layer and the minibatch where it was.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pykaldist.errors import UserError
from pykaldist.frames.block_sampler import RandomizerOptions
from pykaldist.frames.device_frames import SharedFrames
from pykaldist.frames.sampler import Partition, Sampler, reach
from pykaldist.io import provenance
from pykaldist.io.atomic import copy_file
from pykaldist.io.lock import locked
from pykaldist.nnet.arithmetic import arithmetic
from pykaldist.nnet.convert import read_feature_transform
from pykaldist.nnet.dbn import Dbn
from pykaldist.nnet.network import FeatureTransform
from pykaldist.nnet.rbm import ContrastiveDivergence, Rbm
from pykaldist.optim.cd import Cd, CdOptions
from pykaldist.optim.schedules import Fixed, FixedOptions
from pykaldist.options import option
from pykaldist.parallel.fabric.worker import Worker
from pykaldist.parallel.launch.job import JobOptions, open_job
from pykaldist.parallel.strategies.base.registry import make_strategy
from pykaldist.train.contract import job_rows, scaling, table
from pykaldist.train.divergence import DivergenceOptions
from pykaldist.train.folder import open_stores, prepared, spliced_mean_and_scale, versions
from pykaldist.train.history import write_history
from pykaldist.train.memory import META, Ledger, forecast, settled, step_bytes
from pykaldist.train.start import check_transform
from pykaldist.train.trainer import Trainer, TrainerOptions
from pykaldist.train.verification import Verification

FULL_CORPUS_FRAMES, FULL_CORPUS_PERIOD = 108_000_000, 500_000  # frames of 300 hours, and frames of a step of the momentum there
DTYPES = ("float32", "tf32", "bf16")
FEATURE_OPTIONS = ("cmvn_opts", "delta_opts")
MADE = ("dbn.pt", "*.rbm", "*.dbn", "final.feature_transform", "history.jsonl", "rbm*", *FEATURE_OPTIONS)


@dataclass
class DbnOptions(RandomizerOptions):
    """Shape, data and rates of pretraining."""

    hid_layers: int = option(4, "RBMs on top of each other")
    hid_dim: int = option(512, "units in a hidden layer")
    splice: int | None = option(None, "frames of context on each side (5)")
    feature_transform: str = option("", "nnet1's feature transform (splice, shift, scale) to take in place of one of the store's own mean "
                                    "and variance")
    input_vis_type: str = option("gauss", "visible units of the first RBM; bern for inputs between 0 and 1", ("gauss", "bern"))
    rbm_iter: int = option(1, "epochs of a Bernoulli-Bernoulli RBM; the Gaussian-Bernoulli one has twice as many")
    rbm_lrate: float = option(0.4, "learning rate of Bernoulli-Bernoulli RBMs, for means over a minibatch")
    rbm_lrate_low: float = option(0.01, "learning rate of the Gaussian-Bernoulli RBM")
    rbm_l2penalty: float = option(0.0002, "L2 penalty on weights")
    momentum: float = option(0.5, "momentum at the start; the effective rate is the learning rate times (1 - momentum)")
    momentum_max: float = option(0.9, "momentum at the end of its schedule")
    momentum_steps: int = option(40, "steps of the momentum from start to end")
    momentum_step_period: int = option(0, "frames in such a step; 0: the part of an epoch that 500,000 frames are of 300 hours")
    cd_steps: int = option(1, "steps of Gibbs sampling, k of CD-k")
    param_stddev: float = option(0.1, "standard deviation of the initial weights")
    param_stddev_first: float | None = option(None, "of those of the first RBM (that of the others)")
    hid_bias_mean: float = option(-2.0, "mean of the initial hidden biases; units that start sparse stay alive and differ")
    hid_bias_range: float = option(4.0, "range of the initial hidden biases, which are uniform")
    minibatch_size: int = option(256, "frames in a minibatch of Bernoulli-Bernoulli RBMs")
    gauss_minibatch_size: int = option(100, "frames in a minibatch of the Gaussian-Bernoulli RBM")
    seed: int = option(777, "seed of the initial weights")
    randomizer_seed: int = option(777, "seed of the order of frames, and of hidden states")
    dtype: str = option("float32", "arithmetic; bf16 for the factors of matrix products, on a GPU and on a CPU that multiplies them "
                        "(AVX512-BF16, AMX); on a GPU also tf32", DTYPES)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("hid_layers", "hid_dim", "rbm_iter", "rbm_lrate", "rbm_lrate_low", "cd_steps", "minibatch_size",
                     "gauss_minibatch_size"):
            if getattr(self, name) <= 0:
                raise UserError(f"--{name.replace('_', '-')} {getattr(self, name):g} is not positive.")
        for name in ("splice", "momentum_step_period", "param_stddev", "param_stddev_first", "hid_bias_range"):
            if (getattr(self, name) or 0) < 0:
                raise UserError(f"--{name.replace('_', '-')} {getattr(self, name):g} is negative.")
        self.update(1)

    def gaussian(self, layer: int) -> bool:
        """Whether the visible units of layer number `layer`, from 1, are Gaussian."""
        return layer == 1 and self.input_vis_type == "gauss"

    def update(self, frames: int) -> CdOptions:
        """The optimiser's options, where an epoch of a worker has this many frames."""
        scaled = max(1, round(frames / FULL_CORPUS_FRAMES * FULL_CORPUS_PERIOD))
        return CdOptions(self.momentum, self.momentum_max, self.momentum_steps, self.momentum_step_period or scaled, self.rbm_l2penalty)


class DbnExperiment:
    """One pretraining run in `exp`, on the stores `store/train` and `store/dev`: this process's part of it."""

    def __init__(self, store: Path, exp: Path, options: DbnOptions, job: JobOptions, strategy: Any, trainer: TrainerOptions,
                 divergence: DivergenceOptions) -> None:
        self.store, self.exp, self.options, self.job_options, self.strategy, self.trainer = store, exp, options, job, strategy, trainer
        self.divergence, self.verification = divergence, Verification()
        if job.stack_workers == "true":
            raise UserError("--stack-workers true: RBMs cannot be stacked; leave it at auto.")
        self.level = job.set_partition_level("frame")
        self.train, self.dev = open_stores(store)
        self.job = open_job(job, make_strategy(job.strategy, strategy), exp)
        self.host, self.device = self.job.host, self.job.device
        self.transform = read_feature_transform(options.feature_transform) if options.feature_transform else None
        context = 5 if options.splice is None else options.splice
        self.splice = list(range(-context, context + 1))
        if self.transform:
            self.splice = self.splice if options.splice is not None else self.transform.splice
            check_transform(self.transform, self.splice, self.train.manifest.dim, options.feature_transform)
        self.dtype, self.compute = arithmetic(options.dtype, self.device)
        self._share_frames(self.device)

    def _share_frames(self, device: torch.device, room: int | None = None) -> None:
        """Set the frames that all samplers of this process share, of every layer: one copy of what is needed, in so many bytes."""
        how = device, reach(self.splice)
        self.shared = {"train": SharedFrames(self.train, *how, room, len(self.host.ranks) + 1, group=self.options.randomizer_size),
                       "dev": SharedFrames(self.dev, *how)}

    def config(self) -> dict[str, Any]:
        """Everything that the result depends on. A run in the same folder with an equal config is the same run."""
        return {"options": {**self.job_options.result_options(), **dataclasses.asdict(self.options), **dataclasses.asdict(self.strategy),
                            **dataclasses.asdict(self.divergence)},
                "ngpu": self.job_options.ngpu, "device": self.device.type, "versions": versions(),
                "inputs": {**{name: s.manifest.identity() for name, s in (("train", self.train), ("dev", self.dev))},
                           **({"feature_transform": provenance.checksum(self.options.feature_transform)} if self.transform else {})}}

    def run(self) -> None:
        """Train or resume. Writes dbn.pt, and nnet1's <layer>.rbm, <layers>.dbn and final.feature_transform, to `exp`."""
        with locked(self.exp) if self.job.first else contextlib.nullcontext(), torch.no_grad():
            self._run()
        self.host.close()

    def _run(self) -> None:
        notes = {"checkpoints": dataclasses.asdict(self.trainer), "store": str(self.store)}
        verification = prepared(self.job, self.exp, self.config(), notes, MADE, "dbn.pt", (self.train, self.dev))
        if verification is None:
            self._remove_layers()  # of a run that was killed while it removed them
            return
        self.verification = verification
        dbn = Dbn(self.transform or FeatureTransform(self.splice, *spliced_mean_and_scale(self.job, self.train, self.splice)), [])
        memory = ""
        if self.device.type == "cuda":
            room, memory = settled(self.forecast(dbn.transform), self.device, self.host.processes)
            self.options.check_room(room, memory)
            self._share_frames(self.device, room)
        if memory and self.job.first:
            print(table([("memory", memory)]), flush=True)
        history: list[dict[str, Any]] = []
        for layer in range(1, self.options.hid_layers + 1):
            self._train_layer(layer, dbn, history)
        self.host.processes.barrier()  # each has written its last checkpoints, which go now
        verification.finish()
        if self.job.first:
            for name in FEATURE_OPTIONS:  # with which a network that starts from the DBN makes its features
                if (self.store / name).is_file():
                    copy_file(self.store / name, self.exp / name)
            dbn.save(self.exp / "dbn.pt")  # written last: where it is, all others are
        self._remove_layers()

    def _remove_layers(self) -> None:
        """Remove the folders in which the layers were trained."""
        if self.job.first:
            for folder in sorted(self.exp.glob("rbm[0-9]*")):
                shutil.rmtree(folder)

    def _write(self, layer: int, rbm: Rbm, dbn: Dbn, history: list[dict[str, Any]]) -> None:
        """Write the files of a layer, and the history."""
        rbm.to_nnet1().write(self.exp / f"{layer}.rbm")
        stack, feature_transform = dbn.to_nnet1()
        stack.write(self.exp / f"{layer}.dbn")
        feature_transform.write(self.exp / "final.feature_transform")
        write_history(self.exp, history)

    def _train_layer(self, layer: int, dbn: Dbn, history: list[dict[str, Any]]) -> None:
        """Train layer number `layer`, from 1, on top of those in `dbn`; add it to `dbn` and `history`, and write its files.

        Of what it takes on the device, nothing is left.
        """
        o, first = self.options, layer == 1
        trainer = self._trainer(layer, dbn)
        learner, rbm = trainer.learner, trainer.learner.model
        assert isinstance(learner, ContrastiveDivergence) and isinstance(rbm, Rbm)
        stddev = o.param_stddev if not first or o.param_stddev_first is None else o.param_stddev_first
        rbm.init(stddev, o.hid_bias_mean, o.hid_bias_range, torch.Generator().manual_seed(o.seed + layer - 1),
                 None if first else learner.visible_mean())
        if self.job.first:
            print(self._contract(layer, trainer), flush=True)
        trainer.run()
        dbn.layers.append((rbm.weight.cpu().clone(), rbm.bias.cpu().clone()))
        history += [{"layer": layer, "visible_units": rbm.visible_units, **line} for line in trainer.history]
        if self.job.first:
            self._write(layer, rbm, dbn, history)

    def _rate_and_epochs(self, layer: int) -> tuple[float, int]:
        """The learning rate and the number of epochs of a layer."""
        o = self.options
        return (o.rbm_lrate_low, 2 * o.rbm_iter) if o.gaussian(layer) else (o.rbm_lrate, o.rbm_iter)

    def _sample(self, seed: int) -> Partition:
        """The partition of the training data whose first part is the sample that held-out data are compared with, about as large."""
        run, parts = self.options.run_frames, max(1, len(self.train) // len(self.dev))
        return Partition(self.train, min(parts, -(-len(self.train) // run)), seed=seed, run=run)

    def _trainer(self, layer: int, dbn: Dbn) -> Trainer:
        """Make the trainer of layer number `layer`, from 1, on top of those in `dbn`, without its initial weights."""
        o, first = self.options, layer == 1
        below = None if first else dbn.network(self.device, self.dtype, self.compute)
        shape = ("gauss" if o.gaussian(layer) else "bern", len(dbn.transform.shift) if first else o.hid_dim, o.hid_dim, self.device,
                 self.dtype, self.compute)
        minibatch_size = o.gauss_minibatch_size if o.gaussian(layer) else o.minibatch_size
        rate, epochs = self._rate_and_epochs(layer)
        seed = o.randomizer_seed + layer - 1
        n, job, processes = self.host.size, self.job_options, self.host.processes
        run = o.run_frames if self.level == "frame" else 1
        train, dev, sample = (
            make(store, partition, 0, minibatch_size, dbn.transform.splice, dbn.transform.shift, dbn.transform.scale, seed, self.device,
                 self.shared[name])
            for make, name, store, partition in (
                (o.sampler, "train", self.train, Partition(self.train, n, job.blocks, self.level, seed, run)),
                (Sampler, "dev", self.dev, Partition(self.dev)),
                (Sampler, "train", self.train, self._sample(seed))))
        if not o.randomizer_size:
            own = None if make_strategy(job.strategy, self.strategy).reads_all else train.partition.parts(self.host.ranks)
            self.shared["train"].hold(own and [*own, *(sample.partition.parts([0]) or [np.arange(len(self.train))])])
        self.shared["dev"].hold(dev.held_out(processes.rank, processes.size))
        learner = ContrastiveDivergence(Rbm(*shape), below, o.cd_steps, sample)
        workers, strategies = [], []
        for rank in self.host.ranks:
            of_worker = learner if rank == self.host.ranks[0] else learner.of(Rbm(*shape))
            strategies.append(make_strategy(job.strategy, self.strategy))
            frames = train.frames * (n if strategies[0].ships_gradients else 1)  # from which an epoch's updates are made
            workers.append(Worker(Cd(of_worker, o.update(frames)), train.of_split(rank)))
        schedule = Fixed(FixedOptions(",".join([repr(rate)] * epochs)))
        trainer = Trainer(self.host, workers, strategies, schedule, dev, self.exp / f"rbm{layer}", self.trainer, self.divergence,
                          lambda line: print(f"rbm {layer}: {line}", flush=True), job.rate_factor(strategies[0].lr_scale))
        trainer.check_stores = self.verification.check
        return trainer

    def forecast(self, transform: FeatureTransform) -> Ledger:
        """Forecast what this process takes on its device at most, in one layer or another, before any of it is there."""
        o, draft = self.options, copy.copy(self)
        draft.device = META
        layers = [(torch.empty(o.hid_dim, len(transform.shift) if n == 0 else o.hid_dim, device=META), torch.empty(o.hid_dim, device=META))
                  for n in range(o.hid_layers)]
        ledgers = []
        for layer in sorted({1, o.hid_layers}):
            draft._share_frames(META)
            trainer = draft._trainer(layer, Dbn(transform, layers[: layer - 1]))
            ledgers.append(forecast([trainer], draft.shared, step_bytes(trainer)))
        return max(ledgers, key=lambda ledger: ledger.total)

    def _contract(self, layer: int, trainer: Trainer) -> str:
        """The table at the start of a layer: what is trained, and what does not depend on the number of workers."""
        (rate, epochs), o, worker = self._rate_and_epochs(layer), self.options, trainer.workers[0]
        rbm, update = worker.learner.model, worker.optimizer.options
        assert isinstance(rbm, Rbm) and isinstance(update, CdOptions)
        kind = "Gaussian-Bernoulli" if rbm.visible_units == "gauss" else "Bernoulli-Bernoulli"
        rows = [("rbm", f"{layer} of {o.hid_layers}: {kind}, {rbm.input_dim} - {rbm.output_dim}, {rbm.num_params:,} parameters, {o.dtype}"),
                *job_rows(self.job, self.job_options, self.strategy, trainer, len(self.train), len(self.dev)),
                ("update", f"CD-{o.cd_steps}, rate {trainer.rate_factor * rate:g} ({scaling(self.job_options, trainer.strategies[0])}) "
                           f"times (1 - momentum), {epochs} epochs, L2 penalty {o.rbm_l2penalty:g}"),
                ("momentum", f"{o.momentum:g} to {o.momentum_max:g} in {o.momentum_steps} steps of {update.momentum_step_period:,} frames"),
                ("seeds", f"weights {o.seed + layer - 1}, frames {o.randomizer_seed + layer - 1}"), *o.contract()]
        return table(rows)
