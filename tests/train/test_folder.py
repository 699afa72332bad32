"""The files of an experiment's folder, damaged: each is one sentence, or is made good."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from pykaldist.cli import main
from pykaldist.cli.compile import _compiled_before
from pykaldist.io import container
from pykaldist.parallel.launch.watch import read_records
from pykaldist.train.checkpoints import TRAINER, Checkpoints
from pykaldist.train.history import read_history

OPTIONS = ["--hid-layers", "1", "--hid-dim", "8", "--splice", "1", "--minibatch-size", "16", "--num-threads", "1", "--device", "cpu",
           "--schedule", "newbob", "--num-epochs", "3", "--learn-rate", "0.01"]


@pytest.fixture
def exp(make_store: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A training that has come to its end."""
    make_store([50, 60, 40], name="dev", seed=2)
    make_store([50, 60, 70, 80], name="train", seed=1)
    assert train(tmp_path / "exp") == 0
    capsys.readouterr()
    return tmp_path / "exp"


def train(exp: Path) -> int:
    return main(["train", *OPTIONS, str(exp.parent / "store"), str(exp)])


@pytest.mark.parametrize(("change", "words"), [
    (lambda text: "", "is damaged: it is not JSON"), (lambda text: text[:-30], "is damaged: it is not JSON"),
    (lambda text: "[]", "is not as expected: the file is list, expected an object with format, options"),
    (lambda text: text.replace('"ngpu": 1', '"ngpu": "1"'), "is not as expected: ngpu is '1', expected a whole number"),
    (lambda text: text.replace('"inputs"', '"imputs"'), "is not as expected: imputs is unknown"),
    (lambda text: text.replace('"format": 1', '"format": 9'), "has the format 9, this version reads 1"),
])
def test_a_damaged_config_is_a_sentence_and_nothing_is_removed(exp: Path, capsys: pytest.CaptureFixture[str],
                                                               change: Callable[[str], str], words: str) -> None:
    path = exp / "config.json"
    sound = path.read_text()
    path.write_text(change(sound))
    before = {p: p.read_bytes() for p in exp.rglob("*") if p.is_file() and p.name != ".lock"}
    assert train(exp) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and f"{path} {words}" in said and "; restore it; or, to begin again, remove " in said
    assert {p: p.read_bytes() for p in exp.rglob("*") if p.is_file() and p.name != ".lock"} == before
    path.write_text(sound)
    record = (exp / "inputs.json").read_text()
    (exp / "inputs.json").unlink()  # as a run leaves it that is killed between its last two files
    assert train(exp) == 0 and "is already there, made with these options" in capsys.readouterr().out
    assert json.loads((exp / "inputs.json").read_text())["own"].keys() == json.loads(record)["own"].keys()


def test_a_history_that_is_cut(exp: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, lines = exp / "history.jsonl", read_history(exp)
    assert [line["epoch"] for line in lines] == [1, 2, 3] and read_history(exp / "none") == []
    path.write_bytes(path.read_bytes()[:-20])
    assert read_history(exp) == lines[:2]
    assert capsys.readouterr().err == f"WARNING: {path}, line 3: the last line is cut, and left out\n"


def newest(exp: Path) -> tuple[Path, dict[str, Any]]:
    """The trainer's part of the newest checkpoint, of a training that shall go on from there."""
    (exp / "final.pt").unlink()
    found = Checkpoints(exp / "ckpt")
    path = found.file(max(found.files()), TRAINER)
    return path, container.load(path)


def test_a_checkpoint_that_lacks_something_is_passed_over(exp: Path, capsys: pytest.CaptureFixture[str]) -> None:
    params = container.load(exp / "final.pt")["params"]
    path, state = newest(exp)
    del state["divergence"]["tries"]
    container.save(path, state)
    assert train(exp) == 0
    said = capsys.readouterr()
    assert f"WARNING: {path} is of another version: the checkpoint.divergence is a dictionary with bounds, backed_off" in said.err
    assert "Going back to the checkpoint before" in said.err and "resuming at epoch 3" in said.out
    assert torch.equal(container.load(exp / "final.pt")["params"], params)


@pytest.mark.parametrize(("change", "words"), [
    ({"schedule": {"rate": 0.1}}, "the schedule is a dictionary with rate, expected one with rate, halving, ended, best"),
    ({"schedule": {"rate": "0.1", "halving": False, "ended": False, "best": 1.0}}, "the schedule.rate is of type str, expected float"),
    ({"history": "{"}, "Expecting property name"),
    ({"accepted": torch.zeros(3)}, "must match"),
])
def test_a_state_that_does_not_fit_is_a_sentence(exp: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any],
                                                 words: str) -> None:
    path, state = newest(exp)
    container.save(path, {**state, **change})
    assert train(exp) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and f"{path} does not fit this training (" in said and words in said
    assert said.endswith(f"remove {path.parent} to begin again.\n")


def test_records_of_processes_and_kernels_that_are_damaged_do_not_count(tmp_path: Path) -> None:
    sound = {"job": 1, "host": "a", "pid": 2, "beat": 3, "progress": 4, "state": "computing"}
    for name, content in enumerate((json.dumps(sound), "[]", "{", json.dumps({**sound, "beat": "3"}), '{"job": 1}')):
        (tmp_path / str(name)).write_text(content)
    assert read_records(tmp_path) == {0: {**sound, "training": None}}
    for content, found in (('{"of": {"numba": "1"}, "kernels": {"a": ["x"]}}', {"numba": "1"}), ("{}", {}), ("", {})):
        (tmp_path / "kernels.json").write_text(content)
        assert _compiled_before(tmp_path / "kernels.json") == found
    assert _compiled_before(tmp_path / "none") == {}
