"""Speaker vectors of subspace models: for each speaker the v_s that makes his frames most likely.

With the posteriors g_tjmi of a speaker's frames, the auxiliary function is
    v . y - 1/2 v^T H v + sum_i gamma_si log w_si(v),
    y = sum_tjmi g_tjmi N_i^T Sigma_i^-1 (x_t - M_i v_jm),   H = sum_i gamma_si N_i^T Sigma_i^-1 N_i,
    w_si(v) = a_si exp(u_i . v) / sum over i' of the same,   a_si as in posteriors.py.
The last term is that of symmetric models; it is bounded by a quadratic function around the present v, and a step that does not raise the
whole is halved. Source: Povey et al., 2011, equations 48 to 50, 82 to 84; the report on symmetric models, section 5.1.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pykaldist.errors import UserError
from pykaldist.hmm.sgmm.frames import FrameTerms, SgmmScorer, Speakers
from pykaldist.hmm.sgmm.model import AmSgmm2, log_softmax
from pykaldist.hmm.sgmm.posteriors import Items, Posteriors, residuals
from pykaldist.hmm.sgmm.update import solve
from pykaldist.io.tables import output_archive, read_archive, write_matrix
from pykaldist.kernels import kernel

MIN_COUNT = 100.0  # frames that a speaker needs; with fewer his vector stays
_SWEEPS, _HALVINGS, _MAX_CONDITION = 5, 10, 1e4
SpeakerVectors = dict[str, np.ndarray]  # speaker -> (T,)


@dataclass
class SpeakerStats:
    """The statistics of N speakers, float64: `gamma` (N, I), `y` (N, T), and of symmetric models `a` (N, I), else of size 0.

    `numbers` (N,) ascending says which of all speakers they are. `log_likelihood` is that of all frames, `frames` the sum of their weights.
    """

    numbers: np.ndarray
    gamma: np.ndarray
    y: np.ndarray
    a: np.ndarray
    log_likelihood: float
    frames: float

    def __add__(self, other: SpeakerStats) -> SpeakerStats:
        numbers = np.union1d(self.numbers, other.numbers)

        def together(one: np.ndarray, two: np.ndarray) -> np.ndarray:
            if not one.size:
                return two
            result = np.zeros((len(numbers), one.shape[1]))
            result[np.searchsorted(numbers, self.numbers)] = one
            result[np.searchsorted(numbers, other.numbers)] += two
            return result

        return SpeakerStats(numbers, together(self.gamma, other.gamma), together(self.y, other.y), together(self.a, other.a),
                            self.log_likelihood + other.log_likelihood, self.frames + other.frames)

    def split(self, chosen: np.ndarray) -> tuple[SpeakerStats, SpeakerStats | None]:
        """The statistics of the speakers that are `chosen` (N,), and of the others, None where there are none."""
        def some(rows: np.ndarray) -> SpeakerStats:
            return SpeakerStats(self.numbers[rows], self.gamma[rows], self.y[rows], self.a[rows] if self.a.size else self.a, 0.0, 0.0)

        return some(chosen), None if chosen.all() else some(~chosen)

    @classmethod
    def of_frames(cls, scorer: SgmmScorer, feats: np.ndarray, terms: FrameTerms, speakers: Speakers, items: Items, numbers: np.ndarray,
                  target: SgmmScorer | None = None) -> SpeakerStats:
        """Sum up frames (T, D), divided by `scorer`, for the model `target` (default: the same); `speakers` are those of `numbers`."""
        model, count = (target or scorer).model, len(speakers.log_norms)
        found = Posteriors.of(scorer, terms, speakers, items, target)
        mine = found.gauss.ravel()[terms.pairs.order]
        rest = residuals(model, feats, terms, mine, found.expected.reshape(-1, model.phone_dim)[terms.pairs.order])
        speaker, gaussian = terms.speaker[terms.pairs.frame], terms.pairs.gaussian()
        gamma, sums = np.zeros((count, model.num_gauss)), np.zeros((count, model.num_gauss, model.dim))
        np.add.at(gamma, (speaker, gaussian), mine)
        _add_rows(rest, speaker, gaussian, sums)
        weighted = (model.precisions @ sums.transpose(1, 2, 0)).transpose(0, 2, 1)
        y = (weighted @ model.speaker_projections).sum(0)
        a = np.zeros((0, 0))
        if model.symmetric:
            a = found.speaker_substate / np.exp(speakers.log_norms.astype(np.float64)) @ model.gauss_weights
        return cls(numbers, gamma, y, a, found.log_likelihood, found.frames)


@kernel(nogil=True)
def _add_rows(rows: np.ndarray, speaker: np.ndarray, gaussian: np.ndarray, sums: np.ndarray) -> None:
    """Add each row to the sum of its speaker and Gaussian."""
    for p in range(len(rows)):
        for d in range(rows.shape[1]):
            sums[speaker[p], gaussian[p], d] += rows[p, d]


def estimate_vectors(model: AmSgmm2, stats: SpeakerStats, start: np.ndarray) -> tuple[np.ndarray, float]:
    """New vectors (N, T) from the present ones, and what they raise the auxiliary function by in all.

    A speaker with fewer than 100 frames keeps his.
    """
    h = model.speaker_projections.transpose(0, 2, 1) @ model.precisions @ model.speaker_projections
    vectors, gain = start.copy(), 0.0
    for number in np.flatnonzero(stats.gamma.sum(1) >= MIN_COUNT).tolist():
        speaker = _SpeakerFunction(model, stats, h, number)
        vectors[number] = speaker.maximum(start[number])
        gain += speaker.value(vectors[number]) - speaker.value(start[number])
    return vectors, gain


class _SpeakerFunction:
    """The auxiliary function of one speaker's vector."""

    def __init__(self, model: AmSgmm2, stats: SpeakerStats, h: np.ndarray, number: int) -> None:
        self._gamma, self._y = stats.gamma[number], stats.y[number]
        self._h = np.einsum("i,ist->st", self._gamma, h)
        self._u = model.speaker_weight_projections if model.symmetric else None
        self._log_a = np.log(np.maximum(stats.a[number], 1e-300)) if model.symmetric else None

    def _log_weights(self, vector: np.ndarray) -> np.ndarray:
        return log_softmax((self._u @ vector + self._log_a)[None])[0]

    def value(self, vector: np.ndarray) -> float:
        quadratic = vector @ self._y - 0.5 * vector @ self._h @ vector
        return float(quadratic + (self._gamma @ self._log_weights(vector) if self._u is not None else 0.0))

    def maximum(self, vector: np.ndarray) -> np.ndarray:
        """A vector whose value is no lower than that of `vector`."""
        if self._u is None:
            return solve(self._h[None], self._y[None], vector[None], _MAX_CONDITION)[0]
        best = self.value(vector)
        for _ in range(_SWEEPS):
            weights = self._gamma.sum() * np.exp(self._log_weights(vector))
            slope = self._y - self._h @ vector + (self._gamma - weights) @ self._u
            curvature = self._h + (self._u.T * weights) @ self._u
            step = solve(curvature[None], slope[None], np.zeros((1, len(vector))), _MAX_CONDITION)[0]
            for _ in range(_HALVINGS):
                if (found := self.value(vector + step)) >= best:
                    vector, best = vector + step, found
                    break
                step = step / 2
            else:
                break
        return vector


def read_speaker_vectors(folder: str | os.PathLike[str]) -> SpeakerVectors:
    """Read speaker -> vector from all `vecs.<job>` of a directory; raises UserError where there are none, or two of one."""
    paths = sorted(path for path in Path(folder).glob("vecs.*") if path.name.removeprefix("vecs.").isdigit())
    if not paths:
        raise UserError(f"{folder} has no vecs.1, speakers' vectors; give the directory of an alignment or a decoding by a subspace model.")
    vectors: SpeakerVectors = {}
    for path in paths:
        for speaker, vector in read_archive(path):
            if speaker in vectors:
                raise UserError(f"{path}, {speaker}: a second vector of this speaker; make the alignment or the decoding again "
                                "(steps/align_sgmm2.sh, steps/decode_sgmm2.sh).")
            if vector.ndim != 1 or vector.shape != next(iter(vectors.values()), vector).shape:
                raise UserError(f"{path}, {speaker}: expected vectors of one dimension, found shape {vector.shape}; make the alignment or "
                                "the decoding again (steps/align_sgmm2.sh, steps/decode_sgmm2.sh).")
            vectors[speaker] = vector
    return vectors


def write_speaker_vectors(path: str | os.PathLike[str], vectors: Iterable[tuple[str, np.ndarray]]) -> None:
    """Write a file `vecs.<job>`: (speaker, vector) pairs as an archive of float32."""
    with output_archive(path) as stream:
        for speaker, vector in vectors:
            stream.write(speaker.encode("utf-8") + b" ")
            write_matrix(stream, vector.astype(np.float32))
