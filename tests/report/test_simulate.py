"""Runs on simulated clusters beside each other."""

from __future__ import annotations

import csv
import json
import re

import pytest

from pykaldist.cli import main
from pykaldist.errors import UserError
from pykaldist.report.simulate import Run, read_run, render, times, write


def line(epoch, total, acc):
    return {"epoch": epoch, "time": "simulated", "seconds": {"total": total}, "train_loss": 1.0, "cv_loss": 2.0 - acc, "cv_acc": acc,
            "disagreement": 0.0, "updates": 9, "frames": 900, "learn_rate": 0.1, "accepted": True}


ONE = Run("c", "local", 1, [line(1, 100.0, 0.4), line(2, 100.0, 0.5), line(3, 100.0, 0.48), line(4, 100.0, 0.6)])
FOUR = Run("c", "adpsgd --pattern pairwise", 4, [line(1, 30.0, 0.3), line(2, 30.0, 0.5)])
BAD = Run("c", "asgd", 4, [])


def test_the_time_to_an_accuracy_lies_between_epochs():
    assert [ONE.time_to(a) for a in (0.3, 0.4, 0.45, 0.5, 0.55, 0.7)] == [100.0, 100.0, pytest.approx(150.0), 200.0,
                                                                           pytest.approx(350.0), None]
    assert FOUR.time_to(0.4) == pytest.approx(45.0) and BAD.time_to(0.1) is None


def test_speed_ups_are_over_one_worker_on_the_same_cluster():
    one, four, bad = times([ONE, FOUR, BAD], [0.5])
    assert (one["epoch"], one["speed_up"], one["speed_up_to_0.5"]) == (100.0, 1.0, 1.0)
    assert (four["speed_up"], four["to_0.5"], four["speed_up_to_0.5"]) == (pytest.approx(100 / 30), 60.0, pytest.approx(200 / 60))
    assert bad["epoch"] is None and bad["speed_up"] is None
    (alone,) = times([FOUR], [0.5])
    assert alone["epoch"] == 30.0 and alone["speed_up"] is None


def test_what_it_leaves(tmp_path):
    text = render([ONE, FOUR, BAD], [0.5, 0.6])
    assert "| c       | adpsgd --pattern pairwise | 4    | 30.0 s   | 3.33     | 50.00             | 60.0 s (83 %)" in text
    assert "failed" in text and "400.0 s (100 %)" in text
    write([ONE, FOUR, BAD], [0.5], tmp_path)
    curves = list(csv.DictReader((tmp_path / "curves.csv").open()))
    assert len(curves) == 6 and [float(row["seconds"]) for row in curves][-2:] == [30.0, 60.0]
    assert len(list(csv.DictReader((tmp_path / "times.csv").open()))) == 3
    assert (tmp_path / "curves.png").read_bytes()[:4] == b"\x89PNG"


def test_runs_that_cannot_be_compared_are_refused(tmp_path):
    for changed, words in (({"time": "measured"}, "measured, not simulated"), ({"cv_acc": None}, "no frame accuracy")):
        wrong = {k: v for k, v in {**line(1, 1.0, 0.5), **changed}.items() if v is not None}
        (tmp_path / "history.jsonl").write_text(json.dumps(wrong) + "\n")
        with pytest.raises(UserError, match=words):
            read_run("c", "ssgd", 2, tmp_path)


def test_the_verb_trains_draws_and_keeps_what_is_finished(make_store, tmp_path, capsys):
    make_store([20, 35, 50, 44, 60, 31, 25], seed=1, name="train")
    store = make_store([30, 40], seed=2, name="dev").path.parent
    train = "--hid-layers 1 --hid-dim 8 --splice 1 --minibatch-size 8 --num-threads 1 --device cpu --schedule exponential --num-epochs 2 " \
            "--learn-rate 0.02"
    cluster = tmp_path / "small.json"
    cluster.write_text(json.dumps({"name": "small", "description": "", "nodes": 4, "devices": 1, "compute": {"minibatch_seconds": 1.0},
                                   "between": {"bandwidth": 1e4}, "workload": {"network": "12-8x1-5", "parameters": 149,
                                                                              "minibatch_size": 8, "frames": 265}}))
    words = ["simulate", "--clusters", str(cluster), "--ngpus", "1,4",
             "--strategies", "ssgd,adpsgd --pattern pairwise,asgd --max-distance -1",
             "--accuracies", "30,99", "--train-options", train, str(store), str(tmp_path / "out")]
    assert main(words) == 0
    captured = capsys.readouterr()
    assert "--max-distance -1 is negative" in captured.err
    assert re.search(r"\| asgd --max-distance -1 +\| 4 +\| failed", captured.out)
    assert (tmp_path / "out" / "small-adpsgd-pattern-pairwise-4" / "final.pt").is_file()
    rows = list(csv.DictReader((tmp_path / "out" / "times.csv").open()))
    gains = {row["strategy"]: row["speed_up"] for row in rows}
    assert float(gains["local"]) == 1.0 and 3.0 < float(gains["adpsgd --pattern pairwise"]) <= 4.0
    before = (tmp_path / "out" / "times.csv").read_text()
    assert main(words) == 0
    assert "nothing to do" in (tmp_path / "out" / "small-ssgd-4" / "train.log").read_text()
    assert (tmp_path / "out" / "times.csv").read_text() == before


@pytest.mark.parametrize(("options", "words"), [(["--ngpus", "0"], "--ngpus 0"), (["--ngpus", "2,x"], "--ngpus 2,x"),
                                                (["--accuracies", "good"], "--accuracies good"),
                                                (["--clusters", "k21", "--ngpus", "2"], "no run ended well")])
def test_what_it_cannot_do_is_said_in_words(tmp_path, capsys, options, words):
    assert main(["simulate", *options, str(tmp_path), str(tmp_path / "out")]) == 1
    assert words in capsys.readouterr().err
