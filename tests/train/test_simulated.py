"""Training on a simulated cluster, as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from stopping import Interrupted, stop_at

from pykaldist.cli import main
from pykaldist.io import container

COMMON = ["--hid-layers", "1", "--hid-dim", "8", "--splice", "1", "--minibatch-size", "8", "--num-threads", "1", "--device", "cpu",
          "--schedule", "exponential", "--num-epochs", "3", "--learn-rate", "0.02", "--ngpu", "4"]
CLUSTER = {"name": "small", "description": "", "nodes": 2, "devices": 2, "compute": {"minibatch_seconds": 0.5, "spread": 0.3},
           "between": {"bandwidth": 1e4, "latency": 1e-3}, "slow": {"2": 3.0}, "pauses": [{"worker": 1, "at": 6.0, "seconds": 3.0}],
           "workload": {"network": "12-8x1-5", "parameters": 149, "minibatch_size": 8, "frames": 265}}
STRATEGIES = {
    "ssgd": ["--strategy", "ssgd"],
    "ma": ["--strategy", "ma", "--average-period", "2"],
    "asgd": ["--strategy", "asgd", "--max-distance", "3", "--server-momentum", "0.2"],
    "adpsgd": ["--strategy", "adpsgd", "--pattern", "random-ring"],
    "adpsgd, ngsgd": ["--strategy", "adpsgd", "--pattern", "pairwise", "--optimizer", "ngsgd"],
    "asgd, warmup": ["--strategy", "asgd", "--staleness-discount", "true", "--schedule", "warmup", "--warmup-epochs", "1.5"],
    "hadpsgd, mse": ["--strategy", "hadpsgd", "--objective", "mse", "--learn-rate", "0.005", "--work", "shards"],
    "asgd, a worker dies": ["--strategy", "asgd", "--servers", "2", "--server-adagrad", "0.01", "--work", "shards"],
    "adpsgd, a worker dies": ["--strategy", "adpsgd", "--pattern", "ring"],
    "hadpsgd, a worker dies": ["--strategy", "hadpsgd", "--group-size", "2"],
    "adpsgd after others": ["--strategy", "adpsgd", "--hid-layers", "2", "--layerwise-epochs", "1", "--serial-warmup", "0.5"]}


@pytest.fixture
def store(make_store):
    make_store([20, 35, 50, 44, 60, 31, 25], seed=1, name="train", extras=("target_feats",))
    return make_store([30, 40], seed=2, name="dev", extras=("target_feats",)).path.parent


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "small.json"
    path.write_text(json.dumps(CLUSTER))
    return str(path)


def train(store: Path, exp: Path, *options: str) -> int:
    return main(["train", *COMMON, *options, str(store), str(exp)])


def outcome(exp: Path):
    return container.load(exp / "final.pt")["params"], (exp / "history.jsonl").read_text()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_same_twice_and_stopped_and_resumed_its_log_included(store, small, tmp_path, strategy, monkeypatch, capsys):
    if "dies" in strategy:
        Path(small).write_text(json.dumps({**CLUSTER, "failures": [{"worker": 3, "at": 9.0}]}))
    options = [*STRATEGIES[strategy], "--cluster", small, "--momentum", "0.3"]
    assert train(store, tmp_path / "whole", *options) == 0
    params, history = outcome(tmp_path / "whole")
    printed = capsys.readouterr().out
    assert "all times are simulated, those of cluster" in printed and " s simulated," in printed
    lines = [json.loads(line) for line in history.splitlines()]
    assert all(line["time"] == "simulated" and line["seconds"]["total"] > 265 / 8 / 4 * 0.5 for line in lines)
    exchanged = lines[:1] if strategy == "hadpsgd, a worker dies" else lines  # the other group alone exchanges nothing
    assert all(("staleness" in line) == (strategy not in ("ssgd", "ma")) for line in exchanged)
    assert not any("backed_off" in line for line in lines)
    if "dies" in strategy:
        group = strategy.startswith("hadpsgd")
        said = ", and with it its group, workers 2 to 3; 2 go on, and do" if group else "; 3 go on, and do"
        assert printed.count(f"worker 3 has died at 9.000 s{said}") == 1 and lines[-1]["dead"] == [2, 3][not group:]
        assert lines[-1]["frames"] == 265
    stop_at(monkeypatch, lambda count: count in (2, 5, 9))
    for _ in range(3):
        with pytest.raises(Interrupted):
            train(store, tmp_path / "exp", *options, "--checkpoint-minutes", "0")
    assert train(store, tmp_path / "exp", *options, "--checkpoint-minutes", "0") == 0
    assert torch.equal(outcome(tmp_path / "exp")[0], params) and outcome(tmp_path / "exp")[1] == history


@pytest.mark.parametrize("strategy", ["ssgd", "ma"])
def test_a_clock_changes_no_synchronous_model(store, small, tmp_path, strategy):
    for name, where in (("clock", ["--cluster", small]), ("none", ["--fabric", "virtual"])):
        assert train(store, tmp_path / name, *STRATEGIES[strategy], *where) == 0
    assert torch.equal(outcome(tmp_path / "clock")[0], outcome(tmp_path / "none")[0])


@pytest.mark.parametrize(("strategy", "failure", "words"), [
    ("ssgd", 1, "lets workers fail, and --strategy ssgd does not survive that"),
    ("asgd", 0, "lets worker 0 fail at 4 s, and with it the server beside it"),
    ("asgd", 7, "has a slow, pausing or failing worker 7, but room for 4")])
def test_deaths_that_end_a_job_are_refused(store, small, tmp_path, capsys, strategy, failure, words):
    Path(small).write_text(json.dumps({**CLUSTER, "failures": [{"worker": failure, "at": 4.0}]}))
    assert train(store, tmp_path / "exp", *STRATEGIES[strategy], "--cluster", small) == 1
    assert words in capsys.readouterr().err


def test_rbms_train_there_too_and_twice_the_same(store, small, tmp_path):
    options = ["--hid-layers", "2", "--hid-dim", "8", "--splice", "1", "--ngpu", "4", "--strategy", "adpsgd", "--lr-scale", "none",
               "--cluster", small, "--num-threads", "1", "--device", "cpu"]
    for name in ("one", "other"):
        assert main(["pretrain-dbn", *options, str(store), str(tmp_path / name)]) == 0
    one, other = ((tmp_path / name / "history.jsonl").read_text() for name in ("one", "other"))
    assert one == other and '"time": "simulated"' in one


def test_another_cluster_is_another_run(store, small, tmp_path, capsys):
    options = ["--strategy", "adpsgd", "--cluster", small]
    assert train(store, tmp_path / "exp", *options) == 0
    first = outcome(tmp_path / "exp")
    Path(small).write_text(json.dumps({**CLUSTER, "slow": {}}))
    assert train(store, tmp_path / "exp", *options) == 0
    assert "starting clean" in capsys.readouterr().err and not torch.equal(outcome(tmp_path / "exp")[0], first[0])


@pytest.mark.parametrize(("options", "words"), [
    (["--strategy", "asgd", "--deterministic", "true"], "--strategy asgd --deterministic true: between processes no two asynchronous runs"),
    (["--cluster", "k20-infiniband", "--fabric", "mpi"], "simulates all workers in one process"),
    (["--cluster", "k20-infiniband", "--nproc", "2"], "simulates all workers in one process"),
    (["--cluster", "k21"], "there is no such file, and the clusters known by name are"),
    (["--strategy", "ma", "--pattern", "ring"], "--pattern belongs to --strategy adpsgd"),
    (["--strategy", "asgd", "--cluster", "k20-infiniband", "--gradient-decay", "0"], "--gradient-decay 0 is outside (0, 1]"),
    (["--strategy", "asgd", "--cluster", "k20-infiniband", "--server-momentum", "1"], "--server-momentum 1 is outside [0, 1)"),
    (["--strategy", "asgd", "--cluster", "k20-infiniband", "--max-distance", "-1"], "--max-distance -1 is negative"),
])
def test_what_it_cannot_do_is_said_in_words(store, tmp_path, capsys, options, words):
    assert train(store, tmp_path / "exp", *options) == 1
    assert words in capsys.readouterr().err
    assert not (tmp_path / "exp" / "final.pt").exists()
