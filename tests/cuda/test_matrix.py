"""Every network x objective x optimiser x strategy on a device: recorded steps are the steps, and no step waits for the device."""

from __future__ import annotations

import itertools
import json
import random

import pytest
import torch
from emulated_cuda import EmulatedCuda
from trained import recorded as replays
from trained import same, train, waits_of_steps, workers

from pykaldist.cli import main
from pykaldist.frames.store import FrameStore
from pykaldist.io import container
from pykaldist.nnet.cuda_graphs import CudaGraphs
from pykaldist.nnet.kinds import KINDS
from pykaldist.nnet.lattice_objective import LatticeObjective
from pykaldist.nnet.objectives import OBJECTIVES
from pykaldist.optim.adam import Adam
from pykaldist.optim.registry import FRAME_OPTIMIZERS
from pykaldist.parallel.strategies import ssgd
from pykaldist.parallel.strategies.base.registry import strategies

pytestmark = pytest.mark.gpu

NETWORKS = {
    "dnn": ["--hid-layers", "2", "--hid-dim", "8", "--splice", "1", "--minibatch-size", "10", "--dropout", "0.2"],
    "cnn": ["--conv", "2x2x4/2", "--hid-layers", "1", "--hid-dim", "8", "--splice", "1", "--batch-norm", "true", "--minibatch-size", "10"],
    "lstm": ["--hid-layers", "1", "--hid-dim", "8", "--projection-dim", "4", "--peepholes", "true", "--num-streams", "3", "--chunk", "4"],
    "blstm": ["--hid-layers", "1", "--hid-dim", "8", "--num-streams", "2", "--chunk", "2-6+2"],
}
WHOLE = {name: [*options[:options.index("--num-streams")], "--num-streams", "2", "--sequences", "whole"]
         for name, options in NETWORKS.items() if "--num-streams" in options}
FRAMES = {name: [*options[:options.index("--minibatch-size")], "--minibatch-utts", "2"]
          for name, options in NETWORKS.items() if "--minibatch-size" in options}
EXTRAS = {"mse": ("target_feats",), "ctc": ("labels",)}
LATTICES = {name for name, objective in OBJECTIVES.items() if issubclass(objective, LatticeObjective)}
NOT_RECORDED = {"ctc"} | LATTICES  # with the rest of a step: between two graphs
LENGTHS = [20, 35, 50, 44, 60, 31]
ADAMS = {name for name, (_, kind) in FRAME_OPTIMIZERS.items() if issubclass(kind, Adam)}  # all that they know of a network is its maps
MATRIX = [combination for combination in itertools.product(KINDS, OBJECTIVES, FRAME_OPTIMIZERS, strategies())
          if (combination[1] != "ctc" or combination[0] in WHOLE)
          and (combination[2] not in ADAMS or (combination[0] in ("dnn", "lstm") and combination[1] == "xent"))]


def sample(matrix: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """One combination of each strategy or more, such that each network and each objective occurs with each optimiser
    that it has in the matrix."""
    drawn, seen, all_pairs = [], set(), set().union(*map(pairs, matrix))
    shuffled = random.Random(0).sample(matrix, len(matrix))
    for strategy in itertools.cycle(strategies()):
        if seen == all_pairs and len(drawn) >= len(strategies()):
            return drawn
        drawn.append(max((one for one in shuffled if one[3] == strategy), key=lambda one: len(pairs(one) - seen)))
        seen |= pairs(drawn[-1])
    raise AssertionError("there are no strategies")


def pairs(combination: tuple[str, ...]) -> set[tuple[str, str]]:
    """What is to occur; objectives of lattices are one to the networks."""
    network, objective, optimizer, _ = combination
    return {(network, optimizer), (objective, optimizer), (network, "lattices" if objective in LATTICES else objective)}


SAMPLE = sample(MATRIX)


def test_the_matrix_has_each_strategy_with_each_optimiser():
    assert {(strategy, optimizer) for _, _, optimizer, strategy in MATRIX} == set(itertools.product(strategies(), FRAME_OPTIMIZERS))


def test_the_sample_has_everything():
    assert {one[3] for one in SAMPLE} == set(strategies())
    assert set().union(*map(pairs, SAMPLE)) == set().union(*map(pairs, MATRIX))


def check(cuda: EmulatedCuda | None, make_store, make_denlats, folder, monkeypatch, network, objective, optimizer, strategy):
    make_store([30] * 12 if objective in NOT_RECORDED else LENGTHS, seed=1, name="train", extras=EXTRAS.get(objective, ()))
    # Lattices are found by utterance, so that both stores may not have one of a name.
    store = make_store([30, 40], seed=2, name="dev", extras=EXTRAS.get(objective, ()), utt="dev").path.parent
    lattices = []
    if objective in LATTICES:
        lattices = ["--denlats", str(make_denlats(folder / "denlats", FrameStore(store / "train"), FrameStore(store / "dev")))]
    (store / "tokens.txt").write_text("<blk> 0\na 1\nb 2\nc 3\nd 4\ne 5\n")
    options = ["--nnet", network, *(WHOLE | FRAMES if objective in NOT_RECORDED else NETWORKS)[network], "--objective", objective,
               "--optimizer", optimizer, *lattices, *([] if optimizer in ADAMS else ["--momentum", "0.3"]),
               *(["--update-period", "4"] if optimizer == "ngsgd" else []),
               "--schedule", "exponential", "--learn-rate", "0.01",
               "--num-epochs", "2", *workers(strategy, folder)]
    with waits_of_steps(cuda) as waits:
        recorded = train(store, folder / "recorded", *options)
    assert not waits
    if objective not in NOT_RECORDED or network in WHOLE:
        assert replays(cuda) > (10 if objective not in NOT_RECORDED else 0)
        monkeypatch.setattr(CudaGraphs, "LIMIT", 0)
        assert same(cuda, train(store, folder / "plain", *options), recorded)
    assert recorded.isfinite().all()


@pytest.mark.parametrize("combination", SAMPLE, ids=",".join)
def test_recorded_steps_are_the_steps(cuda, make_store, make_denlats, tmp_path, monkeypatch, combination):
    check(cuda, make_store, make_denlats, tmp_path, monkeypatch, *combination)


@pytest.mark.slow
@pytest.mark.parametrize("combination", [one for one in MATRIX if one not in SAMPLE], ids=",".join)
def test_the_others_too(cuda, make_store, make_denlats, tmp_path, monkeypatch, combination):
    check(cuda, make_store, make_denlats, tmp_path, monkeypatch, *combination)


@pytest.mark.parametrize("network", ["lstm", "blstm", "blstm, whole utterances"])
def test_sequences_are_trained_as_on_a_cpu(cuda, make_store, tmp_path, network):
    """Padded and recorded, with states carried from one replay to the next."""
    make_store(LENGTHS, seed=1, name="train")
    store, kind = make_store([30], seed=2, name="dev").path.parent, network.split(",")[0]
    options = ["--nnet", kind, *(NETWORKS if network == kind else WHOLE)[kind], "--schedule", "fixed", "--learn-rates", "0.01"]
    found = train(store, tmp_path / "cuda", *options)
    assert main(["train", *options, "--device", "cpu", "--num-threads", "1", str(store), str(tmp_path / "cpu")]) == 0
    assert torch.allclose(found, container.load(tmp_path / "cpu" / "final.pt")["params"], rtol=0, atol=1e-6 if cuda else 1e-4)
    assert replays(cuda) > 10 or network not in NETWORKS


@pytest.mark.parametrize(("network", "objective"), [("lstm", "ctc"), ("blstm", "ctc"), ("lstm", "smbr"), ("blstm", "mmi")])
def test_whole_utterances_are_trained_as_on_a_cpu(cuda, make_store, make_denlats, tmp_path, network, objective):
    """Padded, in two graphs with the objective between, which has graphs of its own."""
    make_store([30] * 12 + [20, 25], seed=1, name="train", extras=EXTRAS.get(objective, ()))
    store = make_store([30, 40], seed=2, name="dev", extras=EXTRAS.get(objective, ()), utt="dev").path.parent
    (store / "tokens.txt").write_text("<blk> 0\na 1\nb 2\nc 3\nd 4\ne 5\n")
    lattices = []
    if objective != "ctc":
        lattices = ["--denlats", str(make_denlats(tmp_path / "denlats", FrameStore(store / "train"), FrameStore(store / "dev")))]
    options = ["--nnet", network, *WHOLE[network], "--objective", objective, *lattices, "--momentum", "0.3",
               "--schedule", "fixed", "--learn-rates", "0.01,0.01"]
    with waits_of_steps(cuda) as waits:
        found = train(store, tmp_path / "cuda", *options)
    assert main(["train", *options, "--device", "cpu", "--num-threads", "1", str(store), str(tmp_path / "cpu")]) == 0
    assert torch.allclose(found, container.load(tmp_path / "cpu" / "final.pt")["params"], rtol=0, atol=1e-6 if cuda else 1e-4)
    history = {device: (tmp_path / device / "history.jsonl").read_text().splitlines() for device in ("cuda", "cpu")}
    for ours, expected in zip(map(json.loads, history["cuda"]), map(json.loads, history["cpu"]), strict=True):
        means = [name for name in expected if name.startswith(("train_", "cv_"))]
        assert [ours[name] for name in means] == pytest.approx([expected[name] for name in means], rel=1e-4, abs=1e-6)
    assert not waits and replays(cuda) >= 6


def test_scratch_memory_of_minibatches_of_several_sizes(cuda, make_store, tmp_path):
    """A graph writes to the scratch memory that there is when it is recorded, not to what was there for another map before it grew."""
    make_store([30] * 12 + [20, 25], seed=1, name="train", extras=EXTRAS["ctc"])
    store = make_store([30, 40], seed=2, name="dev", extras=EXTRAS["ctc"]).path.parent
    (store / "tokens.txt").write_text("<blk> 0\na 1\nb 2\nc 3\nd 4\ne 5\n")
    options = ["--nnet", "lstm", *WHOLE["lstm"], "--objective", "ctc", "--optimizer", "ngsgd", "--update-period", "4"]
    assert train(store, tmp_path / "exp", *options, "--schedule", "fixed", "--learn-rates", "0.01,0.01").isfinite().all()
    assert replays(cuda) >= 6


@pytest.mark.parametrize("strategy", [pytest.param(name, marks=[pytest.mark.slow] * (name not in ("ma", "ssgd"))) for name in strategies()])
def test_pretraining(cuda, make_store, tmp_path, monkeypatch, strategy):
    """RBMs take every strategy."""
    make_store(LENGTHS, seed=1, name="train")
    store = make_store([30, 40], seed=2, name="dev").path.parent
    found = []
    for limit in (16, 0):
        monkeypatch.setattr(CudaGraphs, "LIMIT", limit)
        exp = tmp_path / f"limit{limit}"
        with waits_of_steps(cuda) as waits:
            assert main(["pretrain-dbn", "--hid-layers", "2", "--hid-dim", "8", "--splice", "1", "--minibatch-size", "16",
                         "--gauss-minibatch-size", "16", "--rbm-iter", "1", "--num-threads", "1", "--device", "cuda",
                         *workers(strategy, tmp_path), str(store), str(exp)]) == 0
        assert not waits and (replays(cuda) > 10 or not limit)
        found.append(torch.cat([part.flatten() for layer in container.load(exp / "dbn.pt")["layers"] for part in layer]))
    assert same(cuda, *found) and found[0].isfinite().all()


def test_overlapped_exchanges_are_recorded_in_parts(cuda, make_store, tmp_path, monkeypatch):
    """Gradients whose parts are graphs of their own, each summed on the side stream behind its own; with dropout, and padded sequences."""
    if cuda is None:
        pytest.skip("counts the graphs of the emulated device")  # a real one does not say how many it has replayed
    make_store(LENGTHS, seed=1, name="train")
    store = make_store([30], seed=2, name="dev").path.parent
    monkeypatch.setattr(ssgd, "PART", 40)
    for network, optimizer in (("dnn", "ngsgd"), ("blstm", "sgd")):
        options = ["--nnet", network, *NETWORKS[network], "--optimizer", optimizer, *workers("ssgd", tmp_path), "--schedule", "fixed",
                   "--learn-rates", "0.01", *(["--update-period", "4"] if optimizer == "ngsgd" else [])]
        expected, plain = train(store, tmp_path / f"{network} one by one", *options), cuda.kernels["graph"]
        with waits_of_steps(cuda) as waits:
            found = train(store, tmp_path / f"{network} overlapped", *options, "--overlap", "true")
        assert torch.equal(found, expected) and not waits
        assert cuda.kernels["graph"] - plain > plain + 5  # a graph for each part
        cuda.reset()


@pytest.mark.gpu(devices=2)
@pytest.mark.parametrize(("network", "objective", "optimizer", "strategy"), [
    *(("dnn", "xent", optimizer, "local") for optimizer in FRAME_OPTIMIZERS), ("cnn", "mse", "sgd", "ssgd"),
    ("lstm", "xent", "ngsgd", "bmuf"), ("blstm", "ctc", "ngsgd", "ma"), ("lstm", "smbr", "sgd", "onebit"),
    ("dnn", "mmi", "ngsgd", "diloco")])
def test_another_device_than_the_first(cuda, make_store, make_denlats, tmp_path, network, objective, optimizer, strategy):
    """Every kernel is on the current device, where that is not device 0."""
    make_store([30] * 6, seed=1, name="train", extras=EXTRAS.get(objective, ()))
    store = make_store([30, 40], seed=2, name="dev", extras=EXTRAS.get(objective, ()), utt="dev").path.parent
    (store / "tokens.txt").write_text("<blk> 0\na 1\nb 2\nc 3\nd 4\ne 5\n")
    lattices = []
    if objective in LATTICES:
        lattices = ["--denlats", str(make_denlats(tmp_path / "denlats", FrameStore(store / "train"), FrameStore(store / "dev")))]
    shape = WHOLE | FRAMES if objective in NOT_RECORDED else NETWORKS
    options = [*shape[network], "--nnet", network, "--objective", objective, *lattices, "--optimizer", optimizer, "--schedule", "fixed",
               "--learn-rates", "0.01", "--num-threads", "1", *([] if strategy == "local" else workers(strategy, tmp_path))]
    for device in ("cuda:0", "cuda:1"):
        torch.cuda.set_device(0)
        assert main(["train", *options, "--device", device, str(store), str(tmp_path / device)]) == 0
    one, other = (container.load(tmp_path / f"cuda:{k}" / "final.pt")["params"] for k in (0, 1))
    assert same(cuda, one, other)
