"""The stages of discriminative training of GMM systems: which directories they read, and which files they leave.

They start from the model, the features and the alignments of an alignment directory, with its transforms of speakers where it has trans.*,
and read a lattice store of these alignments. They leave what a GMM's directory has but the alignments, and `<iteration>.mdl` for each
iteration, 0.mdl the one before the first; fMMI `<iteration>.fmpe` beside it. `final.mdl`, and `final.fmpe`, are the last, written at the
end. An interrupted training goes on with `stage`, the iteration to begin with, from that iteration's files, and comes to the same model.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pykaldist.errors import UserError
from pykaldist.feats.pipeline import FeaturePipeline, check_dim
from pykaldist.frames.lattice_store import LatticeStore
from pykaldist.hmm.alignments.alignment_dir import clear, record
from pykaldist.hmm.alignments.corpus import Corpus
from pykaldist.hmm.gmm.ebw import EbwOptions
from pykaldist.hmm.gmm.fmpe import Fmpe
from pykaldist.hmm.gmm.gmm import AmDiagGmm
from pykaldist.hmm.gmm.make_engine import make_engine
from pykaldist.hmm.gmm.model_files import read_model, write_model
from pykaldist.hmm.gmm.ubm import UbmOptions, initial_ubm, occupancy_of_pdfs, read_ubm, train_ubm, weights_of_tids, write_ubm
from pykaldist.hmm.training.accumulate import accumulate_ubm
from pykaldist.hmm.training.experiment import THREADS, PathLike, load_corpus, read_start, replacing
from pykaldist.hmm.training.jobs import JobsOptions
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.io import provenance
from pykaldist.io.atomic import copy_file, write_text
from pykaldist.io.datadir import DataDir
from pykaldist.io.lang import LangDir
from pykaldist.options import option
from pykaldist.progress import Progress
from pykaldist.train.gmm_sequence import (
    Criterion,
    IterationOptions,
    Mmi,
    Objectives,
    feature_iteration,
    model_iteration,
)


@dataclass
class FmmiOptions:
    """Options of fMMI."""

    schedule: str = option("fmmi fmmi fmmi fmmi mmi mmi mmi mmi", "what each iteration trains: fmmi, the transform, or mmi, the model")
    learning_rate: float = option(0.01, "learning rate of the transform")
    ngselect: int = option(2, "Gaussians of the UBM in a frame")
    indirect: bool = option(False, "the model follows its features, and the derivative knows it (the indirect differential)")

    def __post_init__(self) -> None:
        if not self.steps or set(self.steps) - {"fmmi", "mmi"}:
            raise UserError(f"--schedule: expected words fmmi and mmi, one an iteration, found {self.schedule!r}.")
        if self.learning_rate <= 0 or self.ngselect < 1:
            raise UserError(f"--learning-rate {self.learning_rate:g} --ngselect {self.ngselect}: expected a rate above 0, a number from 1.")

    @property
    def steps(self) -> list[str]:
        return self.schedule.split()


@dataclass
class _Start:
    """What a training starts from."""

    corpus: Corpus
    model: TransitionModel
    gmm: AmDiagGmm
    objectives: Objectives


@contextlib.contextmanager
def _starting(made_by: str, data: DataDir, lang: LangDir, ali: Path, store: Path, exp: Path, criterion: Criterion, acwt: float, nj: int,
              device: str, stage: int, log: Callable[[str], None], jobs: JobsOptions) -> Iterator[_Start]:
    """Read what a training starts from, and write the files of its directory that do not change; with `stage` 0 older ones are removed.

    After the block the directory goes on record as made by the script `made_by`.
    """
    pipeline, engine = FeaturePipeline.from_dir(ali, ali if (ali / "trans.1").is_file() else None), make_engine(device, nj)
    with replacing(exp, ali):
        corpus = load_corpus(data, lang, pipeline, nj, log, exp, jobs, device)
        tids, model = read_start(ali, lang, corpus)
        provenance.check(store)
        gmm = read_model(ali / "final.mdl")[1]
        check_dim(gmm.dim, corpus.feats, str(data.path), ali / "final.mdl")
        objectives = Objectives(corpus, tids, LatticeStore(store), model, criterion, acwt, engine)
        if stage <= 0:
            clear(exp)
            for old in [*exp.glob("*.mdl"), *exp.glob("*.fmpe")]:
                old.unlink()
        for name in ("final.mdl", "final.fmpe"):
            (exp / name).unlink(missing_ok=True)
        replace(pipeline, fmllr=None).save(exp)
        for name in ("tree", "phones.txt", "full.mat"):
            if (ali / name).is_file():
                copy_file(ali / name, exp / name)
        write_text(exp / "num_jobs", f"{nj}\n")
        yield _Start(corpus, model, gmm, objectives)
        record(exp, made_by, data)


def _at(exp: Path, stage: int, kind: str = "mdl") -> Path:
    path = exp / f"{stage}.{kind}"
    if not path.is_file():
        raise UserError(f"--stage {stage}: {path} does not exist; give the iteration that the training was left in, or leave --stage out.")
    return path


def train_model_dir(made_by: str, data_dir: PathLike, lang_dir: PathLike, ali_dir: PathLike, store_dir: PathLike, exp_dir: PathLike,
                    criterion: Criterion, options: IterationOptions, ebw: EbwOptions, nj: int = 1, device: str = "cpu", stage: int = 0,
                    log: Callable[[str], None] = print, jobs: JobsOptions = THREADS) -> str:
    """Train a model by MMI, MPE or sMBR; returns a line that says what came out."""
    exp, stage, line = Path(exp_dir), max(0, stage), ""
    with _starting(made_by, DataDir(data_dir), LangDir(lang_dir), Path(ali_dir), Path(store_dir), exp, criterion, options.acwt, nj, device,
                   stage, log, jobs) as start:
        gmm = start.gmm
        if stage:
            gmm = read_model(_at(exp, stage))[1]
        else:
            write_model(exp / "0.mdl", start.model, gmm)
        for iteration in range(stage, options.num_iters):
            gmm, line = model_iteration(start.objectives, gmm, start.corpus.feats, ebw)
            log(f"iteration {iteration}: {line}")
            write_model(exp / f"{iteration + 1}.mdl", start.model, gmm)
        write_model(exp / "final.mdl", start.model, gmm)
    return f"{gmm.num_pdfs} pdfs, {gmm.num_gauss} Gaussians, last iteration: {line or 'none was left'}"


def train_fmmi_dir(data_dir: PathLike, lang_dir: PathLike, ali_dir: PathLike, ubm_dir: PathLike, store_dir: PathLike, exp_dir: PathLike,
                   criterion: Mmi, acwt: float, options: FmmiOptions, ebw: EbwOptions, nj: int = 1, device: str = "cpu", stage: int = 0,
                   log: Callable[[str], None] = print, jobs: JobsOptions = THREADS) -> str:
    """Train an fMMI transform and a model by turns; returns a line that says what came out."""
    exp, stage, line = Path(exp_dir), max(0, stage), ""
    made_by = f"steps/train_mmi_fmmi{'_indirect' * options.indirect}.sh"
    ubm = read_ubm(Path(ubm_dir) / "final.dubm")
    with _starting(made_by, DataDir(data_dir), LangDir(lang_dir), Path(ali_dir), Path(store_dir), exp, criterion, acwt, nj, device, stage,
                   log, jobs) as start:
        gmm = start.gmm
        if ubm.dim != gmm.dim:
            raise UserError(f"{ubm_dir}/final.dubm has dimension {ubm.dim}, the features of {ali_dir} {gmm.dim}; train it on {ali_dir} "
                            "(steps/train_diag_ubm.sh).")
        if stage:
            gmm, fmpe = read_model(_at(exp, stage))[1], Fmpe.read(_at(exp, stage, "fmpe"), options.ngselect)
        else:
            fmpe = Fmpe.initial(ubm, options.ngselect)
            write_model(exp / "0.mdl", start.model, gmm)
            fmpe.write(exp / "0.fmpe")
        feats = start.objectives.transformed(fmpe)
        for iteration, step in list(enumerate(options.steps))[stage:]:
            if step == "fmmi":
                gmm, fmpe, feats, line = feature_iteration(start.objectives, gmm, fmpe, options.learning_rate, options.indirect)
            else:
                gmm, line = model_iteration(start.objectives, gmm, feats, ebw)
            log(f"iteration {iteration} ({step}): {line}")
            fmpe.write(exp / f"{iteration + 1}.fmpe")
            write_model(exp / f"{iteration + 1}.mdl", start.model, gmm)
        fmpe.write(exp / "final.fmpe")
        write_model(exp / "final.mdl", start.model, gmm)
    return f"{gmm.num_pdfs} pdfs, {gmm.num_gauss} Gaussians, a UBM of {ubm.num_gauss}, last iteration: {line or 'none was left'}"


def train_diag_ubm_dir(num_gauss: int, data_dir: PathLike, lang_dir: PathLike, ali_dir: PathLike, exp_dir: PathLike, options: UbmOptions,
                       nj: int = 1, device: str = "cpu", log: Callable[[str], None] = print, jobs: JobsOptions = THREADS) -> str:
    """Make and train a UBM of the system, and on the frames, of `ali_dir`; returns a line that says what came out."""
    data, lang, ali, exp = DataDir(data_dir), LangDir(lang_dir), Path(ali_dir), Path(exp_dir)
    pipeline, engine = FeaturePipeline.from_dir(ali, ali if (ali / "trans.1").is_file() else None), make_engine(device, nj)
    with replacing(exp, ali):
        corpus = load_corpus(data, lang, pipeline, nj, log, exp, jobs, device)
        tids, model = read_start(ali, lang, corpus)
        gmm = read_model(ali / "final.mdl")[1]
        check_dim(gmm.dim, corpus.feats, str(data.path), ali / "final.mdl")
        (exp / "final.dubm").unlink(missing_ok=True)
        tid_weight = weights_of_tids(model, lang.silence_phones, options.silence_weight)
        occupancy = occupancy_of_pdfs((mine for _, mine in corpus.parts(tids, feats=False)), model)
        ubm = initial_ubm(gmm, occupancy, num_gauss, options.intermediate)
        log(f"{ubm.num_gauss} Gaussians made of {gmm.num_gauss}")
        with Progress("training the UBM", options.num_iters * len(corpus), "utt") as bar:
            ubm = train_ubm(ubm, lambda ubm: accumulate_ubm(engine, ubm, corpus, tids, tid_weight, bar), options.num_iters, log)
        if (ali / "phones.txt").is_file():
            copy_file(ali / "phones.txt", exp / "phones.txt")
        write_text(exp / "num_jobs", f"{nj}\n")
        write_ubm(exp / "final.dubm", ubm)
        provenance.record(exp, "steps/train_diag_ubm.sh", [ali / "final.mdl"], ["final.dubm"])
    return f"{ubm.num_gauss} Gaussians"
