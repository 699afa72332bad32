"""An experiment: it trains a network from options and a frame store, writes `final.pt`, and says in its folder what it did.

`config.json` holds every option after defaults, the versions and the stores' checksums. The same command run again in the same folder
resumes, or finds the run finished. With anything changed that matters for the result it starts clean, and says so. Only one job at a time
works in a folder.
"""

from __future__ import annotations

import copy
import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pykaldist.errors import UserError
from pykaldist.frames.block_sampler import RandomizerOptions
from pykaldist.frames.device_frames import SharedFrames
from pykaldist.frames.sampler import Partition, Sampler, reach
from pykaldist.frames.sequences import SequenceOptions, SequenceSampler
from pykaldist.frames.store import FrameStore
from pykaldist.io import provenance
from pykaldist.io.atomic import copy_file
from pykaldist.nnet.arithmetic import DTYPES, arithmetic
from pykaldist.nnet.convert import to_nnet1, unrepresentable
from pykaldist.nnet.dnn import DnnOptions, rate_coefs
from pykaldist.nnet.init import INITS
from pykaldist.nnet.kinds import init_nnet, kind_of, make_nnet
from pykaldist.nnet.learner import Supervised
from pykaldist.nnet.model import Model
from pykaldist.nnet.network import FeatureTransform, Network
from pykaldist.nnet.objectives import OBJECTIVES
from pykaldist.nnet.priors import write_counts
from pykaldist.optim.registry import OPTIMIZERS, SCHEDULES, make_optimizer, make_schedule
from pykaldist.optim.schedules import Fixed, FixedOptions, Schedule
from pykaldist.options import option
from pykaldist.parallel.engines.host import Host
from pykaldist.parallel.fabric.stack import Stack
from pykaldist.parallel.fabric.worker import Worker
from pykaldist.parallel.launch.job import JobOptions
from pykaldist.parallel.planning.footprint import LiveBytes
from pykaldist.parallel.strategies.base.registry import make_strategy
from pykaldist.train.contract import differing, job_rows, scaling, table
from pykaldist.train.divergence import DivergenceOptions
from pykaldist.train.folder import open_stores, prepared, spliced_mean_and_scale, versions
from pykaldist.train.memory import META, Ledger, forecast, settled, step_bytes
from pykaldist.train.run import SERIAL, TrainingRun
from pykaldist.train.stacking import by_itself, check
from pykaldist.train.start import Start
from pykaldist.train.trainer import Trainer, TrainerOptions

MINIBATCH_SIZE = 256  # frames
SYSTEM_FILES = ("final.mdl", "tree", "phones.txt", "cmvn_opts", "delta_opts")  # what decoding needs beside the network

MADE = ("final.pt", "final.nnet", "final.feature_transform", "history.jsonl", "ali_train_pdf.counts", "tokens.txt", "ckpt", "layerwise",
        "serial", provenance.FILE, *SYSTEM_FILES)


@dataclass
class ExperimentOptions(RandomizerOptions):
    """Data, start and target of a training run."""

    splice: int | None = option(None, "frames of context on each side (5; recurrent networks 0)")
    minibatch_size: int | None = option(None, "frames in a minibatch (256); recurrent networks have --num-streams and --chunk")
    objective: str = option("xent", "cross-entropy with pdfs or posteriors, mean square error from target features, CTC, those of "
                            "lattices: MMI, MPE, sMBR; or LF-MMI of nnet3 networks: chain", (*OBJECTIVES, "chain"))
    init: str | None = option(None, "initial weights (nnet1 for sigmoid, he for relu, else glorot)", tuple(INITS))
    layerwise_epochs: int = option(0, "epochs of pretraining with one hidden layer, then two, up to all but one; 0: none")
    layerwise_learn_rate: float | None = option(None, "learning rate of that pretraining (the first one of training)")
    dbn: str = option("", "folder of a DBN (steps/nnet/pretrain_dbn.sh), or a <layers>.dbn in it, from which the hidden layers start")
    feature_transform: str = option("", "nnet1's feature transform (splice, shift, scale) to take in place of one of the store's own mean "
                                    "and variance")
    nnet_init: str = option("", "nnet1 network to start from, of the same shape")
    seed: int = option(777, "seed of the initial weights")
    optimizer: str = option("sgd", "what a worker does with a minibatch", tuple(OPTIMIZERS))
    schedule: str = option("newbob", "how the rate moves", tuple(SCHEDULES))
    dtype: str = option("float32", "arithmetic: float64 for checks; bf16 for the factors of matrix products, on a GPU and on a CPU that "
                        "multiplies them (AVX512-BF16, AMX); on a GPU also tf32", DTYPES)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.minibatch_size is not None and self.minibatch_size < 1:
            raise UserError(f"--minibatch-size {self.minibatch_size} is not positive.")
        for name in ("splice", "layerwise_epochs"):
            if (getattr(self, name) or 0) < 0:
                raise UserError(f"--{name.replace('_', '-')} {getattr(self, name)} is negative.")
        if self.layerwise_learn_rate is not None and (not self.layerwise_epochs or self.layerwise_learn_rate <= 0):
            raise UserError(f"--layerwise-learn-rate {self.layerwise_learn_rate:g}: expected a positive rate, with --layerwise-epochs.")
        starts = [f"--{name.replace('_', '-')}" for name in ("dbn", "layerwise_epochs", "nnet_init") if getattr(self, name)]
        if len(starts) > 1:
            raise UserError(f"{' and '.join(starts)} exclude each other: either is where the hidden layers start from.")


@dataclass
class Choices:
    """All options of a training run.

    `nnet` has those of the kind of network; `strategy`, `init`, `optimizer`, `schedule` and `objective` have those of what is chosen in
    `job` and `data`.
    """

    data: ExperimentOptions
    job: JobOptions
    strategy: Any
    nnet: Any
    init: Any
    optimizer: Any
    schedule: Any
    objective: Any
    trainer: TrainerOptions
    divergence: DivergenceOptions


class Experiment(TrainingRun):
    """One training run in `exp`, on the stores `store/train` and `store/dev`: this process's part of it."""

    choices: Choices

    def __init__(self, store: Path, exp: Path, choices: Choices) -> None:
        super().__init__(store, exp, choices)
        self.options, self.nnet = choices.data, choices.nnet
        options, nnet = choices.data, choices.nnet
        self.objective = OBJECTIVES[options.objective](choices.objective)
        recurrent = nnet if isinstance(nnet, SequenceOptions) else None
        self.recurrent = recurrent is not None
        self.sequences = whole_utterances(options.objective, choices.objective, recurrent) if self.objective.whole_utterances else recurrent
        if self.sequences and options.minibatch_size is not None:
            cure = "a recurrent network's minibatches are --num-streams sequences" if recurrent else \
                f"minibatches of --objective {options.objective} are --minibatch-utts utterances"
            raise UserError(f"--minibatch-size {options.minibatch_size}: {cure}.")
        if (options.layerwise_epochs or options.dbn) and not isinstance(nnet, DnnOptions):
            raise UserError(f"--dbn and --layerwise-epochs are for --nnet dnn; --nnet {kind_of(nnet)} starts from random weights.")
        if choices.job.elastic and options.layerwise_epochs:
            raise UserError(f"--elastic true --layerwise-epochs {options.layerwise_epochs}: a replacement joins one training, and these "
                            "are several; pretrain in another way (--dbn), or leave one of the two out.")
        self.stackable = check(choices.job, make_strategy(choices.job.strategy, choices.strategy), nnet, options.objective, options.dtype,
                               options.optimizer, choices.optimizer)
        self.train, self.dev = open_stores(store)
        for part in (self.train, self.dev):
            self.output_dim = self.objective.output_dim(part)
        self.objective.prepare(self.train, self.dev)
        if self.objective.pdfs and self.output_dim == 1:
            raise UserError(f"{store} has one pdf only: it was packed without an alignment, for RBMs; pack it with one "
                            "(steps/nnet/pack.sh).")
        if options.layerwise_epochs and nnet.hid_layers < 2:
            raise UserError(f"--layerwise-epochs {options.layerwise_epochs}: --hid-layers {nnet.hid_layers} leaves nothing to pretrain.")
        if choices.optimizer.l2_to_start and not options.nnet_init:
            raise UserError(f"--l2-to-start {choices.optimizer.l2_to_start:g} needs --nnet-init, the network that training starts from.")
        self.start = Start.of(options, nnet, self.train.manifest.dim, self.output_dim)
        self.splice = self.start.splice
        if self.sequences and choices.job.partition_level == "frame":
            which = f"--nnet {kind_of(nnet)}" if recurrent else f"--objective {options.objective}"
            raise UserError(f"--partition-level frame: {which} trains on sequences, which are parts of utterances; use --partition-level "
                            "utterance, or leave it out.")
        if self.sequences and options.randomizer_size:
            raise UserError(f"--randomizer-size {options.randomizer_size}: utterances are what is shuffled here; leave it out.")
        level = choices.job.set_partition_level("utterance" if self.sequences else "frame")
        self.run_frames = options.run_frames if level == "frame" else 1
        self.partition = Partition(self.train, choices.job.ngpu, choices.job.blocks, level, options.randomizer_seed, self.run_frames)
        self.open()
        self.dtypes = arithmetic(options.dtype, self.device)
        self._share_frames(self.device)

    def _share_frames(self, device: torch.device, room: int | None = None) -> None:
        """Set the frames that all samplers of this process share: one copy of each store, of what its workers need, in so many bytes."""
        how = device, reach(self.splice)
        self.shared = {"train": SharedFrames(self.train, *how, room, len(self.host.ranks), group=self.options.randomizer_size),
                       "dev": SharedFrames(self.dev, *how)}

    def config(self) -> dict[str, Any]:
        """Everything that the result depends on. A run in the same folder with an equal config is the same run."""
        c = self.choices
        return {
            "options": {**c.job.result_options(), "nnet": kind_of(c.nnet),
                        **{name: value for part in (c.data, c.strategy, c.nnet, c.init, c.optimizer, c.schedule, c.objective, c.divergence)
                           for name, value in dataclasses.asdict(part).items()}},
            "ngpu": c.job.ngpu,
            "inputs": {**{name: s.manifest.identity() for name, s in (("train", self.train), ("dev", self.dev))},
                       **{s.path.name: s.manifest.checksums for s in self.objective.stores()}, **self.start.inputs},
            "device": self.device.type,
            "versions": versions(),
        }

    def _run(self) -> None:
        c, options = self.choices, self.options
        notes = {"checkpoints": dataclasses.asdict(c.trainer), "store": str(self.store)}
        verification = prepared(self.job, self.exp, self.config(), notes, MADE, "final.pt", (self.train, self.dev), self.objective.stores())
        if verification is None:
            if self.job.first and not (self.exp / provenance.FILE).exists():  # of a run that was ended between its last two files
                self._record()
            return
        self.verification = verification
        transform = self.start.transform or \
            FeatureTransform(self.splice, *spliced_mean_and_scale(self.job, self.train, self.splice))
        schedule = make_schedule(options.schedule, c.schedule)
        memory = ""
        if self.device.type == "cuda":
            room, memory = settled(self.forecast(transform), self.device, self.host.processes)
            options.check_room(room, memory)
            self._share_frames(self.device, room)
        model = self._model(self.nnet, transform)
        trainer = self._trainer(self.nnet, model, schedule, transform, self.exp, self.host, self.rate_option)
        if self.job.first:
            print(self._contract(trainer, schedule, memory), flush=True)
        self.start.apply(model)
        if options.layerwise_epochs:
            self._pretrain_layers(model, transform, options.layerwise_learn_rate or schedule.learn_rate(0))
        if c.job.serial_warmup and not self.host.guest:
            self._warm_up(model, transform, schedule.learn_rate(0))
        trainer.run()
        self.host.processes.barrier()  # each has written its last checkpoint: an error of one of them comes before final.pt
        verification.finish()
        if self.job.first:
            model.compute_in(model.params.dtype)
            counts = self.objective.counts(self.train)
            self._write(Network(self.nnet, model, transform, None if counts is None else torch.from_numpy(counts)))

    def forecast(self, transform: FeatureTransform) -> Ledger:
        """Forecast what this process takes on its device, before any of it is there."""
        draft, c = copy.copy(self), self.choices
        draft.device = META
        draft._share_frames(META)
        schedule = Fixed(FixedOptions("1"))

        def trainer(nnet: Any, model: Model, host: Host) -> Trainer:
            return draft._trainer(nnet, model, schedule, transform, self.exp, host, self.rate_option)

        with LiveBytes() as made:  # stacked workers take more before their own parameters and momentum are gone
            model = draft._network(self.nnet, transform)
            trainers, before = [trainer(self.nnet, model, self.host)], list[Tensor]()
        if self.options.layerwise_epochs:  # the last and largest network, beside that before it
            last = self.nnet.hid_layers - 1
            before = [draft._network(self.nnet.shallow(last - 1), transform).params] if last > 1 else []
            shallow = self.nnet.shallow(last)
            trainers.append(trainer(shallow, draft._network(shallow, transform), self.host))
        if c.job.serial_warmup and self.job.first:
            trainers.append(trainer(self.nnet, model, Host()))
        return forecast(trainers, draft.shared, max(map(step_bytes, trainers)), before, made.peak)

    def _write(self, network: Network) -> None:
        """Write the trained network in all formats."""
        if network.counts is not None and self.objective.pdfs:
            write_counts(self.exp / "ali_train_pdf.counts", network.counts.numpy())
        for name in (*SYSTEM_FILES, *(["tokens.txt"] if self.options.objective == "ctc" else [])):
            if (self.store / name).is_file():
                copy_file(self.store / name, self.exp / name)
        lacking = unrepresentable(network)
        if lacking:
            print(f"no final.nnet: {lacking}", flush=True)
        else:
            nnet1, feature_transform = to_nnet1(network)
            nnet1.write(self.exp / "final.nnet")
            feature_transform.write(self.exp / "final.feature_transform")
        network.save(self.exp / "final.pt")  # where it is, all others are
        self._record()

    def _record(self) -> None:
        """Leave in the folder which store the network was trained on, and which of its files belong together."""
        provenance.record(self.exp, "steps/nnet/train.sh", [self.store / "train/manifest.json", self.store / "dev/manifest.json"],
                          ["final.pt", "final.nnet", "final.feature_transform", "ali_train_pdf.counts", "tokens.txt", *SYSTEM_FILES])

    def _model(self, nnet: Any, transform: FeatureTransform) -> Model:
        """Make a network with its initial weights."""
        model = self._network(nnet, transform)
        init_nnet(model, nnet, torch.Generator().manual_seed(self.options.seed), self.choices.init)
        return model

    def _network(self, nnet: Any, transform: FeatureTransform) -> Model:
        """Make a network without its initial weights."""
        return make_nnet(nnet, len(transform.shift), self.output_dim, len(self.splice), self.device, *self.dtypes)

    def _sampler(self, store: FrameStore, shared: SharedFrames, partition: Partition, transform: FeatureTransform) -> Sampler:
        """Make the sampler of a store: of minibatches of frames, or of sequences, as the network needs."""
        o = self.options
        how = (transform.splice, transform.shift, transform.scale, o.randomizer_seed, self.device, shared)
        if self.sequences:
            return SequenceSampler(store, partition, 0, self.sequences, *how, padded=None if self.recurrent else False)
        arguments = (store, partition, 0, o.minibatch_size or MINIBATCH_SIZE, *how)
        return o.sampler(*arguments) if shared is self.shared["train"] else Sampler(*arguments)

    def _trainer(self, nnet: Any, model: Model, schedule: Schedule, transform: FeatureTransform, folder: Path, host: Host,
                 rate_option: str, title: str = "", fraction: float = 1.0) -> Trainer:
        """Make the trainer that trains `model` in `folder` with the workers of `host`, in epochs of a fraction of the data.

        `title` stands before each of its messages. `rate_option` is the option that gives its rate.
        """
        o, c = self.options, self.choices
        alone = host is not self.host
        level = "utterance" if self.sequences else "frame"
        dev = self._sampler(self.dev, self.shared["dev"], Partition(self.dev, level=level), transform)
        partition = Partition(self.train, level=level, run=self.run_frames) if alone else self.partition
        sampler = self._sampler(self.train, self.shared["train"], partition, transform).of_fraction(fraction)
        warms_up = self.choices.job.serial_warmup > 0 and self.job.first  # with all of the data
        if not o.randomizer_size:
            self.shared["train"].hold(None if warms_up or self.reads_all else partition.parts(host.ranks))
        self.shared["dev"].hold(dev.held_out(host.processes.rank, host.processes.size))
        priors = self.objective.prior_outputs(self.train)
        workers = []
        for rank in host.ranks:
            own = model if rank == host.ranks[0] else self._network(nnet, transform)
            own.share_activations(model)
            optimizer = make_optimizer(o.optimizer, Supervised(own, self.objective, priors, rate_option), c.optimizer)
            if c.optimizer.l2_to_start and self.start.params is not None and nnet is self.nnet:
                optimizer.pull_to(self.start.params)
            workers.append(Worker(optimizer, sampler.of_split(rank)))
        stacks = self.stackable and (c.job.stack_workers == "true"
                                     or by_itself(len(model.params), sampler.minibatch_size, self.job.device))
        gradients = make_strategy("local" if alone else c.job.strategy).ships_gradients
        stack = Stack(workers, gradients) if stacks and len(workers) > 1 else None
        return self.assembled(host, workers, dev, schedule, folder, title, stack)

    def _warm_up(self, model: Model, transform: FeatureTransform, learn_rate: float) -> None:
        """Serial warm-up of `model`."""
        self.warm_up(model.params, learn_rate, lambda schedule, fraction: self._trainer(
            self.nnet, model, schedule, transform, self.exp / "serial", Host(), self.rate_option, SERIAL, fraction))

    def _pretrain_layers(self, model: Model, transform: FeatureTransform, learn_rate: float) -> None:
        """Layer-wise discriminative pretraining of all hidden layers of `model` but the last (Seide et al., 2011).

        A network with one hidden layer is trained for `layerwise_epochs`. Its hidden layer, a new one and a new output layer make the next
        network, and so on. Each trains in a folder of its own. When the run is resumed, a finished one is loaded from its last checkpoint.
        """
        before: list[list[Tensor]] = []
        for layers in range(1, self.nnet.hid_layers):
            before = self._pretrained(layers, before, transform, learn_rate)
        _copy_hidden(before, model)

    def _pretrained(self, layers: int, before: list[list[Tensor]], transform: FeatureTransform, learn_rate: float) -> list[list[Tensor]]:
        """Train a network with so many hidden layers, which begin as those before; returns its parameters, all that is left of it."""
        options = self.nnet.shallow(layers)
        shallow = self._model(options, transform)
        _copy_hidden(before, shallow)
        schedule = Fixed(FixedOptions(",".join([repr(learn_rate)] * self.options.layerwise_epochs)))
        folder = self.exp / "layerwise" / str(layers)
        option = "--layerwise-learn-rate" if self.options.layerwise_learn_rate else self.rate_option
        self._trainer(options, shallow, schedule, transform, folder, self.host, option, f"hidden layers {layers}, ").run()
        return shallow.views(shallow.params.clone())  # those of a stack would keep it alive

    def _contract(self, trainer: Trainer, schedule: Schedule, memory: str) -> str:
        """The table at the start of a run: what is trained, and what does not depend on the number of workers."""
        c, o, d, n = self.choices, self.options, self.nnet, self.host.size
        worker = trainer.workers[0]
        model = worker.learner.model
        dbn, rate = self.start.dbn, trainer.rate_factor * trainer.strategies[0].initial_share(n) * schedule.learn_rate(0)
        start = f"network {o.nnet_init}" if o.nnet_init else f"{o.init}, {differing(c.init)}"
        start = f"DBN {o.dbn}, layers {len(dbn.layers)}" if dbn else start
        layerwise = f"; layer-wise pretraining, {o.layerwise_epochs} epochs a layer" * bool(o.layerwise_epochs)
        serial = f"; {c.job.serial_warmup:g} epochs by one worker" * bool(c.job.serial_warmup)
        weighted = ", frames weighted" * (self.train.weights is not None)
        rows = [("network", f"{kind_of(d)} {model.input_dim} - {d.described()} - {model.output_dim}, {len(worker.params):,} parameters, "
                            f"{o.dtype}"),
                ("start", start + layerwise + serial),
                ("objective", f"{o.objective}, {self.objective.targets(self.train)}{weighted}"),
                *([("sequences", self.sequences.cut())] if self.sequences else []),
                *job_rows(self.job, c.job, c.strategy, trainer, len(self.train), len(self.dev)),
                ("optimizer", f"{o.optimizer}, {differing(c.optimizer)}"),
                ("schedule", f"{o.schedule}, at most {schedule.num_epochs} epochs; rate {rate:g} "
                             f"at first ({'not scaled' if n == 1 else scaling(c.job, trainer.strategies[0])}"
                             f"{', reached at the end of the first epoch' * trainer.ramp})"),
                ("rates of maps", f"x {', '.join(f'{v:g}' for v in rate_coefs(d))}; of their biases x {d.bias_learn_rate_coef:g}"),
                ("seeds", f"weights {o.seed}, frames {o.randomizer_seed}"),
                *o.contract(),
                *([("memory", memory)] if memory else [])]
        return table(rows)


def whole_utterances(objective: str, options: Any, recurrent: SequenceOptions | None) -> SequenceOptions:
    """How minibatches of an objective of whole utterances are cut; raises UserError where the options say otherwise."""
    utts = getattr(options, "minibatch_utts", None)  # of objectives that any network can have
    if utts is None and (recurrent is None or recurrent.sequences != "whole"):
        raise UserError(f"--objective {objective} is for recurrent networks on whole utterances; add --nnet lstm or blstm, and --sequences "
                        "whole.")
    if recurrent is None:
        return SequenceOptions(sequences="whole", num_streams=options.minibatch_utts)
    if recurrent.sequences != "whole":
        raise UserError(f"--objective {objective} is of whole utterances; add --sequences whole.")
    if utts not in (None, 1):
        raise UserError(f"--minibatch-utts {options.minibatch_utts}: a recurrent network's minibatches are --num-streams utterances.")
    return recurrent


def _copy_hidden(source: list[list[Tensor]], target: Model) -> None:
    """Copy the parameters of all of a network's layers but the output layer to the first layers of `target`."""
    pairs = zip([v for v in source if v][:-1], [v for v in target.views(target.params) if v], strict=False)
    for ours, theirs in pairs:
        for parameter, value in zip(theirs, ours, strict=True):
            parameter.copy_(value)
