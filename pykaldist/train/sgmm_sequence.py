"""MMI training of subspace models on lattices: the objective of gmm_sequence.py, the statistics and the update of subspace models.

It starts from the model, the features, the alignments and the speakers' vectors of an alignment directory, and reads a lattice store of
these alignments; vectors and selected Gaussians stay the same. It leaves what a system's directory has but alignments, `<iteration>.mdl`
for each iteration, and `final.mdl`, the last.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pykaldist.errors import UserError
from pykaldist.feats.pipeline import FeaturePipeline, check_dim
from pykaldist.frames.lattice_store import LatticeStore
from pykaldist.hmm.alignments.alignment_dir import clear, record
from pykaldist.hmm.alignments.corpus import Corpus, block_task
from pykaldist.hmm.gmm.engine import Engine, sum_pieces
from pykaldist.hmm.sgmm.discriminative import SgmmEbwOptions, ebw_update
from pykaldist.hmm.sgmm.frames import SgmmScorer
from pykaldist.hmm.sgmm.full_gmm import PART
from pykaldist.hmm.sgmm.model import AmSgmm2, read_sgmm, write_sgmm
from pykaldist.hmm.sgmm.posteriors import Items, SgmmStats
from pykaldist.hmm.sgmm.speaker_vectors import read_speaker_vectors
from pykaldist.hmm.sgmm.training import SpokenCorpus, of_speakers, scorer_of, utterance_scorer
from pykaldist.hmm.sgmm.update import SgmmUpdate
from pykaldist.hmm.training.experiment import THREADS, PathLike, load_corpus, read_start, replacing
from pykaldist.hmm.training.jobs import CLASSES, JobsOptions
from pykaldist.io import provenance
from pykaldist.io.atomic import copy_file, write_text
from pykaldist.io.datadir import DataDir
from pykaldist.io.lang import LangDir
from pykaldist.progress import Progress
from pykaldist.train.gmm_sequence import IterationOptions, LatticeCriterion, Mmi, Objective, Objectives, Weights, check, said


def train_sgmm_mmi_dir(data_dir: PathLike, lang_dir: PathLike, ali_dir: PathLike, store_dir: PathLike, exp_dir: PathLike, criterion: Mmi,
                       options: IterationOptions, ebw: SgmmEbwOptions, transform_dir: PathLike | None = None, nj: int = 1, stage: int = 0,
                       log: Callable[[str], None] = print, jobs: JobsOptions = THREADS) -> str:
    """Train a subspace model by MMI; returns a line that says what came out. `stage` is the iteration to go on with."""
    data, lang, ali, exp, stage = DataDir(data_dir), LangDir(lang_dir), Path(ali_dir), Path(exp_dir), max(0, stage)
    pipeline, engine, line = FeaturePipeline.from_dir(ali, Path(transform_dir) if transform_dir else None), Engine(nj), ""
    with replacing(exp, ali):
        corpus = load_corpus(data, lang, pipeline, nj, log, exp, jobs)
        tids, transition_model = read_start(ali, lang, corpus)
        provenance.check(store_dir)
        model = read_sgmm(ali / "final.mdl")[1]
        check_dim(model.dim, corpus.feats, str(data.path), ali / "final.mdl")
        objectives = Objectives(corpus, tids, LatticeStore(store_dir), transition_model, criterion, options.acwt, engine)
        spoken = SpokenCorpus.of(corpus, data.utt2spk, model, engine)
        vectors = _vectors(ali, spoken.names, model)
        if stage:
            if not (exp / f"{stage}.mdl").is_file():
                raise UserError(f"--stage {stage}: {exp}/{stage}.mdl does not exist; give the iteration that the training was left in, or "
                                "leave --stage out.")
            model = read_sgmm(exp / f"{stage}.mdl")[1]
        else:
            clear(exp)
            for old in exp.glob("*.mdl"):
                old.unlink()
            write_sgmm(exp / "0.mdl", transition_model, model)
        (exp / "final.mdl").unlink(missing_ok=True)
        replace(pipeline, fmllr=None).save(exp)
        for name in ("tree", "phones.txt", "full.mat", "final.alimdl", "pdf2group.map", "final.occs"):
            if (ali / name).is_file():
                copy_file(ali / name, exp / name)
        write_text(exp / "num_jobs", f"{nj}\n")
        for iteration in range(stage, options.num_iters):
            model, line = sgmm_iteration(objectives, spoken, model, vectors, ebw)
            log(f"iteration {iteration}: {line}")
            write_sgmm(exp / f"{iteration + 1}.mdl", transition_model, model)
            model = read_sgmm(exp / f"{iteration + 1}.mdl")[1]  # of the file's single precision, from which --stage goes on
        write_sgmm(exp / "final.mdl", transition_model, model)
        record(exp, "steps/train_mmi_sgmm2.sh", data)
    return f"{model.num_pdfs} pdfs, {model.num_substates} substates, last iteration: {line or 'none was left'}"


def _vectors(ali: Path, names: list[str], model: AmSgmm2) -> np.ndarray | None:
    """The vectors (N, T) of the speakers in an alignment directory; None where the model takes none."""
    if not model.speaker_dim:
        return None
    vectors = read_speaker_vectors(ali)
    missing = [name for name in names if name not in vectors]
    if missing:
        raise UserError(f"{ali} has no vector of speaker {missing[0]}; align the same data (steps/align_sgmm2.sh).")
    return np.stack([vectors[name] for name in names]).astype(np.float64)


def sgmm_iteration(objectives: Objectives, spoken: SpokenCorpus, model: AmSgmm2, vectors: np.ndarray | None,
                   options: SgmmEbwOptions) -> tuple[AmSgmm2, str]:
    """One update of the model; returns it, and a line for the log."""
    num, den, total = statistics(objectives, spoken, model, vectors)
    made = ebw_update(model, num, den, options)
    gains = {name: objectives.acwt * gain * num.frames / total.frames for name, gain in made.gains.items()}
    return made.model, f"{said(objectives.criterion, total, sum(gains.values()))} ({SgmmUpdate(made.model, gains).line(6)})"


def statistics(objectives: Objectives, spoken: SpokenCorpus, model: AmSgmm2, vectors: np.ndarray | None) -> tuple[
        SgmmStats, SgmmStats, Objective]:
    """The statistics of the numerator and of the denominator, and the objective.

    Raises UserError where the objective is no number, or the lattices say nothing.
    """
    with objectives.progress() as bar:
        found: SgmmStatistics = spoken.corpus.total(_statistics, spoken.engine, spoken.selected, spoken.speaker, bar=bar, model=model,
                                                    vectors=vectors, lattices=objectives.lattices)
    check(found.total)
    if found.num is None or found.den is None:
        raise UserError("the lattices have no path beside the reference; make them with a wider --lattice-beam.")
    return found.num, found.den, found.total


@dataclass
class SgmmStatistics:
    """The statistics of the numerator and of the denominator, None where they have no frame, and the objective."""

    num: SgmmStats | None
    den: SgmmStats | None
    total: Objective

    def __add__(self, other: SgmmStatistics) -> SgmmStatistics:
        return SgmmStatistics(_sum(self.num, other.num), _sum(self.den, other.den), self.total + other.total)


def _sum(one: SgmmStats | None, two: SgmmStats | None) -> SgmmStats | None:
    return two if one is None else one if two is None else one + two


@block_task()
def _statistics(part: Corpus, engine: Engine, selected: np.ndarray, speaker: np.ndarray, model: AmSgmm2, vectors: np.ndarray | None,
                lattices: LatticeCriterion, bar: Progress | None = None) -> SgmmStatistics:
    found = SgmmStatistics(None, None, Objective())
    work = functools.partial(_piece_stats, scorer_of(model), vectors)
    for weights in lattices.passes(part, engine, utterance_scorer(model, vectors, part.feats, selected, speaker), found.total, bar):
        num, den = (sum_pieces(work, _pieces((part.feats, selected, speaker), weights, lattices.model.tid2pdf, sign), engine.threads)
                    for sign in (1, -1))
        found = SgmmStatistics(_sum(found.num, num), _sum(found.den, den), found.total)
    return found


def _pieces(arrays: tuple[np.ndarray, ...], weights: Weights, tid2pdf: np.ndarray, sign: int) -> Iterator[tuple[Any, ...]]:
    """The pieces of a run of utterances, of `arrays`, with the weights that are above 0 (`sign` 1), or below it (-1)."""
    chosen = np.flatnonzero(sign * weights.weight > 0)
    chosen = chosen[np.argsort(weights.frame[chosen], kind="stable")]
    items = Items(weights.frame[chosen], tid2pdf[weights.tid[chosen]].astype(np.int64), abs(weights.weight[chosen]).astype(np.float32))
    for start in range(weights.rows.start, weights.rows.stop, PART):
        rows = slice(start, min(start + PART, weights.rows.stop))
        mine = items.part(rows.start - weights.rows.start, rows.stop - weights.rows.start)
        if len(mine.frame):
            yield *(array[rows] for array in arrays), mine


def _piece_stats(scorer: SgmmScorer, vectors: np.ndarray | None, feats: np.ndarray, selected: np.ndarray, speaker: np.ndarray,
                 items: Items) -> SgmmStats:
    speakers, _, row = of_speakers(scorer.model, vectors, speaker)
    return SgmmStats.of_frames(scorer, feats, scorer.terms(feats, selected, speakers, row), speakers, items)


CLASSES.append(SgmmStatistics)  # of jobs, beside those of gmm_sequence.py and of sgmm/experiment.py
