"""Stacked workers on a device: one worker's launches for a minibatch of each, the same model, and no waiting in a step."""

from __future__ import annotations

import pytest
import torch
from emulated_cuda import EmulatedCuda
from trained import launches_of_minibatches, recorded, same, train, waits_of_steps

from pykaldist.nnet.cuda_graphs import CudaGraphs

pytestmark = pytest.mark.gpu

MODELS, PERIOD = 8, 5
DNN = ["--hid-layers", "3", "--hid-dim", "16", "--splice", "5", "--minibatch-size", "16", "--momentum", "0.5"]
# Launches for a minibatch of each of 8 workers, their part of the exchanges between them included; and one worker's for a minibatch.
BUDGET = {"ma": 13, "ssgd": 25}
ONE = 9


def workers(strategy: str, count: int = MODELS) -> list[str]:
    period = ["--average-period", str(PERIOD)] * (strategy == "ma")
    return ["--ngpu", str(count), "--fabric", "virtual", "--strategy", strategy, *period]


@pytest.fixture
def store(make_store):
    """Frames for 20 minibatches of 16 frames for each of 8 workers, all of them full."""
    make_store([20] * 128, dim=8, num_pdfs=24, name="train")
    return make_store([21] * 4, dim=8, num_pdfs=24, seed=2, name="dev").path.parent


@pytest.fixture
def uneven(make_store):
    """Frames of which the last minibatches are smaller, and not as many for all workers."""
    make_store([20] * 9 + [17], dim=4, name="train")
    return make_store([21] * 4, dim=4, seed=2, name="dev").path.parent


@pytest.mark.parametrize("strategy", BUDGET)
def test_launches(cuda: EmulatedCuda | None, store, tmp_path, strategy):
    if cuda is None:
        pytest.skip("counts the launches of the emulated device")  # of a real one gpu_check.py asks PyTorch's profiler
    found = {}
    for how in ("true", "false"):
        with launches_of_minibatches(cuda) as launches:
            train(store, tmp_path / how, *DNN, *workers(strategy), "--stack-workers", how, "--schedule", "fixed", "--learn-rates", "0.001")
        found[how] = (launches[-1] - launches[-1 - PERIOD * MODELS]) / PERIOD
    with launches_of_minibatches(cuda) as launches:
        train(store, tmp_path / "one", *DNN, "--schedule", "fixed", "--learn-rates", "0.001")
    one = (launches[-2] - launches[-6]) / 4
    assert one <= ONE and found["true"] <= BUDGET[strategy] and found["false"] >= MODELS * one


@pytest.mark.parametrize("strategy", ["ma", "ssgd"])
def test_the_model_is_that_of_workers_one_after_the_other(cuda: EmulatedCuda | None, uneven, tmp_path, capsys, monkeypatch, strategy):
    options = ["--hid-layers", "2", "--hid-dim", "8", "--splice", "1", "--minibatch-size", "8", "--momentum", "0.5", "--schedule",
               "exponential", "--learn-rate", "0.005", "--decay-within", "true", "--num-epochs", "2", *workers(strategy, 3)]
    with waits_of_steps(cuda) as waits:
        stacked = train(uneven, tmp_path / "stacked", *options)
    assert not waits and recorded(cuda) > 10 and "which compute together" in capsys.readouterr().out
    apart = train(uneven, tmp_path / "apart", *options, "--stack-workers", "false")
    assert torch.allclose(stacked, apart, rtol=0, atol=1e-6) and stacked.isfinite().all()
    monkeypatch.setattr(CudaGraphs, "LIMIT", 0)
    assert same(cuda, train(uneven, tmp_path / "plain", *options), stacked)
