"""The E-step of subspace models: posteriors of substates and Gaussians, and the sums that parameters and vectors are estimated from.

With g_tjmi the posterior of substate m of group j and Gaussian i in frame t (times the weight of pdf and frame), x_ti and z_ti as in
frames.py:

    gamma_jmi = sum_t g_tjmi,   y_jm = sum_ti g_tjmi z_ti,   Y_i = sum_tjm g_tjmi x_ti v_jm^T,   S_i = sum_tjm g_tjmi x_ti x_ti^T,
    Z_i = sum_tjm g_tjmi (x_t - M_i v_jm) v_s^T,             R_i = sum_s gamma_si v_s v_s^T,

and of a symmetric model, with b_si = exp(u_i . v_s), d_jms = sum_i w_jmi b_si, o_jms the frames of a substate and a speaker,
    a_jmi = sum_s o_jms b_si / d_jms,             a_si = sum_jm o_jms w_jmi / d_jms,
    t_i = sum_s (gamma_si - a_si b_si) v_s,       U_i = sum_s a_si b_si v_s v_s^T.
Of a frame only its posteriors and its expected vectors e_ti = sum_jm g_tjmi v_jm go further: all sums with x_t are products of matrices,
one a Gaussian. Source: Povey et al., 2011, equations 38 to 50; the report on symmetric models, equations 40, 53 and 54.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TypeVar

import numpy as np

from pykaldist.hmm.sgmm.frames import FrameTerms, SgmmScorer, Speakers
from pykaldist.hmm.sgmm.full_gmm import add_products
from pykaldist.hmm.sgmm.model import AmSgmm2
from pykaldist.kernels import kernel

_FASTMATH = {"reassoc", "contract"}


@dataclass
class Items:
    """What frames are aligned with: frame `frame[n]` has pdf `pdf[n]` with `weight[n]` (float32)."""

    frame: np.ndarray
    pdf: np.ndarray
    weight: np.ndarray

    @classmethod
    def aligned(cls, pdfs: np.ndarray) -> Items:
        """Each frame has one pdf, or none where that is below 0."""
        frame = np.flatnonzero(pdfs >= 0)
        return cls(frame, pdfs[frame].astype(np.int64), np.ones(len(frame), np.float32))

    def part(self, first: int, end: int) -> Items:
        """Those of frames `first` to `end` - 1, whose numbers begin at 0 then; frames must be sorted."""
        rows = slice(*np.searchsorted(self.frame, [first, end]).tolist())
        return Items(self.frame[rows] - first, self.pdf[rows], self.weight[rows])


@dataclass
class Posteriors:
    """The posteriors of some frames: `gauss` (T, G) of the selected Gaussians, `expected` (T, G, S) the vectors e_ti; sums over them.

    `gamma` (K, I), `y` (K, S), `weights` of the pdfs' substates, `speaker_substate` (N, K) float64; `log_likelihood` and `frames` are sums
    with the items' weights.
    """

    gauss: np.ndarray
    expected: np.ndarray
    gamma: np.ndarray
    y: np.ndarray
    weights: np.ndarray
    speaker_substate: np.ndarray
    log_likelihood: float
    frames: float

    @classmethod
    def of(cls, scorer: SgmmScorer, terms: FrameTerms, speakers: Speakers, items: Items, target: SgmmScorer | None = None,
           target_terms: FrameTerms | None = None) -> Posteriors:
        """Divide the items among substates and Gaussians by `scorer`; y and e are of another model and its terms, where these are given."""
        frames, selected = terms.selected.shape
        model = scorer.model
        gauss = np.zeros((frames, selected), np.float32)
        expected = np.zeros((frames, selected, model.phone_dim), np.float32)
        gamma, y = np.zeros((model.num_substates, model.num_gauss)), np.zeros((model.num_substates, model.phone_dim))
        weights, by_speaker = np.zeros(len(model.substate_weights)), np.zeros((len(speakers.log_norms), model.num_substates))
        loglikes = np.zeros(len(items.frame))
        _posteriors(items.frame, items.pdf, items.weight, terms.selected, terms.z, terms.n, terms.speaker, scorer.vectors,
                    model.normalizers, speakers.log_norms, scorer.log_substate_weights, scorer.pdf2group, scorer.offsets,
                    scorer.weight_offsets, (target_terms or terms).z, (target or scorer).vectors, gauss, expected, gamma, y, weights,
                    by_speaker, loglikes)
        return cls(gauss, expected, gamma, y, weights, by_speaker, float(items.weight @ loglikes),
                   float(items.weight.sum(dtype=np.float64)))


S = TypeVar("S", bound="Sums")


@dataclass
class Sums:
    """Statistics that are sums over frames: those of two parts of a corpus add up, field by field."""

    def __add__(self: S, other: S) -> S:
        return type(self)(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))


@dataclass
class SgmmStats(Sums):
    """The statistics of a subspace model, all float64, by the names of the paper; those of parameters that it lacks have size 0.

    `gamma` (K, I), `y` (K, S), `gamma_c` as `substate_weights`, `big_y` Y (I, D, S), `big_s` S (I, D, D), `big_z` Z (I, D, T), `big_r` R
    (I, T, T), `a` (K, I), `t` (I, T), `big_u` U (I, T, T).
    """

    gamma: np.ndarray
    y: np.ndarray
    gamma_c: np.ndarray
    big_y: np.ndarray
    big_s: np.ndarray
    big_z: np.ndarray
    big_r: np.ndarray
    a: np.ndarray
    t: np.ndarray
    big_u: np.ndarray
    log_likelihood: float
    frames: float

    @property
    def gamma_i(self) -> np.ndarray:
        """The frames of each Gaussian (I,)."""
        return self.gamma.sum(0)

    def pdf_occupancy(self, model: AmSgmm2) -> np.ndarray:
        """The frames of each pdf."""
        return np.add.reduceat(self.gamma_c, model.weight_offsets[:-1])

    @classmethod
    def of_frames(cls, scorer: SgmmScorer, feats: np.ndarray, terms: FrameTerms, speakers: Speakers, items: Items,
                  target: SgmmScorer | None = None, target_terms: FrameTerms | None = None) -> SgmmStats:
        """Sum up frames (T, D), divided by `scorer`; sums are for the model `target` and its terms, where these are given."""
        found = Posteriors.of(scorer, terms, speakers, items, target, target_terms)
        model, own = (target or scorer).model, target_terms or terms
        mine = found.gauss.ravel()[own.pairs.order]
        expected = found.expected.reshape(-1, model.phone_dim)[own.pairs.order]
        count, dim, phone_dim = model.phone_projections.shape
        big_y, big_s = np.zeros((count, dim, phone_dim)), np.zeros((count, dim, dim))
        add_products(own.x, expected, own.pairs.bounds, big_y)
        add_products(own.x * mine[:, None], own.x, own.pairs.bounds, big_s)
        none, nothing = np.zeros((0, 0)), np.zeros((0, 0, 0))
        stats = cls(found.gamma, found.y, found.weights, big_y, big_s, nothing, nothing, none, none, nothing, found.log_likelihood,
                    found.frames)
        if speakers.any and target is None:
            stats._add_speakers(model, feats, own, speakers, found, mine, expected)
        return stats

    def _add_speakers(self, model: AmSgmm2, feats: np.ndarray, terms: FrameTerms, speakers: Speakers, found: Posteriors, mine: np.ndarray,
                      expected: np.ndarray) -> None:
        """Set the sums that speakers' projections are estimated from."""
        vectors, frame = speakers.vectors, terms.pairs.frame
        speaker = terms.speaker[frame]
        rest = residuals(model, feats, terms, mine, expected)
        self.big_z = np.zeros(model.speaker_projections.shape)
        add_products(rest, vectors[speaker], terms.pairs.bounds, self.big_z)
        occupancy = np.zeros((len(vectors), model.num_gauss))
        np.add.at(occupancy, (speaker, terms.pairs.gaussian()), mine)
        v = vectors.astype(np.float64)
        self.big_r = np.einsum("ni,ns,nt->ist", occupancy, v, v, optimize=True)
        if model.symmetric:
            gains = np.exp(speakers.log_gains.astype(np.float64))
            share = found.speaker_substate / np.exp(speakers.log_norms.astype(np.float64))
            self.a = share.T @ gains
            with_gains = (share @ model.gauss_weights) * gains
            self.t = (occupancy - with_gains).T @ v
            self.big_u = np.einsum("ni,ns,nt->ist", with_gains, v, v, optimize=True)


def residuals(model: AmSgmm2, feats: np.ndarray, terms: FrameTerms, mine: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """What the phone projections leave of each pair's frame: sum_jm g_tjmi (x_t - M_i v_jm), (P, D) float32."""
    rest = feats[terms.pairs.frame] * mine[:, None]
    _subtract_means(expected, np.ascontiguousarray(model.phone_projections.transpose(0, 2, 1), np.float32), terms.pairs.bounds, rest)
    return rest


@kernel(nogil=True)
def _subtract_means(expected: np.ndarray, projections: np.ndarray, bounds: np.ndarray, rest: np.ndarray) -> None:
    for i in range(len(projections)):
        first, end = bounds[i], bounds[i + 1]
        if end > first:
            rest[first:end] -= np.dot(expected[first:end], projections[i])


@kernel(nogil=True, fastmath=_FASTMATH)
def _posteriors(frame: np.ndarray, pdf: np.ndarray, weight: np.ndarray, selected: np.ndarray, z: np.ndarray, n: np.ndarray,
                speaker: np.ndarray, vectors: np.ndarray, normalizers: np.ndarray, norms: np.ndarray, log_weights: np.ndarray,
                pdf2group: np.ndarray, offsets: np.ndarray, weight_offsets: np.ndarray, target_z: np.ndarray, target_vectors: np.ndarray,
                gauss: np.ndarray, expected: np.ndarray, gamma: np.ndarray, y: np.ndarray, weights: np.ndarray, by_speaker: np.ndarray,
                loglikes: np.ndarray) -> None:
    """Divide items among substates and Gaussians, and sum up what `Posteriors` has."""
    num_selected, dim = selected.shape[1], vectors.shape[1]
    scores = np.empty((num_selected, np.max(np.diff(offsets))), np.float32)
    for item in range(len(frame)):
        t, p = frame[item], pdf[item]
        j = pdf2group[p]
        first, count = offsets[j], offsets[j + 1] - offsets[j]
        highest = np.float32(-np.inf)
        for g in range(num_selected):
            i = selected[t, g]
            for m in range(count):
                k = first + m
                score = np.float32(0.0)
                for s in range(dim):
                    score += z[t, g, s] * vectors[k, s]
                score += n[t, g] + normalizers[k, i] - norms[speaker[t], k] + log_weights[weight_offsets[p] + m]
                scores[g, m] = score
                highest = max(highest, score)
        total = 0.0
        for g in range(num_selected):
            for m in range(count):
                scores[g, m] = np.exp(scores[g, m] - highest)
                total += scores[g, m]
        loglikes[item] = highest + np.log(total)
        scale = np.float32(weight[item] / total)
        for g in range(num_selected):
            i = selected[t, g]
            for m in range(count):
                posterior = scores[g, m] * scale
                if posterior == 0.0:
                    continue
                k = first + m
                gauss[t, g] += posterior
                gamma[k, i] += posterior
                weights[weight_offsets[p] + m] += posterior
                by_speaker[speaker[t], k] += posterior
                for s in range(dim):
                    expected[t, g, s] += posterior * target_vectors[k, s]
                    y[k, s] += posterior * target_z[t, g, s]
