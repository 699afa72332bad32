"""Pitch against Kaldi's numbers, its search against brute force, and on tones whose pitch is known."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.signal import resample_poly

from pykaldist.errors import UserError
from pykaldist.feats.pitch import PitchExtractor, PitchOptions, ProcessPitchOptions, _best_track, process_pitch
from pykaldist.io.audio import read_audio

QUIET = ProcessPitchOptions(delta_pitch_noise_stddev=0.0)


def extractor(rate: str) -> PitchExtractor:
    return PitchExtractor(PitchOptions(sample_frequency=1000 * int(rate[:-1])), QUIET)


def test_pitch_is_kaldis(golden_feats, golden_audio: dict[str, Path], rate: str) -> None:
    raw, processed = golden_feats("pitch_raw"), golden_feats("pitch")
    for utt, path in golden_audio.items():
        samples = read_audio(str(path))[0]
        found = extractor(rate).raw(samples)
        assert found.dtype == np.float32 and found.shape == raw[utt].shape
        np.testing.assert_allclose(found[:, 0], raw[utt][:, 0], rtol=0, atol=1e-2)
        np.testing.assert_allclose(found[:, 1], raw[utt][:, 1], rtol=1e-5)
        np.testing.assert_allclose(extractor(rate).extract(utt, samples), processed[utt], rtol=0, atol=1e-2)


@pytest.mark.parametrize("hertz", [80.0, 133.0, 250.0])
def test_tones(hertz: float) -> None:
    """Harmonics of one pitch: the frames' pitch is that, within a step, and they are voiced; noise is not."""
    t = np.arange(16000) / 16000
    tone = sum(2000 / k * np.sin(2 * np.pi * hertz * k * t) for k in range(1, 8)).astype(np.float32)
    raw = PitchExtractor().raw(tone)
    assert len(raw) == 98
    np.testing.assert_allclose(raw[:, 1], hertz, rtol=0.006)
    assert np.median(raw[:, 0]) > 0.99
    noise = PitchExtractor().raw(np.random.default_rng(0).normal(0, 1000, 16000).astype(np.float32))
    assert noise[:, 0].mean() < 0.6


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.floats(1e-4, 2.0))
def test_the_track_is_the_cheapest(seed: int, jump_cost: float) -> None:
    """Against the minimum over all pairs of lags in every frame."""
    rng = np.random.default_rng(seed)
    cost = rng.random((int(rng.integers(1, 8)), int(rng.integers(1, 12)))).astype(np.float32)
    jumps = jump_cost * np.subtract.outer(np.arange(cost.shape[1]), np.arange(cost.shape[1])) ** 2
    total = np.zeros(cost.shape[1])
    for frame in cost:
        total = (total[None] + jumps).min(axis=1) + frame
    track = _best_track(cost, jump_cost)
    found = cost[np.arange(len(cost)), track].sum() + jump_cost * (np.diff(track.astype(float)) ** 2).sum()
    assert found == pytest.approx(total.min(), abs=1e-5)


def test_resampling_keeps_what_is_below_the_cutoff() -> None:
    t = np.arange(8000) / 16000
    wave = (np.sin(2 * np.pi * 200 * t) * np.hanning(8000)).astype(np.float32)
    found = PitchExtractor().resampled(wave)
    expected = resample_poly(wave, 1, 4)
    scale = found @ expected / (expected @ expected)
    assert len(found) == 2000 and np.abs(found - scale * expected).max() < 0.01 and 0.7 < scale < 1.1  # one zero makes no sharp filter


def test_processing() -> None:
    """Columns as asked for; noise from seed and name; the mean of the log-pitch weighted by voicing, over the window."""
    rng = np.random.default_rng(2)
    raw = np.stack([rng.uniform(-1, 1, 200), rng.uniform(60, 350, 200)], axis=1).astype(np.float32)
    every = process_pitch(raw, ProcessPitchOptions(add_raw_log_pitch=True), np.random.default_rng(0))
    assert every.shape == (200, 4)
    np.testing.assert_allclose(every[:, 3], np.log(raw[:, 1]), rtol=1e-6)
    flat = raw.copy()
    flat[:, 1] = 100
    quiet = process_pitch(flat, QUIET, np.random.default_rng(0))
    np.testing.assert_allclose(quiet[:, 1:], 0, atol=1e-5)
    noisy = process_pitch(flat, ProcessPitchOptions(delta_pitch_noise_stddev=0.01), np.random.default_rng(0))
    assert 0.07 < noisy[:, 2].std() < 0.13
    only = process_pitch(raw, ProcessPitchOptions(add_pov_feature=False, add_delta_pitch=False), np.random.default_rng(0))
    np.testing.assert_array_equal(only[:, 0], every[:, 1])
    tone = np.sin(2 * np.pi * 120 * np.arange(8000) / 16000).astype(np.float32) * 1000
    one, two, same = (PitchExtractor(seed=seed).extract(utt, tone) for seed, utt in ((0, "a"), (0, "b"), (0, "a")))
    assert np.array_equal(one, same) and not np.array_equal(one[:, 2], two[:, 2]) and np.array_equal(one[:, :2], two[:, :2])


@pytest.mark.parametrize("samples", [0, 1, 399, 400, 401, 1000])
def test_short_and_silent(samples: int) -> None:
    found = PitchExtractor().extract("a", np.zeros(samples, np.float32))
    assert found.shape == (max(0, 1 + (samples - 400) // 160), 3) and np.isfinite(found).all()


def test_speed() -> None:
    """A real-time factor below 0.01 on one core, here with room for a busy machine (tests/bench/pitch.py measures it)."""
    samples, pitch = np.random.default_rng(0).normal(0, 1000, 16000 * 20).astype(np.float32), PitchExtractor()
    pitch.raw(samples[:16000])
    begin = time.process_time()
    pitch.raw(samples)
    assert (time.process_time() - begin) / 20 < 0.02


@pytest.mark.parametrize(("options", "message"), [
    ({"min_f0": 500.0}, "--min-f0 must be above 0 and below --max-f0"), ({"lowpass_cutoff": 2500.0}, "--lowpass-cutoff=2500 must be"),
    ({"frame_shift": 30.0}, "no more than --frame-length=25 ms"),
])
def test_bad_options_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(UserError, match=message):
        PitchOptions(**options)


def test_bad_processing_is_refused() -> None:
    with pytest.raises(UserError, match="without any feature"):
        ProcessPitchOptions(add_pov_feature=False, add_normalized_log_pitch=False, add_delta_pitch=False)
    with pytest.raises(UserError, match="too high for --resample-frequency=4000"):
        PitchExtractor(PitchOptions(max_f0=3000.0))
