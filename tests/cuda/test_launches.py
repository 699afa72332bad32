"""The launch budget: how many times the host launches something on the device, a minibatch.

Each launch costs the host some microseconds, whatever it computes. Where a minibatch's launches take longer than its arithmetic, the device
waits for the host. Whoever lowers a count lowers its budget here.
"""

from __future__ import annotations

import dataclasses

import pytest
from emulated_cuda import EmulatedCuda
from trained import launches_of_minibatches, train, workers

from pykaldist.cli import main
from pykaldist.frames.store import FrameStore
from pykaldist.nnet.lstm import BlstmOptions, LstmOptions
from pykaldist.parallel.planning.counting import count_step

pytestmark = pytest.mark.gpu

DNN = ["--hid-layers", "6", "--hid-dim", "16", "--splice", "5", "--minibatch-size", "32"]
CNN = ["--nnet", "cnn", "--conv", "3x3x4/2", "--hid-layers", "2", "--hid-dim", "8", "--splice", "5", "--minibatch-size", "32"]
CELLS = ["--hid-dim", "8", "--projection-dim", "4", "--peepholes", "true"]
LSTM = ["--nnet", "lstm", "--hid-layers", "2", *CELLS, "--num-streams", "12", "--chunk", "4"]
BLSTM = ["--nnet", "blstm", "--hid-layers", "2", *CELLS, "--num-streams", "11", "--chunk", "1-5+1"]
WHOLE = ["--nnet", "blstm", "--hid-layers", "1", *CELLS, "--num-streams", "4", "--sequences", "whole"]
OFTEN = ["--optimizer", "ngsgd", "--update-period", "4"]  # as often as WINDOW has minibatches; a GPU's default is 32
NGSGD = [*OFTEN, "--l2-penalty", "1e-5", "--momentum", "0.5"]
BUDGET = {
    "dnn, sgd": (DNN, 10),
    "dnn, sgd with momentum and bounds": ([*DNN, "--momentum", "0.9", "--max-change", "0.75", "--max-param-change", "2"], 10),
    "dnn, ngsgd": ([*DNN, *OFTEN], 20),
    "dnn, ngsgd with momentum": ([*DNN, *OFTEN, "--momentum", "0.9"], 20),
    "dnn, bf16": ([*DNN, *OFTEN, "--dtype", "bf16"], 20),
    "cnn, ngsgd": ([*CNN, *OFTEN], 20),
    "cnn, batch normalisation": ([*CNN, "--batch-norm", "true"], 10),
    "lstm, sgd": (LSTM, 11),
    "lstm, ngsgd": ([*LSTM, *NGSGD], 14),
    "lstm, 3 layers, ngsgd": ([*LSTM, "--hid-layers", "3", *NGSGD], 15),
    "blstm, chunks, sgd": (BLSTM, 12),
    "blstm, chunks, ngsgd": ([*BLSTM, *NGSGD], 20),
    "blstm, 6 layers, chunks, ngsgd": ([*BLSTM, "--hid-layers", "6", *NGSGD], 27),
    "blstm, whole utterances, sgd": (WHOLE, 11),
}
SLOW = {"blstm, 6 layers, chunks, ngsgd"}
# Kernels of a time step, forward and backward: a product and the cells' operator each, and one for a projection. With masks a product goes
# back to projected outputs by two.
CELLS_BUDGET = {
    "plain": (LstmOptions(hid_layers=1, hid_dim=8), 4),
    "with peepholes": (LstmOptions(hid_layers=1, hid_dim=8, peepholes=True), 4),
    "projection": (LstmOptions(hid_layers=1, hid_dim=8, projection_dim=4, peepholes=True), 7),
    "two directions": (BlstmOptions(hid_layers=1, hid_dim=8, peepholes=True), 8),
}
SMALL = ["--hid-layers", "2", "--hid-dim", "16", "--splice", "1", "--minibatch-size", "16", *OFTEN]
# Two virtual workers, SMALL: launches a minibatch of one of them, its part of the exchange between them included. Strategies with options.
STRATEGY_BUDGET = {
    "ma": 12, "ma --overlap true": 13, "ma --exchange-dtype bf16": 16, "ssgd": 13, "ssgd --exchange-dtype bf16": 24, "onebit": 19,
    "bmuf": 15, "easgd": 14, "diloco": 21, "adpsgd": 18, "adpsgd --pattern delay-by-one": 15, "asgd": 18, "hadpsgd": 18,
}
WINDOW = 4  # minibatches, a whole number of the periods in which NG-SGD updates


@pytest.fixture
def store(make_store):
    """Frames for 31 minibatches of 32 frames, and utterances of 21 frames for chunks; the last minibatches are as large as the others."""
    make_store([21] * 48, dim=8, num_pdfs=24, name="train")
    return make_store([21] * 4, dim=8, num_pdfs=24, seed=2, name="dev").path.parent


def steady(found: list[int], epochs: int) -> float:
    """The launches of a minibatch, towards the end of the last epoch."""
    assert len(found) % epochs == 0 and len(found) > epochs * (WINDOW + 1)
    return (found[-2] - found[-2 - WINDOW]) / WINDOW


@pytest.mark.parametrize("case", [pytest.param(case, marks=[pytest.mark.slow] * (case in SLOW)) for case in BUDGET])
def test_networks(cuda: EmulatedCuda, store, tmp_path, case):
    options, budget = BUDGET[case]
    with launches_of_minibatches(cuda) as found:
        train(store, tmp_path / "exp", *options, "--schedule", "fixed", "--learn-rates", "0.001")
    assert steady(found, 1) <= budget


@pytest.mark.parametrize("dtype", ["float32", "bf16"])
@pytest.mark.parametrize("case", CELLS_BUDGET)
def test_time_steps(case, dtype):
    options, budget = CELLS_BUDGET[case]
    few, many = (count_step(dataclasses.replace(options, num_streams=4, chunk=str(steps)), "sgd", dtype, num_pdfs=9).num_kernels
                 for steps in (4, 8))
    assert (many - few) / 4 <= budget


@pytest.mark.parametrize("case", STRATEGY_BUDGET)
def test_strategies(cuda: EmulatedCuda, store, tmp_path, case):
    strategy, *more = case.split()
    with launches_of_minibatches(cuda) as found:
        train(store, tmp_path / "exp", *SMALL, *workers(strategy, tmp_path), *more, "--schedule", "fixed", "--learn-rates", "0.001")
    assert (found[-7] - found[-31]) / 24 <= STRATEGY_BUDGET[case]


@pytest.mark.parametrize(("network", "objective", "budget"), [
    ("lstm", "ctc", 22), ("blstm", "ctc", 23), ("lstm", "smbr", 34), ("blstm", "mmi", 43)])
def test_whole_utterances(cuda: EmulatedCuda, make_store, make_denlats, tmp_path, network, objective, budget):
    """Two graphs with the objective between, which has a third one. At the end NG-SGD does not update in each minibatch any more."""
    extras = ("labels",) * (objective == "ctc")
    make_store([50] * 80, seed=1, name="train", extras=extras)
    store = make_store([40, 30], seed=2, name="dev", extras=extras, utt="dev").path.parent
    (store / "tokens.txt").write_text("<blk> 0\na 1\nb 2\nc 3\nd 4\ne 5\n")
    lattices = []
    if objective != "ctc":
        lattices = ["--denlats", str(make_denlats(tmp_path / "denlats", FrameStore(store / "train"), FrameStore(store / "dev")))]
    options = ["--nnet", network, "--hid-layers", "2", "--hid-dim", "8", "--sequences", "whole", "--num-streams", "4", *OFTEN]
    with launches_of_minibatches(cuda) as found:
        train(store, tmp_path / "exp", *options, "--objective", objective, *lattices, "--schedule", "fixed", "--learn-rates", "0.001")
    assert steady(found, 1) <= budget


def test_rbms(cuda: EmulatedCuda, store, tmp_path):
    with launches_of_minibatches(cuda) as found:
        assert main(["pretrain-dbn", "--hid-layers", "2", "--hid-dim", "16", "--splice", "5", "--minibatch-size", "16", "--rbm-iter", "1",
                     "--gauss-minibatch-size", "16", "--device", "cuda", str(store), str(tmp_path / "dbn")]) == 0
    assert (found[30] - found[30 - WINDOW]) / WINDOW <= 10 and steady(found, 1) <= 10
