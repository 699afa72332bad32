"""Every model under every strategy and optimiser, by two virtual workers: it learns, and stopped and resumed it is the same to the bit."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
import torch

from pykaldist.cli import main
from pykaldist.io import container
from pykaldist.nnet.kinds import KINDS
from pykaldist.parallel.strategy import strategies, strategy_class
from pykaldist.train.checkpoints import Checkpoints

CLUSTER = {"name": "two", "description": "", "nodes": 2, "devices": 1, "compute": {"minibatch_seconds": 0.5, "spread": 0.3},
           "between": {"bandwidth": 1e4, "latency": 1e-3},
           "workload": {"network": "small", "parameters": 500, "minibatch_size": 8, "frames": 300}}
MODELS = {
    "dnn": ["--nnet", "dnn", "--hid-layers", "1", "--hid-dim", "8", "--splice", "1", "--minibatch-size", "10"],
    "cnn": ["--nnet", "cnn", "--conv", "2x2x4/2", "--hid-layers", "1", "--hid-dim", "8", "--splice", "1", "--batch-norm", "true",
            "--minibatch-size", "10"],
    "lstm": ["--nnet", "lstm", "--hid-layers", "1", "--hid-dim", "8", "--projection-dim", "4", "--peepholes", "true", "--target-delay", "1",
             "--num-streams", "3", "--chunk", "4"],
    "blstm": ["--nnet", "blstm", "--hid-layers", "1", "--hid-dim", "8", "--num-streams", "2", "--chunk", "2-6+2"],
}
OPTIMIZERS = {"sgd": ["--learn-rate", "0.02", "--momentum", "0.3"], "ngsgd": ["--optimizer", "ngsgd", "--learn-rate", "0.02"]}


def test_the_matrix_has_every_model():
    assert {name.split(",")[0] for name in MODELS} == set(KINDS)


@pytest.fixture
def store(make_store):
    make_store([20, 35, 50, 44, 60, 31, 25, 40], seed=1, name="train")
    return make_store([30, 40], seed=2, name="dev").path.parent


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("strategy", strategies())
@pytest.mark.parametrize("model", MODELS)
def test_it_learns_and_resumes(store, tmp_path, monkeypatch, capsys, model, strategy, optimizer):
    options = [*MODELS[model], *OPTIMIZERS[optimizer], "--strategy", strategy, "--ngpu", "2", "--fabric", "virtual", "--lr-scale", "none",
               "--schedule", "exponential", "--num-epochs", "4", "--num-threads", "1", "--device", "cpu"]
    if strategy in ("ma", "bmuf"):
        options += ["--average-period", "3"]
    if strategy_class(strategy).asynchronous:
        (tmp_path / "two.json").write_text(json.dumps(CLUSTER))
        options += ["--cluster", str(tmp_path / "two.json")]

    def train(exp: Path, *more: str) -> tuple[torch.Tensor, list[dict]]:
        assert main(["train", *options, *more, str(store), str(exp)]) == 0
        history = [json.loads(line) for line in (exp / "history.jsonl").read_text().splitlines()]
        return container.load(exp / "final.pt")["params"], [{k: v for k, v in line.items() if k != "seconds"} for line in history]

    params, history = train(tmp_path / "whole")
    before = float(re.search(r"^before training: cv loss ([\d.]+)", capsys.readouterr().out, re.MULTILINE)[1])
    assert min(line["cv_loss"] for line in history) < 0.95 * before
    assert all(line["frames"] == 305 for line in history) and history[-1]["updates"] >= 50
    save, count, stops = Checkpoints.save, 0, 0

    def save_and_stop(self, *state):
        nonlocal count
        save(self, *state)
        count += 1
        if count in (2, 3, 7, 11):
            raise Interrupted

    monkeypatch.setattr(Checkpoints, "save", save_and_stop)
    monkeypatch.setattr(os, "fsync", lambda file: None)  # no power is to fail
    while True:
        try:
            resumed, resumed_history = train(tmp_path / "exp", "--checkpoint-minutes", "0")
            break
        except Interrupted:
            stops += 1
    assert stops >= 2 and torch.equal(resumed, params)
    if not strategy_class(strategy).asynchronous:
        assert resumed_history == history
