"""Extended Baum-Welch: Gaussians and weights from numerator and denominator statistics, for MMI, MPE and sMBR.

Let a Gaussian have the statistics n, x, x2 (occupancy, sums of frames and of their squares) of the numerator less the denominator: then the
derivative of a discriminative objective by mu and sigma^2 is that of l(n, x, x2) = -1/2 sum_d (n log sigma^2 + (x2 - 2 mu x + n mu^2) /
sigma^2). D frames such as the present Gaussian (mu_0, sigma_0^2) makes add nothing to the derivative there, for their likelihood is highest
under it. The auxiliary function that has both has one maximum, if D is large enough:

    Q(mu, sigma^2) = l(n, x, x2) + l(D, D mu_0, D (sigma_0^2 + mu_0^2))
    mu = (x + D mu_0) / (n + D),        sigma^2 = (x2 + D (sigma_0^2 + mu_0^2)) / (n + D) - mu^2,

and Q rises there by (n + D) / 2 sum_d (log sigma_0^2 - log sigma^2 - 1 + (sigma^2 + (mu - mu_0)^2) / sigma_0^2), which is not below 0.
D is E times the denominator's occupancy plus tau, and at least twice the least that keeps n + D and all variances above 0. tau is
I-smoothing towards the present model; smoothing towards other statistics adds tau frames of them to the numerator (`smoothed`).

The weights w of a mixture raise sum_g n_num(g) log w(g) - n_den(g) w(g) / w_0(g), with tau w_0(g) added to n_num: by fifty times
w(g) <- (n_num(g) + k(g) w(g)) / sum of it, k(g) = max over h of n_den(h) / w_0(h) - n_den(g) / w_0(g), of which none lowers it.

Source: D. Povey, "Discriminative training for large vocabulary speech recognition", Cambridge 2003, sections 4.2 and 4.3; Povey et al.,
"Boosted MMI for model and feature-space discriminative training", 2008; the bounds are those of Kaldi's gmm-est-gaussians-ebw and
gmm-est-weights-ebw.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pykaldist.errors import UserError
from pykaldist.hmm.gmm.gmm import AmDiagGmm, GmmStats
from pykaldist.options import option

LEAST_WEIGHT = 1e-5
LEAST_COUNT = 10.0  # of a mixture whose weights are updated without smoothing
_STEP, _STEPS = 1.1, 100  # factor on D while a variance is not above 0, and how often
_WEIGHT_SWEEPS = 50


@dataclass
class EbwOptions:
    """Options of extended Baum-Welch, by Kaldi's names."""

    tau: float = option(400.0, "I-smoothing of Gaussians, in frames of the model before")
    weight_tau: float = option(10.0, "smoothing of a mixture's weights, in frames")
    e: float = option(2.0, "factor on the denominator's occupancy in D (Kaldi's E)")

    def __post_init__(self) -> None:
        for name in ("tau", "weight_tau", "e"):
            if getattr(self, name) < 0:
                raise UserError(f"--{name.replace('_', '-')} must not be negative, found {getattr(self, name):g}.")


@dataclass
class Update:
    """What an update has done: the model, what the auxiliary function has risen by, and for how many Gaussians D had to be raised."""

    gmm: AmDiagGmm
    gain: float
    raised: int = 0


def smoothed(stats: GmmStats, other: GmmStats, tau: float) -> GmmStats:
    """Statistics with `tau` frames of each Gaussian of `other` added, where it has any."""
    scale = np.where(other.occupancy > 0, tau / np.maximum(other.occupancy, 1e-300), 0.0)
    return GmmStats(stats.occupancy + scale * other.occupancy, stats.x + scale[:, None] * other.x, stats.x2 + scale[:, None] * other.x2)


def model_stats(gmm: AmDiagGmm) -> GmmStats:
    """The statistics that one frame of each Gaussian has on average."""
    variance = 1.0 / gmm.inv_vars.astype(np.float64)
    mean = gmm.means_invvars * variance
    return GmmStats(np.ones(gmm.num_gauss), mean, variance + mean * mean)


def update_gaussians(gmm: AmDiagGmm, num: GmmStats, den: GmmStats, tau: float, e: float = 2.0) -> Update:
    """The model with the means and variances that maximise the auxiliary function for numerator and denominator statistics.

    A Gaussian without statistics stays as it is, and so does one for which no D is found.
    """
    model = model_stats(gmm)
    n, x, x2 = num.occupancy - den.occupancy, num.x - den.x, num.x2 - den.x2

    def estimated(d: np.ndarray, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        total = (n[which] + d)[:, None]
        mean = (x[which] + d[:, None] * model.x[which]) / total
        return mean, (x2[which] + d[:, None] * model.x2[which]) / total - mean * mean

    d = 0.5 * (tau + e * den.occupancy)
    d = np.where(d + n > 0, d, -1.0001 * n + 1e-10)
    left = np.flatnonzero((num.occupancy != 0) | (den.occupancy != 0))
    done, raised = np.zeros(len(n), bool), 0
    for step in range(_STEPS):
        mean, variance = estimated(d[left], left)
        good = np.isfinite(mean).all(1) & (variance > 0).all(1)
        done[left[good]] = True
        left = left[~good]
        raised = len(left) if step == 0 else raised
        d[left] *= _STEP
    d *= 2.0
    which = np.flatnonzero(done)
    mean, variance = estimated(d[which], which)
    old_mean = model.x[which]
    old_variance = model.x2[which] - old_mean * old_mean
    moved = variance + (mean - old_mean) ** 2
    gain = 0.5 * ((n + d)[which] * (np.log(old_variance / variance) - 1.0 + moved / old_variance).sum(1)).sum()
    inv_vars, means_invvars = gmm.inv_vars.copy(), gmm.means_invvars.copy()
    inv_vars[which] = 1.0 / variance
    means_invvars[which] = mean / variance
    return Update(AmDiagGmm(gmm.offsets, gmm.weights, means_invvars, inv_vars), float(gain), raised)


def update_weights(gmm: AmDiagGmm, num: np.ndarray, den: np.ndarray, tau: float) -> Update:
    """The model with weights that raise the auxiliary function for the occupancies `num` and `den` (G,) of its Gaussians.

    Without `tau`, mixtures with too few frames keep theirs.
    """
    weights, gain = mixture_weights(gmm.weights.astype(np.float64), gmm.offsets, num, den, tau)
    return Update(AmDiagGmm(gmm.offsets, weights, gmm.means_invvars, gmm.inv_vars), gain)


def mixture_weights(old: np.ndarray, offsets: np.ndarray, num: np.ndarray, den: np.ndarray, tau: float) -> tuple[np.ndarray, float]:
    """New weights (G,) of mixtures, whose parts begin at `offsets`, for the occupancies `num` and `den` (G,); and the gain in all."""
    first, sizes = offsets[:-1], np.diff(offsets)

    def of_mixture(values: np.ndarray, operation: np.ufunc) -> np.ndarray:
        return np.repeat(operation.reduceat(values, first), sizes)

    slope = den / old
    surplus = of_mixture(slope, np.maximum) - slope
    fixed = (of_mixture(num + den, np.add) < LEAST_COUNT) & (tau == 0) | (np.repeat(sizes, sizes) == 1)
    num = num + tau * old
    weights = old.copy()
    for _ in range(_WEIGHT_SWEEPS):
        weights = num + surplus * weights
        weights = np.where(fixed, old, weights / np.maximum(of_mixture(weights, np.add), 1e-300))
    weights = np.where(fixed, old, np.maximum(weights, LEAST_WEIGHT))
    weights = np.where(fixed, old, weights / of_mixture(weights, np.add))
    return weights, float((num * np.log(weights / old) - den * (weights / old - 1.0)).sum())


def update(gmm: AmDiagGmm, num: GmmStats, den: GmmStats, options: EbwOptions, prior: GmmStats | None = None) -> Update:
    """One update of Gaussians and weights.

    I-smoothing is towards the model, or with `prior`, statistics of one frame a Gaussian or more, towards these.
    """
    if prior is None:
        gaussians = update_gaussians(gmm, num, den, options.tau, options.e)
    else:
        gaussians = update_gaussians(gmm, smoothed(num, prior, options.tau), den, 0.0, options.e)
    weights = update_weights(gaussians.gmm, num.occupancy, den.occupancy, options.weight_tau)
    return Update(weights.gmm, gaussians.gain + weights.gain, gaussians.raised)
