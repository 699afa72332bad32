"""`--json`: every verb that prints a table prints what it is made of, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pykaldist.cli import main
from pykaldist.io.atomic import write_text
from pykaldist.usage import MARK

PREDICT = ["predict", "--nnets", "su2015-dnn", "--gpus", "h200,a100", "--optimizers", "sgd", "--dtypes", "float32", "--hours", "300",
           "--ngpu", "1,8"]


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    """What a verb prints with --json."""
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def write_scored(folder: Path, errors: int) -> None:
    folder.mkdir(parents=True)
    write_text(folder / "best_wer", f"%WER {errors:.2f} [ {errors} / 100, 1 ins, 0 del, {errors - 1} sub ] exp/wer_9_0.5\n")


def test_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed, errors in ((1, 10), (2, 14)):
        write_scored(tmp_path / f"{seed}/dnn/decode", errors)
    (tmp_path / "1/dnn/log").mkdir()
    write_text(tmp_path / "1/dnn/log/train.log",
               f"{MARK}train: 0.5 h of speech in 7.0 s, 6.5 s of CPU, 300 MB of memory, 2 MB read, 1 MB written\n")
    tables = printed(capsys, "report", str(tmp_path / "1"))
    (one,), (stage,) = tables["systems"], tables["stages"]
    assert (stage["name"], stage["processes"], stage["hours"], stage["wall"], stage["memory"]) == ("dnn: train", 1, 0.5, 7.0, 300.0)
    assert (one["system"], one["wer"], one["errors"], one["lmwt"], one["penalty"]) == ("dnn/decode", 10.0, 10, 9, 0.5)
    (both,) = printed(capsys, "report", str(tmp_path / "1"), str(tmp_path / "2"))
    assert (both["mean"], both["least"], both["most"], both["runs"]) == (12.0, 10.0, 14.0, 2)
    assert both["sd"] == pytest.approx(8**0.5)
    assert main(["report", str(tmp_path / "1"), "--json", "--html", str(tmp_path / "page.html")]) == 1


def test_plan(capsys: pytest.CaptureFixture[str]) -> None:
    plan = printed(capsys, "plan", "--cluster", "k20-infiniband", "--ngpu", "16,32", "--strategy", "ma", "--average-period", "10")
    assert [p["ngpu"] for p in plan["predictions"]] == [16, 32] and plan["recommended"]["strategy"] == "ma"
    parts = ("compute", "load", "wait", "exchange", "score", "fixed")
    assert all(p["total"] == pytest.approx(sum(p[part] for part in parts)) for p in plan["predictions"])


def test_predict(capsys: pytest.CaptureFixture[str]) -> None:
    found = printed(capsys, *PREDICT)
    assert len(found["steps"]) == 1 and len(found["frames_per_second"]) == 2 and len(found["epochs"]) == 4
    fast = {(one["gpu"], one["ngpu"]): one["seconds"] for one in found["epochs"]}
    assert all(fast[gpu, 8] < fast[gpu, 1] for gpu in {one["gpu"] for one in found["epochs"]})


def test_simulate(capsys: pytest.CaptureFixture[str]) -> None:
    found = printed(capsys, "simulate", "--strategies", "ma", "--ngpus", "1,8", "--clusters", "k20-infiniband")
    assert [(one["strategy"], one["ngpu"]) for one in found] == [("local", 1), ("ma", 8)] and found[0]["epoch"] > found[1]["epoch"] > 0


def test_paper_table(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["paper-table", "--table", "6", str(root / "egs/swbd/s5c/local"), str(tmp_path)]
    assert {one["obtained"] for one in printed(capsys, *command)} == {None}
    assert all(one["ngpu"] >= 1 for one in printed(capsys, *command, "--runs", "true"))


def test_counts_and_recipes(tmp_path: Path, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_text(tmp_path / "counts.tsv", "train\tutterances\t2\t0\tsomewhere\n")
    (tmp_path / "train").mkdir()
    write_text(tmp_path / "train/utt2spk", "a s\nb s\n")
    assert printed(capsys, "check-counts", str(tmp_path / "counts.tsv"), str(tmp_path))[0]["found"] == 2
    (one,) = printed(capsys, "check-recipe", str(root / "egs/yesno/s5/run.sh"))
    assert one["recipe"].endswith("yesno/s5/run.sh") and {call["verdict"] for call in one["calls"]} == {"accepted"}


def test_study(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = ["study", "--claim", "01-natural-gradient", str(root / "egs/study"), str(tmp_path)]
    found = printed(capsys, *study, "--dry-run", "true")
    assert found and all(one["claim"] == "01-natural-gradient" and one["trainings"] >= 0 and "cpu_seconds" in one for one in found)
    assert main([*study, "--json"]) == 1 and "--dry-run true" in capsys.readouterr().err
