"""The bootstrap over utterances, against a slow one of its own and against theory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pykaldist.errors import UserError
from pykaldist.score.bootstrap import (
    UtteranceCounts,
    bootstrap_lines,
    count_errors,
    probability_of_improvement,
    read_counts,
    resample,
    wer_interval,
)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def utterances(count: int, seed: int) -> UtteranceCounts:
    words = rng(seed).integers(1, 20, count)
    return UtteranceCounts([f"u{i}" for i in range(count)], words, rng(seed + 1).binomial(words, 0.2))


def test_sums_are_those_of_utterances_drawn_with_replacement() -> None:
    counts = utterances(40, 1)
    errors, words = resample([counts.errors, counts.words], rng(), 20000).T
    slow = [rng(1000 + i).integers(0, 40, 40) for i in range(4000)]
    for fast, values in ((errors, counts.errors), (words, counts.words)):
        sums = np.array([values[drawn].sum() for drawn in slow])
        assert abs(fast.mean() - sums.mean()) < 0.05 * sums.std() and abs(fast.std() / sums.std() - 1) < 0.05
    together, apart = np.corrcoef(errors, words)[0, 1], np.corrcoef(counts.errors, counts.words)[0, 1]
    assert abs(together - apart) < 0.05  # the same utterances were drawn for both


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    inside = 0
    for seed in range(200):
        lower, upper = wer_interval(utterances(150, 10 * seed), rng(seed), replications=500)
        inside += lower <= 20 <= upper
    assert 180 <= inside <= 199


def test_a_seed_fixes_it_and_certainty_has_no_width() -> None:
    counts = utterances(30, 3)
    assert wer_interval(counts, rng(1)) == wer_interval(counts, rng(1)) != wer_interval(counts, rng(2))
    assert wer_interval(UtteranceCounts(["a", "b"], np.array([4, 4]), np.array([1, 1])), rng()) == (25.0, 25.0)


def test_improvement_pairs_utterances() -> None:
    old = utterances(60, 5)
    better = UtteranceCounts(old.utts[::-1], old.words[::-1], np.maximum(old.errors - 1, 0)[::-1])  # the same ones in another order
    assert probability_of_improvement(old, better, rng()) > 0.999 and probability_of_improvement(better, old, rng()) < 0.001
    assert probability_of_improvement(old, old, rng()) == 0.5
    with pytest.raises(UserError, match="different utterances"):
        probability_of_improvement(old, utterances(59, 5), rng())


def test_counts_of_a_scored_directory(tmp_path: Path) -> None:
    (tmp_path / "per_utt").write_text("a ref  x  y  ***\na hyp  x  z   w\na op   C  S   I\na #csid 1 1 1 0\nb #csid 0 0 0 2\n")
    counts = read_counts(tmp_path / "per_utt")
    assert (counts.utts, counts.words.tolist(), counts.errors.tolist()) == (["a", "b"], [2, 2], [2, 2])
    (tmp_path / "per_utt").write_text("a ref x\n")
    with pytest.raises(UserError, match="has no line with #csid"):
        read_counts(tmp_path / "per_utt")


def test_lines_of_compute_wer_bootci() -> None:
    """For many utterances the distribution is a normal one, whose width theory gives; a system is compared on the same draws."""
    old = utterances(2000, 5)
    new = UtteranceCounts(old.utts, old.words, np.maximum(old.errors - 1, 0))
    lines = bootstrap_lines([old, new], rng()).splitlines()
    wer = 100 * old.errors.sum() / old.words.sum()
    half = 1.96 * 100 * (old.errors - wer / 100 * old.words).std() * len(old.utts) ** 0.5 / old.words.sum()
    words = lines[0].split()
    assert words[:2] == ["Set1:", "%WER"] and words[3:7] == ["95%", "Conf", "Interval", "["] and words[9] == "]"
    found = [float(words[i].rstrip(",")) for i in (2, 7, 8)]
    assert np.allclose(found, [wer, wer - half, wer + half], atol=0.05)
    assert lines[1].startswith("Set2: %WER ") and lines[2] == "Probability of Set2 improving Set1: 100.00"
    counted = count_errors({"a": ["x", "y"], "b": ["z"], "c": ["x"]}, {"c": ["y", "z"], "a": ["x"]})
    assert (counted.utts, counted.words.tolist(), counted.errors.tolist()) == (["a", "c"], [2, 1], [1, 2])
