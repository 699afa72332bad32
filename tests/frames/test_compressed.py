"""Features in 8 bits a value are what the rule says, on CPUs, where a kernel expands them, and on GPUs, where PyTorch does."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from emulated_cuda import EmulatedCuda
from hypothesis import given
from hypothesis import strategies as st

from pykaldist.frames.compressed import compress, expand, expanded


def by_the_rule(values: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """What bytes (..., dim) stand for, in float64; scales (4, dim)."""
    c, (first, a, b, d) = values.astype(np.float64), scales.astype(np.float64)
    return first + a * np.minimum(c, 64) + b * np.clip(c - 64, 0, 128) + d * np.maximum(c - 192, 0)


@given(st.integers(0, 2**31), st.integers(1, 4), st.integers(1, 5), st.integers(1, 9))
def test_bytes_stand_for_what_the_rule_says(seed: int, parts: int, frames: int, dim: int) -> None:
    rng = np.random.default_rng(seed)
    values, scales = rng.integers(0, 256, (parts, frames, dim), np.uint8), rng.standard_normal((3, 4, dim)).astype(np.float32)
    rows, out = rng.integers(0, 3, parts), torch.empty(parts, frames, dim)
    expand(torch.from_numpy(values), torch.from_numpy(scales), torch.from_numpy(rows), out)
    expected = np.stack([by_the_rule(part, scales[row]) for part, row in zip(values, rows.tolist(), strict=True)])
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-4)
    assert np.array_equal(out[0], expanded(values[0], scales[rows[0]]))


@pytest.mark.gpu
def test_on_a_gpu_they_stand_for_the_same(cuda: EmulatedCuda | None) -> None:
    rng = np.random.default_rng(0)
    values = torch.from_numpy(rng.integers(0, 256, (7, 3, 5), np.uint8))
    scales, rows = torch.from_numpy(rng.standard_normal((4, 4, 5), np.float32)), torch.from_numpy(rng.integers(0, 4, 7))
    here, there = torch.empty(7, 3, 5), torch.empty(7, 3, 5, device="cuda")
    expand(values, scales, rows, here)
    values, scales, rows = values.to("cuda"), scales.to("cuda"), rows.to("cuda")
    if cuda is not None:
        cuda.reset()
    expand(values, scales, rows, there)
    assert cuda is None or not cuda.synchronisations
    torch.testing.assert_close(there.cpu(), here, rtol=1e-4, atol=1e-4)


def test_what_is_expanded_is_near_to_what_was_compressed() -> None:
    feats = np.random.default_rng(0).normal(0, [1, 10, 0.1], (300, 3)).astype(np.float32)
    found = expanded(*compress(feats))
    assert (np.abs(found - feats) <= (feats.max(axis=0) - feats.min(axis=0)) / 64).all()
    assert found.std(axis=0) == pytest.approx(feats.std(axis=0), rel=0.01)
