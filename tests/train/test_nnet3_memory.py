"""Device memory of nnet3 training: no more in all than was forecast before anything was loaded, and a sentence where it does not fit.

The emulated device counts the bytes of living tensors, and has as many as it is given.
"""

from __future__ import annotations

import gc
import math
from pathlib import Path

import pytest
import torch
from test_chain import folder_of_an4, prepare, words

from pykaldist.cli import main
from pykaldist.frames.device_frames import SharedFrames, frame_bytes
from pykaldist.frames.store import FrameStore
from pykaldist.io.fst import Fst
from pykaldist.nnet.chain_denominator import TensorDenominator
from pykaldist.train import memory, nnet3_experiment
from pykaldist.train.memory import FRAMES, GRAPHS, Ledger, most_alive

RUNS = {"one worker": ["--combine-models", "1"], "last models": [], "float64": ["--dtype", "float64"], "bf16": ["--dtype", "bf16"],
        "large minibatches": ["--num-chunk-per-minibatch", "8", "--combine-models", "1"],
        "two workers": ["--ngpu", "2", "--fabric", "virtual", "--strategy", "ma", "--average-period", "2"],
        "serial warm-up": ["--ngpu", "2", "--fabric", "virtual", "--strategy", "bmuf", "--average-period", "2", "--serial-warmup", "1"]}

QUICK = ("last models", "bf16", "two workers")  # those that each run of the tests tries


@pytest.fixture(scope="module")
def prepared(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = folder_of_an4(golden, tmp_path_factory.mktemp("chain"))
    assert prepare(folder)
    return folder


@pytest.fixture
def ledgers(monkeypatch) -> list[Ledger]:
    """The forecasts of runs, without cuBLAS's part, which the emulation does not have."""
    found: list[Ledger] = []
    settled = nnet3_experiment.settled

    def noted(ledger, *rest):
        found.append(Ledger(dict(ledger.entries)))
        return settled(ledger, *rest)

    monkeypatch.setattr(nnet3_experiment, "settled", noted)
    return found


@pytest.mark.gpu
@pytest.mark.parametrize("name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in RUNS])
def test_a_run_takes_what_was_forecast(prepared, tmp_path, emulated, ledgers, capsys, name):
    assert main([*words(prepared, "--device", "cuda", *RUNS[name]), str(tmp_path / "exp")]) == 0
    (ledger,) = ledgers
    store = FrameStore(prepared / "exp/store/train")
    assert ledger.entries[FRAMES] >= len(store) * frame_bytes(store) and ledger.entries[GRAPHS] > 0
    assert "  memory            " in (said := capsys.readouterr().out) and GRAPHS in said and "free on cuda:0" in said
    assert 0.7 * ledger.total < torch.cuda.max_memory_allocated() <= ledger.total, (torch.cuda.max_memory_allocated(), ledger.described())


def test_what_a_graph_of_the_denominator_keeps(prepared):
    """On `meta`, where nothing is computed, what is counted is what the same sums take."""
    graph, counted = Fst.read(prepared / "exp/den.fst"), []
    for device in ("meta", "cpu"):
        denominator = TensorDenominator(graph, 112, 0.1, torch.device(device))
        memory = denominator.memory(30, 112, 8)
        counted.append(most_alive(lambda denominator=denominator, memory=memory: denominator.sums(*memory)))
    assert counted[0] == counted[1] > 8 * 31 * 4 * len(denominator.initial)


@pytest.mark.gpu(memory=100 << 20)
def test_a_run_that_does_not_fit_is_refused_before_frames_are_loaded(prepared, tmp_path, monkeypatch, emulated, capsys):
    hold = SharedFrames.hold

    def forbidden(frames, *parts):
        assert frames.device.type == "meta", "frames are loaded"
        hold(frames, *parts)

    monkeypatch.setattr(SharedFrames, "hold", forbidden)
    assert main([*words(prepared, "--device", "cuda", "--num-chunk-per-minibatch", "64"), str(tmp_path / "exp")]) == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "ERROR" in line]
    assert line.startswith("pykaldist train: ERROR: cuda:0 has 0.105 GB free, of which training can have 0.0996 GB, and takes 0.1")
    assert "a step 0.0" in line and "training frames 0.13 MB" in line and "parameters" in line
    assert line.endswith("; use a smaller network or minibatch (--num-chunk-per-minibatch, --minibatch-size), or more GPUs, each with less "
                         "of the data.")


@pytest.mark.gpu
def test_frames_that_do_not_fit_come_with_their_minibatches(prepared, tmp_path, monkeypatch, emulated, ledgers, capsys):
    """In the memory that is there; the model is the same, bit for bit."""
    options = "--device", "cuda", "--combine-models", "1", "--num-chunk-per-minibatch", "2"
    assert main([*words(prepared, *options), str(tmp_path / "whole")]) == 0
    (ledger,) = ledgers
    free = ledger.total + 3 * memory._workspace(torch.device("cuda:0")) - ledger.entries[FRAMES] // 2
    monkeypatch.setattr(memory, "free_bytes", lambda device: math.ceil(free / (1 - memory.LIBRARIES)))
    gc.collect()
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.memory_allocated() == 0 and main([*words(prepared, *options), str(tmp_path / "pieces")]) == 0
    assert "the training frames come in pieces, in " in capsys.readouterr().out
    assert torch.cuda.max_memory_allocated() <= ledger.total - ledger.entries[FRAMES] // 2
    assert (tmp_path / "whole/final.mdl").read_bytes() == (tmp_path / "pieces/final.mdl").read_bytes()


@pytest.mark.gpu(memory=1 << 20)
def test_memory_that_runs_out_is_one_sentence(prepared, tmp_path, monkeypatch, emulated, capsys):
    """The forecast is told of more memory than there is."""
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1 << 40)
    assert main([*words(prepared, "--device", "cuda"), str(tmp_path / "exp")]) == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "ERROR" in line]
    assert "is out of memory, when" in line and "--num-chunk-per-minibatch for sequences" in line
