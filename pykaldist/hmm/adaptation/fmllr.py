"""fMLLR (constrained MLLR): for each speaker the affine transform W = [A, b] that makes his features fit the model best.

With x+ = [x; 1] the log-likelihood of A x + b is, up to a constant,
    beta log |det A| + sum_d (w_d . k_d - 1/2 w_d^T G_d w_d),
    k_d = sum_t sum_g gamma_tg mu_gd / sigma_gd^2 x+_t,     G_d = sum_t sum_g gamma_tg / sigma_gd^2 x+_t x+_t^T,
w_d the rows of W, beta the frames. With the others fixed the best row is w_d = G_d^-1 (k_d + alpha c_d), c_d the cofactors of row d of A
with a 0 behind, and alpha the root of  alpha^2 c^T G^-1 c + alpha c^T G^-1 k = beta  that has the higher value; rows are updated in turn.
Source: M. J. F. Gales, "Maximum likelihood linear transformations for HMM-based speech recognition", Computer Speech and Language 12, 1998;
Kaldi's transform/fmllr-diag-gmm.cc.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pykaldist.errors import UserError
from pykaldist.feats.transforms import SpeakerTransforms, apply_transform
from pykaldist.hmm.gmm.aligned_frames import AlignedFrames
from pykaldist.hmm.gmm.engine import Engine
from pykaldist.hmm.gmm.gmm import AmDiagGmm
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.io.scratch import block_array
from pykaldist.kernels import kernel
from pykaldist.options import option

SWEEPS = 40
NO_SPEECH = "there is no frame of speech to estimate transforms from; check that transcripts and audio belong together."
UPDATE_TYPES = ("full", "diag", "offset", "none")


@dataclass
class FmllrOptions:
    """Options of fMLLR, by Kaldi's names."""

    fmllr_update_type: str = option("full", "full: any matrix; diag: a scale and an offset a dimension; offset: an offset alone; none",
                                    choices=UPDATE_TYPES)
    fmllr_min_count: float = option(500.0, "frames (of weight 1) that a speaker needs; with fewer he keeps the identity")
    silence_weight: float = option(0.0, "weight of frames of silence in the estimation")

    def __post_init__(self) -> None:
        if self.fmllr_update_type not in UPDATE_TYPES:
            raise UserError(f"--fmllr-update-type: expected one of {', '.join(UPDATE_TYPES)}, found {self.fmllr_update_type}.")
        if not 0 <= self.silence_weight <= 1:
            raise UserError(f"--silence-weight must be 0 to 1, found {self.silence_weight:g}.")

    def estimate(self, stats: FmllrStats) -> np.ndarray:
        """The transform (D, D + 1) float64 of a speaker; the identity where the frames are too few or do not vary."""
        return estimate_fmllr(stats, self)


@dataclass
class FmllrStats:
    """The statistics of fMLLR for one speaker: `beta`, `k` (D, D + 1) and `g` (D, D + 1, D + 1), float64."""

    beta: float
    k: np.ndarray
    g: np.ndarray

    @classmethod
    def of_frames(cls, feats: np.ndarray, expected: np.ndarray, beta: float, engine: Engine | None = None) -> FmllrStats:
        """Sum up the statistics of frames (T, D) with their expected parameters (T, 2 D) (`Engine.expected_parameters`).

        `beta` is the sum of their weights.
        """
        dim = feats.shape[1]
        x = np.concatenate([feats, np.ones((len(feats), 1), dtype=feats.dtype)], axis=1)
        return cls(beta, expected[:, :dim].T.astype(np.float64) @ x, (engine or Engine()).outer_products(x, expected[:, dim:]))

    def __add__(self, other: FmllrStats) -> FmllrStats:
        return FmllrStats(self.beta + other.beta, self.k + other.k, self.g + other.g)

    def objective(self, transform: np.ndarray) -> float:
        """The log-likelihood, up to a constant, of all frames under a transform (D, D + 1)."""
        square = transform[:, :-1]
        return float(self.beta * np.linalg.slogdet(square)[1] + (self.k * transform).sum()
                     - 0.5 * np.einsum("di,dij,dj->", transform, self.g, transform))


def identity(dim: int) -> np.ndarray:
    """The transform (dim, dim + 1) that changes nothing."""
    return np.eye(dim, dim + 1)


def compose(after: np.ndarray, before: np.ndarray) -> np.ndarray:
    """The affine transform (D, D + 1) that applies `before` and then `after`."""
    square = np.concatenate([before, np.eye(1, before.shape[1], before.shape[1] - 1)])
    return after @ square


def estimate_fmllr(stats: FmllrStats, options: FmllrOptions) -> np.ndarray:
    """Estimate the transform W (D, D + 1) float64; the identity where the frames are too few or do not vary."""
    dim = len(stats.k)
    transform = identity(dim)
    if options.fmllr_update_type == "none" or stats.beta < options.fmllr_min_count:
        return transform
    if options.fmllr_update_type == "full":
        try:
            inverses = np.linalg.inv(stats.g)
        except np.linalg.LinAlgError:
            return identity(dim)
        _update_rows(transform, stats.k, inverses, stats.beta, SWEEPS)
    else:
        # A scale a and an offset b a dimension: the maximum of beta log a + a k1 + b k2 - 1/2 (a^2 g11 + 2 a b g12 + b^2 g22).
        d = np.arange(dim)
        g11, g12, g22, k1, k2 = stats.g[d, d, d], stats.g[d, d, dim], stats.g[d, dim, dim], stats.k[d, d], stats.k[d, dim]
        scale = np.ones(dim)
        if options.fmllr_update_type == "diag":
            a, b = g11 - g12**2 / g22, k1 - g12 * k2 / g22
            scale = (b + np.sqrt(b * b + 4 * a * stats.beta)) / (2 * a)
        transform[d, d], transform[:, dim] = scale, (k2 - scale * g12) / g22
    return transform if np.isfinite(transform).all() and stats.objective(transform) >= stats.objective(identity(dim)) else identity(dim)


@dataclass
class SpeakerSums:
    """What some frames say of their speakers.

    `transforms` are those of speakers who have no other frames, `gain` what these raise the log-likelihood by; `sums` are the statistics of
    the other speakers, of whom those in `ended` have no frames after these; `weight` is that of all frames.
    """

    transforms: dict[str, np.ndarray]
    gain: float
    sums: dict[str, FmllrStats]
    ended: list[str]
    weight: float

    @classmethod
    def of_frames(cls, feats: np.ndarray, expected: np.ndarray, weights: np.ndarray, rows: Mapping[str, np.ndarray],
                  begun: Container[str], ended: Container[str], options: FmllrOptions, engine: Engine) -> SpeakerSums:
        """Sum up frames: a speaker's are `rows[speaker]` of `feats` (N, D), `expected` (N, 2 D) and `weights` (N,).

        Speakers in `begun` have none before these, those in `ended` none after.
        """
        speakers, gains = list(rows), np.zeros(len(rows))
        transforms: dict[str, np.ndarray] = {}
        sums: dict[str, FmllrStats] = {}

        def one(number: int) -> None:
            speaker = speakers[number]
            mine = rows[speaker]
            mine = mine[weights[mine] > 0]
            stats = FmllrStats.of_frames(feats[mine], expected[mine], float(weights[mine].sum(dtype=np.float64)), engine)
            if speaker in begun and speaker in ended:
                transforms[speaker], gains[number] = _estimate(stats, options)
            else:
                sums[speaker] = stats

        engine.for_each(len(speakers), one)
        return cls({speaker: transforms[speaker] for speaker in speakers if speaker in transforms}, float(gains.sum()),
                   {speaker: sums[speaker] for speaker in speakers if speaker in sums},
                   [speaker for speaker in speakers if speaker in sums and speaker in ended], float(weights.sum(dtype=np.float64)))


def _estimate(stats: FmllrStats, options: FmllrOptions) -> tuple[np.ndarray, float]:
    """A speaker's transform, and what it raises the log-likelihood by."""
    transform = options.estimate(stats)
    return transform, stats.objective(transform) - stats.objective(identity(len(stats.k)))


def estimate_parts(parts: Iterable[SpeakerSums], options: FmllrOptions, folder: Path | None = None) -> tuple[SpeakerTransforms, float]:
    """Make a transform for each speaker of what the parts of a corpus say; of speakers in several parts the statistics are added up.

    Returns them, which lie in a nameless file in `folder`, and what they raise the log-likelihood by, a frame (of weight 1). Raises
    UserError where no frame has a weight.
    """
    transforms = SpeakerTransforms(folder=folder)
    sums: dict[str, FmllrStats] = {}
    gain = weight = 0.0
    for part in parts:
        for speaker, transform in part.transforms.items():
            transforms.add(speaker, transform)
        gain, weight = gain + part.gain, weight + part.weight
        for speaker, stats in part.sums.items():
            sums[speaker] = sums[speaker] + stats if speaker in sums else stats
        for speaker in part.ended:
            transform, more = _estimate(sums.pop(speaker), options)
            transforms.add(speaker, transform)
            gain += more
    if not weight:
        raise UserError(NO_SPEECH)
    return transforms, gain / max(1.0, weight)


def speaker_rows(utts: Sequence[str], offsets: np.ndarray, utt2spk: Mapping[str, str]) -> dict[str, np.ndarray]:
    """The rows of each speaker in a matrix of features whose rows `offsets[n]:offsets[n + 1]` are utterance n's, in this order."""
    parts: dict[str, list[np.ndarray]] = {}
    for number, utt in enumerate(utts):
        parts.setdefault(utt2spk[utt], []).append(np.arange(offsets[number], offsets[number + 1]))
    return {speaker: np.concatenate(rows) for speaker, rows in parts.items()}


def estimate_speakers(feats: np.ndarray, expected: np.ndarray, weights: np.ndarray, rows: Mapping[str, np.ndarray], options: FmllrOptions,
                      engine: Engine | None = None) -> tuple[dict[str, np.ndarray], float]:
    """Estimate a transform for each speaker; returns them, and what they raise the log-likelihood by, a frame (of weight 1).

    A speaker's frames are `rows[speaker]` of `feats` (N, D), `expected` (N, 2 D) and `weights` (N,).
    """
    found = SpeakerSums.of_frames(feats, expected, weights, rows, rows, rows, options, engine or Engine())
    return found.transforms, found.gain / max(1.0, found.weight)


def speech_weights(tids: np.ndarray, model: TransitionModel, silence_phones: Sequence[int], silence_weight: float) -> np.ndarray:
    """The weight of each frame, float32: 0 where `tids` is, `silence_weight` in silence, else 1."""
    weights = (tids > 0).astype(np.float32)
    weights[np.isin(model.tid2phone[tids], silence_phones)] *= silence_weight
    return weights


def expected_aligned(gmm: AmDiagGmm, feats: np.ndarray, tids: np.ndarray, weights: np.ndarray, model: TransitionModel, engine: Engine,
                     target: AmDiagGmm | None = None) -> np.ndarray:
    """The expected parameters (N, 2 D) of frames aligned by `tids` (0: left out), times their weights.

    The frames are divided among the Gaussians by `gmm`; the parameters are those of `target`, its twin, if given.
    """
    if not weights.any():
        return np.zeros((len(feats), 2 * gmm.dim), np.float32)
    expected = engine.expected_parameters(gmm, feats, AlignedFrames.group(np.where(weights > 0, tids, 0), model),
                                          None if target is None else target.projection)
    if ((weights > 0) & (weights < 1)).any():
        expected *= weights[:, None]
    return expected


def transformed(feats: np.ndarray, rows: Mapping[str, np.ndarray], transforms: Mapping[str, np.ndarray]) -> np.ndarray:
    """The frames of all speakers, each through the speaker's transform: (N, D) float32."""
    result = block_array(feats.shape, feats.dtype)
    for speaker, mine in rows.items():
        result[mine] = apply_transform(feats[mine], transforms[speaker], f"fMLLR transform of {speaker}")
    return result


@kernel(nogil=True)
def _update_rows(transform: np.ndarray, k: np.ndarray, inverses: np.ndarray, beta: float, sweeps: int) -> None:
    dim = len(k)
    cofactor = np.zeros(dim + 1)
    for _ in range(sweeps):
        inverse = np.linalg.inv(np.ascontiguousarray(transform[:, :dim]))
        for d in range(dim):
            cofactor[:dim] = inverse[:, d]
            towards = inverses[d] @ cofactor
            e1, e2 = cofactor @ towards, k[d] @ towards
            root = np.sqrt(e2 * e2 + 4.0 * e1 * beta)
            best, alpha = -np.inf, 0.0
            for sign in (1.0, -1.0):
                candidate = (-e2 + sign * root) / (2.0 * e1)
                value = beta * np.log(abs(candidate * e1 + e2)) - 0.5 * candidate * candidate * e1
                if value > best:
                    best, alpha = value, candidate
            row = inverses[d] @ k[d] + alpha * towards
            change = (row[:dim] - transform[d, :dim]) @ inverse
            transform[d] = row
            inverse -= np.outer(cofactor[:dim], change / (1.0 + change[d]))
