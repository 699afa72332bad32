"""i-vectors of all that a speaker says, each utterance with the same one: for decoding when the recordings are complete.

The statistics (extractor.py) of a speaker's utterances are added up, frames times their weights; where their occupancies come to more than
`max_count`, they are scaled down to it, so that the prior counts more. The files are those of online i-vectors, with equal rows. Source:
Kaldi's steps/online/nnet2/extract_ivectors.sh and ivectorbin/ivector-extract.cc.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pykaldist.errors import ALIGNING, UserError
from pykaldist.feats.cmvn import cmvn_stats
from pykaldist.hmm.ivector.estimate import TrainingFrames, frame_offsets
from pykaldist.hmm.ivector.extractor import IvectorExtractor, unpacked
from pykaldist.hmm.ivector.features import stored_features
from pykaldist.hmm.ivector.online import OnlineExtractor
from pykaldist.hmm.ivector.posteriors import frame_posteriors
from pykaldist.io.datadir import DataDir
from pykaldist.io.tables import MatrixWriter
from pykaldist.options import option
from pykaldist.progress import Progress

FrameWeights = Mapping[str, np.ndarray]


@dataclass
class OfflineOptions:
    """Options of the extraction, by Kaldi's names."""

    ivector_period: int = option(10, "frames that a row of the i-vectors stands for")
    max_count: float = option(100.0, "count (frames times --posterior-scale) to which more is scaled down; 0: never")
    sub_speaker_frames: int = option(0, "speakers are split into parts of at least so many weighted frames; 0: never")

    def __post_init__(self) -> None:
        if self.ivector_period < 1:
            raise UserError(f"--ivector-period must be at least 1, found {self.ivector_period}.")
        if self.max_count < 0 or self.sub_speaker_frames < 0:
            raise UserError(f"--max-count and --sub-speaker-frames must not be negative, found {self.max_count:g} and "
                            f"{self.sub_speaker_frames}.")


def sub_speakers(utts: list[str], count_of: Callable[[str], float], least: float) -> list[list[str]]:
    """Split a speaker's utterances, in their order, into parts that each count at least `least`; 0: one part."""
    if not least:
        return [utts]
    parts: list[list[str]] = [[]]
    counts = [count_of(utt) for utt in utts]
    left, own = sum(counts), 0.0
    for utt, count in zip(utts, counts, strict=True):
        if own >= least and left >= least:
            parts.append([])
            own = 0.0
        parts[-1].append(utt)
        own, left = own + count, left - count
    return parts


def ivector_of(extractor: IvectorExtractor, occupancy: np.ndarray, sums: np.ndarray, max_count: float) -> np.ndarray:
    """The i-vector (K,) of occupancies (I,) and sums of features (I, D), less the prior's mean."""
    total = occupancy.sum()
    scale = max_count / total if 0 < max_count < total else 1.0
    linear = scale * np.tensordot(sums, extractor.linear_maps, 2)
    linear[0] += extractor.prior_offset
    precision = scale * unpacked(occupancy @ extractor.quadratic_maps, extractor.dim) + np.eye(extractor.dim)
    result = np.linalg.solve(precision, linear)
    result[0] -= extractor.prior_offset
    return result


def speaker_ivector(extract: OnlineExtractor, data: DataDir, utts: Iterable[str], max_count: float,
                    weights: FrameWeights | None = None) -> tuple[np.ndarray, dict[str, int]]:
    """The i-vector (K,) float32 of utterances of one speaker, whose CMVN goes on over them; and the frames of each."""
    extractor, heard, frames = extract.extractor, None, dict[str, int]()
    occupancy, sums = np.zeros(extractor.num_gauss), np.zeros((extractor.num_gauss, extractor.feat_dim))
    for utt in utts:
        x, where = stored_features(data, utt), f"{data.path}, {utt}"
        normalised = extract.features.normalised(x, where, heard)
        feats = normalised if extract.normalised_input else extract.features.spliced(x, where)
        posteriors = frame_posteriors(extract.ubm, normalised, extract.posteriors)
        if weights is not None:
            posteriors.weight *= _weights(weights, utt, len(x))[:, None].astype(np.float32)
        own_occupancy, own_sums = TrainingFrames(feats, frame_offsets([len(x)]), posteriors).sums(0, 1, extractor.num_gauss)
        occupancy, sums = occupancy + own_occupancy[0], sums + own_sums[0]
        heard = cmvn_stats([x]) if heard is None else heard + cmvn_stats([x])
        frames[utt] = len(x)
    return ivector_of(extractor, occupancy, sums, max_count).astype(np.float32), frames


def _weights(weights: FrameWeights, utt: str, frames: int) -> np.ndarray:
    if utt not in weights:
        raise UserError(f"{utt} has no weights of its frames; align or decode the same data directory ({ALIGNING}).")
    found = weights[utt]
    if found.shape != (frames,):
        raise UserError(f"{utt}: expected weights of {frames} frames, found {found.shape}; take an alignment whose frames are those of the "
                        "features, not of a network with frame subsampling.")
    return found


def extract_offline_part(data: DataDir, extract: OnlineExtractor, ivector_dir: Path, options: OfflineOptions,
                         weights: FrameWeights | None = None, job: int = 1, nj: int = 1, compress: bool = True) -> str:
    """Extract the i-vectors of job `job` of `nj` into ivector_online.JOB.ark and .scp; returns a line that says what came out."""
    wanted, base, lengths = set(data.part(job, nj)), ivector_dir / f"ivector_online.{job}", []

    def count_of(utt: str) -> float:
        return float(len(stored_features(data, utt)) if weights is None else weights[utt].sum() if utt in weights else 0)

    with Progress(f"i-vectors of {data.path.name}, job {job} of {nj}", len(wanted), "utt") as bar, \
            MatrixWriter(f"{base}.ark", f"{base}.scp", compression_method=2 if compress else 0) as writer:
        for speaker_utts in data.spk2utt.values():
            part = [utt for utt in speaker_utts if utt in wanted]
            for utts in sub_speakers(part, count_of, options.sub_speaker_frames) if part else []:
                ivector, frames = speaker_ivector(extract, data, utts, options.max_count, weights)
                lengths.append(float(np.linalg.norm(ivector)))
                for utt in utts:
                    writer.write(utt, np.tile(ivector, (-(-frames[utt] // options.ivector_period), 1)))
                    bar.update()
    return (f"i-vectors of {len(wanted)} utterances, one for each of {len(lengths)} speakers; their length is {np.mean(lengths):.2f} on "
            "average")
