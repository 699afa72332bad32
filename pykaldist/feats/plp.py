"""Perceptual linear prediction (PLP) features, as of Kaldi's compute-plp-feats, from the energies of mel filters.

Energies are weighted by the ear's equal-loudness curve at the filters' centres and compressed by a cube root; the first and the last are
doubled; an inverse cosine transform makes autocorrelations of them, the Levinson-Durbin recursion linear prediction coefficients a, and the
recursion  c_n = -a_n - 1/n sum_{j<n} (n - j) a_j c_{n-j}  cepstra. All recursions run over the order, for all frames at once.
Source: H. Hermansky, "Perceptual linear predictive (PLP) analysis of speech", JASA 87 (1990); Kaldi's feat/feature-plp.cc.
"""

from __future__ import annotations

import numpy as np

_LEAST_SHARE = 1e-5  # of the error that a step of the recursion leaves: keeps the filter stable
_FLOOR = float(np.finfo(np.float32).tiny)


def equal_loudness(centre: np.ndarray) -> np.ndarray:
    """The ear's equal-loudness weights of filters with these centres, in Hz."""
    square = centre * centre
    share = square / (square + 1.6e5)
    return share * share * (square + 1.44e6) / (square + 9.61e6)


def autocorrelation_basis(order: int, dim: int) -> np.ndarray:
    """The inverse transform (order + 1, dim) from a power spectrum at `dim` even places to autocorrelations."""
    basis = np.cos(np.pi / (dim - 1) * np.outer(np.arange(order + 1), np.arange(dim))) / (dim - 1)
    basis[:, [0, -1]] /= 2
    return basis


def linear_prediction(autocorrelation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(coefficients (T, n), error (T,)) from autocorrelations (T, n + 1), by the Levinson-Durbin recursion."""
    order = autocorrelation.shape[1] - 1
    error, a = autocorrelation[:, 0].copy(), np.zeros((len(autocorrelation), order))
    for i in range(order):
        reflection = (autocorrelation[:, i + 1] + (a[:, :i] * autocorrelation[:, i:0:-1]).sum(axis=1)) / error
        error *= np.maximum(1 - reflection * reflection, _LEAST_SHARE)
        a[:, :i] -= reflection[:, None] * a[:, :i][:, ::-1]
        a[:, i] = -reflection
    return a, error


def prediction_cepstra(a: np.ndarray) -> np.ndarray:
    """Cepstra (T, n) of prediction coefficients (T, n)."""
    c = np.zeros_like(a)
    for i in range(a.shape[1]):
        weights = (i - np.arange(i)) / (i + 1)
        c[:, i] = -a[:, i] - (weights * a[:, :i] * c[:, :i][:, ::-1]).sum(axis=1)
    return c


def plp(mel_energies: np.ndarray, centres: np.ndarray, lpc_order: int, num_ceps: int, compress_factor: float, cepstral_lifter: float,
        cepstral_scale: float) -> np.ndarray:
    """Compute PLP cepstra (T, num_ceps) float32 of mel energies (T, bins).

    The first is the log of the inverse error of the prediction, if positive.
    """
    loud = (mel_energies.astype(np.float64) * equal_loudness(centres)) ** compress_factor
    doubled = np.concatenate([loud[:, :1], loud, loud[:, -1:]], axis=1)
    a, error = linear_prediction(doubled @ autocorrelation_basis(lpc_order, doubled.shape[1]).T)
    y = np.concatenate([np.maximum(-np.log(error), _FLOOR)[:, None], prediction_cepstra(a)[:, :num_ceps - 1]], axis=1)
    if cepstral_lifter:
        y *= 1 + 0.5 * cepstral_lifter * np.sin(np.pi * np.arange(num_ceps) / cepstral_lifter)
    return (cepstral_scale * y).astype(np.float32)
