"""Moving averages of the model: by their definition, over several workers, and as what a training ends with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pykaldist.cli import main
from pykaldist.io import container
from pykaldist.train.averages import MovingAverages


class Processes:
    """Another process beside this one, whose workers' averages sum to `theirs` and count `count`."""

    def __init__(self, theirs: torch.Tensor, count: int) -> None:
        self.other = torch.cat([theirs, theirs.new_tensor([float(count)])])

    def sum(self, buffer: torch.Tensor, scale: float) -> None:
        buffer.add_(self.other).mul_(scale)


@given(st.floats(0.01, 0.999), st.lists(st.floats(-5, 5), min_size=1, max_size=30))
def test_an_average_is_what_it_says(decay: float, models: list[float]) -> None:
    averages = MovingAverages(decay, torch.zeros(1, dtype=torch.float64), 1)
    averages.start(torch.tensor([2.0], dtype=torch.float64))
    expected = 2.0
    for t, model in enumerate(models):
        kept = min(decay, (1 + t) / (10 + t))
        expected = kept * expected + (1 - kept) * model
        averages.follow(0, torch.tensor([model], dtype=torch.float64), t)
    assert averages.state_of(0)["average"].item() == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_it_is_the_mean_over_workers_that_live_and_is_forgotten_where_an_epoch_is_rejected() -> None:
    averages = MovingAverages(0.5, torch.zeros(2, dtype=torch.float64), 3)
    for index in range(3):
        averages.load(index, {"average": torch.full((2,), float(index), dtype=torch.float64)})
    averages.accept([0, 2], Processes(torch.full((2,), 8.0, dtype=torch.float64), 2))  # type: ignore[arg-type]  # has all that is called
    assert averages.accepted.tolist() == [2.5, 2.5]  # of 0, 2 and two that are 8 together
    averages.follow(1, torch.full((2,), 100.0, dtype=torch.float64), 1000)
    averages.go_back()
    assert all(averages.state_of(index)["average"].tolist() == [2.5, 2.5] for index in range(3))


def test_without_a_decay_there_is_nothing() -> None:
    averages = MovingAverages(0.0, torch.zeros(2), 3)
    averages.follow(0, torch.ones(2), 5)
    assert not averages and averages.state_of(0)["average"].numel() == averages.accepted.numel() == 0


@pytest.mark.parametrize("words", [["--strategy", "local", "--ngpu", "2"], []])
def test_a_training_ends_with_its_average_and_trains_as_without(make_store, tmp_path: Path, words: list[str]) -> None:
    make_store([60, 80, 50, 70], seed=1, name="train")
    store = make_store([30, 40], seed=2, name="dev").path.parent
    options = ["--hid-layers", "1", "--hid-dim", "8", "--splice", "1", "--minibatch-size", "10", "--learn-rate", "0.02", "--device", "cpu",
               "--schedule", "exponential", "--num-epochs", "3", "--fabric", "virtual", *words]
    for name, more in (("plain", []), ("averaged", ["--ema-decay", "0.9"])):
        assert main(["train", *options, *more, str(store), str(tmp_path / name)]) == 0
    plain, averaged = ([json.loads(line) for line in (tmp_path / name / "history.jsonl").read_text().splitlines()]
                       for name in ("plain", "averaged"))
    assert [line["cv_loss"] for line in plain] == [line["cv_loss"] for line in averaged]
    assert all("averaged_cv_loss" in line for line in averaged) and "averaged_cv_loss" not in plain[0]
    one, other = (container.load(tmp_path / name / "final.pt")["params"] for name in ("plain", "averaged"))
    assert 0.0 < (one - other).norm() / one.norm() < 0.2


def test_a_decay_of_one_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["train", "--ema-decay", "1", str(tmp_path), str(tmp_path)]) == 1
    assert "--ema-decay 1 is outside [0, 1)" in capsys.readouterr().err
