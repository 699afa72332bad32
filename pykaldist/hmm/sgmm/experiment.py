"""The stages that train subspace models and align with them: which directories they read, and which files they leave.

A system's directory has what a GMM's has (training/experiment.py), and `vecs.<job>`, a vector for each speaker of its data; `final.mdl` and
`final.alimdl`, the twin without speakers, are subspace models, `pdf2group.map` has the group of each pdf, `final.occs` the pdfs' frames.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from pykaldist.errors import ALIGNING, UserError
from pykaldist.feats.pipeline import FeaturePipeline, check_dim
from pykaldist.hmm.alignments.align import AlignOptions
from pykaldist.hmm.alignments.alignment_dir import clear, record
from pykaldist.hmm.alignments.corpus import Corpus, block_task
from pykaldist.hmm.alignments.graphs import check_hmm
from pykaldist.hmm.gmm.engine import Engine, sum_pieces
from pykaldist.hmm.gmm.model_files import read_model, read_tree, write_tree
from pykaldist.hmm.gmm.ubm import UbmOptions, initial_ubm, occupancy_of_pdfs, weights_of_tids
from pykaldist.hmm.sgmm.full_gmm import PART, FullGmm, FullStats, GaussianSelector, read_full_ubm, updated, write_full_ubm
from pykaldist.hmm.sgmm.model import read_sgmm, write_sgmm
from pykaldist.hmm.sgmm.speaker_vectors import SpeakerVectors, write_speaker_vectors
from pykaldist.hmm.sgmm.training import SgmmOptions, SpokenCorpus, accumulate_sgmm, align_spoken, train_sgmm, vectors_for
from pykaldist.hmm.sgmm.update import UpdateOptions
from pykaldist.hmm.training.experiment import THREADS, PathLike, aligned_line, finish, load_corpus, read_start, replacing
from pykaldist.hmm.training.jobs import CLASSES, JobsOptions
from pykaldist.io import provenance
from pykaldist.io.atomic import atomic_open, copy_file, write_text
from pykaldist.io.datadir import DataDir
from pykaldist.io.kaldi import KaldiWriter
from pykaldist.io.lang import LangDir, check_phones
from pykaldist.io.scratch import slices
from pykaldist.progress import Progress, progress


def train_ubm_dir(num_gauss: int, data_dir: PathLike, lang_dir: PathLike, ali_dir: PathLike, exp_dir: PathLike, options: UbmOptions,
                  num_gselect: int = 25, no_fmllr: bool = False, nj: int = 1, log: Callable[[str], None] = print,
                  jobs: JobsOptions = THREADS) -> str:
    """Make a UBM with full covariances of the system, and train it on the frames, of `ali_dir`; returns a line that says what came out."""
    data, lang, ali, exp = DataDir(data_dir), LangDir(lang_dir), Path(ali_dir), Path(exp_dir)
    pipeline, engine = FeaturePipeline.from_dir(ali, None if no_fmllr else _transforms(ali)), Engine(nj)
    with replacing(exp, ali):
        corpus = load_corpus(data, lang, pipeline, nj, log, exp, jobs)
        tids, model = read_start(ali, lang, corpus)
        gmm = read_model(ali / "final.mdl")[1]
        check_dim(gmm.dim, corpus.feats, str(data.path), ali / "final.mdl")
        (exp / "final.ubm").unlink(missing_ok=True)
        tid_weight = weights_of_tids(model, lang.silence_phones, options.silence_weight)
        occupancy = occupancy_of_pdfs((mine for _, mine in corpus.parts(tids, feats=False)), model)
        ubm = FullGmm.of_diagonal(initial_ubm(gmm, occupancy, num_gauss, options.intermediate))
        log(f"{ubm.num_gauss} Gaussians made of {gmm.num_gauss}")
        for iteration in progress(range(options.num_iters), "training the UBM", options.num_iters, "iteration"):
            ubm = _train_ubm(ubm, corpus, tids, tid_weight, num_gselect, engine, iteration, iteration == options.num_iters - 1, log)
        if (ali / "phones.txt").is_file():
            copy_file(ali / "phones.txt", exp / "phones.txt")
        write_text(exp / "num_jobs", f"{nj}\n")
        write_full_ubm(exp / "final.ubm", ubm)
        provenance.record(exp, "steps/train_ubm.sh", [ali / "final.mdl"], ["final.ubm"])
    return f"{ubm.num_gauss} Gaussians with full covariances"


def _train_ubm(ubm: FullGmm, corpus: Corpus, tids: np.ndarray, tid_weight: np.ndarray, num_gselect: int, engine: Engine,
               iteration: int, last: bool, log: Callable[[str], None]) -> FullGmm:
    """One iteration of EM over a corpus with its alignment; Gaussians with too few frames go in the last one."""
    stats = corpus.total(_ubm_statistics, engine, tids, ubm=ubm, tid_weight=tid_weight, num_gselect=num_gselect)
    if stats is None:
        raise UserError(f"no frame of the alignment has a weight; give a --silence-weight above 0, or align again ({ALIGNING}).")
    log(f"iteration {iteration}: log-likelihood {stats.log_likelihood / stats.weight:.4f} a frame, {stats.weight:.0f} frames, "
        f"{ubm.num_gauss} Gaussians")
    return updated(ubm, stats, remove_low_count=last)


@block_task()
def _ubm_statistics(part: Corpus, engine: Engine, tids: np.ndarray, ubm: FullGmm, tid_weight: np.ndarray,
                    num_gselect: int) -> FullStats | None:
    selector = GaussianSelector(ubm, ubm.diagonal(), num_gselect, num_gselect)

    def pieces() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for rows in slices(len(tids), PART):
            weights = tid_weight[tids[rows]]
            if (weights > 0).any():
                yield part.feats[rows][weights > 0], weights[weights > 0]

    found: FullStats | None = sum_pieces(functools.partial(FullStats.of_frames, selector, ubm.num_gauss), pieces(), engine.threads)
    return found


def train_sgmm_dir(num_leaves: int, num_substates: int, data_dir: PathLike, lang_dir: PathLike, ali_dir: PathLike, ubm_file: PathLike,
                   exp_dir: PathLike, options: SgmmOptions, align_options: AlignOptions, update_options: UpdateOptions, nj: int = 1,
                   log: Callable[[str], None] = print, jobs: JobsOptions = THREADS) -> str:
    """Train a subspace system on the features of `ali_dir`, with its transforms, from its alignment; returns a line on what came out."""
    data, lang, ali, exp = DataDir(data_dir), LangDir(lang_dir), Path(ali_dir), Path(exp_dir)
    pipeline, engine, ubm = FeaturePipeline.from_dir(ali, _transforms(ali)), Engine(nj), read_full_ubm(ubm_file)
    with replacing(exp, ali):
        corpus = load_corpus(data, lang, pipeline, nj, log, exp, jobs)
        tids, old = read_start(ali, lang, corpus)
        if ubm.dim != corpus.feats.shape[1]:
            raise UserError(f"{ubm_file} has dimension {ubm.dim}, the features of {ali} {corpus.feats.shape[1]}; train the UBM on {ali} "
                            "(steps/train_ubm.sh).")
        clear(exp)
        state, twin, names = train_sgmm(corpus, data.utt2spk, lang, tids, old, ubm, num_leaves, num_substates, options, align_options,
                                        update_options, engine, log)
        write_tree(exp / "tree", state.tree)
        write_text(exp / "pdf2group.map", "".join(f"{group}\n" for group in state.model.pdf2group.tolist()))
        with atomic_open(exp / "final.occs", "wb") as stream:
            KaldiWriter(stream).vector(state.occupancy.astype(np.float32))
        replace(pipeline, fmllr=None).save(exp)
        if (ali / "full.mat").is_file():
            copy_file(ali / "full.mat", exp / "full.mat")
        finish(exp, lang, data, corpus, state.alignments, nj, log)
        if state.model.speaker_dim:
            write_vectors(exp, data, state.speaker_vectors(names), nj)
            write_sgmm(exp / "final.alimdl", state.transition_model, twin)
        write_sgmm(exp / "final.mdl", state.transition_model, state.model)
        record(exp, "steps/train_sgmm2.sh", data)
    return (f"{state.model.num_pdfs} pdfs in {state.model.num_groups} groups, {state.model.num_substates} substates, log-likelihood "
            f"{state.log_likelihood:.2f} a frame, {aligned_line(corpus, state.alignments)}")


def align_sgmm_dir(data_dir: PathLike, lang_dir: PathLike, src_dir: PathLike, ali_dir: PathLike, options: AlignOptions,
                   transform_dir: PathLike | None = None, gselect: int = 15, nj: int = 1, log: Callable[[str], None] = print,
                   jobs: JobsOptions = THREADS) -> str:
    """Align a data directory with a subspace system; returns a line that says what came out.

    `final.alimdl` aligns first, speakers' vectors are estimated twice from that, and `final.mdl` aligns with these; a system without a
    space of speakers aligns once. Features are adapted by the transforms of `transform_dir`.
    """
    data, lang, src, ali = DataDir(data_dir), LangDir(lang_dir), Path(src_dir), Path(ali_dir)
    provenance.check(src, inputs=False)
    pipeline, engine = FeaturePipeline.from_dir(src, Path(transform_dir) if transform_dir else None), Engine(nj)
    (transition_model, model), tree = read_sgmm(src / "final.mdl"), read_tree(src / "tree")
    twin = read_sgmm(src / "final.alimdl")[1] if model.speaker_dim else model
    if not np.array_equal(twin.offsets, model.offsets):
        raise UserError(f"{src}: final.alimdl and final.mdl have different substates; they must be of one training (steps/train_sgmm2.sh).")
    check_hmm(transition_model)
    check_phones(lang, src)
    with replacing(ali, src):
        corpus = load_corpus(data, lang, pipeline, nj, log, ali, jobs, few_passes=True)
        check_dim(model.dim, corpus.feats, str(data.path), src / "final.mdl")
        clear(ali)
        graphs = corpus.graphs(lang, tree, transition_model)
        spoken = SpokenCorpus.of(corpus, data.utt2spk, model, engine, gselect)
        vectors = None
        with Progress("aligning", (2 if model.speaker_dim else 1) * len(corpus), "utt") as bar:
            alignments = align_spoken(spoken, graphs, transition_model, twin, None, options, bar)
            if model.speaker_dim:
                alignments.check(corpus, graphs)
                vectors, gain = vectors_for(spoken, alignments.tids, transition_model, model, twin, lang.silence_phones)
                log(f"vectors of {len(spoken.names)} speakers: auxiliary function + {gain:.4f} a frame of speech")
                alignments = align_spoken(spoken, graphs, transition_model, model, vectors, options, bar)
        alignments.check(corpus, graphs)
        stats = accumulate_sgmm(spoken, alignments.tids, transition_model.tid2pdf, model, vectors)
        replace(pipeline, fmllr=None).save(ali)
        for name in ("tree", "full.mat", "final.alimdl", "pdf2group.map", "final.occs"):
            if (src / name).is_file():
                copy_file(src / name, ali / name)
        finish(ali, lang, data, corpus, alignments, nj, log)
        if vectors is not None:
            write_vectors(ali, data, dict(zip(spoken.names, vectors, strict=True)), nj)
        write_sgmm(ali / "final.mdl", transition_model, model)
        record(ali, "steps/align_sgmm2.sh", data)
    return f"log-likelihood {stats.log_likelihood / stats.frames:.2f} a frame, {aligned_line(corpus, alignments)}"


def _transforms(ali: Path) -> Path | None:
    """The directory of speakers' transforms, which is that of the alignment where it has any."""
    return ali if (ali / "trans.1").is_file() else None


def write_vectors(path: Path, data: DataDir, vectors: SpeakerVectors, nj: int) -> None:
    """Write `vecs.1` to `vecs.<nj>`, and remove others; each speaker stands once, in the first job that has utterances of his."""
    left = dict(vectors)
    for old in path.glob("vecs.*"):
        old.unlink()
    for job in range(1, nj + 1):
        speakers = dict.fromkeys(data.utt2spk[utt] for utt in data.part(job, nj))
        write_speaker_vectors(path / f"vecs.{job}", [(speaker, left.pop(speaker)) for speaker in speakers if speaker in left])


CLASSES.append(FullStats)  # of jobs, beside those of training.py
