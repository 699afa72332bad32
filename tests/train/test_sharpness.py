"""How the held-out loss bends along the way of the last average: losses of models that are made by hand, and nothing that is disturbed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from pykaldist.cli import main
from pykaldist.frames.store import FrameStore
from pykaldist.nnet.network import Network

SHAPE = ["--hid-layers", "1", "--hid-dim", "8", "--splice", "1", "--minibatch-size", "10", "--schedule", "fixed", "--fabric", "virtual",
         "--ngpu", "3"]


@pytest.fixture
def store(make_store: Callable[..., FrameStore]) -> Path:
    make_store([20, 35, 50, 44, 60, 31, 25, 40], seed=1, name="train")
    return make_store([30, 40], seed=2, name="dev").path.parent


def train(store: Path, exp: Path, *options: str) -> tuple[Network, dict]:
    assert main(["train", *SHAPE, *options, str(store), str(exp)]) == 0
    return Network.load(exp / "final.pt"), json.loads((exp / "history.jsonl").read_text())


def held_out(network: Network, params: torch.Tensor, store: Path) -> float:
    """Minus the mean log posterior of the alignment's pdfs, one utterance after the other."""
    dev, losses = FrameStore(store / "dev"), []
    before = network.model.params.clone()
    network.model.params.copy_(params)
    for number in range(len(dev.utts)):
        begin, end = dev.offsets[number : number + 2]
        scores = network.log_posteriors(dev.features(number))
        losses.append(-scores[np.arange(end - begin), np.asarray(dev.targets[begin:end])])
    network.model.params.copy_(before)
    return float(np.concatenate(losses).mean())


@pytest.mark.parametrize("options", [
    ("--strategy", "ma", "--average-period", "1000"),
    ("--strategy", "bmuf", "--average-period", "1000", "--block-momentum", "0", "--nesterov", "false")])
def test_losses_beside_a_mean_are_those_of_the_models_there(store: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    """In one period an epoch the workers come from the first model, which a rate of next to nothing leaves as it is."""
    first, _ = train(store, tmp_path / "first", *options, "--learn-rates", "1e-8")
    plain, usual = train(store, tmp_path / "plain", *options, "--learn-rates", "0.05")
    last, epoch = train(store, tmp_path / "exp", *options, "--learn-rates", "0.05", "--measure-updates", "true")
    assert torch.equal(last.model.params, plain.model.params) and "sharpness" not in usual
    assert {name: value for name, value in epoch.items() if name in usual and name != "seconds"} == \
        {name: value for name, value in usual.items() if name != "seconds"}
    move = last.model.params - first.model.params
    behind, here, ahead = (held_out(last, last.model.params + sign * move, store) for sign in (-1, 0, 1))
    assert [epoch["cv_loss_behind"], epoch["cv_loss"], epoch["cv_loss_ahead"]] == pytest.approx([behind, here, ahead], abs=2e-5)
    assert epoch["move"] == pytest.approx(float(move.norm()), rel=1e-5)
    assert epoch["sharpness"] == pytest.approx((behind + ahead - 2 * here) / float(move.norm()) ** 2, abs=1e-3)
    assert 0.0 < epoch["update_cosine"] <= 1.0


@pytest.mark.parametrize("options", [("--strategy", "ssgd"), ("--strategy", "ma", "--batch-norm", "true"),
                                     ("--strategy", "bmuf", "--batch-norm", "true")])
def test_without_averages_or_with_statistics_among_the_parameters_there_is_none(store: Path, tmp_path: Path,
                                                                                options: tuple[str, ...]) -> None:
    _, epoch = train(store, tmp_path / "exp", *options, "--learn-rates", "0.05", "--measure-updates", "true")
    assert not {"sharpness", "move", "cv_loss_ahead", "update_cosine"} & epoch.keys()
