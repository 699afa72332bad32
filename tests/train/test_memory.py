"""Device memory: one copy of the training frames in a process, and no more in all than was forecast before anything was loaded.

What would lie on a GPU is counted here on a CPU: frames are copied, where they would stay memory-mapped, and every tensor that is made is
counted while it lives.
"""

from __future__ import annotations

import gc
import weakref
from functools import partial

import pytest
import torch

from pykaldist.cli import main
from pykaldist.errors import UserError
from pykaldist.frames.device_frames import SharedFrames, frame_bytes
from pykaldist.frames.sampler import splice_statistics
from pykaldist.frames.store import FrameStore
from pykaldist.nnet import gemm
from pykaldist.nnet.model import Model
from pykaldist.nnet.network import FeatureTransform
from pykaldist.parallel.planning.footprint import LiveBytes, model_copies
from pykaldist.parallel.strategies.base.registry import make_strategy, strategies, strategy_options
from pykaldist.train import dbn, experiment
from pykaldist.train.checkpoints import Checkpoints
from pykaldist.train.memory import FRAMES, Ledger, room_for_frames
from pykaldist.train.trainer import Trainer

DIM = 37  # of features, and of nothing else
TRAIN = ["train", "--device", "cpu", "--num-threads", "1", "--hid-dim", "96", "--splice", "2", "--schedule", "fixed", "--learn-rates",
         "1e-4"]
PRETRAIN = ["pretrain-dbn", "--device", "cpu", "--num-threads", "1", "--hid-dim", "96", "--splice", "2"]
RECURRENT = ["--nnet", "lstm", "--hid-layers", "1", "--hid-dim", "24", "--splice", "0"]
RUNS = {
    "dnn": [*TRAIN, "--hid-layers", "2", "--minibatch-size", "128"],
    "ngsgd": [*TRAIN, "--hid-layers", "3", "--minibatch-size", "128", "--optimizer", "ngsgd"],
    "four workers": [*TRAIN, "--hid-layers", "2", "--minibatch-size", "128", "--ngpu", "4", "--fabric", "virtual", "--strategy", "bmuf"],
    "stacked workers": [*TRAIN, "--hid-layers", "2", "--minibatch-size", "128", "--ngpu", "4", "--fabric", "virtual", "--strategy", "ssgd",
                        "--momentum", "0.5", "--stack-workers", "true"],
    "asynchronous": [*TRAIN, "--hid-layers", "2", "--minibatch-size", "128", "--ngpu", "4", "--cluster", "v100-ethernet", "--strategy",
                     "easgd"],
    "layer-wise": [*TRAIN, "--hid-layers", "4", "--minibatch-size", "128", "--layerwise-epochs", "1"],
    "serial warm-up": [*TRAIN, "--hid-layers", "2", "--minibatch-size", "128", "--ngpu", "2", "--fabric", "virtual", "--strategy", "ma",
                       "--serial-warmup", "1"],
    "streams": [*TRAIN, *RECURRENT, "--num-streams", "4"],
    "whole utterances": [*TRAIN, *RECURRENT, "--sequences", "whole", "--num-streams", "4"],
    "rbms": [*PRETRAIN, "--hid-layers", "3", "--minibatch-size", "128", "--gauss-minibatch-size", "128"],
    "rbms of two workers": [*PRETRAIN, "--hid-layers", "3", "--ngpu", "2", "--fabric", "virtual", "--strategy", "ma", "--minibatch-size",
                            "128", "--gauss-minibatch-size", "128"],
}


@pytest.fixture
def store(make_store):
    make_store([100] * 24, dim=DIM, seed=1, name="train")
    return make_store([80] * 3, dim=DIM, seed=2, name="dev").path.parent


@pytest.fixture
def on_device(monkeypatch):
    """`on_device(room)`: frames are copied, as to a GPU, into so many bytes."""

    def switch(room=None):
        class Copied(SharedFrames):
            def __init__(self, store, device, reach, _=None, readers=1, group=0):
                super().__init__(store, device, reach, room if store.path.name == "train" else None, readers, device.type == "cpu", group)

        for module in (experiment, dbn):
            monkeypatch.setattr(module, "SharedFrames", Copied)

    return switch


@pytest.mark.parametrize("name", RUNS)
def test_a_run_takes_what_was_forecast(store, tmp_path, monkeypatch, on_device, name):
    on_device()
    ledgers, live, copies = [], LiveBytes(), []
    monkeypatch.setattr(Checkpoints, "save", lambda *_: None)  # on a CPU, it copies what it writes
    monkeypatch.setattr(gemm, "_onednn_is_faster", lambda: False)  # a GPU's products need no memory of their own
    step = Trainer._on_step

    def count_copies(trainer, rank, worker):
        if worker.index == 3:
            gc.unfreeze()  # a simulation has set aside what it had at its beginning
            found = [t for t in gc.get_objects() if type(t) is torch.Tensor and t.shape == (2400, DIM) and t.is_cpu]
            copies.append(len({t.untyped_storage().data_ptr() for t in found}))
        step(trainer, rank, worker)

    monkeypatch.setattr(Trainer, "_on_step", count_copies)
    for kind in (experiment.Experiment, dbn.DbnExperiment):
        monkeypatch.setattr(kind, "_write", lambda *_: None)
        run = kind._run

        def with_forecast(self, run=run, kind=kind):
            transform = FeatureTransform(self.splice, *splice_statistics(self.train, self.splice))
            ledgers.append(self.forecast(transform))
            with live:
                run(self)

        monkeypatch.setattr(kind, "_run", with_forecast)
    gc.disable()  # what nobody holds is gone at once, not when somebody collects
    try:
        main([*RUNS[name], str(store), str(tmp_path / "exp")])  # RBMs end where a layer's files, which are not written, are to be removed
    finally:
        gc.enable()
    (ledger,) = ledgers
    edges = 24 * 8 + 25 * 2 * 8  # of utterances, in rows
    assert ledger.entries[FRAMES] == 2400 * frame_bytes(FrameStore(store / "train")) + edges and copies and set(copies) == {1}
    assert 0.7 * ledger.total < live.peak <= ledger.total, (ledger.described(), live.peak)


@pytest.mark.parametrize("name", ["dnn", "four workers", "stacked workers", "serial warm-up", "streams", "rbms of two workers"])
@pytest.mark.parametrize("level", ["frame", "utterance"])
def test_frames_that_come_in_pieces_give_the_same_model(store, tmp_path, on_device, name, level):
    command = [*RUNS[name], *([] if name == "streams" else ["--partition-level", level, "--blocks", "3"])]
    assert main([*command, str(store), str(tmp_path / "one")]) == 0
    on_device(room=2400 * 4 * DIM // 4)
    assert main([*command, str(store), str(tmp_path / "two")]) == 0
    made = "dbn.pt" if "rbms" in name else "final.nnet"
    assert (tmp_path / "one" / made).read_bytes() == (tmp_path / "two" / made).read_bytes()


def test_a_trainer_that_is_done_leaves_nothing_behind(store, tmp_path, monkeypatch):
    """Without a collection of garbage: that of the layer before would be there while the next one trains."""
    trainers: list[weakref.ref[Trainer]] = []
    init = Trainer.__init__

    def watched(self, *arguments, **named):
        assert not any(one() for one in trainers)
        trainers.append(weakref.ref(self))
        init(self, *arguments, **named)

    monkeypatch.setattr(Trainer, "__init__", watched)
    gc.disable()
    try:
        assert main([*RUNS["rbms"], str(store), str(tmp_path / "exp")]) == 0
    finally:
        gc.enable()
    assert len(trainers) == 3


LEDGER = Ledger({FRAMES: 19_000_000_000, "parameters": 3_000_000_000})


@pytest.mark.parametrize(("free", "room"), [(80e9, None), (23.2e9, None), (22e9, 17_900_000_000), (4e9, 800_000_000)])
def test_frames_come_in_pieces_where_they_do_not_fit(free, room):
    assert room_for_frames(LEDGER, int(free), "cuda:0") == room


def test_a_run_that_does_not_fit_is_refused_in_one_sentence():
    with pytest.raises(UserError, match=r"^cuda:0 has 3.2 GB free, of which training can have 3.04 GB, and takes 22 GB: training frames "
                                        r"19 GB, parameters 3 GB; use a smaller network or --minibatch-size, or more GPUs, so that a "
                                        r"process has fewer workers\.$"):
        room_for_frames(LEDGER, 3_200_000_000, "cuda:0")


def copies_of(name, workers, ngpu, minibatch_size=32, **options):
    """The copies of the model of a strategy, all of whose workers are on one node."""
    return model_copies(partial(make_strategy, name, strategy_options(name)(**options)), workers, ngpu, ngpu, minibatch_size)


@pytest.mark.parametrize("name", strategies())
def test_every_strategy_has_a_footprint(name):
    few, many = (copies_of(name, workers, 8) for workers in (1, 3))
    assert 0.0 <= few <= many < 40 and copies_of(name, 1, 1) == 0.0
    assert few >= make_strategy(name).ships_gradients  # a gradient


def test_a_footprint_counts_what_a_worker_keeps():
    """ssgd: a gradient a worker. bmuf: the global model and its momentum. ma in bfloat16: the last mean and what rounding has lost."""
    assert copies_of("ssgd", 5, 8) - copies_of("ssgd", 4, 8) == pytest.approx(1.0, abs=0.05)
    assert copies_of("bmuf", 5, 8) - copies_of("bmuf", 4, 8) == pytest.approx(2.0, abs=0.3)
    plain, rounded, meanwhile = (copies_of("ma", 4, 8, **options) for options in (
        {}, {"exchange_dtype": "bf16"}, {"exchange_dtype": "bf16", "overlap": True}))
    assert rounded >= plain + 4 * 2 and meanwhile >= rounded + 4  # and what is sent, meanwhile


@pytest.mark.parametrize(("name", "options"), [
    ("hadpsgd", {"group_size": 3}), ("asgd", {"servers": 6}), ("ma", {"initial_workers": 6}), ("ma", {"reduce_type": "hoppingring"}),
    ("diloco", {"average_frames": 20 * 32 - 1})])
def test_options_that_few_workers_do_not_allow_have_a_footprint(name, options):
    assert copies_of(name, 6, 6, **options) > 0.0


def test_a_footprint_of_blocks_is_that_of_periods():
    """What rounding has lost before is there from the second block on."""
    options = {"exchange_dtype": "bf16"}
    assert copies_of("ma", 4, 8, **options, average_period=0) == pytest.approx(copies_of("ma", 4, 8, **options), rel=0.01)


@pytest.mark.parametrize("error", [
    torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.50 GiB. GPU 3 has a total capacity of 79.10 GiB of which ..."),
    RuntimeError("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 2684 "
                 "bytes."),
])
@pytest.mark.parametrize("place", [Model, Trainer])
def test_memory_that_is_not_there_is_one_sentence(store, tmp_path, monkeypatch, capsys, error, place):
    def refuse(*_, **__):
        raise error

    monkeypatch.setattr(place, "forward" if place is Model else "run", refuse)
    assert main([*RUNS["dnn"], str(store), str(tmp_path / "exp")]) == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "ERROR" in line]
    where, wanted = ("GPU 3", "2.50 GiB") if isinstance(error, torch.cuda.OutOfMemoryError) else ("the host", "2684 bytes")
    assert line == (f"pykaldist train: ERROR: {where} is out of memory, when {wanted} more were asked for; use a smaller --minibatch-size "
                    "(--num-streams, --num-chunk-per-minibatch for sequences) or network, or fewer workers a process (--ngpu, --nproc); "
                    "end what else runs there.")


def test_other_errors_stay_what_they_are(store, tmp_path, monkeypatch):
    def fail(*_):
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr(Trainer, "run", fail)
    with pytest.raises(RuntimeError, match="shapes do not match"):
        main([*RUNS["dnn"], str(store), str(tmp_path / "exp")])
