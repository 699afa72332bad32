"""`--stack-workers`: virtual workers that compute together train the model that they train one after the other."""

from __future__ import annotations

import json

import pytest
import torch
from stopping import Interrupted

from pykaldist.cli import main
from pykaldist.io import container
from pykaldist.parallel.fabric.stack import Stack
from pykaldist.train import stacking, trainer

TRAIN = ["train", "--device", "cpu", "--num-threads", "1", "--fabric", "virtual", "--ngpu", "4", "--strategy", "ma",
         "--average-period", "3", "--hid-layers", "2", "--hid-dim", "8", "--splice", "1", "--minibatch-size", "10", "--momentum", "0.5",
         "--schedule", "exponential", "--learn-rate", "0.004", "--num-epochs", "2"]


@pytest.fixture
def store(make_store):
    make_store([41, 35, 50, 44, 60, 31, 62, 11, 20, 17, 9], seed=1, name="train")
    return make_store([30, 40], seed=2, name="dev").path.parent


@pytest.fixture
def stacks(monkeypatch):
    """The stacks that are made."""
    made, init = [], Stack.__init__

    def watched(stack, *given):
        init(stack, *given)
        made.append(stack)

    monkeypatch.setattr(Stack, "__init__", watched)
    return made


def outcome(exp):
    history = [json.loads(line) for line in (exp / "history.jsonl").read_text().splitlines()]
    return container.load(exp / "final.pt")["params"], [{k: v for k, v in line.items() if k != "seconds"} for line in history]


MORE = {"ma": [], "layers before": ["--hid-layers", "3", "--layerwise-epochs", "1"], "one worker before": ["--serial-warmup", "1"],
        "moving rate": ["--decay-within", "true"], "utterances, blocks": ["--partition-level", "utterance", "--blocks", "2"]}


@pytest.mark.parametrize("name", MORE)
def test_together_as_one_after_the_other(store, tmp_path, capsys, stacks, name):
    for how in ("false", "true"):
        assert main([*TRAIN, *MORE[name], "--stack-workers", how, str(store), str(tmp_path / how)]) == 0
    params, history = outcome(tmp_path / "true")
    expected, expected_history = outcome(tmp_path / "false")
    assert torch.allclose(params, expected, rtol=0, atol=1e-6)
    assert [line["cv_loss"] for line in history] == pytest.approx([line["cv_loss"] for line in expected_history], abs=1e-5)
    assert [line["train_loss"] for line in history] == pytest.approx([line["train_loss"] for line in expected_history], abs=1e-5)
    assert len(stacks) == 3 if name == "layers before" else len(stacks) == 1
    told = capsys.readouterr().out
    assert "which compute one after the other" in told and "which compute together" in told
    assert (tmp_path / "true" / "final.pt").stat().st_size < 1.1 * (tmp_path / "false" / "final.pt").stat().st_size


def test_a_run_goes_on_as_if_it_had_not_been_stopped(store, tmp_path, monkeypatch):
    options = [*TRAIN, "--stack-workers", "true", "--checkpoint-minutes", "0", str(store)]
    assert main([*options, str(tmp_path / "whole")]) == 0
    save, count = trainer.Trainer._save, 0

    def killed(self, seconds):
        nonlocal count
        save(self, seconds)
        count += 1
        if count == 4:  # within an epoch
            self.checkpoints.wait()
            raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(trainer.Trainer, "_save", killed)
        with pytest.raises(Interrupted):
            main([*options, str(tmp_path / "stopped")])
    assert not (tmp_path / "stopped" / "final.pt").exists()
    assert main([*options, str(tmp_path / "stopped")]) == 0
    params, history = outcome(tmp_path / "stopped")
    assert torch.equal(params, outcome(tmp_path / "whole")[0]) and history == outcome(tmp_path / "whole")[1]


REFUSED = {
    "--optimizer ngsgd cannot be stacked, only sgd": ["--optimizer", "ngsgd"],
    "--max-change and --max-param-change cannot be stacked, as they measure each worker's step": ["--max-change", "0.75"],
    "--objective mse cannot be stacked, only xent": ["--objective", "mse"],
    "--dropout 0.2 cannot be stacked, as its random numbers are each worker's own": ["--dropout", "0.2"],
    "--batch-norm true cannot be stacked, as its means are each worker's own": ["--batch-norm", "true"],
    "--dtype bf16 cannot be stacked, only one whose products are of the type of their factors": ["--dtype", "bf16"],
    "--nnet cnn cannot be stacked, only dnn": ["--nnet", "cnn"],
    "--deterministic true takes the sums of one model's products in an order of its own": ["--deterministic", "true"],
    "the workers of --cluster v100-ethernet compute when their simulated time has come": ["--cluster", "v100-ethernet"],
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_cannot_be_stacked_is_refused_in_one_sentence(store, tmp_path, capsys, reason):
    assert main([*TRAIN, *REFUSED[reason], "--stack-workers", "true", str(store), str(tmp_path / "exp")]) != 0
    assert f"--stack-workers true: {reason}; leave it at auto." in capsys.readouterr().err
    assert not (tmp_path / "exp").exists()


def test_asynchronous_workers_and_rbms_are_refused(store, tmp_path, capsys):
    free = ["--ngpu", "2", "--device", "cpu", "--stack-workers", "true", str(store), str(tmp_path / "exp")]
    assert main(["train", "--strategy", "asgd", "--fabric", "virtual", *free]) != 0
    assert "the workers of --cluster v100-ethernet" in capsys.readouterr().err
    assert main(["pretrain-dbn", "--strategy", "ma", "--fabric", "virtual", *free]) != 0
    assert "--stack-workers true: RBMs cannot be stacked; leave it at auto." in capsys.readouterr().err


@pytest.mark.parametrize(("device", "size", "expected"), [("cuda", 1000, True), ("cuda", 1001, False), ("cpu", 1, False)])
def test_by_itself_on_a_gpu_and_only_small_models(monkeypatch, device, size, expected):
    monkeypatch.setattr(stacking, "MOST_ON_GPU", 64_000)
    assert stacking.by_itself(size, 64, torch.device(device)) is expected


@pytest.mark.parametrize("options", [[], ["--stack-workers", "false"], ["--stack-workers", "true", "--ngpu", "1"]])
def test_not_stacked(store, tmp_path, stacks, options):
    assert main([*TRAIN, *options, "--num-epochs", "1", str(store), str(tmp_path / "exp")]) == 0
    assert not stacks
