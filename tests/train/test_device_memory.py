"""Device memory of training: no more in all than was forecast before anything was loaded, and not much less.

On whole utterances, with each optimiser, and of two workers under each strategy, with all that changes what it exchanges.
"""

from __future__ import annotations

import dataclasses
import gc

import pytest
import torch
from trained import workers

from pykaldist.cli import main
from pykaldist.frames.store import FrameStore
from pykaldist.parallel.fabric.processes import SingleProcess
from pykaldist.parallel.strategies import ssgd
from pykaldist.parallel.strategies.base import rounding
from pykaldist.parallel.strategies.base.registry import strategies, strategy_options
from pykaldist.train import dbn, experiment, memory
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
# Of a model that takes more than all else.
OF_STRATEGIES = ["--hid-layers", "2", "--hid-dim", "256", "--splice", "2", "--minibatch-size", "32"]
BF16, OVERLAP, BITS = ["--exchange-dtype", "bf16"], ["--overlap", "true"], ["--outer-bits", "8"]
MOMENTUM = ["--momentum", "0.5"]
EXCHANGES = {  # strategy -> its options; the last ones, which take most, are tried in each run of the tests
    "local": [[]],
    "ma": [[], BF16, OVERLAP, ["--reduce-type", "hoppingring"], ["--reduce-content", "all", *MOMENTUM], [*BF16, *OVERLAP]],
    "bmuf": [[], ["--local-momentum", "average", *MOMENTUM], BF16],
    "ssgd": [[], BF16, OVERLAP, [*BF16, *OVERLAP]],
    "onebit": [[]],
    "asgd": [[], ["--servers", "2"], ["--server-momentum", "0.5"]],
    "adpsgd": [["--pattern", "delay-by-one"], []],
    "hadpsgd": [["--group-size", "2"], []],
    "easgd": [[], ["--local-nesterov", "0.5"]],
    "diloco": [["--outer-bits", "4"], BITS, []],
}


@pytest.fixture
def trained(tmp_path, monkeypatch, emulated):
    """`trained(store, *options)`: (the bytes that a training, or with `verb` a pretraining, took at most, the ledger of its forecast)."""
    ledgers, settled = [], experiment.settled

    def noted(ledger, *rest):
        ledgers.append(Ledger(dict(ledger.entries)))  # without cuBLAS's part, which the emulation does not have
        return settled(ledger, *rest)

    for module in (experiment, dbn):
        monkeypatch.setattr(module, "settled", noted)

    def run(store, *options, verb="train"):
        gc.collect()
        assert torch.cuda.memory_allocated() == 0
        rates = ["--schedule", "fixed", "--learn-rates", "1e-4"] if verb == "train" else []
        assert main([verb, "--device", "cuda", "--num-threads", "1", *options, *rates, str(store), str(tmp_path / "exp")]) == 0
        (ledger,) = ledgers
        return torch.cuda.max_memory_allocated(), ledger

    return run


@pytest.mark.gpu
@pytest.mark.parametrize("name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in RUNS])
def test_a_run_takes_what_was_forecast(make_store, make_denlats, tmp_path, trained, name):
    extras = ("labels",) * ("ctc" in name)
    make_store([100, 90, 80, 100] * 6, dim=20, seed=1, name="train", extras=extras)
    store = make_store([80] * 3, dim=20, seed=2, name="dev", extras=extras, utt="dev").path.parent
    (store / "tokens.txt").write_text("<blk> 0\na 1\nb 2\nc 3\nd 4\ne 5\n")
    lattices = []
    if "smbr" in name or "mmi" in name:
        lattices = ["--denlats", str(make_denlats(tmp_path / "denlats", FrameStore(store / "train"), FrameStore(store / "dev")))]
    peak, ledger = trained(store, *RUNS[name], *lattices)
    assert 0.6 * ledger.total < peak <= ledger.total, (peak, ledger.described())


def cases():
    for strategy, variants in EXCHANGES.items():
        for options in variants:
            slow = [pytest.mark.slow] * (options != variants[-1])
            yield pytest.param(strategy, 2, options, id=" ".join([strategy, *options]), marks=slow)
    yield pytest.param("hadpsgd", 6, ["--group-size", "3"], id="hadpsgd, six workers in two groups")
    yield pytest.param("ma", 5, [*BF16, *OVERLAP], id="ma, five workers", marks=pytest.mark.slow)
    yield pytest.param("ssgd", 5, [*BF16, *OVERLAP], id="ssgd, five workers", marks=pytest.mark.slow)


@pytest.mark.gpu
@pytest.mark.parametrize(("strategy", "ngpu", "options"), list(cases()))
def test_workers_take_what_was_forecast(make_store, tmp_path, trained, strategy, ngpu, options):
    make_store([100] * 9, dim=20, seed=1, name="train")
    store = make_store([80], dim=20, seed=2, name="dev").path.parent
    peak, ledger = trained(store, *OF_STRATEGIES, *workers(strategy, tmp_path, ngpu), *options)
    assert 0.6 * ledger.total < peak <= ledger.total, (peak, ledger.described())


@pytest.mark.gpu
@pytest.mark.parametrize("strategy", [pytest.param("ma", marks=pytest.mark.slow), "ssgd"])
def test_workers_that_pretrain_take_what_was_forecast(make_store, tmp_path, trained, strategy):
    make_store([100] * 9, dim=20, seed=1, name="train")
    store = make_store([80], dim=20, seed=2, name="dev").path.parent
    peak, ledger = trained(store, *OF_STRATEGIES, "--gauss-minibatch-size", "32", "--rbm-iter", "1", *workers(strategy, tmp_path), *BF16,
                           *OVERLAP, verb="pretrain-dbn")
    assert 0.6 * ledger.total < peak <= ledger.total, (peak, ledger.described())


def test_every_strategy_is_tried():
    assert EXCHANGES.keys() == set(strategies())
    for strategy, variants in EXCHANGES.items():
        names = {field.name for field in dataclasses.fields(strategy_options(strategy))}
        for option, name in ((BF16, "exchange_dtype"), (OVERLAP, "overlap"), (BITS, "outer_bits")):
            assert (option in variants) == (name in names), (strategy, name)


@pytest.mark.gpu
@pytest.mark.parametrize("options", [pytest.param(BF16, marks=pytest.mark.slow), [*BF16, *OVERLAP]], ids=" ".join)
def test_a_large_model_is_exchanged_in_parts(make_store, tmp_path, trained, monkeypatch, options):
    """In parts and buckets, of which few are under way: less than the forecast, which is for one."""
    monkeypatch.setattr(ssgd, "PART", 20000)
    monkeypatch.setattr(rounding, "BUCKET", 10000)
    make_store([100] * 9, dim=20, seed=1, name="train")
    store = make_store([80], dim=20, seed=2, name="dev").path.parent
    peak, ledger = trained(store, *OF_STRATEGIES, *workers("ssgd", tmp_path), *options)
    assert 0.6 * ledger.total < peak <= ledger.total, (peak, ledger.described())


@pytest.mark.gpu
def test_nobody_takes_memory_before_all_have_looked_what_is_free(emulated, monkeypatch):
    """Of processes that share a device."""
    done = []

    class Two(SingleProcess):
        """Says that another process computes on the same device."""

        size = 2

        def gather(self, part):
            return [part, part]

        def barrier(self):
            done.append("barrier")

    free = memory.free_bytes
    monkeypatch.setattr(memory, "free_bytes", lambda device: done.append("free") or free(device))
    room, words = memory.settled(Ledger({memory.FRAMES: 1000}), torch.device("cuda:0"), Two())
    assert done == ["free", "barrier"] and room is None and "are free on cuda:0" in words
