"""Windows, mel filters and cepstra, as Kaldi has them: what MFCC, PLP and filterbank features are made of.

A frame is cut out, its mean is taken off, each sample less c times the one before (pre-emphasis; of the first, less c times itself), and
weighted by a window. Its power spectrum goes through triangular filters that lie evenly on the mel scale, 1127 ln(1 + f / 700). Cepstra are
the cosine transform of the filters' log energies, whose rows are orthonormal, and a lifter  1 + Q/2 sin(pi n / Q)  raises the higher ones.
Source: Kaldi's feat/feature-window.cc, mel-computations.cc and feature-mfcc.cc.
"""

from __future__ import annotations

import numpy as np

FLOOR = float(np.finfo(np.float32).eps)  # of an energy, before its logarithm


def mel(hertz: np.ndarray | float) -> np.ndarray:
    """The mel scale."""
    return 1127.0 * np.log(1.0 + np.asarray(hertz) / 700.0)


def mel_edges(num_mel_bins: int, low_freq: float, high_freq: float) -> np.ndarray:
    """The lower edge, on the mel scale, of the first filter, the centres of all, and the upper edge of the last (num_mel_bins + 2)."""
    return np.linspace(mel(low_freq), mel(high_freq), num_mel_bins + 2)


def mel_centres(num_mel_bins: int, low_freq: float, high_freq: float) -> np.ndarray:
    """Centres, in Hz, of triangular filters that lie evenly on the mel scale between two frequencies."""
    return 700.0 * np.expm1(mel_edges(num_mel_bins, low_freq, high_freq)[1:-1] / 1127.0)


def mel_filters(num_mel_bins: int, low_freq: float, high_freq: float, fft_length: int, sample_frequency: float) -> np.ndarray:
    """Weights (fft_length / 2, num_mel_bins) float32 of the bins of a power spectrum, but for the last, at half the sampling rate."""
    bins = mel(np.arange(fft_length // 2) * sample_frequency / fft_length)[:, None]
    edges = mel_edges(num_mel_bins, low_freq, high_freq)
    width = edges[1] - edges[0]
    return np.maximum(0.0, np.minimum(bins - edges[:-2], edges[2:] - bins) / width).astype(np.float32)


def cepstral_transform(num_ceps: int, num_mel_bins: int, cepstral_lifter: float) -> np.ndarray:
    """The cosine transform (num_mel_bins, num_ceps) float32 from log energies to liftered cepstra; a lifter of 0 is none."""
    n = np.arange(num_ceps)
    basis = np.sqrt(2.0 / num_mel_bins) * np.cos(np.pi / num_mel_bins * np.outer(np.arange(num_mel_bins) + 0.5, n))
    basis[:, 0] *= np.sqrt(0.5)
    if cepstral_lifter:
        basis *= 1.0 + 0.5 * cepstral_lifter * np.sin(np.pi * n / cepstral_lifter)
    return basis.astype(np.float32)


def window(window_type: str, length: int) -> np.ndarray:
    """The weights (length,) float32 of a frame's samples."""
    angle = 2.0 * np.pi * np.arange(length) / max(1, length - 1)
    hanning = 0.5 - 0.5 * np.cos(angle)
    weights = {
        "povey": hanning**0.85, "hanning": hanning, "hamming": 0.54 - 0.46 * np.cos(angle), "rectangular": np.ones(length),
        "blackman": 0.42 - 0.5 * np.cos(angle) + 0.08 * np.cos(2.0 * angle),
    }
    return weights[window_type].astype(np.float32)
