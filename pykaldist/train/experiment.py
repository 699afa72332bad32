"""An experiment: from options and a frame store to `final.pt`, and what it leaves behind in its folder.

`config.json` states every option after defaults, versions and the stores' checksums. The same command run again in the same folder
resumes, or finds it finished; with anything changed that bears on the result it starts clean, and says so. One process at a time works
in it.
"""

from __future__ import annotations

import dataclasses
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pykaldist.errors import UserError
from pykaldist.frames.sampler import Partition, Sampler, splice_statistics
from pykaldist.frames.store import FrameStore
from pykaldist.io.lock import locked
from pykaldist.nnet.convert import to_nnet1
from pykaldist.nnet.dbn import Dbn
from pykaldist.nnet.dnn import DnnOptions, make_dnn
from pykaldist.nnet.init import INITS, init_dnn
from pykaldist.nnet.learner import Supervised
from pykaldist.nnet.model import Model
from pykaldist.nnet.network import FeatureTransform, Network
from pykaldist.nnet.objective import OBJECTIVES
from pykaldist.nnet.priors import write_counts
from pykaldist.optim.registry import OPTIMIZERS, make_optimizer
from pykaldist.optim.schedules import SCHEDULES, Fixed, FixedOptions, Schedule, make_schedule
from pykaldist.options import option
from pykaldist.parallel.fabrics.single import Single
from pykaldist.parallel.strategy import make_strategy, strategies
from pykaldist.parallel.worker import Worker
from pykaldist.train.folder import open_stores, prepare_folder, versions
from pykaldist.train.trainer import Trainer, TrainerOptions

DTYPES = ("float32", "tf32", "bf16", "float64")
SYSTEM_FILES = ("final.mdl", "tree", "phones.txt", "cmvn_opts", "delta_opts")  # what decoding needs beside the network

MADE = ("final.pt", "final.nnet", "final.feature_transform", "history.jsonl", "ali_train_pdf.counts", "ckpt", "layerwise",
        *SYSTEM_FILES)


@dataclass
class ExperimentOptions:
    """Data and place of a training run."""

    splice: int = option(5, "frames of context on each side")
    minibatch_size: int = option(256, "frames in a minibatch")
    objective: str = option("xent", "cross-entropy with pdfs or posteriors, or mean square error from target features", tuple(OBJECTIVES))
    init: str | None = option(None, "initial weights (nnet1 for sigmoid, glorot for tanh, he for relu)", tuple(INITS))
    layerwise_epochs: int = option(0, "epochs of pretraining with one hidden layer, then two, up to all but one; 0: none")
    layerwise_learn_rate: float | None = option(None, "learning rate of that pretraining (the first one of training)")
    dbn: str = option("", "folder of a DBN (steps/nnet/pretrain_dbn.sh) from which the hidden layers start")
    seed: int = option(777, "seed of the initial weights")
    randomizer_seed: int = option(777, "seed of the order of frames")
    ngpu: int = option(1, "workers")
    strategy: str = option("local", "what workers exchange", tuple(strategies()))
    optimizer: str = option("sgd", "what a worker does with a minibatch", tuple(OPTIMIZERS))
    schedule: str = option("newbob", "how the rate moves", tuple(SCHEDULES))
    device: str = option("auto", "cpu, cuda, cuda:N, or auto: cuda where there is one")
    dtype: str = option("float32", "arithmetic: float64 for checks; on a GPU also tf32, and bf16 for the factors of matrix products",
                        tuple(DTYPES))
    num_threads: int = option(0, "CPU threads of a worker; 0: all of the machine's")

    def __post_init__(self) -> None:
        if self.minibatch_size < 1:
            raise UserError(f"--minibatch-size {self.minibatch_size} is not positive.")
        if self.num_threads < 0:
            raise UserError(f"--num-threads {self.num_threads} is negative.")
        for name in ("splice", "layerwise_epochs"):
            if getattr(self, name) < 0:
                raise UserError(f"--{name.replace('_', '-')} {getattr(self, name)} is negative.")
        if self.layerwise_learn_rate is not None and (not self.layerwise_epochs or self.layerwise_learn_rate <= 0):
            raise UserError(f"--layerwise-learn-rate {self.layerwise_learn_rate:g}: expected a positive rate, with --layerwise-epochs.")
        if self.dbn and self.layerwise_epochs:
            raise UserError("--dbn and --layerwise-epochs exclude each other: either is where the hidden layers start from.")
        if self.ngpu != 1:
            raise UserError(f"--ngpu {self.ngpu}: strategy {self.strategy} trains one worker; use --ngpu 1.")


def choose_device(name: str) -> torch.device:
    """The device asked for; raises UserError where it is not there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UserError(f"--device {name} is no device; use cpu, cuda, cuda:0 or auto.") from error
    if device.type not in ("cpu", "cuda"):
        raise UserError(f"--device {name} is not supported; use cpu, cuda, cuda:0 or auto.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UserError(f"--device {name}: this machine has {torch.cuda.device_count()} CUDA devices; use --device cpu.")
    return device


def arithmetic(name: str, device: torch.device) -> tuple[torch.dtype, torch.dtype]:
    """(type of parameters, type of matrix factors) for a `--dtype`; sets how a GPU multiplies float32 in this process."""
    if device.type != "cuda" and name in ("tf32", "bf16"):
        raise UserError(f"--dtype {name} needs a GPU; use float32 on {device}.")
    torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
    dtype = torch.float64 if name == "float64" else torch.float32
    return dtype, torch.bfloat16 if name == "bf16" else dtype


def differing(options: Any) -> str:
    """The options that are not at their defaults, in words."""
    values = {f.name: getattr(options, f.name) for f in dataclasses.fields(options) if getattr(options, f.name) != f.default}
    changed = [f"{name.replace('_', ' ')} {value if isinstance(value, str) else f'{value:g}'}" for name, value in values.items()]
    return ", ".join(changed) or "its options at their defaults"


class Experiment:
    """One training run in `exp`, on the stores `store/train` and `store/dev`."""

    def __init__(self, store: Path, exp: Path, options: ExperimentOptions, dnn: DnnOptions, init: Any, optimizer: Any,
                 schedule: Any, trainer: TrainerOptions) -> None:
        self.store, self.exp, self.options = store, exp, options
        self.dnn, self.init, self.optimizer, self.schedule, self.trainer = dnn, init, optimizer, schedule, trainer
        self.train, self.dev = open_stores(store)
        self.objective = OBJECTIVES[options.objective]()
        for part in (self.train, self.dev):
            self.output_dim = self.objective.output_dim(part)
        if options.layerwise_epochs and dnn.hid_layers < 2:
            raise UserError(f"--layerwise-epochs {options.layerwise_epochs}: --hid-layers {dnn.hid_layers} leaves nothing to pretrain.")
        self.device = choose_device(options.device)
        self.splice = list(range(-options.splice, options.splice + 1))
        self.dbn = Dbn.load(options.dbn) if options.dbn else None
        if self.dbn:
            self.dbn.check(dnn, self.splice, self.train.manifest.dim)

    def config(self) -> dict[str, Any]:
        """What the result depends on; a run in the same folder is the same run where this is equal."""
        return {
            "options": {name: value for part in (self.options, self.dnn, self.init, self.optimizer, self.schedule)
                        for name, value in dataclasses.asdict(part).items()},
            "inputs": {**{name: s.manifest.checksums for name, s in (("train", self.train), ("dev", self.dev))},
                       **({"dbn": self.dbn.checksum()} if self.dbn else {})},
            "device": self.device.type,
            "versions": versions(),
        }

    def run(self) -> None:
        """Train or resume; leaves final.pt, ali_train_pdf.counts and the system's files in `exp`."""
        with locked(self.exp), torch.no_grad():
            self._run()

    def _run(self) -> None:
        if self.options.num_threads:
            torch.set_num_threads(self.options.num_threads)
        prepare_folder(self.exp, self.config(), {"checkpoints": dataclasses.asdict(self.trainer), "store": str(self.store)}, MADE)
        if (self.exp / "final.pt").is_file():
            print(f"{self.exp}/final.pt is already there, made with these options; nothing to do.")
            return
        for store in (self.train, self.dev):
            store.verify()
        transform = self.dbn.transform if self.dbn else FeatureTransform(self.splice, *splice_statistics(self.train, self.splice))
        schedule = make_schedule(self.options.schedule, self.schedule)
        model = self._model(self.dnn, transform)
        trainer = self._trainer(model, schedule, transform, self.exp)
        print(self._contract(trainer.worker, schedule), flush=True)
        if self.dbn:
            self.dbn.start(model)
        if self.options.layerwise_epochs:
            self._pretrain_layers(model, transform, self.options.layerwise_learn_rate or schedule.learn_rate(0))
        trainer.run()
        counts = torch.from_numpy(self.train.counts()) if self.objective.pdfs else None
        if counts is not None:
            write_counts(self.exp / "ali_train_pdf.counts", counts.numpy())
        for name in SYSTEM_FILES:
            if (self.store / name).is_file():
                shutil.copyfile(self.store / name, self.exp / name)
        network = Network(self.dnn, model, transform, counts)
        nnet1, feature_transform = to_nnet1(network)
        nnet1.write(self.exp / "final.nnet")
        feature_transform.write(self.exp / "final.feature_transform")
        network.save(self.exp / "final.pt")  # last: its presence says that the rest is there

    def _model(self, dnn: DnnOptions, transform: FeatureTransform) -> Model:
        """A network with its initial weights."""
        model = make_dnn(dnn, len(transform.shift), self.output_dim, self.device, *arithmetic(self.options.dtype, self.device))
        init_dnn(model, dnn, torch.Generator().manual_seed(self.options.seed), self.init)
        return model

    def _trainer(self, model: Model, schedule: Schedule, transform: FeatureTransform, folder: Path, title: str = "") -> Trainer:
        """What trains `model` in `folder`; `title` stands before each of its lines."""
        optimizer = make_optimizer(self.options.optimizer, Supervised(model, self.objective), self.optimizer)
        worker = Worker(optimizer, self._sampler(self.train, transform))
        return Trainer(worker, make_strategy(self.options.strategy), Single(), schedule, self._sampler(self.dev, transform), folder,
                       self.trainer, lambda line: print(title + line, flush=True))

    def _pretrain_layers(self, model: Model, transform: FeatureTransform, learn_rate: float) -> None:
        """Layer-wise discriminative pretraining of the hidden layers of `model` but the last (Seide et al., 2011).

        A network with one hidden layer is trained for `layerwise_epochs`; its hidden layer, a new one and a new output layer make the next,
        and so on. Each trains in a folder of its own, from whose last checkpoint a finished one is taken when the run is resumed.
        """
        before: Model | None = None
        for layers in range(1, self.dnn.hid_layers):
            shallow = self._model(self.dnn.shallow(layers), transform)
            if before is not None:
                _copy_hidden(before, shallow)
            schedule = Fixed(FixedOptions(",".join([repr(learn_rate)] * self.options.layerwise_epochs)))
            self._trainer(shallow, schedule, transform, self.exp / "layerwise" / str(layers), f"hidden layers {layers}, ").run()
            before = shallow
        assert before is not None
        _copy_hidden(before, model)

    def _sampler(self, store: FrameStore, transform: FeatureTransform) -> Sampler:
        options = self.options
        return Sampler(store, Partition(store, seed=options.randomizer_seed), 0, options.minibatch_size, transform.splice, transform.shift,
                       transform.scale, options.randomizer_seed, self.device)

    def _contract(self, worker: Worker, schedule: Schedule) -> str:
        """What stays fixed and what is, in a table."""
        o, model = self.options, worker.learner.model
        d = self.dnn
        hidden = f"{d.hid_layers} x {d.hid_dim} {d.activation}" + f", bottleneck {d.bottleneck_dim}" * bool(d.bottleneck_dim) \
            + f", dropout {d.dropout:g}" * bool(d.dropout)
        start = f"DBN {o.dbn}" if o.dbn else f"{o.init}, {differing(self.init)}"
        layerwise = f"; layer-wise pretraining, {o.layerwise_epochs} epochs a layer" * bool(o.layerwise_epochs)
        weighted = ", frames weighted" * (self.train.weights is not None)
        rows = [("network", f"dnn {model.input_dim} - {hidden} - {model.output_dim}, {len(worker.params):,} parameters, {o.dtype}"),
                ("start", start + layerwise),
                ("objective", f"{o.objective}, {self.objective.targets(self.train)}{weighted}"),
                ("workers", f"1 on {self.device}, {torch.get_num_threads()} threads; strategy {o.strategy}"),
                ("frames", f"{worker.sampler.frames:,} train, {len(self.dev):,} cross-validation"),
                ("global minibatch", f"{o.minibatch_size} frames; {worker.sampler.minibatches:,} updates an epoch"),
                ("optimizer", f"{o.optimizer}, {differing(self.optimizer)}"),
                ("schedule", f"{o.schedule}, at most {schedule.num_epochs} epochs; rate {schedule.learn_rate(0):g} at first (not scaled)"),
                ("rates of maps", f"x {', '.join(f'{c:g}' for c in d.coefs())}; of their biases x {d.bias_learn_rate_coef:g}"),
                ("seeds", f"weights {o.seed}, frames {o.randomizer_seed}")]
        return "\n".join(f"  {name:17s} {value}" for name, value in rows)


def _copy_hidden(source: Model, target: Model) -> None:
    """Copy the parameters of every layer of `source` but the output layer to the first ones of `target`."""
    pairs = zip([v for v in source.views(source.params) if v][:-1], [v for v in target.views(target.params) if v], strict=False)
    for ours, theirs in pairs:
        for parameter, value in zip(theirs, ours, strict=True):
            parameter.copy_(value)
