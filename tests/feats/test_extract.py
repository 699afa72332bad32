"""MFCC and fbank against Kaldi's numbers, and what batching must not change."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pykaldist.errors import UserError
from pykaldist.feats.extract import Extractor, FbankOptions, MfccOptions, PlpOptions
from pykaldist.io.audio import read_audio

CONFIGS = {
    "mfcc13": lambda hz: MfccOptions(sample_frequency=hz, use_energy=False),
    "mfcc13_energy": lambda hz: MfccOptions(sample_frequency=hz),
    "plp13": lambda hz: PlpOptions(sample_frequency=hz),
    "fbank40": lambda hz: FbankOptions(sample_frequency=hz, num_mel_bins=40),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_features_equal_kaldi(golden_feats, golden_audio: dict[str, Path], rate: str, name: str) -> None:
    expected = golden_feats(name)
    batch = [(utt, read_audio(str(path))[0]) for utt, path in golden_audio.items()]
    found = Extractor(CONFIGS[name](1000 * int(rate[:-1]))).extract(batch)
    for (utt, _), y in zip(batch, found, strict=True):
        assert y.dtype == np.float32
        np.testing.assert_allclose(y, expected[utt], rtol=0, atol=1e-3)


def noise(samples: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 1000, samples).astype(np.float32)


@pytest.mark.parametrize("dither", [0.0, 1.0])
def test_an_utterance_alone_equals_it_in_a_batch(dither: float) -> None:
    options = MfccOptions(dither=dither)
    batch = [(f"utt{i}", noise(n, i)) for i, n in enumerate([4000, 399, 400, 401, 1, 8123, 560, 0])]
    together = Extractor(options, seed=3).extract(batch)
    assert [len(y) for y in together] == [23, 0, 1, 1, 0, 49, 2, 0]
    for item, y in zip(batch, together, strict=True):
        np.testing.assert_allclose(Extractor(options, seed=3).extract([item])[0], y, atol=1e-4)


def test_dither_comes_from_seed_and_name() -> None:
    audio = noise(4000, 1)
    extract = {seed: Extractor(FbankOptions(dither=1.0), seed).extract for seed in (0, 1)}
    first, second = extract[0]([("a", audio), ("b", audio)])
    assert not np.array_equal(first, second)
    np.testing.assert_allclose(extract[0]([("b", audio)])[0], second, atol=1e-4)
    assert np.abs(extract[1]([("a", audio)])[0] - first).max() > 1e-3


def test_silence_is_finite() -> None:
    [y] = Extractor(MfccOptions()).extract([("a", np.zeros(1600, dtype=np.float32))])
    assert np.isfinite(y).all()


@pytest.mark.parametrize(("options", "message"), [
    ({"low_freq": 5000.0, "high_freq": 4000.0}, "leave no band"),
    ({"sample_frequency": 8000.0, "high_freq": 7800.0}, "leave no band below 4000 Hz"),
    ({"num_ceps": 24}, "--num-ceps must be 1 to --num-mel-bins=23, found 24"),
    ({"frame_shift": 0.0}, "--frame-shift=0 ms must be positive"),
    ({"window_type": "kaiser"}, "no --window-type=kaiser"),
    ({"num_mel_bins": 3}, "--num-mel-bins must be at least 4"),
])
def test_bad_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        MfccOptions(**options)


def test_without_a_lifter_the_cepstra_are_the_lifted_ones_over_the_lifter() -> None:
    [lifted], [plain] = (Extractor(MfccOptions(cepstral_lifter=q, use_energy=False)).extract([("a", noise(8000, 1))]) for q in (22.0, 0.0))
    np.testing.assert_allclose(plain, lifted / (1 + 11 * np.sin(np.pi * np.arange(13) / 22)), rtol=1e-4, atol=1e-3)
