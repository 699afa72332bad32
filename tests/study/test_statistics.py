"""Intervals, tests and verdicts, beside closed forms, drawn data and the bootstrap."""

from __future__ import annotations

import math

import numpy as np
import pytest
from study_claims import a_result

from pykaldist.score.bootstrap import resample
from pykaldist.study.results import Trial
from pykaldist.study.statistics import RESOLVED, Estimate, contrast_of_losses, contrast_of_wers, over_seeds, settled, verdict

DIFFERENCE = {"b": 1.0, "a": -1.0}


def test_intervals_of_two_and_three_seeds_have_their_closed_forms() -> None:
    two = over_seeds([1.0, 2.0])  # Student's quantile for one degree of freedom is a tangent
    assert two.half == pytest.approx(math.tan(math.pi * 0.475) * math.sqrt(0.5 / 2))
    assert two.p == pytest.approx(1 - 2 / math.pi * math.atan(3))
    three = over_seeds([1.0, 2.0, 6.0])  # for two, q sqrt(2 / (1 - q^2)) with q = 2 p - 1
    error = math.sqrt(7.0 / 3)
    assert three.mean == 3 and three.half == pytest.approx(0.95 * math.sqrt(2 / (1 - 0.95**2)) * error)
    looks = 1 - RESOLVED
    assert three.smallest == pytest.approx((looks * math.sqrt(2 / (1 - looks**2)) + 0.6 * math.sqrt(2 / (1 - 0.6**2))) * error)
    one = over_seeds([4.0])
    assert one.half == math.inf and one.p == 1 and not one.resolved
    with pytest.raises(ValueError):
        over_seeds([])


def test_intervals_hold_the_effect_in_95_of_100_studies_and_tests_are_wrong_in_5() -> None:
    generator = np.random.default_rng(0)
    studies = [over_seeds(generator.normal(0.0, 2.0, 4).tolist()) for _ in range(4000)]
    assert 0.94 < np.mean([abs(one.mean) <= one.half for one in studies]) < 0.96
    assert 0.04 < np.mean([one.p < 0.05 for one in studies]) < 0.06
    assert [abs(one.mean) > one.half for one in studies] == [one.p < 0.05 for one in studies]


def test_six_looks_at_nothing_find_an_effect_in_5_of_100_studies() -> None:
    values = np.random.default_rng(5).normal(size=(4000, 8))
    found = [any(over_seeds(study[:n].tolist()).resolved for n in range(3, 9)) for study in values]
    assert 0.035 < np.mean(found) < 0.055


def test_an_error_that_utterances_make_has_their_degrees_of_freedom() -> None:
    assert Estimate(1.0, 3, 0.2, 0.0, 100).freedom == pytest.approx(2) and Estimate(1.0, 3, 0.0, 0.2, 100).freedom == pytest.approx(99)
    assert Estimate(1.0, 3, 0.3, 0.3, 3).freedom == pytest.approx(4)  # two equal errors of two degrees each
    assert Estimate(1.0, 3, 0.0, 0.2, 10**6).half == pytest.approx(1.95996 * 0.2, rel=1e-4)


def test_intervals_of_error_rates_hold_the_effect_for_other_seeds_and_other_utterances() -> None:
    generator = np.random.default_rng(4)
    held = []
    for _ in range(400):  # three seeds, 60 utterances; the effect is 0.1 of 2 errors an utterance, in 5 words
        cells = made_up(generator, 0.1, 3, 60, mean=2.0)
        found = contrast_of_wers(DIFFERENCE, cells)
        held.append(abs(found.mean - 100 * 0.1 * 2 / 5) <= found.half)
    assert 0.92 < np.mean(held) < 0.99


def made_up(generator: np.random.Generator, effect: float, seeds: int, utts: int, mean: float = 0.5) -> dict[str, dict[int, object]]:
    """Two cells: errors of utterances, some harder than others, and some seeds worse than others in both cells."""
    hard = generator.gamma(0.5, 2 * mean, utts)
    cells: dict[str, dict[int, object]] = {"a": {}, "b": {}}
    for seed in range(seeds):
        luck = generator.gamma(20.0, 1 / 20.0)
        for name, level in (("a", 1.0), ("b", 1.0 + effect)):
            errors = tuple(int(n) for n in generator.poisson(hard * luck * level))
            cells[name][seed] = a_result(Trial("toy", name, seed), loss=10 * luck + level, errors=errors, words=5 * utts)
    return cells


def test_what_a_seed_does_to_both_cells_does_not_count() -> None:
    loss = contrast_of_losses(DIFFERENCE, made_up(np.random.default_rng(1), 0.5, 5, 10))
    assert loss.mean == pytest.approx(0.5) and loss.seeds_error < 1e-9 and loss.resolved


def test_the_error_over_utterances_is_that_of_the_bootstrap() -> None:
    generator = np.random.default_rng(2)
    cells = made_up(generator, 0.5, 4, 300)
    found = contrast_of_wers(DIFFERENCE, cells)
    mean = np.mean([cells["b"][seed].error_counts - cells["a"][seed].error_counts for seed in range(4)], axis=0)
    drawn, = resample([mean], generator, 4000).T
    assert found.mean == pytest.approx(100 * mean.sum() / 1500)
    assert found.utterances_error == pytest.approx(100 * drawn.std() / 1500, rel=0.05)
    assert found.error == pytest.approx(math.hypot(found.seeds_error, found.utterances_error))


def test_seeds_that_a_cell_lacks_or_that_diverged_are_left_out() -> None:
    cells = made_up(np.random.default_rng(3), 0.5, 4, 10)
    del cells["a"][1]
    cells["b"][2] = a_result(Trial("toy", "b", 2), loss=math.inf)
    assert contrast_of_wers(DIFFERENCE, cells).n == 2
    cells["a"].clear()
    assert contrast_of_wers(DIFFERENCE, cells) is None and contrast_of_losses(DIFFERENCE, cells) is None


def test_verdicts() -> None:
    sure, unsure = Estimate(1.0, 4, 0.1, 0.1), Estimate(0.1, 4, 0.1, 0.1)
    assert verdict(sure, "more", 3, " points") == "resolved, as claimed: +1.00 points"
    assert verdict(sure, "less", 3, "") == "resolved, the opposite: +1.00"
    assert verdict(sure, "alike", 3, "") == "resolved, they differ: +1.00"
    assert verdict(unsure, "more", 3, "") == f"not resolved, smaller than {0.1 + 3.182446 * math.sqrt(0.02):.2f}"
    assert verdict(unsure, "more", 5, "") == "4 of 5 seeds"


def test_more_seeds_are_worth_it_until_resolved_or_small_or_limited_by_utterances() -> None:
    assert settled(Estimate(1.0, 3, 0.1), 0.1, 3)  # resolved
    assert settled(Estimate(0.0, 3, 0.01), 0.1, 3)  # smaller than is of interest
    assert settled(Estimate(0.0, 3, 0.1, 0.5), 0.1, 3)  # limited by the test set
    assert not settled(Estimate(0.0, 3, 0.5, 0.5), 0.1, 3)
    assert not settled(Estimate(1.0, 2, 0.001), 0.1, 3) and not settled(None, 0.1, 3)
