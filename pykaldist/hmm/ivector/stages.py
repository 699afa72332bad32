"""The stages of i-vectors: which directories they read, and which files they leave, by Kaldi's names.

`final.mat`, `final.dubm` and `final.ie` are removed first and written last in their directories, so that where one stands all else belongs
to it. `final.ie.id` is a checksum of the extractor: networks and i-vectors of different extractors are refused by it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pykaldist.errors import UserError
from pykaldist.feats.cmvn import OnlineCmvnOptions, cmvn_stats
from pykaldist.feats.splice import SpliceOptions
from pykaldist.hmm.gmm.make_engine import make_engine
from pykaldist.hmm.gmm.ubm import FRAMES_OF_GAUSSIAN, read_ubm, train_ubm, ubm_of_frames, write_ubm
from pykaldist.hmm.ivector.estimate import ExtractorTraining, TrainingFrames, frame_offsets
from pykaldist.hmm.ivector.extractor import IvectorExtractor
from pykaldist.hmm.ivector.features import FILES, IvectorFeatures, copy_files, stored_features, write_global_stats
from pykaldist.hmm.ivector.online import NORMALISED_INPUT, OnlineExtractor, OnlineOptions
from pykaldist.hmm.ivector.pca import pca_transform
from pykaldist.hmm.ivector.posteriors import PosteriorOptions, Posteriors, frame_posteriors
from pykaldist.hmm.ivector.reservoir import Reservoir
from pykaldist.io.atomic import atomic_open, copy_file, write_text
from pykaldist.io.conf import parse_conf, read_conf
from pykaldist.io.datadir import DataDir
from pykaldist.io.kaldi import KaldiWriter
from pykaldist.io.lock import locked
from pykaldist.io.scratch import RowWriter, in_parts, slices
from pykaldist.io.tables import MatrixReader, MatrixWriter
from pykaldist.options import option
from pykaldist.progress import Progress, progress

PathLike = str | os.PathLike[str]
_BLOCK = 1 << 17  # frames that memory holds at a time, 44 minutes of every second one


@dataclass
class PcaOptions:
    """Options of the PCA transform, by Kaldi's names."""

    dim: int = option(40, "dimensions after it")
    normalize_mean: bool = option(True, "the mean becomes 0")
    normalize_variance: bool = option(True, "the variance becomes 1")
    max_utts: int = option(5000, "most utterances that it is estimated from")
    subsample: int = option(5, "every so many frames are used")

    def __post_init__(self) -> None:
        if min(self.dim, self.max_utts, self.subsample) < 1:
            raise UserError(f"--dim, --max-utts and --subsample must be at least 1, found {self.dim}, {self.max_utts} and "
                            f"{self.subsample}.")


@dataclass
class DiagUbmOptions:
    """Options of the UBM, by Kaldi's names."""

    num_frames: int = option(500000, "most frames of the first training, taken at random")
    num_iters_init: int = option(20, "iterations of EM of the first training")
    initial_gauss_proportion: float = option(0.5, "part of the Gaussians that it begins with")
    num_iters: int = option(4, "iterations of EM on all frames")
    subsample: int = option(2, "every so many frames are used in these")
    min_gaussian_weight: float = option(0.0001, "a Gaussian of less weight is removed")
    remove_low_count_gaussians: bool = option(True, "remove Gaussians with too few frames at the end")
    seed: int = option(0, "seed of the random frames and splits")

    def __post_init__(self) -> None:
        if min(self.num_frames, self.subsample) < 1 or min(self.num_iters, self.num_iters_init) < 0:
            raise UserError("--num-frames and --subsample must be at least 1, --num-iters and --num-iters-init not negative.")
        if not 0 < self.initial_gauss_proportion <= 1 or not 0 <= self.min_gaussian_weight < 1:
            raise UserError("--initial-gauss-proportion must be above 0 and at most 1, --min-gaussian-weight at least 0 and below 1.")


@dataclass
class ExtractorOptions:
    """Options of the extractor's training, by Kaldi's names."""

    ivector_dim: int = option(100, "dimension of the i-vectors")
    num_iters: int = option(10, "iterations of EM")
    subsample: int = option(2, "every so many frames are used")
    online_cmvn_iextractor: bool = option(False, "the extractor, too, sees features with online CMVN")
    seed: int = option(0, "seed of the first extractor")

    def __post_init__(self) -> None:
        if self.num_iters < 1 or self.subsample < 1:
            raise UserError(f"--num-iters and --subsample must be at least 1, found {self.num_iters} and {self.subsample}.")


def pca_dir(data_dir: PathLike, exp_dir: PathLike, options: PcaOptions, splice_opts: str, online_cmvn_opts: str) -> str:
    """Estimate the PCA of spliced features with online CMVN; returns a line that says what came out."""
    data, exp = DataDir(data_dir), Path(exp_dir)
    parse_conf(SpliceOptions, splice_opts, "--splice-opts")
    parse_conf(OnlineCmvnOptions, online_cmvn_opts, "--online-cmvn-opts")
    with locked(exp):
        (exp / "final.mat").unlink(missing_ok=True)
        write_text(exp / "splice_opts", splice_opts + "\n")
        write_text(exp / "online_cmvn.conf", "".join(f"{word}\n" for word in online_cmvn_opts.split()))
        write_global_stats(exp / "global_cmvn.stats", data)
        features, utts = IvectorFeatures.from_dir(exp, matrix=False), _spread(data.utterances(), options.max_utts)
        matrices = (features.normalised(stored_features(data, utt), f"{data.path}, {utt}")[::options.subsample]
                    for utt in progress(utts, "frames of the PCA", unit="utt"))
        matrix = pca_transform(matrices, options.dim, options.normalize_mean, options.normalize_variance)
        with atomic_open(exp / "final.mat", "wb") as stream:
            KaldiWriter(stream).matrix(matrix)
    return f"PCA of {matrix.shape[1] - options.normalize_mean} to {len(matrix)} dimensions from {len(utts)} utterances"


def _spread(items: list[str], most: int) -> list[str]:
    """At most `most` of the items, at equal distances."""
    return items if len(items) <= most else [items[number * len(items) // most] for number in range(most)]


def by_speaker(data: DataDir, features: IvectorFeatures, speakers: dict[str, list[str]], what: str) -> Iterator[
        tuple[str, np.ndarray, np.ndarray]]:
    """For each utterance: its name, its stored features, and the UBM's; CMVN goes on over a speaker's utterances."""
    with Progress(what, sum(map(len, speakers.values())), "utt") as bar:
        for utts in speakers.values():
            heard = None
            for utt in utts:
                x = stored_features(data, utt)
                yield utt, x, features.normalised(x, f"{data.path}, {utt}", heard)
                heard = cmvn_stats([x]) if heard is None else heard + cmvn_stats([x])
                bar.update()


def diag_ubm_dir(data_dir: PathLike, num_gauss: int, src_dir: PathLike, exp_dir: PathLike, options: DiagUbmOptions, cmvn_conf: PathLike,
                 nj: int = 1, device: str = "cpu", log: Callable[[str], None] = print) -> str:
    """Train a UBM on the features of a directory with final.mat and splice_opts; returns a line that says what came out.

    It has fewer Gaussians than `num_gauss` where there are too few frames, with a warning.
    """
    data, src, exp = DataDir(data_dir), Path(src_dir), Path(exp_dir)
    engine, rng = make_engine(device, nj), np.random.default_rng(options.seed)
    read_conf(OnlineCmvnOptions, cmvn_conf)
    if src.resolve() == exp.resolve():
        raise UserError(f"{exp} is both source and target; write to another directory.")
    with locked(exp):
        (exp / "final.dubm").unlink(missing_ok=True)
        copy_files(src, exp, ("final.mat", "splice_opts"))
        copy_file(cmvn_conf, exp / "online_cmvn.conf")
        write_global_stats(exp / "global_cmvn.stats", data)
        features = IvectorFeatures.from_dir(exp)
        chosen, kept = Reservoir(options.num_frames, rng), RowWriter(_BLOCK, exp)
        for _, _, y in by_speaker(data, features, data.spk2utt, "features of the UBM"):
            chosen.add(y)
            kept.append(y[::options.subsample].copy())
        frames = kept.array()
        number = min(len(chosen.rows), len(frames))
        wanted, num_gauss = num_gauss, max(1, min(num_gauss, number // FRAMES_OF_GAUSSIAN))
        if num_gauss < wanted:
            log(f"WARNING: {number} frames are too few for {wanted} Gaussians, so that the UBM has {num_gauss} at most, with "
                f"{FRAMES_OF_GAUSSIAN} for each; give more data.")
        first = max(1, int(options.initial_gauss_proportion * num_gauss))
        ubm = ubm_of_frames(chosen.rows, num_gauss, first, options.num_iters_init, options.min_gaussian_weight, engine, rng, log)
        ubm = train_ubm(ubm, lambda: ((part, np.ones(len(part))) for part, in in_parts(slices(len(frames), _BLOCK), frames)),
                        options.num_iters, engine, log, options.min_gaussian_weight, options.remove_low_count_gaussians, len(frames))
        write_ubm(exp / "final.dubm", ubm)
    return f"{ubm.num_gauss} Gaussians of dimension {ubm.dim} from {len(frames)} frames"


def extractor_dir(data_dir: PathLike, ubm_dir: PathLike, exp_dir: PathLike, options: ExtractorOptions, posteriors: PosteriorOptions,
                  nj: int = 1, log: Callable[[str], None] = print) -> str:
    """Train an i-vector extractor on a UBM's directory; returns a line that says what came out."""
    data, src, exp = DataDir(data_dir), Path(ubm_dir), Path(exp_dir)
    if src.resolve() == exp.resolve():
        raise UserError(f"{exp} is both source and target; write to another directory.")
    ubm, features = read_ubm(src / "final.dubm"), IvectorFeatures.from_dir(src)
    with locked(exp):
        for name in ("final.ie", "final.ie.id", NORMALISED_INPUT):
            (exp / name).unlink(missing_ok=True)
        copy_files(src, exp, (*FILES, "final.dubm"))
        if options.online_cmvn_iextractor:
            write_text(exp / NORMALISED_INPUT, "")
        scaled = PosteriorOptions(posteriors.num_gselect, posteriors.min_post)
        lengths, feats, gauss, weight = [], RowWriter(_BLOCK, exp), RowWriter(_BLOCK, exp), RowWriter(_BLOCK, exp)
        scale = np.float32(posteriors.posterior_scale * options.subsample / scaled.posterior_scale)
        for utt, x, normalised in by_speaker(data, features, data.spk2utt, "posteriors"):
            normalised = normalised[::options.subsample]
            seen = normalised if options.online_cmvn_iextractor else features.spliced(x, f"{data.path}, {utt}")[::options.subsample]
            found = frame_posteriors(ubm, normalised, scaled)
            lengths.append(len(seen))
            feats.append(seen.astype(np.float32))
            gauss.append(found.gauss)
            weight.append(found.weight * scale)
        frames = TrainingFrames(feats.array(), frame_offsets(lengths), Posteriors(gauss.array(), weight.array()))
        training = ExtractorTraining(frames, ubm.num_gauss, nj)
        extractor = IvectorExtractor.initial(ubm, options.ivector_dim, np.random.default_rng(options.seed))
        extractor = training.run(extractor, options.num_iters, log)
        extractor.write(exp / "final.ie")
        write_text(exp / "final.ie.id", hashlib.md5((exp / "final.ie").read_bytes(), usedforsecurity=False).hexdigest() + "\n")
    return f"i-vectors of dimension {extractor.dim} from {len(lengths)} utterances, {sum(lengths)} frames"


def read_extractor(folder: PathLike, options: OnlineOptions, posteriors: PosteriorOptions) -> OnlineExtractor:
    """Read the directory of an extractor; raises UserError where its files are not of one training."""
    path = Path(folder)
    features, ubm, extractor = IvectorFeatures.from_dir(path), read_ubm(path / "final.dubm"), IvectorExtractor.read(path / "final.ie")
    extractor.check_ubm(ubm, str(path))
    return OnlineExtractor(features, ubm, extractor, options, posteriors, (path / NORMALISED_INPUT).is_file())


def extract_online_part(data_dir: PathLike, extractor_path: PathLike, ivector_dir: PathLike, options: OnlineOptions,
                        posteriors: PosteriorOptions, job: int = 1, nj: int = 1, compress: bool = True, use_vad: bool = False) -> str:
    """Extract online i-vectors of job `job` of `nj` into ivector_online.JOB.ark and .scp; returns a line that says what came out."""
    data, exp = DataDir(data_dir), Path(ivector_dir)
    extract = read_extractor(extractor_path, options, posteriors)
    weights = MatrixReader(data.path / "vad.scp") if use_vad else None
    wanted = set(data.part(job, nj))
    speakers = {speaker: part for speaker, utts in data.spk2utt.items() if (part := [utt for utt in utts if utt in wanted])}
    base, norms, frames = exp / f"ivector_online.{job}", 0.0, 0
    with Progress(f"i-vectors of {data.path.name}, job {job} of {nj}", len(wanted), "utt") as bar, \
            MatrixWriter(f"{base}.ark", f"{base}.scp", compression_method=2 if compress else 0) as writer:
        for utts in speakers.values():
            state = extract.new_speaker()
            for utt in utts:
                x = stored_features(data, utt)
                ivectors = extract(x, state, f"{data.path}, {utt}", None if weights is None else _weights(weights, utt, len(x)))
                writer.write(utt, ivectors)
                norms += float(np.linalg.norm(ivectors[-1])) * len(x)
                frames += len(x)
                bar.update()
    return (f"i-vectors of {len(wanted)} utterances; their length at the end is {norms / frames:.2f} on average, expected about "
            f"{np.sqrt(extract.extractor.dim):.2f}")


def _weights(weights: MatrixReader, utt: str, frames: int) -> np.ndarray:
    """The weight of each frame of an utterance."""
    if utt not in weights:
        raise UserError(f"{weights.path}: there is no {utt}; run steps/compute_vad_decision.sh.")
    found = weights[utt]
    if found.shape != (frames,):
        raise UserError(f"{weights.path}, {utt}: expected decisions for {frames} frames, found {found.shape}; run "
                        "steps/compute_vad_decision.sh again.")
    return found
