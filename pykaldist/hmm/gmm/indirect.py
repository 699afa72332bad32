"""The indirect differential of fMPE: how a model that follows its features changes what a change of these is worth.

After a step of fMPE each Gaussian is shifted and scaled as the statistics (n, x, x2) of its frames along the reference are:

    mu <- mu + m' - m,    sigma^2 <- sigma^2 v' / v,    m = x / n,   v = x2 / n - m^2.

With the statistics (d, dx, dx2) of the numerator less the denominator, the objective F has

    dF/dmu = (dx - d mu) / sigma^2,    dF/dsigma^2 = ((dx2 - 2 mu dx + d mu^2) / sigma^4 - d / sigma^2) / 2,

hence by the statistics, at the present model,

    dF/dx = (dF/dmu - 2 m dF/dsigma^2 sigma^2 / v) / n,    dF/dx2 = dF/dsigma^2 sigma^2 / v / n,

and a frame y of the reference adds gamma_g (dF/dx + 2 y dF/dx2) to the derivative by y. Source: Povey et al., "fMPE: discriminatively
trained features for speech recognition", 2005, as Kaldi's gmm-get-stats-deriv and gmm-est-rescale have it.
"""

from __future__ import annotations

import numpy as np

from pykaldist.hmm.gmm.gmm import AmDiagGmm, GmmStats

LEAST_VARIANCE, LEAST_OCCUPANCY = 0.001, 3.0  # Kaldi's


def stats_derivative(gmm: AmDiagGmm, num: GmmStats, den: GmmStats, reference: GmmStats) -> tuple[np.ndarray, np.ndarray]:
    """The derivatives by the sums x and x2 of the reference's statistics, each (G, D) float64; 0 for a Gaussian with too few frames."""
    variance = 1.0 / gmm.inv_vars.astype(np.float64)
    mean = gmm.means_invvars * variance
    d, dx, dx2 = (num.occupancy - den.occupancy)[:, None], num.x - den.x, num.x2 - den.x2
    by_mean = (dx - d * mean) / variance
    by_variance = 0.5 * ((dx2 - 2.0 * mean * dx + d * mean * mean) / variance**2 - d / variance)
    n, m, v = _moments(reference)
    by_variance = np.where(variance <= 1.01 * LEAST_VARIANCE, 0.0, by_variance * variance / v)
    fed = (reference.occupancy > LEAST_OCCUPANCY)[:, None]
    return np.where(fed, (by_mean - 2.0 * m * by_variance) / n, 0.0), np.where(fed, by_variance / n, 0.0)


def following(gmm: AmDiagGmm, old: GmmStats, new: GmmStats) -> AmDiagGmm:
    """The model shifted and scaled as the statistics of the reference are; a Gaussian with too few frames stays."""
    variance = 1.0 / gmm.inv_vars.astype(np.float64)
    mean = gmm.means_invvars * variance
    (_, old_m, old_v), (_, new_m, new_v) = _moments(old), _moments(new)
    fed = ((old.occupancy > LEAST_OCCUPANCY) & (new.occupancy > LEAST_OCCUPANCY))[:, None]
    mean = np.where(fed, mean + new_m - old_m, mean)
    variance = np.where(fed, np.maximum(LEAST_VARIANCE, variance * new_v / old_v), variance)
    return AmDiagGmm(gmm.offsets, gmm.weights, mean / variance, 1.0 / variance)


def _moments(stats: GmmStats) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Occupancy (G, 1), means and variances (G, D), the last two of no use where there are too few frames."""
    n = np.maximum(stats.occupancy, 1e-10)[:, None]
    m = stats.x / n
    return n, m, np.maximum(stats.x2 / n - m * m, 1e-10)
