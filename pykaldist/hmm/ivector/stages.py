"""The stages of i-vectors: which directories they read, and which files they leave, by Kaldi's names.

`final.mat`, `final.dubm` and `final.ie` are removed first and written last in their directories, so that where one stands all else belongs
to it. `final.ie.id` is a checksum of the extractor: networks and i-vectors of different extractors are refused by it.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pykaldist.errors import FEATURES, UserError
from pykaldist.feats.cmvn import OnlineCmvnOptions, cmvn_stats
from pykaldist.feats.splice import SpliceOptions
from pykaldist.hmm.alignments.corpus import Corpus, block_task
from pykaldist.hmm.gmm.engine import Engine, sum_pieces
from pykaldist.hmm.gmm.gmm import AmDiagGmm
from pykaldist.hmm.gmm.make_engine import make_engine
from pykaldist.hmm.gmm.ubm import FRAMES_OF_GAUSSIAN, UbmStats, read_ubm, train_ubm, ubm_of_frames, write_ubm
from pykaldist.hmm.ivector.estimate import ExtractorTraining, IvectorStats, Scatter, frame_offsets
from pykaldist.hmm.ivector.extractor import IvectorExtractor
from pykaldist.hmm.ivector.features import FILES, IvectorFeatures, copy_files, stored_features, write_global_stats
from pykaldist.hmm.ivector.online import NORMALISED_INPUT, OnlineExtractor, OnlineOptions
from pykaldist.hmm.ivector.pca import pca_transform
from pykaldist.hmm.ivector.posteriors import PosteriorOptions, frame_posteriors
from pykaldist.hmm.sgmm.full_gmm import PART, FullGmm, FullStats, GaussianSelector, read_full_ubm, updated, write_full_ubm
from pykaldist.hmm.training.jobs import CLASSES, ArrayOptions
from pykaldist.io.atomic import atomic_open, copy_file, write_text
from pykaldist.io.conf import parse_conf, read_conf
from pykaldist.io.datadir import DataDir
from pykaldist.io.durations import utt2num_frames
from pykaldist.io.kaldi import KaldiWriter
from pykaldist.io.lock import locked
from pykaldist.io.scratch import slices
from pykaldist.io.tables import MatrixReader, MatrixWriter
from pykaldist.options import option
from pykaldist.progress import Progress, progress

PathLike = str | os.PathLike[str]
THREADS = ArrayOptions()


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
class FullUbmOptions:
    """Options of the UBM with full covariances, by the names of Kaldi's sid/train_full_ubm.sh."""

    num_gselect: int = option(20, "Gaussians that a frame is divided among")
    num_iters: int = option(4, "iterations of EM")
    subsample: int = option(5, "every so many frames are used")
    min_gaussian_weight: float = option(0.0001, "a Gaussian of less weight stays as it is, or is removed at the end")
    remove_low_count_gaussians: bool = option(True, "remove Gaussians with too few frames at the end")

    def __post_init__(self) -> None:
        if min(self.num_gselect, self.num_iters, self.subsample) < 1 or not 0 <= self.min_gaussian_weight < 1:
            raise UserError("--num-gselect, --num-iters and --subsample must be at least 1, --min-gaussian-weight at least 0 and below 1.")


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


def _corpus(data: DataDir, subsample: int, nj: int, exp: Path, device: str, jobs: ArrayOptions) -> tuple[Corpus, np.ndarray]:
    """The utterances, one speaker's after the other's, with every `subsample`-th frame; and where each begins among all frames."""
    utts, lengths = [utt for own in data.spk2utt.values() for utt in own], utt2num_frames(data)
    if not 1 <= nj <= len(utts):
        raise UserError(f"--nj: expected a number from 1 to {len(utts)}, the utterances of {data.path}; found {nj}.")
    missing = next((utt for utt in utts if utt not in lengths), None)
    if missing is not None:
        raise UserError(f"{data.path}: {missing} has no features; {FEATURES}, or utils/fix_data_dir.sh leaves it out.")
    frames = np.array([lengths[utt] for utt in utts], np.int64)
    corpus = jobs.lengths(utts, frame_offsets((-(-frames // subsample)).tolist()), nj, exp, device)
    return corpus, frame_offsets(frames.tolist())


def _of_part(data: DataDir, part: Corpus, offsets: np.ndarray) -> dict[str, Any]:
    """What tasks need of a block: the utterances of its first speaker that stand before it, for CMVN goes on, and its `offsets`."""
    utts = data.spk2utt[data.utt2spk[part.utts[0]]]
    mine = offsets[part.first:part.first + len(part) + 1]
    return {"before": list(utts[:utts.index(part.utts[0])]), "offsets": mine - mine[0]}


def _chosen(rng: np.random.Generator, count: int, most: int) -> np.ndarray | None:
    """At most `most` numbers below `count`, ascending, each set of so many as likely as any other; None: all of them."""
    if count <= most:
        return None
    if count <= 4 * most:
        return np.sort(rng.choice(count, most, replace=False))
    found = np.zeros(0, np.int64)
    while len(found) < most:  # the first so many different ones of a sequence
        found = np.union1d(found, rng.integers(0, count, most - len(found)))
    return found


@functools.lru_cache(maxsize=1)
def _opened(path: str) -> DataDir:
    return DataDir(path)


def _of_block(part: Corpus, path: str, features: IvectorFeatures, before: list[str], offsets: np.ndarray, engine: Engine,
              work: Callable[[int, np.ndarray, np.ndarray], None], bar: Progress | None) -> None:
    """Call `work` for each utterance of a block, with its number there, its stored features, and the UBM's.

    Speakers are worked on in threads. Raises UserError where an utterance has not as many frames as `offsets` says.
    """
    data, by_speaker = _opened(path), dict[str, list[int]]()
    for number, utt in enumerate(part.utts):
        by_speaker.setdefault(data.utt2spk[utt], []).append(number)
    speakers = list(by_speaker.values())

    def one(speaker: int) -> None:
        heard = None
        for utt in before if speaker == 0 else ():
            own = cmvn_stats([stored_features(data, utt)])
            heard = own if heard is None else heard + own
        for number in speakers[speaker]:
            utt = part.utts[number]
            x = stored_features(data, utt)
            if len(x) != offsets[number + 1] - offsets[number]:
                raise UserError(f"{path}, {utt}: expected features of {offsets[number + 1] - offsets[number]} frames, as utt2num_frames "
                                f"says, found {len(x)}; make both again ({FEATURES}).")
            work(number, x, features.normalised(x, f"{path}, {utt}", heard))
            own = cmvn_stats([x])
            heard = own if heard is None else heard + own
            if bar is not None:
                bar.update()

    engine.for_each(len(speakers), one)


def diag_ubm_dir(data_dir: PathLike, num_gauss: int, src_dir: PathLike, exp_dir: PathLike, options: DiagUbmOptions, cmvn_conf: PathLike,
                 nj: int = 1, device: str = "cpu", log: Callable[[str], None] = print, jobs: ArrayOptions = THREADS) -> str:
    """Train a UBM on the features of a directory with final.mat and splice_opts; returns a line that says what came out.

    It has fewer Gaussians than `num_gauss` where there are too few frames, with a warning.
    """
    data, src, exp = DataDir(data_dir), Path(src_dir), Path(exp_dir)
    engine, rng = make_engine(device, nj), np.random.default_rng(options.seed)
    read_conf(OnlineCmvnOptions, cmvn_conf)
    if src.resolve() == exp.resolve():
        raise UserError(f"{exp} is both source and target; write to another directory.")
    with locked(exp):
        for name in ("final.dubm", "final.ubm"):  # an older one with full covariances would be taken for this one's
            (exp / name).unlink(missing_ok=True)
        copy_files(src, exp, ("final.mat", "splice_opts"))
        copy_file(cmvn_conf, exp / "online_cmvn.conf")
        write_global_stats(exp / "global_cmvn.stats", data)
        features = IvectorFeatures.from_dir(exp)
        corpus, offsets = _corpus(data, options.subsample, nj, exp, device, jobs)
        chosen = _chosen(rng, int(offsets[-1]), options.num_frames)

        def own(part: Corpus) -> dict[str, Any]:
            begin, end = offsets[[part.first, part.first + len(part)]]
            mine = np.arange(end - begin) if chosen is None else chosen[slice(*np.searchsorted(chosen, [begin, end]))] - begin
            return {**_of_part(data, part, offsets), "chosen": mine}

        frames = corpus.new_rows(len(_matrix(features)), np.float32)
        _opened.cache_clear()
        with Progress("features of the UBM", len(corpus), "utt") as bar:
            first = np.concatenate(list(corpus.each(_ubm_frames, engine, frames, own=own, bar=bar, path=str(data.path), features=features,
                                                    subsample=options.subsample)))
        number = min(len(first), corpus.frames)
        wanted, num_gauss = num_gauss, max(1, min(num_gauss, number // FRAMES_OF_GAUSSIAN))
        if num_gauss < wanted:
            log(f"WARNING: {number} frames are too few for {wanted} Gaussians, so that the UBM has {num_gauss} at most, with "
                f"{FRAMES_OF_GAUSSIAN} for each; give more data.")
        least = max(1, int(options.initial_gauss_proportion * num_gauss))
        ubm = ubm_of_frames(first, num_gauss, least, options.num_iters_init, options.min_gaussian_weight, engine, rng, log)
        with Progress("training the UBM", options.num_iters * len(corpus), "utt") as bar:
            ubm = train_ubm(ubm, lambda ubm: corpus.total(_ubm_statistics, engine, frames, bar=bar, ubm=ubm), options.num_iters, log,
                            options.min_gaussian_weight, options.remove_low_count_gaussians)
        write_ubm(exp / "final.dubm", ubm)
    return f"{ubm.num_gauss} Gaussians of dimension {ubm.dim} from {corpus.frames} frames"


def _matrix(features: IvectorFeatures) -> np.ndarray:
    assert features.matrix is not None  # a directory of a UBM has one
    return features.matrix


@block_task(outputs=1, feats=False)
def _ubm_frames(part: Corpus, engine: Engine, frames: np.ndarray, path: str, features: IvectorFeatures, subsample: int, before: list[str],
                offsets: np.ndarray, chosen: np.ndarray, bar: Progress | None = None) -> np.ndarray:
    """Fill in every `subsample`-th frame of a block; returns the frames `chosen`, numbers among all of its frames."""
    found: list[np.ndarray] = [np.zeros((0, frames.shape[1]), np.float32)] * len(part)

    def work(number: int, x: np.ndarray, normalised: np.ndarray) -> None:
        frames[part.offsets[number]:part.offsets[number + 1]] = normalised[::subsample]
        mine = slice(*np.searchsorted(chosen, offsets[number:number + 2]))
        found[number] = normalised[chosen[mine] - offsets[number]]

    _of_block(part, path, features, before, offsets, engine, work, bar)
    return np.concatenate(found)


@block_task(feats=False)
def _ubm_statistics(part: Corpus, engine: Engine, frames: np.ndarray, ubm: AmDiagGmm, bar: Progress | None = None) -> UbmStats | None:
    if bar is not None:
        bar.update(len(part))
    return UbmStats.of_frames(ubm, frames, np.ones(len(frames), np.float32), engine)


def full_ubm_dir(data_dir: PathLike, ubm_dir: PathLike, exp_dir: PathLike, options: FullUbmOptions, nj: int = 1,
                 log: Callable[[str], None] = print, jobs: ArrayOptions = THREADS) -> str:
    """Train a UBM with full covariances from that of a directory, diagonal or full; returns a line that says what came out.

    `final.dubm` is its twin with the variances on the diagonals, for online extraction.
    """
    data, src, exp, engine = DataDir(data_dir), Path(ubm_dir), Path(exp_dir), Engine(nj)
    if src.resolve() == exp.resolve():
        raise UserError(f"{exp} is both source and target; write to another directory.")
    found, features = _ubm_of(src), IvectorFeatures.from_dir(src)
    ubm = found if isinstance(found, FullGmm) else FullGmm.of_diagonal(found)
    with locked(exp):
        for name in ("final.ubm", "final.dubm"):
            (exp / name).unlink(missing_ok=True)
        copy_files(src, exp)
        corpus, offsets = _corpus(data, options.subsample, nj, exp, "cpu", jobs)
        frames = corpus.new_rows(len(_matrix(features)), np.float32)
        _opened.cache_clear()
        with Progress("features of the UBM", len(corpus), "utt") as bar:
            for _ in corpus.each(_ubm_frames, engine, frames, bar=bar, path=str(data.path), features=features, subsample=options.subsample,
                                 own=lambda part: {**_of_part(data, part, offsets), "chosen": np.zeros(0, np.int64)}):
                pass
        with Progress("training the UBM", options.num_iters * len(corpus), "utt") as bar:
            for iteration in range(options.num_iters):
                stats = corpus.total(_full_ubm_statistics, engine, frames, bar=bar, ubm=ubm, num_gselect=options.num_gselect)
                log(f"iteration {iteration}: log-likelihood {stats.log_likelihood / stats.weight:.4f} a frame, {corpus.frames} frames, "
                    f"{ubm.num_gauss} Gaussians")
                last = iteration == options.num_iters - 1
                ubm = updated(ubm, stats, last and options.remove_low_count_gaussians, options.min_gaussian_weight)
        write_ubm(exp / "final.dubm", ubm.diagonal())
        write_full_ubm(exp / "final.ubm", ubm)
    return f"{ubm.num_gauss} Gaussians with full covariances, of dimension {ubm.dim}, from {corpus.frames} frames"


@block_task(feats=False)
def _full_ubm_statistics(part: Corpus, engine: Engine, frames: np.ndarray, ubm: FullGmm, num_gselect: int,
                         bar: Progress | None = None) -> FullStats:
    selector = GaussianSelector(ubm, ubm.diagonal(), num_gselect, max(num_gselect, 50))
    pieces = ((frames[rows], np.ones(rows.stop - rows.start, np.float32)) for rows in slices(len(frames), PART))
    found: FullStats = sum_pieces(functools.partial(FullStats.of_frames, selector, ubm.num_gauss), pieces, engine.threads)
    if bar is not None:
        bar.update(len(part))
    return found


def _ubm_of(folder: Path) -> AmDiagGmm | FullGmm:
    """The UBM of a directory: that with full covariances, where it has one."""
    return read_full_ubm(folder / "final.ubm") if (folder / "final.ubm").is_file() else read_ubm(folder / "final.dubm")


def extractor_dir(data_dir: PathLike, ubm_dir: PathLike, exp_dir: PathLike, options: ExtractorOptions, posteriors: PosteriorOptions,
                  nj: int = 1, log: Callable[[str], None] = print, jobs: ArrayOptions = THREADS) -> str:
    """Train an i-vector extractor on a UBM's directory; returns a line that says what came out.

    Frames are divided among the Gaussians by `final.ubm`, where the directory has one, else by `final.dubm`.
    """
    data, src, exp, engine = DataDir(data_dir), Path(ubm_dir), Path(exp_dir), Engine(nj)
    if src.resolve() == exp.resolve():
        raise UserError(f"{exp} is both source and target; write to another directory.")
    ubm, features = _ubm_of(src), IvectorFeatures.from_dir(src)
    with locked(exp):
        for name in ("final.ie", "final.ie.id", "final.ubm", NORMALISED_INPUT):
            (exp / name).unlink(missing_ok=True)
        copy_files(src, exp, (*FILES, "final.dubm", *(["final.ubm"] if isinstance(ubm, FullGmm) else [])))
        if options.online_cmvn_iextractor:
            write_text(exp / NORMALISED_INPUT, "")
        corpus, offsets = _corpus(data, options.subsample, nj, exp, "cpu", jobs)
        count = min(posteriors.num_gselect, ubm.num_gauss)
        rows = corpus.new_rows(len(_matrix(features)), np.float32), corpus.new_rows(count, np.int32), corpus.new_rows(count, np.float32)
        _opened.cache_clear()
        with Progress("posteriors", len(corpus), "utt") as bar:
            for _ in corpus.each(_posteriors, engine, *rows, own=lambda part: _of_part(data, part, offsets), bar=bar, path=str(data.path),
                                 features=features, ubm=ubm, options=options, posteriors=posteriors):
                pass
        training = ExtractorTraining(corpus, *rows, ubm.num_gauss, engine)
        extractor = IvectorExtractor.initial(ubm, options.ivector_dim, np.random.default_rng(options.seed))
        extractor = training.run(extractor, options.num_iters, log)
        extractor.write(exp / "final.ie")
        write_text(exp / "final.ie.id", hashlib.md5((exp / "final.ie").read_bytes(), usedforsecurity=False).hexdigest() + "\n")
    return f"i-vectors of dimension {extractor.dim} from {len(corpus)} utterances, {corpus.frames} frames"


@block_task(outputs=3, feats=False)
def _posteriors(part: Corpus, engine: Engine, feats: np.ndarray, gauss: np.ndarray, weight: np.ndarray, path: str,
                features: IvectorFeatures, ubm: AmDiagGmm | FullGmm, options: ExtractorOptions, posteriors: PosteriorOptions,
                before: list[str], offsets: np.ndarray, bar: Progress | None = None) -> None:
    """Fill in the extractor's features of every `subsample`-th frame of a block, and their posteriors."""
    step = options.subsample
    scaled = PosteriorOptions(posteriors.num_gselect, posteriors.min_post)
    scale = np.float32(posteriors.posterior_scale * step / scaled.posterior_scale)

    def work(number: int, x: np.ndarray, normalised: np.ndarray) -> None:
        rows = slice(part.offsets[number], part.offsets[number + 1])
        normalised = normalised[::step]
        feats[rows] = normalised if options.online_cmvn_iextractor else features.spliced(x, f"{path}, {part.utts[number]}")[::step]
        found = frame_posteriors(ubm, normalised, scaled)
        gauss[rows], weight[rows] = found.gauss, found.weight * scale

    _of_block(part, path, features, before, offsets, engine, work, bar)


def read_extractor(folder: PathLike, options: OnlineOptions, posteriors: PosteriorOptions, offline: bool = False) -> OnlineExtractor:
    """Read the directory of an extractor; raises UserError where its files are not of one training.

    Online, as in Kaldi, frames are divided by `final.dubm`; `offline` by `final.ubm`, where there is one.
    """
    path = Path(folder)
    features, ubm, extractor = IvectorFeatures.from_dir(path), read_ubm(path / "final.dubm"), IvectorExtractor.read(path / "final.ie")
    extractor.check_ubm(ubm, str(path))
    return OnlineExtractor(features, _ubm_of(path) if offline else ubm, extractor, options, posteriors, (path / NORMALISED_INPUT).is_file())


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


CLASSES.extend((ExtractorOptions, FullGmm, FullStats, IvectorExtractor, IvectorFeatures, IvectorStats, OnlineCmvnOptions, PosteriorOptions,
                Scatter))  # what goes to jobs and from them
