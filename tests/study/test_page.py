"""The page says what results say, and the one that is kept is that of the results that are kept."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from study_claims import a_claim, a_result

from pykaldist.study.claims import read_claims
from pykaldist.study.order import Examined, in_order
from pykaldist.study.page import missing_table, missing_trainings, plot, render
from pykaldist.study.results import Result, Results, Trial

STUDY = Path(__file__).resolve().parents[2] / "egs" / "study"


def outcome(trial: Trial) -> Result:
    """The second optimiser makes about 20 errors in 1,000 words more."""
    more = 2 * ("ngsgd" in trial.options)
    return a_result(trial, 1.0 + 0.1 * more + 0.01 * trial.seed % 3, (8 + more, 9 + more + trial.seed % 2) * 5, 1000)


def full(tmp_path: Path, outcome=outcome) -> Results:
    results = Results(tmp_path / "results")
    while (trial := next(in_order([a_claim("one")], ["toy"], results), None)) is not None:
        results.add(outcome(trial))
    return results


def row(page: str, name: str) -> list[str]:
    return [cell.strip() for line in page.splitlines() if line.startswith(f"| {name} ") for cell in line.split("|")[1:-1]]


def test_the_page_of_a_study_that_is_complete(tmp_path: Path) -> None:
    page = render([a_claim("one")], full(tmp_path))
    assert "at most 0 are missing" in page and "**toy**: complete." in page
    assert row(page, "a, 1")[0] == "a, 1" and row(page, "a, 1")[2:4] == ["2.0000", "3"] and "8.67 ± 0.72" in row(page, "a, 1")
    contrast = row(page, "b less a")
    assert contrast[1:3] == ["3", "+2.00 ± 0.00"] and "resolved, as claimed: +2.00 points" in contrast


def test_the_page_of_a_study_that_has_not_begun_or_is_under_way(tmp_path: Path) -> None:
    claim, results = a_claim("one"), Results(tmp_path)
    assert "**toy**: 32 trainings missing, at most." in render([claim], results)
    assert "not known yet" in missing_table(missing_trainings([claim], results))
    results.add(outcome(next(in_order([claim], ["toy"], results))))
    page = render([claim], results)
    assert "0.01 (1 try)" in page and "no seed yet" in page
    assert row(missing_table(missing_trainings([claim], results)), "one")[2:] == ["31", "1"]


def test_a_cell_whose_trainings_diverged_says_so(tmp_path: Path) -> None:
    page = render([a_claim("one")], full(tmp_path, lambda trial: a_result(trial, float("inf")) if trial.seed == 1 else outcome(trial)))
    assert row(page, "a, 1")[-1] == "1" and row(page, "b less a")[1] == "3"  # of the four that were trained


def test_times_and_what_is_held_out_are_those_of_the_epochs(tmp_path: Path) -> None:
    def epochs(trial: Trial) -> Result:
        time = "simulated" if "--ngpu 4" in trial.options else "measured"
        history = [{"learn_rate": 0.5, "disagreement": 0.25, "cv_wer": wer, "seconds": {"total": seconds}, "time": time}
                   for wer, seconds in ((0.25, 2.0), (0.125, 4.0))]
        return dataclasses.replace(outcome(trial), history=history)

    page = render([a_claim("one")], full(tmp_path, epochs))
    head = [cell.strip() for cell in next(line for line in page.splitlines() if line.startswith("| cell")).split("|")[1:-1]]
    one, four = (dict(zip(head, row(page, name), strict=True)) for name in ("a, 1", "a, 4"))
    assert four["simulated s an epoch"] == "3.000" and one["simulated s an epoch"] == "" and one["s of CPU"] == "2"
    assert one["held-out WER on lattices, %"] == "12.50" and four["disagreement x 1000"] == "250.0"


def test_a_picture_is_drawn_where_there_are_results(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert not plot(Examined(a_claim("one"), "toy", Results(tmp_path / "none")), tmp_path / "none.png")
    assert plot(Examined(a_claim("one"), "toy", full(tmp_path)), tmp_path / "some.png")
    assert (tmp_path / "some.png").read_bytes().startswith(b"\x89PNG") and not (tmp_path / "none.png").exists()


def test_the_page_that_is_kept_is_that_of_the_results_that_are_kept() -> None:
    kept = (STUDY / "RESULTS.md").read_text(encoding="utf-8")
    assert kept == render(read_claims(STUDY / "claims"), Results(STUDY / "results")), "run egs/study/run.sh --max-minutes 0 once more"
