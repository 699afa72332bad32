"""The training of a cell: its command, and what it starts from, which is made where it is not there.

Words in braces in a cell's options stand for it: `{seed}` for the seed, `{dbn}` for RBMs of the cell's layers, and `{lattices}` for a
network of the cell's layers that was trained by cross-entropy, with its alignments and denominator lattices of the training data. Each seed
has its own, and cells share them.
"""

from __future__ import annotations

import shutil
import threading
import zlib
from collections.abc import Sequence
from pathlib import Path

from pykaldist.errors import UserError
from pykaldist.study.corpora import Prepared
from pykaldist.study.results import Trial
from pykaldist.study.verbs import run_script, run_verbs

HERE = ("--device", "cpu", "--num-threads", "1", "--fabric", "virtual", "--on-divergence", "stop", "--keep-checkpoints", "1")
SHAPE = ("--hid-layers", "--hid-dim", "--splice")
XENT = "--schedule exponential --learn-rate 0.008 --final-learn-rate 0.0008 --num-epochs 6"
DENLATS = "--beam 11 --lattice-beam 6 --max-active 2000"
Command = list[object]
_making: dict[tuple[str, int], threading.Lock] = {}  # by corpus and seed: trainings made at a time share what they start from
_guard = threading.Lock()


def training(trial: Trial, corpus: Prepared, exp: Path, folder: Path) -> tuple[float, Command]:
    """Make what a cell starts from. Returns (CPU seconds of what was made for this cell alone, the command that trains)."""
    options = trial.options.replace("{seed}", str(trial.seed))
    for name, make in {"{dbn}": _dbn, "{lattices}": _lattices}.items():
        if name in options:
            with _made_once(trial):
                options = options.replace(name, make(_layers(options.split()), trial, corpus, exp))
    return 0.0, ["train", *HERE, *_seeds(trial), *options.split(), corpus.store, folder]


def _made_once(trial: Trial) -> threading.Lock:
    """The lock under which the networks and lattices that trainings of a corpus and seed start from are made."""
    with _guard:
        return _making.setdefault((trial.corpus, trial.seed), threading.Lock())


def chain_training(trial: Trial, corpus: Prepared, exp: Path, folder: Path) -> tuple[float, Command]:
    """Make the chunks and the denominator graph of a chain model in the training's own folder. Returns what `training` does."""
    spec, source, folder = corpus.spec, corpus.source.resolve(), folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copytree(source / spec.configs, folder / "configs", dirs_exist_ok=True)
    words: Command = ["prepare-chain", "train", *HERE, *spec.chain.split(), *trial.options.split(), "--trainer.srand",
                      trial.seed, "--feat-dir", source / spec.train, "--tree-dir", source / spec.tree, "--lat-dir", source / spec.ali,
                      "--dir", folder]
    log = exp / "log" / f"{folder.name}.prepare.log"
    seconds = run_verbs(log, words, folder=source)  # the network's configs name matrices as from the recipe's folder
    return seconds, ["train", *(folder / "train_options").read_text(encoding="utf-8").split("\n")[:-1], folder / "store", folder]


def _layers(words: Sequence[str]) -> list[str]:
    """Those options that say what layers a network has."""
    return [word for name in SHAPE if name in words for word in (name, words[words.index(name) + 1])]


def _seeds(trial: Trial) -> tuple[object, ...]:
    """The options of the seeds of weights and of the order of frames."""
    return "--seed", trial.seed, "--randomizer-seed", trial.seed


def _named(kind: str, shape: Sequence[str], trial: Trial, exp: Path) -> Path:
    return exp.resolve() / f"{trial.corpus}.{kind}.{zlib.crc32(' '.join(shape).encode()):08x}.{trial.seed}"


def _dbn(shape: Sequence[str], trial: Trial, corpus: Prepared, exp: Path) -> str:
    """The RBMs that a training of this shape and seed starts from."""
    made = _named("dbn", shape, trial, exp)
    run_verbs(exp / "log" / f"{made.name}.log", ["pretrain-dbn", "--device", "cpu", "--num-threads", "1", *_seeds(trial), *shape,
                                                 corpus.store, made])
    return str(made)


def _lattices(shape: Sequence[str], trial: Trial, corpus: Prepared, exp: Path) -> str:
    """The network of cross-entropy that sequence training of this shape and seed starts from, and its lattices, as options."""
    if not corpus.spec.lang:
        raise UserError(f"{trial.corpus} names no lang in corpora.json; sequence training needs one to make lattices.")
    made, data = _named("lattices", shape, trial, exp), corpus.source / corpus.spec.train
    xent, ali, denlats, store = (made / name for name in ("xent", "ali", "denlats", "store"))
    lang, log = corpus.source / corpus.spec.lang, exp / "log" / made.name
    if not (store / "manifest.json").is_file():
        run_verbs(log.with_name(f"{log.name}.xent.log"), ["train", *HERE, *_seeds(trial), *shape, *XENT.split(), corpus.store, xent])
        if not (ali / "ali.1.gz").is_file():
            run_script(log.with_name(f"{log.name}.ali.log"), corpus.source, "steps/nnet/align.sh", "--nj", 1, data, lang, xent, ali)
        run_script(log.with_name(f"{log.name}.denlats.log"), corpus.source, "steps/nnet/make_denlats.sh", "--nj", 1, *DENLATS.split(), data,
                   lang, xent, denlats)
        run_verbs(log.with_name(f"{log.name}.store.log"), ["pack-lattices", lang, ali, denlats, store])
    return (f"--nnet-init {xent}/final.nnet --feature-transform {xent}/final.feature_transform "
            f"--class-frame-counts {xent}/ali_train_pdf.counts --denlats {store}")
