"""Windows and cosine transform against scipy's, and what mel filters have to be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import fft
from scipy.signal import windows

from pykaldist.feats.mel import cepstral_transform, mel_centres, mel_filters, window


@pytest.mark.parametrize("length", [200, 400, 401])
def test_windows(length: int) -> None:
    expected = {"povey": windows.hann(length) ** 0.85, "hanning": windows.hann(length), "hamming": windows.hamming(length),
                "rectangular": windows.boxcar(length), "blackman": windows.blackman(length)}
    for name, weights in expected.items():
        np.testing.assert_allclose(window(name, length), weights, atol=1e-6)


def test_cepstra_are_an_orthonormal_cosine_transform_with_a_lifter() -> None:
    logs = np.random.default_rng(0).normal(size=(5, 23))
    plain = fft.dct(logs, norm="ortho")
    np.testing.assert_allclose(logs @ cepstral_transform(23, 23, 0.0), plain, atol=1e-5)
    lifted = [c * (1 + 11 * np.sin(np.pi * n / 22)) for n, c in enumerate(plain.T[:13])]
    np.testing.assert_allclose(logs @ cepstral_transform(13, 23, 22.0), np.stack(lifted, 1), atol=1e-4)


@given(st.integers(4, 80), st.floats(0.0, 1000.0), st.floats(2000.0, 4000.0))
def test_filters_are_triangles_side_by_side(bins: int, low: float, high: float) -> None:
    """Every frequency between the first centre and the last is shared out whole between two filters; none outside the band counts."""
    weights, hertz = mel_filters(bins, low, high, 4096, 8000.0), np.arange(2048) * 8000 / 4096
    centres = mel_centres(bins, low, high)
    inside = (hertz >= centres[0]) & (hertz <= centres[-1])
    np.testing.assert_allclose(weights[inside].sum(axis=1), 1.0, atol=1e-5)
    assert not weights[(hertz <= low) | (hertz >= high)].any()
    assert ((weights > 0).sum(axis=1) <= 2).all()
