"""Frames under a subspace model: their selected Gaussians, what each of these says of vectors, and the log-likelihoods of pdfs.

For Gaussian i among the selected ones of frame t, with x_ti = x_t - N_i v_s and Sigma_i^-1 = L_i L_i^T,

    z_ti = M_i^T Sigma_i^-1 x_ti,        n_ti = u_i . v_s - 1/2 |L_i^T x_ti|^2,
    log p(x_t, i | j, m, s) = n_ti + n_jmi + z_ti . v_jm - log sum over i' of w_jmi' exp(u_i' . v_s),

so that beyond z and n a substate costs S products a Gaussian (Povey et al., 2011, equations 33 to 37). Frames are sorted by Gaussian, so
that z of all of them are one matrix product a Gaussian (`Pairs`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pykaldist.hmm.sgmm.full_gmm import GaussianSelector, Pairs, by_gaussian, cholesky
from pykaldist.hmm.sgmm.model import AmSgmm2
from pykaldist.kernels import kernel

_CHUNK = 32  # frames at a time in likelihoods: their scores of all substates stay in the cache
_FASTMATH = {"reassoc", "contract"}


@dataclass
class Speakers:
    """Some speakers' vectors, and what follows from them for a model, float32.

    `vectors` (N, T), 0 for speakers without one; `shifts` N_i v_s (N, I, D); `log_gains` u_i . v_s (N, I); `log_norms` (N, K): the
    logarithm of the sum of a substate's weights times these gains. Where no speaker has a vector all is of size 0 but `log_norms`, which
    is 0.
    """

    vectors: np.ndarray
    shifts: np.ndarray
    log_gains: np.ndarray
    log_norms: np.ndarray

    @classmethod
    def without_vectors(cls, model: AmSgmm2, count: int = 1) -> Speakers:
        """`count` speakers whose vectors are 0."""
        none = np.zeros((0, 0), np.float32)
        return cls(none, np.zeros((0, 0, 0), np.float32), none, np.zeros((count, model.num_substates), np.float32))

    @classmethod
    def of(cls, model: AmSgmm2, vectors: np.ndarray) -> Speakers:
        """Speakers with these vectors (N, T)."""
        shifts = np.einsum("idt,nt->nid", model.speaker_projections, vectors, optimize=True)
        if model.symmetric:
            gains = vectors @ model.speaker_weight_projections.T
            highest = gains.max(1, keepdims=True)
            norms = highest + np.log(np.exp(gains - highest) @ model.gauss_weights.T)
        else:
            gains, norms = np.zeros((len(vectors), model.num_gauss)), np.zeros((len(vectors), model.num_substates))
        return cls(*(np.ascontiguousarray(values, np.float32) for values in (vectors, shifts, gains, norms)))

    @property
    def any(self) -> bool:
        return len(self.vectors) > 0


@dataclass
class FrameTerms:
    """What the selected Gaussians `selected` (T, G) of frames say: `z` (T, G, S), `n` (T, G), and by `pairs` `x` (P, D).

    `speaker` (T,) is each frame's.
    """

    selected: np.ndarray
    speaker: np.ndarray
    pairs: Pairs
    x: np.ndarray
    z: np.ndarray
    n: np.ndarray


class SgmmScorer:
    """A subspace model, prepared for scoring frames."""

    def __init__(self, model: AmSgmm2) -> None:
        self.model = model
        roots = cholesky(model.precisions)
        self._roots = roots.astype(np.float32)
        self._projections = np.ascontiguousarray(roots.transpose(0, 2, 1) @ model.phone_projections, np.float32)
        self.vectors = model.vectors.astype(np.float32)
        self._by_gaussian = np.ascontiguousarray(model.normalizers.T)
        with np.errstate(divide="ignore"):
            self.log_substate_weights = np.log(model.substate_weights).astype(np.float32)
        self.offsets, self.weight_offsets = model.offsets.astype(np.int64), model.weight_offsets.astype(np.int64)
        self.pdf2group = model.pdf2group.astype(np.int64)

    def selector(self, count: int = 15) -> GaussianSelector:
        """The selection of `count` Gaussians a frame."""
        return GaussianSelector(self.model.ubm, self.model.diagonal, count, max(50, count))

    def terms(self, feats: np.ndarray, selected: np.ndarray, speakers: Speakers, speaker: np.ndarray | None = None) -> FrameTerms:
        """What the selected Gaussians (T, G) of frames (T, D) say, whose speakers are rows `speaker` (T,) of `speakers`; None: row 0."""
        pairs = Pairs.of(selected, self.model.num_gauss)
        x = feats[pairs.frame]
        speaker = np.zeros(len(feats), np.int64) if speaker is None else speaker
        if speakers.any:
            x -= speakers.shifts[speaker[pairs.frame], pairs.gaussian()]
        rows = by_gaussian(x, pairs.bounds, self._roots)
        n = -0.5 * np.einsum("pd,pd->p", rows, rows)
        if speakers.any:
            n += speakers.log_gains[speaker[pairs.frame], pairs.gaussian()]
        z = by_gaussian(rows, pairs.bounds, self._projections)
        return FrameTerms(selected, speaker, pairs, x, pairs.unsorted(z).reshape(*selected.shape, -1),
                          pairs.unsorted(n).reshape(selected.shape))

    def loglikes(self, terms: FrameTerms, speakers: Speakers, pdfs: np.ndarray | None = None) -> np.ndarray:
        """Log-likelihoods (T, num_pdfs) float32 of frames for all pdfs, or for those listed, in that order."""
        pdfs = np.arange(self.model.num_pdfs) if pdfs is None else np.asarray(pdfs, np.int64)
        groups, of_pdf = np.unique(self.pdf2group[pdfs], return_inverse=True)
        sizes = self.offsets[groups + 1] - self.offsets[groups]
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        substates = np.arange(offsets[-1]) + np.repeat(self.offsets[groups] - offsets[:-1], sizes)
        whole = len(substates) == len(self.vectors)
        vectors = self.vectors if whole else self.vectors[substates]
        normalizers = self._by_gaussian if whole else np.ascontiguousarray(self._by_gaussian[:, substates])
        norms = speakers.log_norms if whole else np.ascontiguousarray(speakers.log_norms[:, substates])
        result = np.empty((len(terms.z), len(pdfs)), np.float32)
        for start in range(0, len(result), _CHUNK):
            part = slice(start, start + _CHUNK)
            scores = terms.z[part].reshape(-1, terms.z.shape[2]) @ vectors.T
            highest = np.empty((len(terms.z[part]), len(groups)), np.float32)
            _add_and_subtract_max(scores, normalizers, norms, terms.selected[part], terms.n[part], terms.speaker[part], offsets, highest)
            np.exp(scores, out=scores)
            _mix(scores, terms.selected.shape[1], offsets, of_pdf, self.weight_offsets[pdfs], self.model.substate_weights, highest,
                 result[part])
        return result


@kernel(nogil=True, fastmath=_FASTMATH)
def _add_and_subtract_max(scores: np.ndarray, normalizers: np.ndarray, norms: np.ndarray, selected: np.ndarray, n: np.ndarray,
                          speaker: np.ndarray, offsets: np.ndarray, highest: np.ndarray) -> None:
    """Complete the scores (T G, K) of frames, and take from those of each group of substates the highest (T, groups) of the frame."""
    for t in range(selected.shape[0]):
        norm = norms[speaker[t]]
        for g in range(selected.shape[1]):
            row, own = scores[t * selected.shape[1] + g], normalizers[selected[t, g]]
            for k in range(len(row)):
                row[k] += own[k] - norm[k] + n[t, g]
        for j in range(len(offsets) - 1):
            most = np.float32(-np.inf)
            for g in range(selected.shape[1]):
                row = scores[t * selected.shape[1] + g]
                for k in range(offsets[j], offsets[j + 1]):
                    most = max(most, row[k])
            highest[t, j] = most
            for g in range(selected.shape[1]):
                row = scores[t * selected.shape[1] + g]
                for k in range(offsets[j], offsets[j + 1]):
                    row[k] -= most


@kernel(nogil=True, fastmath=_FASTMATH)
def _mix(likelihoods: np.ndarray, num_selected: int, offsets: np.ndarray, group_of_pdf: np.ndarray, first_weight: np.ndarray,
         weights: np.ndarray, highest: np.ndarray, result: np.ndarray) -> None:
    """The log-likelihoods of pdfs from those of Gaussians in substates, summed up over Gaussians first."""
    sums = np.empty(likelihoods.shape[1], np.float32)
    for t in range(len(result)):
        sums[:] = 0.0
        for g in range(num_selected):
            row = likelihoods[t * num_selected + g]
            for k in range(len(sums)):
                sums[k] += row[k]
        for p in range(result.shape[1]):
            j = group_of_pdf[p]
            total = 0.0
            for m in range(offsets[j + 1] - offsets[j]):
                total += weights[first_weight[p] + m] * sums[offsets[j] + m]
            result[t, p] = highest[t, j] + np.log(max(total, 1e-35))
