"""Extended Baum-Welch for subspace models: parameters from numerator and denominator statistics, for MMI.

The auxiliary function of the numerator less that of the denominator has the right slope at the present parameters, but no maximum. So the
slopes are subtracted, and the curvatures, each of which is that of a function which is bounded above (update.py), are added; and a step is
made as if there were tau frames more, times a learning rate:
    x + solve((1 + tau / n) / rate (H_num + H_den), g_num - g_den),        n the frames of both.
A covariance has the difference of the statistics with frames added that the present one makes, so many that the function is as steep for
the denominator's frames as for the numerator's; its eigenvalues change by no more than a factor. Substates' weights are updated as
Gaussians' are (gmm/ebw.py). u stays as it is. Source: Kaldi's sgmm2/estimate-am-sgmm2-ebw.cc.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pykaldist.errors import UserError
from pykaldist.hmm.gmm.ebw import mixture_weights
from pykaldist.hmm.sgmm.model import AmSgmm2, vector_precisions
from pykaldist.hmm.sgmm.posteriors import SgmmStats
from pykaldist.hmm.sgmm.update import SgmmUpdate, covariance_sums, expected_weights, log_gains, scatter, solve, solve_projections
from pykaldist.options import option


@dataclass
class SgmmEbwOptions:
    """Options of extended Baum-Welch for subspace models, by Kaldi's names."""

    tau_v: float = option(50.0, "smoothing of vectors, in frames")
    lrate_v: float = option(0.5, "learning rate of vectors")
    tau_m: float = option(500.0, "smoothing of phone projections, in frames")
    lrate_m: float = option(0.5, "learning rate of phone projections")
    tau_n: float = option(500.0, "smoothing of speaker projections, in frames")
    lrate_n: float = option(0.5, "learning rate of speaker projections")
    tau_w: float = option(50.0, "smoothing of weight projections, in frames")
    lrate_w: float = option(1.0, "learning rate of weight projections")
    tau_c: float = option(10.0, "smoothing of a pdf's weights of substates, in frames")
    tau_sigma: float = option(500.0, "smoothing of covariances, in frames")
    lrate_sigma: float = option(0.5, "learning rate of covariances")
    cov_min_value: float = option(0.5, "least factor on an eigenvalue of a covariance; the highest is its inverse")

    def __post_init__(self) -> None:
        for name in ("v", "m", "n", "w", "c", "sigma"):
            if getattr(self, f"tau_{name}") < 0 or not 0 < getattr(self, f"lrate_{name}", 1.0) <= 1:
                raise UserError(f"--tau-{name} must not be negative, and --lrate-{name} above 0 and at most 1.")
        if not 0 < self.cov_min_value < 1:
            raise UserError(f"--cov-min-value must be between 0 and 1, found {self.cov_min_value:g}.")


def ebw_update(model: AmSgmm2, num: SgmmStats, den: SgmmStats, options: SgmmEbwOptions) -> SgmmUpdate:
    """One update of v, M, w, Sigma, c and, where there are speakers' vectors, N; gains are those of the auxiliary functions, a frame."""
    old, h = model, vector_precisions(model)
    gains = {}
    vectors, gains["v"] = _vectors(old, num, den, h, options)
    model = old.changed(vectors=vectors)
    weights, gains["w"] = _weight_projections(model, num, den, options)
    phones, gains["M"] = _projections(old, num, den, (scatter(old, num), scatter(old, den)), options)
    precisions, gains["S"] = _precisions(old, num, den, options)
    substates, gains["c"] = mixture_weights(old.substate_weights, old.weight_offsets, num.gamma_c, den.gamma_c, options.tau_c)
    model = model.changed(weight_projections=weights, phone_projections=phones, precisions=precisions, substate_weights=substates)
    if num.big_r.size and den.big_r.size:
        speakers, gains["N"] = _speaker_projections(old, num, den, options)
        model = model.changed(speaker_projections=speakers)
    return SgmmUpdate(model, {name: gain / max(num.frames, 1e-20) for name, gain in gains.items()})


def _scale(count: np.ndarray, tau: float, rate: float) -> np.ndarray:
    return (count + tau) / (count + 1e-10) / rate


def _vectors(model: AmSgmm2, num: SgmmStats, den: SgmmStats, h: np.ndarray, options: SgmmEbwOptions) -> tuple[np.ndarray, float]:
    v, w, size = model.vectors, model.weight_projections, model.phone_dim
    outer = (w[:, :, None] * w[:, None, :]).reshape(len(w), -1)
    slope, curvature = np.zeros_like(v), np.zeros((len(v), size, size))
    for stats, sign in ((num, 1.0), (den, -1.0)):
        weights = expected_weights(model, stats)
        means = (stats.gamma @ h.reshape(len(h), -1)).reshape(curvature.shape)
        slope += sign * (stats.y - np.einsum("kst,kt->ks", means, v) + (stats.gamma - weights) @ w)
        curvature += means + (np.maximum(stats.gamma, weights) @ outer).reshape(curvature.shape)
    count = num.gamma.sum(1) + den.gamma.sum(1)
    curvature *= _scale(count, options.tau_v, options.lrate_v)[:, None, None]
    step = solve(curvature, slope, np.zeros_like(v)) * (count > 0)[:, None]
    return v + step, _quadratic_gain(step, slope, curvature)


def _quadratic_gain(step: np.ndarray, slope: np.ndarray, curvature: np.ndarray) -> float:
    return float((step * slope).sum() - 0.5 * np.einsum("ns,nst,nt->", step, curvature, step, optimize=True))


def _weight_projections(model: AmSgmm2, num: SgmmStats, den: SgmmStats, options: SgmmEbwOptions) -> tuple[np.ndarray, float]:
    v, size = model.vectors, model.phone_dim
    outer = (v[:, :, None] * v[:, None, :]).reshape(len(v), -1)
    slope, curvature = np.zeros_like(model.weight_projections), np.zeros((model.num_gauss, size, size))
    for stats, sign in ((num, 1.0), (den, -1.0)):
        weights = expected_weights(model, stats)
        slope += sign * (stats.gamma - weights).T @ v
        curvature += (np.maximum(stats.gamma, weights).T @ outer).reshape(curvature.shape)
    curvature *= _scale(num.gamma_i + den.gamma_i, options.tau_w, options.lrate_w)[:, None, None]
    step = solve(curvature, slope, np.zeros_like(slope))
    return model.weight_projections + step, _quadratic_gain(step, slope, curvature)


def _projections(model: AmSgmm2, num: SgmmStats, den: SgmmStats, scatters: tuple[np.ndarray, np.ndarray],
                 options: SgmmEbwOptions) -> tuple[np.ndarray, float]:
    m = model.phone_projections
    slope = num.big_y - m @ scatters[0] - (den.big_y - m @ scatters[1])
    q = (scatters[0] + scatters[1]) * _scale(num.gamma_i + den.gamma_i, options.tau_m, options.lrate_m)[:, None, None]
    step, gain = solve_projections(q, slope, model.precisions, np.zeros_like(m))
    return m + step, gain


def _speaker_projections(model: AmSgmm2, num: SgmmStats, den: SgmmStats, options: SgmmEbwOptions) -> tuple[np.ndarray, float]:
    n = model.speaker_projections
    slope = num.big_z - n @ num.big_r - (den.big_z - n @ den.big_r)
    r = (num.big_r + den.big_r) * _scale(num.gamma_i + den.gamma_i, options.tau_n, options.lrate_n)[:, None, None]
    step, gain = solve_projections(r, slope, model.precisions, np.zeros_like(n))
    return n + step, gain


def _precisions(model: AmSgmm2, num: SgmmStats, den: SgmmStats, options: SgmmEbwOptions) -> tuple[np.ndarray, float]:
    old = np.linalg.inv(model.precisions)
    num_count, den_count = num.gamma_i, den.gamma_i
    slower = 1.0 / options.lrate_sigma
    smoothing = options.tau_sigma * slower + (1.0 + slower) * den_count + (slower - 1.0) * num_count + 1e-10
    count = num_count - den_count + smoothing
    wanted = (covariance_sums(model, num) - covariance_sums(model, den) + smoothing[:, None, None] * old) / count[:, None, None]
    root = np.linalg.cholesky(old)
    inverse = np.linalg.inv(root)
    values, vectors = np.linalg.eigh(inverse @ wanted @ inverse.transpose(0, 2, 1))
    values = np.clip(values, options.cov_min_value, 1.0 / options.cov_min_value)
    back = inverse.transpose(0, 2, 1) @ vectors
    precisions = (back / values[:, None, :]) @ back.transpose(0, 2, 1)
    gain = -0.5 * count * (np.einsum("ide,ide->i", precisions - model.precisions, wanted) - log_gains(precisions, model.precisions))
    return precisions, float(gain.sum())
