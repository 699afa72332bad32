"""The stages of systems with transforms of the features: LDA+MLLT, speaker-adaptive training, and alignment with fMLLR.

Beside what experiment.py names, a directory has `final.mat` and `splice_opts`, `full.mat` (all of LDA's directions); a speaker-adapted one
the model `final.alimdl` for features that are not adapted, and `trans.<job>`, a matrix for each speaker of its data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from pykaldist.errors import UserError
from pykaldist.feats.pipeline import FeaturePipeline, check_dim
from pykaldist.feats.splice import SpliceOptions
from pykaldist.feats.transforms import SpeakerTransforms, write_speaker_transforms
from pykaldist.hmm.adaptation.basis_fmllr import estimate_basis, write_basis
from pykaldist.hmm.adaptation.fmllr import FmllrOptions
from pykaldist.hmm.alignments.align import AlignOptions, align
from pykaldist.hmm.alignments.alignment_dir import archives, clear, read_archives, record, write_labels
from pykaldist.hmm.alignments.graphs import check_hmm
from pykaldist.hmm.gmm.make_engine import make_engine
from pykaldist.hmm.gmm.model_files import read_model, read_tree, write_model
from pykaldist.hmm.training.accumulate import accumulate
from pykaldist.hmm.training.experiment import (
    THREADS,
    PathLike,
    aligned_line,
    begin,
    finish,
    finish_training,
    load_corpus,
    of_corpus,
    read_start,
    replacing,
)
from pykaldist.hmm.training.jobs import JobsOptions
from pykaldist.hmm.training.lda_mllt import LdaMlltOptions, train_lda_mllt
from pykaldist.hmm.training.quick import QuickOptions, train_quick
from pykaldist.hmm.training.sat import SatOptions, adapted, estimate_aligned, gradient_scatter, train_sat, unadapted_twin
from pykaldist.io import provenance
from pykaldist.io.atomic import atomic_open, copy_file
from pykaldist.io.conf import parse_conf
from pykaldist.io.datadir import DataDir
from pykaldist.io.kaldi import KaldiWriter
from pykaldist.io.lang import LangDir, check_phones
from pykaldist.io.lock import locked
from pykaldist.progress import Progress


def train_lda_mllt_dir(data_dir: PathLike, lang_dir: PathLike, ali_dir: PathLike, exp_dir: PathLike, max_leaves: int, totgauss: int,
                       options: LdaMlltOptions, align_options: AlignOptions, cmvn_opts: str = "", splice_opts: str = "", nj: int = 1,
                       log: Callable[[str], None] = print, device: str = "cpu", stage: int = 0,
                       jobs: JobsOptions = THREADS) -> str:
    """Train a context-dependent system on LDA+MLLT features, from an alignment; returns a line that says what came out."""
    data, lang, ali, exp = DataDir(data_dir), LangDir(lang_dir), Path(ali_dir), Path(exp_dir)
    pipeline, engine = FeaturePipeline.from_options(cmvn_opts, "--delta-order=0"), make_engine(device, nj)
    splicing = parse_conf(SpliceOptions, splice_opts, "--splice-opts")
    with replacing(exp, ali):
        corpus = load_corpus(data, lang, pipeline, nj, log, exp, jobs, device)
        tids, old = read_start(ali, lang, corpus)
        checkpoint = begin(exp, stage)
        system, matrix, full = train_lda_mllt(corpus, lang, tids, old, max_leaves, totgauss, splicing, options, align_options, engine, log,
                                              checkpoint)
        with atomic_open(exp / "full.mat", "wb") as stream:
            KaldiWriter(stream).matrix(full.astype(np.float32))
        pipeline = replace(pipeline, splice=splicing, lda=matrix.astype(np.float32))
        return finish_training("steps/train_lda_mllt.sh", exp, lang, data, corpus, pipeline, system, nj, log, checkpoint)


def train_sat_dir(data_dir: PathLike, lang_dir: PathLike, ali_dir: PathLike, exp_dir: PathLike, max_leaves: int, totgauss: int,
                  options: SatOptions, align_options: AlignOptions, fmllr_options: FmllrOptions, nj: int = 1,
                  log: Callable[[str], None] = print, device: str = "cpu", stage: int = 0,
                       jobs: JobsOptions = THREADS) -> str:
    """Train a speaker-adapted system on the features of `ali_dir`, from its alignment, and its transforms where it has them.

    Returns a line that says what came out.
    """
    data, lang, ali, exp = DataDir(data_dir), LangDir(lang_dir), Path(ali_dir), Path(exp_dir)
    pipeline, engine = FeaturePipeline.from_dir(ali), make_engine(device, nj)
    with replacing(exp, ali):
        corpus = load_corpus(data, lang, pipeline, nj, log, exp, jobs, device)
        tids, old = read_start(ali, lang, corpus)
        if any(ali.glob("trans.*")):
            start = _read_transforms(ali, data)
        else:
            gmm = read_model(ali / "final.mdl")[1]
            check_dim(gmm.dim, corpus.feats, str(data.path), ali / "final.mdl")
            start, gain = estimate_aligned(corpus, data.utt2spk, tids, gmm, old, lang.silence_phones, fmllr_options, engine)
            log(f"first transforms of {len(start)} speakers by the model in {ali}: + {gain:.4f} a frame of speech")
        checkpoint = begin(exp, stage)
        system, unadapted, transforms = train_sat(corpus, data.utt2spk, lang, tids, old, start, max_leaves, totgauss, options,
                                                  align_options, fmllr_options, engine, log, checkpoint)
        if (ali / "full.mat").is_file():
            copy_file(ali / "full.mat", exp / "full.mat")
        _write_transforms(exp, data, transforms, nj)
        write_model(exp / "final.alimdl", system.transition_model, unadapted)
        line = finish_training("steps/train_sat.sh", exp, lang, data, corpus, pipeline, system, nj, log, checkpoint)
        return f"{line}, {len(transforms)} speakers"


def train_quick_dir(data_dir: PathLike, lang_dir: PathLike, ali_dir: PathLike, exp_dir: PathLike, max_leaves: int, totgauss: int,
                    options: QuickOptions, align_options: AlignOptions, nj: int = 1, log: Callable[[str], None] = print,
                    device: str = "cpu", stage: int = 0,
                    jobs: JobsOptions = THREADS) -> str:
    """Train a context-dependent system that begins with the mixtures of the system which aligned, on its features and transforms.

    Returns a line that says what came out.
    """
    data, lang, ali, exp = DataDir(data_dir), LangDir(lang_dir), Path(ali_dir), Path(exp_dir)
    pipeline, engine = FeaturePipeline.from_dir(ali), make_engine(device, nj)
    with replacing(exp, ali):
        corpus = load_corpus(data, lang, pipeline, nj, log, exp, jobs, device)
        tids, old = read_start(ali, lang, corpus)
        gmm, tree = read_model(ali / "final.mdl")[1], read_tree(ali / "tree")
        check_dim(gmm.dim, corpus.feats, str(data.path), ali / "final.mdl")
        transforms = _read_transforms(ali, data) if any(ali.glob("trans.*")) else {}
        with_transforms = replace(corpus, feats=adapted(corpus, data.utt2spk, transforms, engine)) if transforms else corpus
        checkpoint = begin(exp, stage)
        system = train_quick(with_transforms, lang, tids, old, tree, gmm, max_leaves, totgauss, options, align_options, engine, log,
                             checkpoint)
        if (ali / "full.mat").is_file():
            copy_file(ali / "full.mat", exp / "full.mat")
        if transforms:
            _write_transforms(exp, data, transforms, nj)
            write_model(exp / "final.alimdl", system.transition_model, unadapted_twin(system, corpus, engine))
        return finish_training("steps/train_quick.sh", exp, lang, data, corpus, pipeline, system, nj, log, checkpoint)


def align_fmllr_dir(data_dir: PathLike, lang_dir: PathLike, src_dir: PathLike, ali_dir: PathLike, options: AlignOptions,
                    fmllr_options: FmllrOptions, nj: int = 1, log: Callable[[str], None] = print, device: str = "cpu",
                    stage: int = 0, jobs: JobsOptions = THREADS) -> str:
    """Align a data directory with a speaker-adapted system; returns a line that says what came out.

    Features that are not adapted are aligned with `final.alimdl` (`final.mdl` where there is none), transforms are estimated, and the
    adapted features are aligned with `final.mdl`. At `stage` 2 it goes on with the first alignment that an interrupted run left
    (`pre_ali.<job>.gz`), at 3 with its transforms.
    """
    data, lang, src, ali = DataDir(data_dir), LangDir(lang_dir), Path(src_dir), Path(ali_dir)
    provenance.check(src, inputs=False)
    pipeline, engine = FeaturePipeline.from_dir(src), make_engine(device, nj)
    (model, gmm), tree = read_model(src / "final.mdl"), read_tree(src / "tree")
    unadapted = read_model(src / "final.alimdl")[1] if (src / "final.alimdl").is_file() else gmm
    if not np.array_equal(unadapted.offsets, gmm.offsets):
        raise UserError(f"{src}: final.alimdl and final.mdl have different Gaussians; they must be of one training (steps/train_sat.sh).")
    check_hmm(model)
    check_phones(lang, src)
    with replacing(ali, src):
        corpus = load_corpus(data, lang, pipeline, nj, log, ali, jobs, device, few_passes=True)
        check_dim(gmm.dim, corpus.feats, str(data.path), src / "final.mdl")
        tids, transforms = np.zeros(0, np.int32), SpeakerTransforms()
        if stage < 2:
            clear(ali)
        elif stage == 2:
            tids = of_corpus(read_archives(ali, "pre_ali", 1, model.num_transition_ids), corpus, ali)
        else:
            transforms = _read_transforms(ali, data)
        (ali / "final.mdl").unlink(missing_ok=True)
        provenance.forget(ali)
        graphs = corpus.graphs(lang, tree, model)
        with Progress("aligning", (2 if stage < 2 else 1) * len(corpus), "utt") as bar:
            if stage < 2:
                first = align(corpus, graphs, model, unadapted, options, [lang.optional_silence], engine, bar)
                first.check(corpus, graphs)
                write_labels(ali, data, first.labels(corpus), nj, stem="pre_ali")
                tids = first.tids
            if stage < 3:
                transforms, gain = estimate_aligned(corpus, data.utt2spk, tids, unadapted, model, lang.silence_phones, fmllr_options,
                                                    engine, target=gmm)
                log(f"fMLLR of {len(transforms)} speakers: + {gain:.4f} a frame of speech")
            _write_transforms(ali, data, transforms, nj)
            with_transforms = replace(corpus, feats=adapted(corpus, data.utt2spk, transforms, engine))
            alignments = align(with_transforms, graphs, model, gmm, options, [lang.optional_silence], engine, bar)
        alignments.check(corpus, graphs)
        log_likelihood = accumulate(engine, gmm, with_transforms, alignments.tids, model).log_likelihood
        pipeline.save(ali)
        for name in ("tree", "full.mat", "final.alimdl"):
            if (src / name).is_file():
                copy_file(src / name, ali / name)
        finish(ali, lang, data, corpus, alignments, nj, log)
        write_model(ali / "final.mdl", model, gmm)
        record(ali, "steps/align_fmllr.sh", data)
        for old in archives(ali, "pre_ali"):
            old.unlink()
    return f"log-likelihood {log_likelihood:.2f} a frame, {aligned_line(corpus, alignments)}, {len(transforms)} speakers"


def get_fmllr_basis_dir(data_dir: PathLike, lang_dir: PathLike, exp_dir: PathLike, per_utt: bool, silence_weight: float, nj: int = 1,
                        log: Callable[[str], None] = print, device: str = "cpu", jobs: JobsOptions = THREADS) -> str:
    """Estimate the basis of fMLLR transforms (`fmllr.basis`) from the data that a system was trained on; returns a line on what came out.

    The frames are divided among the Gaussians by the adapted features, where `exp_dir` has transforms. `per_utt`: gradients are those of
    utterances, not of speakers.
    """
    data, lang, exp = DataDir(data_dir), LangDir(lang_dir), Path(exp_dir)
    pipeline, engine = FeaturePipeline.from_dir(exp), make_engine(device, nj)
    with locked(exp):
        corpus = load_corpus(data, lang, pipeline, nj, log, exp, jobs, device, few_passes=True)
        tids, model = read_start(exp, lang, corpus)
        gmm = read_model(exp / "final.mdl")[1]
        check_dim(gmm.dim, corpus.feats, str(data.path), exp / "final.mdl")
        transforms = _read_transforms(exp, data) if any(exp.glob("trans.*")) else None
        found = gradient_scatter(corpus, data.utt2spk, tids, gmm, model, lang.silence_phones, silence_weight, per_utt, transforms, engine)
        basis, gain = estimate_basis(gmm, found.scatter, found.total)
        write_basis(exp / "fmllr.basis", basis)
    groups = len(corpus) if per_utt else len({data.utt2spk[utt] for utt in corpus.utts})
    return f"{len(basis)} matrices from {groups} {'utterances' if per_utt else 'speakers'}, log-likelihood up to + {gain:.3f} a frame"


def _read_transforms(path: Path, data: DataDir) -> SpeakerTransforms:
    """The transforms in a folder; raises UserError where it lacks one of the speakers of `data`."""
    transforms = SpeakerTransforms.read(path)
    missing = sorted(speaker for speaker in data.spk2utt if speaker not in transforms)
    if missing:
        raise UserError(f"{path} has no transform of speaker {missing[0]}; align the same data (steps/align_fmllr.sh).")
    return transforms


def _write_transforms(path: Path, data: DataDir, transforms: Mapping[str, np.ndarray], nj: int) -> None:
    """Write `trans.1` to `trans.<nj>`, and remove others; each speaker stands once, in the first job that has utterances of his."""
    written: set[str] = set()
    for old in path.glob("trans.*"):
        old.unlink()
    for job in range(1, nj + 1):
        speakers = [speaker for speaker in dict.fromkeys(data.utt2spk[utt] for utt in data.part(job, nj))
                    if speaker in transforms and speaker not in written]
        write_speaker_transforms(path / f"trans.{job}", ((speaker, transforms[speaker]) for speaker in speakers))
        written.update(speakers)
