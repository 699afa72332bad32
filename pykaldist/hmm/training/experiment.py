"""The stages that train GMM systems and align with them: which directories they read, and which files they leave.

Those that learn transforms of the features are in adapted_experiment.py.
A directory with a model has `final.mdl`, `tree`, `cmvn_opts`, `delta_opts`, `phones.txt`, and alignments (alignment_dir.py).
`final.mdl` is written last and removed first, so that where it stands all else belongs to it. While a training runs the directory has
`resume.npz`, with which `stage` goes on (training.py).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from pykaldist.errors import ALIGNING, UserError
from pykaldist.feats.pipeline import FeaturePipeline, check_dim
from pykaldist.hmm.alignments.align import MOST_FAILED, Alignments, AlignOptions, align
from pykaldist.hmm.alignments.alignment_dir import AlignmentDir, clear, record, write_labels
from pykaldist.hmm.alignments.corpus import Corpus, name_some
from pykaldist.hmm.alignments.graphs import check_hmm
from pykaldist.hmm.gmm.make_engine import make_engine
from pykaldist.hmm.gmm.model_files import read_model, read_tree, write_model, write_tree
from pykaldist.hmm.training.accumulate import accumulate
from pykaldist.hmm.training.iterations import Checkpoint, State
from pykaldist.hmm.training.jobs import JobsOptions
from pykaldist.hmm.training.mono import MonoOptions, train_mono
from pykaldist.hmm.training.triphones import TriphoneOptions, train_triphones
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.io import provenance
from pykaldist.io.atomic import copy_file
from pykaldist.io.datadir import DataDir
from pykaldist.io.lang import LangDir, check_phones
from pykaldist.io.lock import locked
from pykaldist.io.scratch import release
from pykaldist.progress import Progress
from pykaldist.usage import usage_line

PathLike = str | os.PathLike[str]
THREADS = JobsOptions()


def train_mono_dir(data_dir: PathLike, lang_dir: PathLike, exp_dir: PathLike, options: MonoOptions, align_options: AlignOptions,
                   cmvn_opts: str = "", delta_opts: str = "", nj: int = 1, log: Callable[[str], None] = print, device: str = "cpu",
                   stage: int = 0, jobs: JobsOptions = THREADS) -> str:
    """Train a monophone system on a data directory; returns a line that says what came out.

    `stage` is the iteration that an interrupted training goes on with, up to 0 for one from its beginning.
    """
    data, lang, exp = DataDir(data_dir), LangDir(lang_dir), Path(exp_dir)
    pipeline, engine = FeaturePipeline.from_options(cmvn_opts, delta_opts), make_engine(device, nj)
    with locked(exp):
        corpus = load_corpus(data, lang, pipeline, nj, log, exp, jobs, device)
        checkpoint = begin(exp, stage)
        system = train_mono(corpus, lang, options, align_options, engine, log, checkpoint)
        return finish_training("steps/train_mono.sh", exp, lang, data, corpus, pipeline, system, nj, log, checkpoint)


def train_deltas_dir(data_dir: PathLike, lang_dir: PathLike, ali_dir: PathLike, exp_dir: PathLike, max_leaves: int, totgauss: int,
                     options: TriphoneOptions, align_options: AlignOptions, cmvn_opts: str = "", delta_opts: str = "", nj: int = 1,
                     log: Callable[[str], None] = print, device: str = "cpu", stage: int = 0,
                     jobs: JobsOptions = THREADS) -> str:
    """Train a context-dependent system on features with deltas, from an alignment; returns a line that says what came out."""
    data, lang, ali, exp = DataDir(data_dir), LangDir(lang_dir), Path(ali_dir), Path(exp_dir)
    pipeline, engine = FeaturePipeline.from_options(cmvn_opts, delta_opts), make_engine(device, nj)
    with replacing(exp, ali):
        corpus = load_corpus(data, lang, pipeline, nj, log, exp, jobs, device)
        tids, old = read_start(ali, lang, corpus)
        checkpoint = begin(exp, stage)
        system = train_triphones(corpus, lang, tids, old, max_leaves, totgauss, options, align_options, engine, None, log, checkpoint)
        return finish_training("steps/train_deltas.sh", exp, lang, data, corpus, pipeline, system, nj, log, checkpoint)


def align_dir(data_dir: PathLike, lang_dir: PathLike, src_dir: PathLike, ali_dir: PathLike, options: AlignOptions, nj: int = 1,
              log: Callable[[str], None] = print, device: str = "cpu", jobs: JobsOptions = THREADS) -> str:
    """Align a data directory with the model in `src_dir`; returns a line that says what came out."""
    data, lang, src, ali = DataDir(data_dir), LangDir(lang_dir), Path(src_dir), Path(ali_dir)
    if src.resolve() == ali.resolve():
        raise UserError(f"{ali} is both source and target; align into another directory.")
    provenance.check(src, inputs=False)
    pipeline, engine = FeaturePipeline.from_dir(src), make_engine(device, nj)
    (transition_model, gmm), tree = read_model(src / "final.mdl"), read_tree(src / "tree")
    check_hmm(transition_model)
    check_phones(lang, src)
    with locked(ali):
        corpus = load_corpus(data, lang, pipeline, nj, log, ali, jobs, device, few_passes=True)
        check_dim(gmm.dim, corpus.feats, str(data.path), src / "final.mdl")
        clear(ali)
        graphs = corpus.graphs(lang, tree, transition_model)
        with Progress("aligning", len(corpus), "utt") as bar:
            alignments = align(corpus, graphs, transition_model, gmm, options, [lang.optional_silence], engine, bar)
        alignments.check(corpus, graphs)
        log_likelihood = accumulate(engine, gmm, corpus, alignments.tids, transition_model).log_likelihood
        pipeline.save(ali)
        for name in ("tree", "full.mat"):
            if (src / name).is_file():
                copy_file(src / name, ali / name)
        finish(ali, lang, data, corpus, alignments, nj, log)
        write_model(ali / "final.mdl", transition_model, gmm)
        record(ali, "steps/align_si.sh", data)
    return f"log-likelihood {log_likelihood:.2f} a frame, {aligned_line(corpus, alignments)}"


@contextlib.contextmanager
def replacing(exp: Path, ali: Path) -> Iterator[None]:
    """Hold the folder `exp`, which a training that starts from `ali` is about to replace, for the block."""
    if exp.resolve() == ali.resolve():
        raise UserError(f"{exp} is both source and target; write to another directory.")
    with locked(exp):
        yield


def read_start(ali_dir: PathLike, lang: LangDir, corpus: Corpus) -> tuple[np.ndarray, TransitionModel]:
    """Read the alignment that a training starts from, and its model.

    It has the transition_ids of all frames of `corpus`, 0 where there are none.

    Raises UserError where it has pdfs only, is of other features or another language directory, or lacks more than a tenth of the corpus.
    """
    ali = AlignmentDir(ali_dir)
    if not ali.has_transition_ids or ali.model is None:
        raise UserError(f"{ali_dir} has pdfs, which do not say what phones they are of; align with a model (steps/align_si.sh).")
    check_phones(lang, ali.path)
    return of_corpus(ali.items(), corpus, ali.path), ali.model


def of_corpus(labels: Iterable[tuple[str, np.ndarray]], corpus: Corpus, where: Path) -> np.ndarray:
    """The labels of all frames of `corpus` in one array, 0 where there are none.

    Raises UserError where they do not fit, or lack more than a tenth of the utterances.
    """
    tids, numbers, found = corpus.new_rows(None, np.int32), {utt: number for number, utt in enumerate(corpus.utts)}, set()
    for utt, ids in labels:
        number = numbers.get(utt)
        if number is None:
            continue
        if len(ids) != corpus.num_frames(number):
            raise UserError(f"{where}, {utt}: the alignment has {len(ids)} frames, the features {corpus.num_frames(number)}; align the "
                            f"same data again ({ALIGNING}).")
        mine = tids[corpus.offsets[number]:corpus.offsets[number + 1]]
        mine[:] = ids
        release(mine)
        found.add(number)
    missing = [utt for number, utt in enumerate(corpus.utts) if number not in found]
    if len(missing) > MOST_FAILED * len(corpus):
        raise UserError(f"{where} has no alignment of {len(missing)} of {len(corpus)} utterances: {name_some(missing)}; align this data "
                        f"({ALIGNING}).")
    return tids


def begin(exp: Path, stage: int) -> Checkpoint:
    """Remove the files of an older training, unless this one goes on with it at iteration `stage`."""
    checkpoint = Checkpoint(exp, stage)
    if not checkpoint.stage:
        clear(exp)
    return checkpoint


def finish_training(made_by: str, exp: Path, lang: LangDir, data: DataDir, corpus: Corpus, pipeline: FeaturePipeline, system: State,
                    nj: int, log: Callable[[str], None], checkpoint: Checkpoint) -> str:
    """Write the files of a training by the script `made_by`, the model last; returns a line that says what came out."""
    write_tree(exp / "tree", system.tree)
    pipeline.save(exp)
    finish(exp, lang, data, corpus, system.alignments, nj, log)
    write_model(exp / "final.mdl", system.transition_model, system.gmm)
    record(exp, made_by, data)
    checkpoint.done()
    return (f"{system.gmm.num_pdfs} pdfs, {system.gmm.num_gauss} Gaussians, log-likelihood {system.log_likelihood:.2f} a frame, "
            f"{aligned_line(corpus, system.alignments)}")


def load_corpus(data: DataDir, lang: LangDir, pipeline: FeaturePipeline, nj: int, log: Callable[[str], None],
                scratch: Path | None = None, jobs: JobsOptions = THREADS, device: str = "cpu", few_passes: bool = False) -> Corpus:
    """Read the corpus of a data directory, beyond a block into files in `scratch`; warns of words that the lexicon lacks.

    `few_passes`: the features are read in each pass, unless the options say otherwise. Raises UserError for a number of jobs without sense.
    """
    provenance.check(lang.path)
    if not 1 <= nj <= len(data.utterances()):
        raise UserError(f"--nj: expected a number from 1 to {len(data.utterances())}, the utterances of {data.path}; found {nj}.")
    corpus = jobs.corpus(data, lang, pipeline, nj, scratch, device, few_passes)
    if corpus.unknown:
        log(f"WARNING: {data.path}: {corpus.unknown_words()}")
    return corpus


def finish(exp: Path, lang: LangDir, data: DataDir, corpus: Corpus, alignments: Alignments, nj: int,
           log: Callable[[str], None]) -> None:
    """Write the alignments, and the files that belong to them; name the utterances that have none."""
    if alignments.failed:
        log(f"WARNING: {len(alignments.failed)} utterances of {data.path} have no alignment: {name_some(alignments.failed)}.")
    copy_file(lang.file("phones.txt"), exp / "phones.txt")
    write_labels(exp, data, alignments.labels(corpus), nj)


def aligned_line(corpus: Corpus, alignments: Alignments) -> str:
    """A text of how many utterances were aligned, and what that took, for the line that says what came out."""
    retried = f", {len(alignments.retried)} of them at the second try" if alignments.retried else ""
    return f"{len(corpus) - len(alignments.failed)} of {len(corpus)} utterances aligned{retried}, {usage_line(len(corpus.feats))}"
