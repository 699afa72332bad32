"""Cells that are trained again hold their bands as often as they should, and those that are worse do not."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from study_claims import a_result

from pykaldist.errors import UserError
from pykaldist.study.evidence import by_options, check, chosen, half_width
from pykaldist.study.results import TUNING_SEED, Result, Results, Trial


def some(tmp_path: Path, cells: int = 6, seeds: int = 3, spread: float = 0.01) -> Results:
    generator, results = np.random.default_rng(0), Results(tmp_path / "results")
    for cell in range(cells):
        for seed in (*range(seeds), TUNING_SEED):
            options = f"--ngpu {2 ** (cell % 3)} --strategy {'ma' if cell % 2 else 'bmuf'} --x {cell}"
            results.add(a_result(Trial("toy", options, seed), 1 + 0.1 * cell + spread * generator.normal()))
    return results


def test_the_spread_is_pooled_over_cells() -> None:
    generator = np.random.default_rng(1)
    groups = {str(cell): [a_result(Trial("toy", "x", seed), 5 * cell + loss) for seed, loss in enumerate(generator.normal(size=4))]
              for cell in range(300)}
    width = half_width(groups, lambda result: result.loss, 4)
    assert width == pytest.approx(3.29 * math.sqrt(1.25), rel=0.05)  # 999 of 1,000 of a normal distribution
    assert half_width({"a": groups["1"][:2]}, lambda result: result.loss, 2) > 100 * half_width(
        {"a": groups["1"], "b": groups["2"]}, lambda result: result.loss, 4) * abs(groups["1"][0].loss - groups["1"][1].loss)


def test_cells_of_every_kind_are_chosen_before_a_second_of_one(tmp_path: Path) -> None:
    groups = by_options(some(tmp_path, cells=12), "toy")
    assert len(groups) == 12 and not by_options(some(tmp_path), "elsewhere")
    six = chosen(groups, 6, 1e9)
    assert len({tuple(options.split()[:4]) for options in six}) == 6
    assert len(chosen(groups, 100, 1e9)) == 12 and len(chosen(groups, 100, 7.0)) == 3
    assert not chosen(by_options(some(tmp_path / "few", seeds=2), "toy"), 10, 1e9)


def test_a_change_that_costs_accuracy_is_seen(tmp_path: Path) -> None:
    results = some(tmp_path)

    def again(worse: float):
        def carry_out(trial: Trial, corpus: object, exp: Path) -> Result:
            cell = int(trial.options.split()[-1])
            return a_result(trial, 1 + 0.1 * cell + (worse if cell == 3 else 0.0))
        return carry_out

    with pytest.raises(UserError, match=r"other.jsonl has no cell of 3 seeds yet"):
        check("other", None, results, tmp_path, again(0.0))
    table, holds = check("toy", None, results, tmp_path, again(0.0))
    assert holds and "NO" not in table and table.count("yes") == 6
    table, holds = check("toy", None, results, tmp_path, again(0.08))
    assert not holds and table.count("NO") == 1 and "1.38" in next(line for line in table.splitlines() if "NO" in line)
