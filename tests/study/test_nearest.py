"""The nearest tested cell, what it costs over one worker, and a warning outside of what was tested."""

from __future__ import annotations

from pathlib import Path

import pytest
from study_claims import a_result

from pykaldist.errors import UserError
from pykaldist.study.nearest import alone, known_cells, pairs, render, risks
from pykaldist.study.results import TUNING_SEED, Results, Trial

SHAPE = "--hid-dim 8"


@pytest.fixture
def results(tmp_path: Path) -> Results:
    found = Results(tmp_path / "results")
    for seed in (0, 1, 2, TUNING_SEED):
        found.add(a_result(Trial("toy", f"{SHAPE} --learn-rate 0.1", seed), 1.0 + 0.1 * seed, (1, 1)))
        found.add(a_result(Trial("toy", f"{SHAPE} --learn-rate 0.1 --optimizer ngsgd", seed), 0.5, (1, 0)))
        for ngpu, period, more in ((4, 10, 1), (16, 10, 2), (16, 50, 9)):
            options = f"--average-period {period} {SHAPE} --learn-rate 0.02 --ngpu {ngpu} --strategy ma"
            found.add(a_result(Trial("toy", options, seed), 1.0 + 0.1 * seed + 0.01 * more, (1 + more, 1)))
        found.add(a_result(Trial("toy", "--hid-dim 9 --learn-rate 0.02 --ngpu 4 --strategy bmuf", seed)))  # no worker alone beside it
    return found


def test_a_cell_costs_what_it_has_over_one_worker_with_the_same_seed(results: Results) -> None:
    found = {(cell.ngpu, cell.period): cell for cell in known_cells(results, ["toy"])}
    assert set(found) == {(4, 10), (16, 10), (16, 50)}
    assert [found[key].wer.mean for key in found] == pytest.approx([found[key].loss.mean * 100 for key in found])
    assert found[16, 50].wer.mean == pytest.approx(9.0) and found[16, 50].loss.half < 1e-9 and found[16, 50].wer.n == 3


@pytest.mark.parametrize(("asked", "nearest", "warning"), [
    (("ma", 16, 10), (16, 10), ""), (("ma", 9, 20), (16, 10), ""), (("ma", 6, 10), (4, 10), ""), (("ma", 16, 40), (16, 50), ""),
    (("ma", 64, 10), (16, 10), "outside what was tested: workers 4 to 16"),
    (("ma", 2, 100), (16, 50), "outside what was tested: workers 4 to 16, period 10 to 50"),
    (("bmuf", 4, 10), None, "this strategy was not tested"),
])
def test_the_nearest_cell(results: Results, asked, nearest, warning: str) -> None:
    risk, = risks(known_cells(results, ["toy"]), [asked], 256, "sgd")
    assert (risk.nearest and (risk.nearest.ngpu, risk.nearest.period)) == nearest and risk.warning == warning
    assert warning in render([risk]) and ("none" in render([risk])) == (nearest is None)


def test_another_minibatch_is_outside_and_another_optimiser_farther(results: Results) -> None:
    cells = known_cells(results, ["toy"])
    assert risks(cells, [("ma", 16, 10)], 1024, "sgd")[0].warning == "outside what was tested: minibatch 256 to 256"
    assert cells[0].distance(4, 10, 256, "ngsgd") == 1.0 and cells[0].distance(8, 10, 512, "sgd") == pytest.approx(2**0.5)


def test_options_of_a_strategy_and_of_its_rate_do_not_make_one_worker_another() -> None:
    several = pairs("--block-gain 2 --dtype bf16 --learn-rate 0.1 --ngpu 4 --strategy bmuf --minibatch-size 64")
    assert alone(several) == {"--dtype": "bf16", "--minibatch-size": "64"}


def test_plan_says_what_accuracy_may_cost(results: Results, capsys: pytest.CaptureFixture[str]) -> None:
    from pykaldist.cli import main

    words = ["plan", "--cluster", "k20-infiniband", "--strategy", "ma,ssgd", "--ngpu", "16", "--average-period", "10", "--accuracy"]
    assert main([*words, str(results.folder)]) == 0
    said = capsys.readouterr().out
    assert "toy, 16 workers, period 10, minibatch 256, sgd" in said and "this strategy was not tested" in said
    assert main([*words, str(results.folder.parent)]) == 1 and "expected a folder with results" in capsys.readouterr().err
    with pytest.raises(UserError, match="damaged"):
        (results.folder / "bad.jsonl").write_text("{\n\n")
        Results(results.folder)
