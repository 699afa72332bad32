"""Device memory of training on whole utterances, and with other optimisers: no more in all than was forecast before anything was loaded.

The emulated device counts the bytes of living tensors. It never uses twice what a graph has made, so that nothing is recorded here.
"""

from __future__ import annotations

import gc

import pytest
import torch

from pykaldist.cli import main
from pykaldist.frames.store import FrameStore
from pykaldist.nnet.cuda_graphs import CudaGraphs
from pykaldist.train import experiment
from pykaldist.train.memory import Ledger

CELLS = ["--hid-layers", "2", "--hid-dim", "32", "--projection-dim", "16", "--peepholes", "true"]
WHOLE = ["--sequences", "whole", "--num-streams", "4"]
DNN = ["--hid-layers", "3", "--hid-dim", "96", "--splice", "2", "--minibatch-size", "128"]
RUNS = {
    "ctc": ["--nnet", "lstm", *CELLS, *WHOLE, "--objective", "ctc"],
    "ctc, bidirectional, ngsgd": ["--nnet", "blstm", *CELLS, *WHOLE, "--objective", "ctc", "--optimizer", "ngsgd"],
    "smbr": ["--nnet", "lstm", *CELLS, *WHOLE, "--objective", "smbr"],
    "mmi, ngsgd": ["--nnet", "blstm", *CELLS, *WHOLE, "--objective", "mmi", "--optimizer", "ngsgd"],
    "blstm, ngsgd": ["--nnet", "blstm", *CELLS, "--num-streams", "4", "--chunk", "5-20+5", "--optimizer", "ngsgd", "--momentum", "0.5"],
    "dnn, bf16, ngsgd": [*DNN, "--dtype", "bf16", "--optimizer", "ngsgd", "--momentum", "0.5", "--dropout", "0.2"],
    "dnn, adam": [*DNN, "--optimizer", "adam"],
    "dnn, muon": [*DNN, "--optimizer", "muon"],
    "cnn": ["--nnet", "cnn", "--conv", "2x2x8/2", "--hid-layers", "1", "--hid-dim", "64", "--splice", "1", "--minibatch-size", "64"],
}


QUICK = "ctc", "smbr", "blstm, ngsgd"  # those that each run of the tests tries


@pytest.mark.gpu
@pytest.mark.parametrize("name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in RUNS])
def test_a_run_takes_what_was_forecast(make_store, make_denlats, tmp_path, monkeypatch, emulated, name):
    monkeypatch.setattr(CudaGraphs, "LIMIT", 0)
    extras = ("labels",) * ("ctc" in name)
    make_store([100, 90, 80, 100] * 6, dim=20, seed=1, name="train", extras=extras)
    store = make_store([80] * 3, dim=20, seed=2, name="dev", extras=extras, utt="dev").path.parent
    (store / "tokens.txt").write_text("<blk> 0\na 1\nb 2\nc 3\nd 4\ne 5\n")
    lattices, ledgers, settled = [], [], experiment.settled
    if "smbr" in name or "mmi" in name:
        lattices = ["--denlats", str(make_denlats(tmp_path / "denlats", FrameStore(store / "train"), FrameStore(store / "dev")))]

    def noted(ledger, *rest):
        ledgers.append(Ledger(dict(ledger.entries)))  # without cuBLAS's part, which the emulation does not have
        return settled(ledger, *rest)

    monkeypatch.setattr(experiment, "settled", noted)
    gc.collect()
    assert torch.cuda.memory_allocated() == 0
    assert main(["train", "--device", "cuda", "--num-threads", "1", *RUNS[name], *lattices, "--schedule", "fixed", "--learn-rates", "1e-4",
                 str(store), str(tmp_path / "exp")]) == 0
    (ledger,) = ledgers
    assert 0.6 * ledger.total < torch.cuda.max_memory_allocated() <= ledger.total, (torch.cuda.max_memory_allocated(), ledger.described())
