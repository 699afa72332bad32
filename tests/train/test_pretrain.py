"""Pretraining as a user runs it: what it leaves, that it resumes bit for bit within and between layers, and a DNN started from it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from stopping import Interrupted

from pykaldist.cli import main
from pykaldist.io import container
from pykaldist.nnet.dbn import Dbn
from pykaldist.nnet.network import Network
from pykaldist.nnet.nnet1 import Nnet1
from pykaldist.train.checkpoints import Checkpoints
from pykaldist.train.dbn import DbnOptions

COMMON = ["--hid-layers", "3", "--hid-dim", "8", "--splice", "1", "--num-threads", "1", "--device", "cpu"]
PRETRAIN = [*COMMON, "--minibatch-size", "64", "--gauss-minibatch-size", "32", "--rbm-iter", "2"]


@pytest.fixture
def store(make_store):
    make_store([20, 35, 50, 44, 60, 31, 25], seed=1, name="train")
    return make_store([30, 40], seed=2, name="dev").path.parent


def pretrain(store: Path, exp: Path, *options: str) -> int:
    return main(["pretrain-dbn", *PRETRAIN, *options, str(store), str(exp)])


def history(exp: Path) -> list[dict]:
    lines = [json.loads(line) for line in (exp / "history.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k != "seconds"} for line in lines]


def layers(exp: Path) -> list[torch.Tensor]:
    return [t for layer in container.load(exp / "dbn.pt")["layers"] for t in layer]


def test_it_learns_and_leaves_what_it_should(store, tmp_path, capsys):
    exp = tmp_path / "dbn"
    assert pretrain(store, exp) == 0
    lines = history(exp)
    assert [(line["layer"], line["visible_units"], line["epoch"]) for line in lines] == [
        *[(1, "gauss", e) for e in (1, 2, 3, 4)], *[(layer, "bern", e) for layer in (2, 3) for e in (1, 2)]]
    assert [line["learn_rate"] for line in lines] == [0.01] * 4 + [0.4] * 4 and not any("backed_off" in line for line in lines)
    assert {"train_loss", "cv_loss", "cv_free_energy", "cv_free_energy_gap"} <= lines[0].keys()
    for layer in (1, 2, 3):
        own = [line["cv_loss"] for line in lines if line["layer"] == layer]
        assert own[-1] < own[0]
    # The same layers in every file; the RBMs fit on top of each other.
    dbn = Dbn.load(exp)
    for layer in (1, 2, 3):
        (rbm,) = Nnet1.read(exp / f"{layer}.rbm").components
        stack = Nnet1.read(exp / f"{layer}.dbn").components
        assert [c.marker for c in stack] == ["AffineTransform", "Sigmoid"] * layer
        assert rbm.options["vis_type"] == ("gauss" if layer == 1 else "bern")
        assert (rbm.arrays["vis_hid"] == stack[-2].arrays["linearity"]).all() and (rbm.arrays["hid_bias"] == stack[-2].arrays["bias"]).all()
        assert (dbn.layers[layer - 1][0].numpy() == rbm.arrays["vis_hid"]).all()
    assert [c.marker for c in Nnet1.read(exp / "final.feature_transform").components] == ["Splice", "AddShift", "Rescale"]
    assert json.loads((exp / "config.json").read_text())["options"]["rbm_lrate"] == 0.4
    assert not list(exp.glob("rbm*"))
    said = capsys.readouterr().out
    assert "Gaussian-Bernoulli, 12 - 8" in said and "32 frames; 9 updates an epoch" in said and "free energy gap" in said
    (exp / "rbm2/ckpt").mkdir(parents=True)  # as a run leaves it that is killed at its very end
    assert pretrain(store, exp) == 0
    assert "nothing to do" in capsys.readouterr().out and not list(exp.glob("rbm*"))


GROUPS = ["--randomizer-size", "80", "--randomizer-block", "20"]


@pytest.mark.parametrize("options", [["--cd-steps", "1"], ["--cd-steps", "2"], GROUPS])
def test_stopped_and_resumed_equals_undisturbed(store, tmp_path, monkeypatch, options):
    """Stopped within each layer and at their ends, with a checkpoint at every update and at each epoch's end."""
    options = [*options, "--momentum-step-period", "40"]
    assert pretrain(store, tmp_path / "whole", *options) == 0
    save, stops = Checkpoints.save, []

    def save_and_stop(self, moment, *state):
        save(self, moment, *state)
        updates = moment[0]
        if (self.path.parent.name, updates) in {("rbm1", 13), ("rbm1", 36), ("rbm2", 4), ("rbm2", 10), ("rbm3", 1)} - set(stops):
            stops.append((self.path.parent.name, updates))
            raise Interrupted

    monkeypatch.setattr(Checkpoints, "save", save_and_stop)
    for _ in range(5):
        with pytest.raises(Interrupted):
            pretrain(store, tmp_path / "exp", *options, "--checkpoint-minutes", "0")
    assert not (tmp_path / "exp" / "dbn.pt").exists()
    assert pretrain(store, tmp_path / "exp", *options, "--checkpoint-minutes", "0") == 0
    assert len(stops) == 5
    assert all(torch.equal(a, b) for a, b in zip(layers(tmp_path / "exp"), layers(tmp_path / "whole"), strict=True))
    assert history(tmp_path / "exp") == history(tmp_path / "whole")
    for name in ("1.rbm", "2.rbm", "3.rbm", "3.dbn"):
        assert (tmp_path / "exp" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_frames_can_come_in_groups(store, tmp_path, capsys):
    for folder, options in (("all", []), ("groups", GROUPS), ("two", ["--ngpu", "2", *GROUPS])):
        assert pretrain(store, tmp_path / folder, *options) == 0
        assert ("blocks of 20 frames, of which about 80 frames are shuffled together" in capsys.readouterr().out) == bool(options)
    assert not any(torch.equal(a, b) for a, b in zip(layers(tmp_path / "all"), layers(tmp_path / "groups"), strict=True))
    for folder in ("groups", "two"):
        of_first = [line["cv_loss"] for line in history(tmp_path / folder) if line["layer"] == 1]
        assert of_first[-1] < of_first[0] and abs(of_first[-1] / history(tmp_path / "all")[3]["cv_loss"] - 1) < 0.05
    assert pretrain(store, tmp_path / "none", "--randomizer-block", "20") == 1
    assert "--randomizer-block 20: expected a positive number of frames, and --randomizer-size" in capsys.readouterr().err


def test_other_options_start_clean(store, tmp_path, capsys):
    assert pretrain(store, tmp_path / "exp") == 0
    assert pretrain(store, tmp_path / "exp", "--hid-layers", "2", "--rbm-lrate", "0.1") == 0
    assert "starting clean" in capsys.readouterr().err
    assert not (tmp_path / "exp" / "3.rbm").exists() and not (tmp_path / "exp" / "3.dbn").exists()
    assert pretrain(store, tmp_path / "fresh", "--hid-layers", "2", "--rbm-lrate", "0.1") == 0
    assert all(torch.equal(a, b) for a, b in zip(layers(tmp_path / "exp"), layers(tmp_path / "fresh"), strict=True))


def test_a_dnn_starts_from_the_stack_and_keeps_its_transform(store, make_store, tmp_path):
    assert pretrain(store, tmp_path / "dbn") == 0
    other = make_store([40, 45, 38, 29], seed=5, name="other/train").path.parent  # other frames, so other statistics
    make_store([30, 40], seed=6, name="other/dev")
    still = ["--learn-rate", "1e-12", "--num-epochs", "1", "--schedule", "exponential"]
    assert main(["train", *COMMON, *still, "--dbn", str(tmp_path / "dbn"), str(other), str(tmp_path / "exp")]) == 0
    network, dbn = Network.load(tmp_path / "exp" / "final.pt"), Dbn.load(tmp_path / "dbn")
    assert torch.equal(network.transform.shift, dbn.transform.shift) and torch.equal(network.transform.scale, dbn.transform.scale)
    hidden = [views for views in network.model.views(network.model.params) if views][:-1]
    for (weight, bias), (ours, own) in zip(dbn.layers, hidden, strict=True):
        assert torch.allclose(weight, ours, atol=1e-6) and torch.allclose(bias, own, atol=1e-6)
    output = [views for views in network.model.views(network.model.params) if views][-1]
    assert output[0].std().item() == pytest.approx(0.1 * 35 * (2 / (8 + 5)) ** 0.5, rel=0.3) and output[1].abs().max() < 1e-6


def test_training_starts_clean_when_the_stack_is_another_one(store, tmp_path, capsys):
    train = ["train", *COMMON, "--num-epochs", "1", "--schedule", "exponential",
             "--dbn", str(tmp_path / "dbn"), str(store), str(tmp_path / "exp")]
    assert pretrain(store, tmp_path / "dbn") == 0 and main(train) == 0
    assert pretrain(store, tmp_path / "dbn", "--seed", "3") == 0 and main(train) == 0
    assert capsys.readouterr().err.count("starting clean") == 2
    assert main([*train[:-4], "--splice", "2", *train[-4:]]) == 1
    assert "--splice: the DBN takes frames -1 to 1" in capsys.readouterr().err
    assert (tmp_path / "exp" / "final.pt").exists()  # what does not fit is refused before anything is touched


def test_the_momentum_rises_over_the_part_of_the_data_that_kaldis_does_over_300_hours():
    assert DbnOptions().update(108_000_000).momentum_step_period == 500_000
    assert DbnOptions().update(1_080_000).momentum_step_period == 5_000
    assert DbnOptions(momentum_step_period=7).update(1_080_000).momentum_step_period == 7
    assert DbnOptions().update(1).momentum_step_period == 1


@pytest.mark.parametrize(("options", "words"), [
    (["--hid-layers", "0"], "--hid-layers 0"), (["--rbm-lrate", "0"], "--rbm-lrate 0 is not"), (["--cd-steps", "0"], "--cd-steps 0"),
    (["--splice", "-1"], "--splice -1 is negative"), (["--momentum", "0.95"], "--momentum-max 0.9"), (["--ngpu", "0"], "--ngpu 0"),
    (["--rbm-l2penalty", "-1"], "--rbm-l2penalty -1"), (["--dtype", "tf32"], "--dtype tf32"), (["--device", "abacus"], "--device abacus"),
    (["--rbm-lrate-low", "1e30"], "lower --rbm-lrate-low")])
def test_what_it_cannot_do_is_said_in_words(store, tmp_path, capsys, options, words):
    assert pretrain(store, tmp_path / "exp", *options) == 1
    assert words in capsys.readouterr().err
    assert not (tmp_path / "exp" / "dbn.pt").exists()
