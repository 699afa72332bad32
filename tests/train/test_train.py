"""Training as a user runs it: it learns, resumes bit for bit, and refuses what it cannot use."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

from pykaldist.cli import main
from pykaldist.decode.acoustic import load_acoustic_model
from pykaldist.errors import UserError
from pykaldist.io import container
from pykaldist.io.lock import locked
from pykaldist.train import trainer as trainer_module
from pykaldist.train.checkpoints import Checkpoints

COMMON = ["--hid-layers", "2", "--hid-dim", "16", "--splice", "1", "--minibatch-size", "32", "--num-threads", "1",
          "--device", "cpu"]
VARIANTS = {
    "newbob": ["--schedule", "newbob", "--num-epochs", "5", "--momentum", "0.5"],
    "newbob that rejects": ["--schedule", "newbob", "--num-epochs", "6", "--learn-rate", "2.0"],
    "ngsgd": ["--optimizer", "ngsgd", "--momentum", "0.5", "--rank-in", "3", "--max-change", "0.75", "--num-epochs", "4"],
    "exponential": ["--schedule", "exponential", "--num-epochs", "4", "--l2-penalty", "1e-4", "--activation", "relu"],
    "newbob on accuracy": ["--newbob-on", "accuracy", "--num-epochs", "4"],
    "fixed": ["--schedule", "fixed", "--learn-rates", "0.02,0.01,0.03,0.005"],
    "warmup": ["--schedule", "warmup", "--num-epochs", "4", "--warmup-epochs", "1.5", "--anneal-from", "3"],
}


@pytest.fixture
def store(make_store):
    make_store([20, 35, 50, 44, 60, 31, 25], seed=1, name="train")
    return make_store([30, 40], seed=2, name="dev").path.parent


def train(store: Path, exp: Path, *options: str) -> int:
    rate = [] if "fixed" in options else ["--learn-rate", "0.02"]
    return main(["train", *COMMON, *rate, *options, str(store), str(exp)])


def outcome(exp: Path):
    state = container.load(exp / "final.pt")
    history = [json.loads(line) for line in (exp / "history.jsonl").read_text().splitlines()]
    return state["params"], [{k: v for k, v in line.items() if k != "seconds"} for line in history]


def test_it_learns_and_leaves_what_it_should(store, tmp_path, capsys):
    assert train(store, tmp_path / "exp", *VARIANTS["newbob"]) == 0
    _, history = outcome(tmp_path / "exp")
    assert history[-1]["cv_acc"] > 0.6  # five pdfs: chance is 0.2
    assert history[0]["frames"] == 265 and history[0]["updates"] == 9 and history[0]["time"] == "measured"
    assert (tmp_path / "exp" / "ali_train_pdf.counts").read_text().startswith(" [ ")
    config = json.loads((tmp_path / "exp" / "config.json").read_text())
    assert config["options"]["momentum"] == 0.5 and config["options"]["schedule"] == "newbob"
    assert "global minibatch  32 frames; 9 updates an epoch" in capsys.readouterr().out
    assert train(store, tmp_path / "exp", *VARIANTS["newbob"]) == 0
    assert "nothing to do" in capsys.readouterr().out


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("name", VARIANTS)
def test_stopped_and_resumed_equals_undisturbed(store, tmp_path, name, monkeypatch):
    """Stopped after each of several updates, within epochs and at their ends, with a checkpoint at every update."""
    assert train(store, tmp_path / "whole", *VARIANTS[name]) == 0
    expected = outcome(tmp_path / "whole")
    save, count = Checkpoints.save, 0

    def save_and_stop(self, updates, state):
        nonlocal count
        save(self, updates, state)
        count += 1
        if count in (3, 9, 14, 21):
            raise Interrupted

    monkeypatch.setattr(Checkpoints, "save", save_and_stop)
    for _ in range(4):
        with pytest.raises(Interrupted):
            train(store, tmp_path / "exp", *VARIANTS[name], "--checkpoint-minutes", "0")
    assert train(store, tmp_path / "exp", *VARIANTS[name], "--checkpoint-minutes", "0") == 0
    params, history = outcome(tmp_path / "exp")
    assert torch.equal(params, expected[0])
    assert history == expected[1]
    if name == "newbob that rejects":
        assert not all(line["accepted"] for line in history)


def test_a_damaged_checkpoint_is_passed_over(store, tmp_path, capsys):
    assert train(store, tmp_path / "exp", *VARIANTS["exponential"]) == 0
    expected = outcome(tmp_path / "exp")
    (tmp_path / "exp" / "final.pt").unlink()
    newest = Checkpoints(tmp_path / "exp" / "ckpt").files()[-1]
    newest.write_bytes(newest.read_bytes()[:-10])
    assert train(store, tmp_path / "exp", *VARIANTS["exponential"]) == 0
    assert "checksum does not match" in capsys.readouterr().err
    params, history = outcome(tmp_path / "exp")
    assert torch.equal(params, expected[0]) and history == expected[1]


def test_other_options_start_clean(store, tmp_path, capsys):
    assert train(store, tmp_path / "exp", *VARIANTS["exponential"]) == 0
    assert train(store, tmp_path / "exp", *VARIANTS["exponential"], "--seed", "3") == 0
    assert "starting clean" in capsys.readouterr().err
    assert train(store, tmp_path / "fresh", *VARIANTS["exponential"], "--seed", "3") == 0
    assert torch.equal(outcome(tmp_path / "exp")[0], outcome(tmp_path / "fresh")[0])


@pytest.mark.parametrize(("options", "words"), [
    (["--schedule", "exponential", "--halving-factor", "0.3"], "--halving-factor belongs to --schedule newbob"),
    (["--schedule", "fixed", "--learn-rates", "0.1", "--num-epochs", "3"], "--num-epochs belongs to --schedule newbob"),
    (["--ngpu", "4"], "--ngpu 4"),
    (["--momentum", "1.5"], "--momentum 1.5"),
    (["--device", "abacus"], "--device abacus"),
    (["--learn-rate", "1e30", "--activation", "relu"], "lower --learn-rate"),
    (["--learn-rate", "1e3"], "no epoch made the cross-validation loss fall"),
    (["--hid-dim", "0"], "--hid-dim 0"),
    (["--num-threads", "-1"], "--num-threads -1"),
    (["--device", "mps"], "--device mps"),
    (["--num-epochs", "0"], "--num-epochs 0"),
    (["--keep-checkpoints", "0"], "--keep-checkpoints 0"),
])
def test_what_it_cannot_do_is_said_in_words(store, tmp_path, capsys, options, words):
    assert train(store, tmp_path / "exp", *options) == 1
    assert words in capsys.readouterr().err
    assert not (tmp_path / "exp" / "final.pt").exists()


def test_a_damaged_store_is_not_trained_on(store, tmp_path, capsys):
    path = store / "train" / "feats.bin"
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    assert train(store, tmp_path / "exp") == 1
    assert "feats.bin does not match its checksum" in capsys.readouterr().err


def test_one_process_at_a_time(store, tmp_path, capsys):
    with locked(tmp_path / "exp"):
        assert train(store, tmp_path / "exp") == 1
    assert f"is in use by process {os.getpid()}" in capsys.readouterr().err
    assert train(store, tmp_path / "exp") == 0


def test_an_unfinished_network_is_not_taken_for_a_gmm(store, tmp_path):
    assert train(store, tmp_path / "exp") == 0
    (tmp_path / "exp" / "final.pt").unlink()
    (tmp_path / "exp" / "final.mdl").write_bytes(b"a model")
    with pytest.raises(UserError, match="has not ended"):
        load_acoustic_model(tmp_path / "exp")


def test_stores_of_different_systems_are_refused(make_store, tmp_path, capsys):
    make_store([20, 30], name="train")
    store = make_store([30, 40], num_pdfs=6, name="dev").path.parent
    assert train(store, tmp_path / "exp") == 1
    assert "num_pdfs 5, dev 6" in capsys.readouterr().err


def test_the_loss_is_watched_within_an_epoch(store, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(trainer_module, "LOSS_CHECK_INTERVAL", 1)
    assert train(store, tmp_path / "exp", "--learn-rate", "1e30", "--activation", "relu") == 1
    assert "near update 2;" in capsys.readouterr().err
