"""Every model under every strategy and optimiser, by two virtual workers: it learns, and stopped and resumed it is the same to the bit."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
import torch
from stopping import Interrupted, stop_at

from pykaldist.cli import main
from pykaldist.io import container
from pykaldist.nnet.kinds import KINDS
from pykaldist.parallel.strategies.base.registry import strategies, strategy_class

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


def train(store: Path, exp: Path, *options: str) -> tuple[torch.Tensor, list[dict]]:
    assert main(["train", *options, str(store), str(exp)]) == 0
    history = [json.loads(line) for line in (exp / "history.jsonl").read_text().splitlines()]
    return container.load(exp / "final.pt")["params"], [{k: v for k, v in line.items() if k != "seconds"} for line in history]


def stopped_and_resumed(monkeypatch, store: Path, exp: Path, *options: str) -> tuple[torch.Tensor, list[dict]]:
    """With a checkpoint at every safe point, stopped after some of them, twice or more, until it is through."""
    stops = 0
    stop_at(monkeypatch, lambda count: count in (2, 3, 7, 11))
    monkeypatch.setattr(os, "fsync", lambda file: None)  # no power is to fail
    while True:
        try:
            outcome = train(store, exp, *options, "--checkpoint-minutes", "0")
            assert stops >= 2
            return outcome
        except Interrupted:
            stops += 1


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("strategy", strategies())
@pytest.mark.parametrize("model", MODELS)
def test_it_learns_and_resumes(store, tmp_path, monkeypatch, capsys, model, strategy, optimizer):
    options = [*MODELS[model], *OPTIMIZERS[optimizer], "--strategy", strategy, "--ngpu", "2", "--fabric", "virtual", "--lr-scale", "none",
               "--schedule", "exponential", "--num-epochs", "4", "--num-threads", "1", "--device", "cpu"]
    if strategy in ("ma", "bmuf", "easgd"):
        options += ["--average-period", "3"]
    if strategy == "easgd":  # the centre follows the workers slowly
        options += ["--lr-scale", "linear"]
    if strategy == "diloco":  # two workers, few minibatches: the published momentum, 0.9, multiplies what they have moved by 3.5
        options += ["--fragments", "2", "--average-period", "4", "--outer-momentum", "0.5"]
    if strategy_class(strategy).asynchronous:
        (tmp_path / "two.json").write_text(json.dumps(CLUSTER))
        options += ["--cluster", str(tmp_path / "two.json")]

    params, history = train(store, tmp_path / "whole", *options)
    before = float(re.search(r"^before training: cv loss ([\d.]+)", capsys.readouterr().out, re.MULTILINE)[1])
    assert min(line["cv_loss"] for line in history) < 0.95 * before
    assert not any("backed_off" in line for line in history)
    assert all(line["frames"] == 305 for line in history) and history[-1]["updates"] >= 50
    resumed, resumed_history = stopped_and_resumed(monkeypatch, store, tmp_path / "exp", *options)
    assert torch.equal(resumed, params)
    if not strategy_class(strategy).asynchronous:
        assert resumed_history == history


@pytest.mark.parametrize(("strategy", "model", "optimizer"), [("ma", "lstm", "sgd"), ("ssgd", "blstm", "ngsgd"), ("bmuf", "blstm", "sgd")])
def test_ctc_learns_and_resumes(make_store, tmp_path, monkeypatch, capsys, strategy, model, optimizer):
    make_store([20, 35, 50, 44, 60, 31, 25, 40], seed=1, name="train", extras=("labels",))
    store = make_store([30, 40], seed=2, name="dev", extras=("labels",)).path.parent
    (store / "tokens.txt").write_text("<blk> 0\na 1\nb 2\nc 3\nd 4\ne 5\n")
    options = ["--objective", "ctc", "--nnet", model, "--sequences", "whole", "--num-streams", "1", "--hid-layers", "1", "--hid-dim", "16",
               *OPTIMIZERS[optimizer], "--strategy", strategy, "--ngpu", "2", "--fabric", "virtual", "--lr-scale", "none",
               "--learn-rate", "0.06", "--schedule", "exponential", "--num-epochs", "6", "--num-threads", "1", "--device", "cpu"]
    params, history = train(store, tmp_path / "whole", *options)
    said = capsys.readouterr().out
    before = float(re.search(r"^before training: cv loss ([\d.]+), label error", said, re.MULTILINE)[1])
    assert history[-1]["cv_loss"] < 0.95 * before and "sequences of 5 labels and blank" in said
    assert not any("backed_off" in line for line in history)
    assert (tmp_path / "whole" / "tokens.txt").exists() and not (tmp_path / "whole" / "ali_train_pdf.counts").exists()
    resumed, resumed_history = stopped_and_resumed(monkeypatch, store, tmp_path / "exp", *options)
    assert torch.equal(resumed, params) and resumed_history == history


@pytest.mark.parametrize(("options", "words"), [
    (["--objective", "ctc", "--nnet", "lstm"], "on whole utterances"), (["--objective", "ctc"], "for recurrent networks"),
    (["--objective", "ctc", "--nnet", "blstm", "--sequences", "whole"], "has no label sequences"),
    (["--nnet", "lstm", "--partition-level", "frame", "--ngpu", "2"], "use --partition-level utterance"),
    (["--nnet", "lstm", "--minibatch-size", "64"], "--num-streams sequences"),
    (["--nnet", "cnn", "--layerwise-epochs", "1"], "for --nnet dnn"),
    (["--nnet", "dnn", "--num-streams", "4"], "belongs to --nnet lstm"), (["--nnet", "lstm", "--conv", "2x2x2"], "belongs to --nnet cnn")])
def test_options_of_others_are_refused(store, tmp_path, capsys, options, words):
    assert main(["train", *options, "--device", "cpu", str(store), str(tmp_path / "exp")]) == 1
    assert words in capsys.readouterr().err
