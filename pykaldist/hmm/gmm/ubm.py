"""The UBM: one mixture of diagonal Gaussians for all frames, made from a GMM system's or from frames alone, and trained by EM.

A system's Gaussians, each with its share of the frames, are merged bottom-up: within each pdf until there are about `intermediate` in all
(more of them where there are more frames), then among all. It is always the two whose union costs least log-likelihood, as in
`AmDiagGmm.merged`. Without a system the means are random frames, the variance is that of all frames, and Gaussians are split while EM goes
on. Source: Kaldi's init-ubm and steps/train_diag_ubm.sh; gmm-global-init-from-feats and steps/online/nnet2/train_diag_ubm.sh.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from pykaldist.errors import UserError
from pykaldist.hmm.gmm.aligned_frames import AlignedFrames
from pykaldist.hmm.gmm.engine import Engine
from pykaldist.hmm.gmm.gmm import AmDiagGmm, GmmStats, split_targets
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.io.atomic import atomic_open
from pykaldist.io.kaldi import KaldiReader, KaldiWriter
from pykaldist.options import option
from pykaldist.progress import progress

FRAMES_OF_GAUSSIAN = 10  # of the first training of a UBM, at least


@dataclass
class UbmOptions:
    """Options of the UBM, by Kaldi's names."""

    num_iters: int = option(3, "iterations of EM")
    silence_weight: float = option(1.0, "weight of frames of silence")
    intermediate: int = option(2000, "Gaussians after the merging within pdfs")

    def __post_init__(self) -> None:
        if self.num_iters < 0:
            raise UserError(f"--num-iters must not be negative, found {self.num_iters}.")
        if not 0 <= self.silence_weight <= 1:
            raise UserError(f"--silence-weight must be 0 to 1, found {self.silence_weight:g}.")


def initial_ubm(gmm: AmDiagGmm, pdf_occupancy: np.ndarray, num_gauss: int, intermediate: int) -> AmDiagGmm:
    """The mixture of `num_gauss` Gaussians that stand for those of `gmm`, whose pdfs have `pdf_occupancy` frames.

    Raises UserError where the system has fewer Gaussians.
    """
    if not 1 <= num_gauss <= gmm.num_gauss:
        raise UserError(f"the system has {gmm.num_gauss} Gaussians; a UBM of {num_gauss} cannot be made of them.")
    intermediate = max(intermediate, 2 * num_gauss)
    if intermediate < gmm.num_gauss:
        targets = split_targets(pdf_occupancy, max(intermediate, gmm.num_pdfs), min_count=0.0)
        gmm = gmm.merged(np.minimum(targets, np.diff(gmm.offsets)))
    weights = gmm.weights.astype(np.float64) * np.repeat(pdf_occupancy, np.diff(gmm.offsets))
    kept = np.flatnonzero(weights > 0)
    variance = 1.0 / gmm.inv_vars[kept].astype(np.float64)
    mean = gmm.means_invvars[kept] * variance
    weights = weights[kept]
    sums = np.concatenate([weights[:, None] * mean, weights[:, None] * (variance + mean * mean)], axis=1)
    alive = _merge(weights, sums, num_gauss)
    weights, sums = weights[alive], sums[alive]
    mean, square = np.split(sums / weights[:, None], 2, axis=1)
    inv_vars = 1.0 / (square - mean * mean)
    return AmDiagGmm(np.array([0, len(weights)]), weights / weights.sum(), mean * inv_vars, inv_vars)


def weights_of_tids(model: TransitionModel, silence_phones: Sequence[int], silence_weight: float) -> np.ndarray:
    """The weight of a frame of each transition_id, float32: 1, or that of silence; 0 for transition_id 0, which stands for none."""
    weights = np.where(np.isin(model.tid2phone, silence_phones), silence_weight, 1.0).astype(np.float32)
    weights[0] = 0.0
    return weights


def occupancy_of_pdfs(labels: Iterable[np.ndarray], model: TransitionModel) -> np.ndarray:
    """How many frames each pdf has (float64), of transition_ids that come some at a time."""
    counts = np.zeros(len(model.tid2pdf))
    for tids in labels:
        counts += np.bincount(tids, minlength=len(counts))
    return np.bincount(model.tid2pdf[1:], counts[1:], model.num_pdfs)


def ubm_of_frames(feats: np.ndarray, num_gauss: int, first_num_gauss: int, num_iters: int, min_gaussian_weight: float, engine: Engine,
                  rng: np.random.Generator, log: Callable[[str], None] = print) -> AmDiagGmm:
    """Train a mixture of `num_gauss` Gaussians on frames (N, D) alone, from `first_num_gauss` whose means are random frames.

    The heaviest Gaussians are split in the first half of the iterations, and later ones where some were lost. Raises UserError where there
    are too few frames.
    """
    if not 1 <= first_num_gauss <= num_gauss:
        raise UserError(f"a UBM of {num_gauss} Gaussians cannot begin with {first_num_gauss}; ask for 1 to {num_gauss}.")
    if len(feats) < FRAMES_OF_GAUSSIAN * num_gauss:
        raise UserError(f"a UBM of {num_gauss} Gaussians needs {FRAMES_OF_GAUSSIAN} frames for each of them, found {len(feats)} in all; "
                        "give more data.")
    inv_vars = 1.0 / np.maximum(feats.var(axis=0, dtype=np.float64), 1e-10)
    means = feats[rng.choice(len(feats), first_num_gauss, replace=False)]
    ubm = AmDiagGmm(np.array([0, first_num_gauss]), np.full(first_num_gauss, 1 / first_num_gauss), means * inv_vars,
                    np.tile(inv_vars, (first_num_gauss, 1)))
    frames = _all_frames(len(feats))
    step = -(-(num_gauss - first_num_gauss) // max(1, num_iters // 2))
    target = first_num_gauss
    for iteration in progress(range(num_iters), "first training of the UBM", unit="iteration"):
        stats, log_likelihood = engine.accumulate(ubm, feats, frames)
        log(f"first training, iteration {iteration}: log-likelihood {log_likelihood:.4f} a frame, {len(feats)} frames, {ubm.num_gauss} "
            "Gaussians")
        ubm = ubm.updated(stats, min_gaussian_weight=min_gaussian_weight)
        target = min(num_gauss, target + step)
        ubm = ubm.split(np.array([target]), rng, 0.1)
    return ubm


def _all_frames(count: int) -> AlignedFrames:
    """Frames 0 to `count` - 1, all of the one pdf of a UBM."""
    return AlignedFrames(np.arange(count), np.array([0, count]), np.zeros(1))


@dataclass
class UbmStats:
    """The statistics of frames under a UBM, the sum of their weights, and that of their weighted log-likelihoods."""

    gmm: GmmStats
    weight: float
    log_likelihood: float

    def __add__(self, other: UbmStats) -> UbmStats:
        return UbmStats(self.gmm + other.gmm, self.weight + other.weight, self.log_likelihood + other.log_likelihood)

    @classmethod
    def of_frames(cls, ubm: AmDiagGmm, feats: np.ndarray, weights: np.ndarray, engine: Engine) -> UbmStats | None:
        """Sum up frames (n, D) float32 with their weights (n,); None where none has a weight."""
        rows = np.flatnonzero(weights > 0)
        if not len(rows):
            return None
        frames = AlignedFrames(rows, np.array([0, len(rows)]), np.zeros(1), weights[rows])
        found, average = engine.accumulate(ubm, feats, frames)
        return cls(found, frames.total_weight, average * frames.total_weight)


def train_ubm(ubm: AmDiagGmm, statistics: Callable[[AmDiagGmm], UbmStats | None], num_iters: int, log: Callable[[str], None] = print,
              min_gaussian_weight: float = 1e-5, remove_low_count: bool = True) -> AmDiagGmm:
    """Train the mixture by EM; `statistics` gives those of all frames under a mixture, None where no frame has a weight.

    Gaussians with too few frames go in the last iteration, unless `remove_low_count` is false.
    """
    for iteration in range(num_iters):
        found = statistics(ubm)
        if found is None:
            raise UserError("no frame has a weight; give a --silence-weight above 0, or look whether the alignment is all silence.")
        log(f"iteration {iteration}: log-likelihood {found.log_likelihood / found.weight:.4f} a frame, {found.weight:.0f} frames, "
            f"{ubm.num_gauss} Gaussians")
        ubm = ubm.updated(found.gmm, min_gaussian_weight=min_gaussian_weight,
                          remove_low_count=remove_low_count and iteration == num_iters - 1)
    return ubm


def read_ubm(path: str | os.PathLike[str]) -> AmDiagGmm:
    """Read `final.dubm`, Kaldi's file of one mixture, as a model of one pdf."""
    return AmDiagGmm.read_mixture(KaldiReader.open(path))


def write_ubm(path: str | os.PathLike[str], ubm: AmDiagGmm) -> None:
    """Write `final.dubm`."""
    with atomic_open(path, "wb") as stream:
        ubm.write_mixture(KaldiWriter(stream))


def _log_volumes(weights: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """-w log |S| of Gaussians of weights w (n,) that have the sums (n, 2 D) of their first two moments."""
    mean, square = np.split(sums / weights[:, None], 2, axis=1)
    return -weights * np.log(np.maximum(square - mean * mean, 1e-10)).sum(1)


def _merge(weights: np.ndarray, sums: np.ndarray, target: int) -> np.ndarray:
    """Merge Gaussians in place until `target` are left, always the cheapest two; returns the numbers of those that are left.

    Each remembers which of the later ones is the cheapest to be merged with; only who remembered one of the two looks again.
    """
    count = len(weights)
    single, alive = _log_volumes(weights, sums), np.ones(count, bool)
    least, partner = np.full(count, np.inf), np.full(count, -1)

    def costs(gauss: int, others: np.ndarray) -> np.ndarray:
        """Twice the log-likelihood that a union with each of `others` costs."""
        return single[gauss] + single[others] - _log_volumes(weights[gauss] + weights[others], sums[gauss] + sums[others])

    def look(gauss: int) -> None:
        later = gauss + 1 + np.flatnonzero(alive[gauss + 1:])
        least[gauss], partner[gauss] = np.inf, -1
        if len(later):
            found = costs(gauss, later)
            best = int(found.argmin())
            least[gauss], partner[gauss] = found[best], later[best]

    for gauss in range(count):
        look(gauss)
    for _ in range(count - target):
        one = int(least.argmin())
        two = int(partner[one])
        weights[one] += weights[two]
        sums[one] += sums[two]
        alive[two], least[two] = False, np.inf
        single[one] = _log_volumes(weights[one:one + 1], sums[one:one + 1])[0]
        for gauss in np.flatnonzero(alive & ((partner == one) | (partner == two) | (np.arange(count) == one))).tolist():
            look(gauss)
        before = np.flatnonzero(alive[:one])
        found = costs(one, before)
        nearer = found < least[before]
        least[before[nearer]], partner[before[nearer]] = found[nearer], one
    return np.flatnonzero(alive)
