"""Training with many workers, as a user runs it: everything under every strategy, resumed to the bit; and one result, whoever computes."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import itertools
import json
import os
import re
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from stopping import Interrupted, stop_at

from pykaldist.cli import main
from pykaldist.frames.sampler import Minibatch, Partition, Sampler
from pykaldist.frames.store import FrameStore
from pykaldist.io import container
from pykaldist.nnet.rbm import ContrastiveDivergence, Rbm
from pykaldist.parallel.fabric.processes import SingleProcess
from pykaldist.parallel.launch.job import Job
from pykaldist.parallel.strategies.base.registry import strategies
from pykaldist.train.evaluate import evaluate
from pykaldist.train.trainer import Trainer

COMMON = ["--hid-layers", "1", "--hid-dim", "8", "--splice", "1", "--num-threads", "1", "--device", "cpu"]
STRATEGIES = {
    "local": ["--strategy", "local"],
    "ma": ["--strategy", "ma", "--average-period", "2", "--reduce-content", "all"],
    "ma in blocks": ["--strategy", "ma", "--average-period", "0", "--blocks", "4"],
    "ma, overlapping": ["--strategy", "ma", "--average-period", "2", "--overlap", "true"],
    "ma, ring": ["--strategy", "ma", "--average-period", "2", "--reduce-type", "ring"],
    "ma, hoppingring": ["--strategy", "ma", "--average-period", "1", "--reduce-type", "hoppingring"],
    "bmuf": ["--strategy", "bmuf", "--average-frames", "15"],
    "bmuf, classical": ["--strategy", "bmuf", "--average-period", "3", "--nesterov", "false", "--local-momentum", "average"],
    "ssgd": ["--strategy", "ssgd", "--partition-level", "utterance"],
    "onebit": ["--strategy", "onebit"],
}
KINDS = {  # every strategy meets every schedule, optimiser and objective
    "sgd": ["--schedule", "newbob", "--num-epochs", "4", "--momentum", "0.5"],
    "ngsgd": ["--optimizer", "ngsgd", "--schedule", "exponential", "--num-epochs", "4", "--momentum", "0.5"],
    "mse": ["--objective", "mse", "--schedule", "warmup", "--num-epochs", "4", "--activation", "tanh"],
    "ngsgd, mse": ["--objective", "mse", "--optimizer", "ngsgd", "--schedule", "fixed", "--activation", "tanh"],
}
RATES = {"sgd": "0.02", "ngsgd": "0.02", "mse": "0.01", "ngsgd, mse": "0.01"}


@pytest.fixture
def store(make_store):
    make_store([20, 35, 50, 44, 60, 31, 25], seed=1, name="train", extras=("target_feats",))
    return make_store([30, 40], seed=2, name="dev", extras=("target_feats",)).path.parent


def train(store: Path, exp: Path, *options: str) -> None:
    assert main(["train", *COMMON, *options, str(store), str(exp)]) == 0


def pretrain(store: Path, exp: Path, *options: str) -> None:
    sizes = ["--hid-layers", "2", "--minibatch-size", "8", "--gauss-minibatch-size", "8", "--rbm-iter", "2"]
    assert main(["pretrain-dbn", *COMMON, *sizes, *options, str(store), str(exp)]) == 0


def outcome(exp: Path) -> tuple[list[torch.Tensor], list[dict]]:
    """All parameters, and the history but for its times."""
    history = [json.loads(line) for line in (exp / "history.jsonl").read_text().splitlines()]
    if (exp / "dbn.pt").exists():
        params = [tensor for layer in container.load(exp / "dbn.pt")["layers"] for tensor in layer]
    else:
        params = [container.load(exp / "final.pt")["params"]]
    return params, [{key: value for key, value in line.items() if key != "seconds"} for line in history]


def assert_same(one: Path, other: Path) -> None:
    (params, history), (others, other_history) = outcome(one), outcome(other)
    assert all(torch.equal(a, b) for a, b in zip(params, others, strict=True))
    assert history == other_history


def stopped_and_resumed(monkeypatch, run, exp: Path, moments: set[int]) -> int:
    """Run with a checkpoint at every safe point, stopped after these of them, until it is through; how often it was."""
    stops = 0
    stop_at(monkeypatch, moments.__contains__)
    monkeypatch.setattr(os, "fsync", lambda file: None)  # no power is to fail
    while True:
        try:
            run(exp)
            return stops
        except Interrupted:
            stops += 1


@pytest.mark.parametrize(("strategy", "kind", "workers"), [
    (strategy, kind, 2 + (i + j) % 2) for i, strategy in enumerate(STRATEGIES) for j, kind in enumerate(KINDS)])
def test_everything_trains_and_resumes_under_every_strategy(store, tmp_path, monkeypatch, capsys, strategy, kind, workers):
    rate = ["--learn-rates", ",".join([RATES[kind]] * 4)] if "fixed" in KINDS[kind] else ["--learn-rate", RATES[kind]]
    options = [*KINDS[kind], *STRATEGIES[strategy], *rate, "--minibatch-size", "8", "--ngpu", str(workers), "--fabric", "virtual"]
    train(store, tmp_path / "whole", *options)
    said = capsys.readouterr().out
    before = float(re.search(r"^before training: cv loss ([\d.]+)", said, re.MULTILINE)[1])
    assert min(line["cv_loss"] for line in outcome(tmp_path / "whole")[1]) < 0.93 * before
    assert f"{workers} workers share them, up to {workers} virtual ones in a process" in said

    def run(exp):
        train(store, exp, *options, "--checkpoint-minutes", "0")

    assert stopped_and_resumed(monkeypatch, run, tmp_path / "exp", {2, 3, 7, 11}) >= 2
    assert_same(tmp_path / "exp", tmp_path / "whole")


@pytest.mark.parametrize(("strategy", "workers"), [(strategy, 2 + i % 2) for i, strategy in enumerate(STRATEGIES)])
def test_rbms_train_and_resume_under_every_strategy(store, tmp_path, monkeypatch, capsys, strategy, workers):
    options = [*STRATEGIES[strategy], "--ngpu", str(workers), "--fabric", "virtual", "--lr-scale", "none", "--rbm-lrate-low", "0.05"]
    pretrain(store, tmp_path / "whole", *options)
    said, history = capsys.readouterr().out, outcome(tmp_path / "whole")[1]
    before = float(re.search(r"^rbm 1: before training: cv loss ([\d.]+)", said, re.MULTILINE)[1])
    losses = [[line["cv_loss"] for line in history if line["layer"] == layer] for layer in (1, 2)]
    assert losses[0][-1] < 0.98 * before and max(losses[1]) < 0.1  # the second one's data hardly move from their mean

    def run(exp):
        pretrain(store, exp, *options, "--checkpoint-minutes", "0")

    assert stopped_and_resumed(monkeypatch, run, tmp_path / "exp", {2, 3, 7, 11}) >= 2
    assert_same(tmp_path / "exp", tmp_path / "whole")


def test_all_strategies_are_here():
    assert {options[1] for options in STRATEGIES.values()} >= {"local", "ma", "bmuf", "ssgd", "onebit"} & set(strategies())


class Collected(Exception):
    pass


@dataclass
class OneOfSeveral(SingleProcess):
    """Process `rank` of `size`, whose gathering ends in Collected, or gives what was collected from all."""

    rank: int
    size: int
    everything: list[torch.Tensor] | None = None

    def gather(self, buffer: torch.Tensor) -> list[torch.Tensor]:
        if self.everything is None:
            raise Collected(buffer)
        return self.everything


@pytest.mark.parametrize("units", ["bern", "gauss"])
def test_held_out_frames_are_scored_alike_by_any_number_of_processes(store, units):
    """To the bit, also what is made once for all of them: an RBM's free energy on training frames."""
    (train_sampler, dev_sampler) = (
        Sampler(part, Partition(part), 0, 16, [-1, 0, 1], torch.zeros(12), torch.ones(12), 0, torch.device("cpu"))
        for part in (FrameStore(store / "train"), FrameStore(store / "dev")))
    rbm = Rbm(units, 12, 6)
    rbm.init(0.5, -1.0, 1.0, torch.Generator().manual_seed(0))
    learner = ContrastiveDivergence(rbm, None, 1, train_sampler)
    alone = evaluate(learner, dev_sampler)
    assert set(alone) == {"loss", "free_energy", "free_energy_gap"}
    for size in (2, 3, 7):
        parts = []
        for rank in range(size):
            with pytest.raises(Collected) as collected:
                evaluate(learner, dev_sampler, OneOfSeveral(rank, size))
            parts.append(collected.value.args[0])
        assert torch.cat(parts).view(-1, learner.num_totals)[:, 4].sum() == train_sampler.frames  # once, not by each of them
        assert evaluate(learner, dev_sampler, OneOfSeveral(size - 1, size, parts)) == alone


def test_totals_of_many_minibatches_lie_together(store):
    """A tensor of each, kept to the end, would lie in the memory that minibatches take and give back (24 KB a minibatch of RBMs)."""
    part = FrameStore(store / "train")
    sampler = Sampler(part, Partition(part), 0, 1, [0], torch.zeros(4), torch.ones(4), 0, torch.device("cpu"))
    rbm = Rbm("gauss", 4, 2)
    rbm.init(0.5, -1.0, 1.0, torch.Generator().manual_seed(0))
    places = []

    def score(minibatch: Minibatch, totals: torch.Tensor) -> None:
        places.append(totals.untyped_storage().data_ptr())
        totals[:2] += torch.tensor([float(minibatch.index), 1.0])

    many = itertools.cycle(sampler.in_order())
    sampler.in_order = lambda *_: (dataclasses.replace(m, index=i) for i, m in enumerate(itertools.islice(many, 700)))
    found = evaluate(ContrastiveDivergence(rbm, None, 1, sampler), sampler, score=score)
    assert found["loss"] == sum(range(700)) / 700 / 4
    assert len(set(places)) == 3 and len(places) == 700


@pytest.mark.parametrize("workers", [8, 64])
def test_a_worker_more_takes_its_parameters_and_state_and_no_activations(make_store, tmp_path, monkeypatch, workers):
    """All tensors that are alive while the last worker makes its step, of some workers against one."""
    make_store([200] * 4, seed=1, name="train", dim=20)
    store = make_store([100], seed=2, name="dev", dim=20).path.parent
    held = {}

    def count(trainer, rank, worker):
        if worker is trainer.workers[-1] and worker.index == 1:
            gc.collect()
            params = len(worker.params) * worker.params.itemsize
            storages = {(s.data_ptr(), s.nbytes()) for s in (t.untyped_storage() for t in gc.get_objects() if type(t) is torch.Tensor)}
            held[len(trainer.workers)] = (sum(size for _, size in storages), params)

    monkeypatch.setattr(Trainer, "_on_step", count)
    for n in (1, workers):
        train(store, tmp_path / str(n), "--ngpu", str(n), "--fabric", "virtual", "--hid-dim", "100", "--minibatch-size", "12", "--schedule",
              "fixed", "--learn-rates", "1e-4", "--strategy", "ma", "--average-period", "1")
    (one, params), (many, _) = held[1], held[workers]
    assert 1.9 * params < (many - one) / (workers - 1) < 2.15 * params


# The same result from processes of every kind: each of these makes more than 200 exchanges.

SYNCHRONOUS = {
    "ma": ["--strategy", "ma", "--average-period", "1"],
    "overlapping": ["--strategy", "ma", "--average-period", "1", "--overlap", "true"],
    "butterfly": ["--strategy", "ma", "--average-period", "1", "--reduce-type", "butterfly"],
    "hoppingring": ["--strategy", "ma", "--average-period", "1", "--reduce-type", "hoppingring"],
    "bmuf": ["--strategy", "bmuf", "--average-period", "1", "--block-momentum", "0.5"],
    "ssgd": ["--strategy", "ssgd"],
    "onebit": ["--strategy", "onebit"],
}
RUNS = """
import json, os, sys
from pykaldist.cli import main
for line in sys.argv[1:]:
    os.environ["MASTER_PORT"], *command = json.loads(line)  # each run of gloo has a meeting point of its own
    if main(command):
        sys.exit(1)
"""


def commands(store: Path, folder: Path, workers: int, fabric: str) -> list[list[str]]:
    """The command line of each run: all strategies, with sums in order and without."""
    epochs = -(-201 * workers * 4 // 1642)
    shared = [*COMMON, "--minibatch-size", "4", "--schedule", "fixed", "--learn-rates", ",".join(["0.01"] * epochs), "--momentum", "0.5",
              "--lr-scale", "none", "--ngpu", str(workers), "--fabric", fabric]
    return [["train", *shared, *options, "--deterministic", order, str(store), str(folder / f"{name}-{order}")]
            for (name, options), order in itertools.product(SYNCHRONOUS.items(), ("true", "false"))]


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """`expected(workers)`: (store, folder of runs with all workers in one process)."""
    made = {}

    def make(make_store, workers):
        if workers not in made:
            make_store([203, 211, 199, 205, 207, 198, 212, 207], seed=1, name="train")
            folder = tmp_path_factory.mktemp("virtual")
            store = make_store([30, 40, 21], seed=2, name="dev").path.parent
            store = store.rename(folder / "store")
            # In a process of its own, in which the deterministic mode comes before the libraries, as in those that it is compared with.
            lines = [json.dumps(["0", *command]) for command in commands(store, folder, workers, "virtual")]
            root = Path(__file__).resolve().parents[2]
            subprocess.run([sys.executable, "-c", RUNS, *lines], check=True, env={**os.environ, "PYTHONPATH": str(root)})
            made[workers] = store, folder
        return made[workers]

    return make


def free_ports(count: int) -> list[str]:
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [str(probe.getsockname()[1]) for probe in probes]


def run_job(fabric: str, processes: int, lines: list[list[str]], root: Path) -> None:
    ports = free_ports(len(lines))
    arguments = ["-c", RUNS, *(json.dumps([port, *line]) for port, line in zip(ports, lines, strict=True))]
    environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    if fabric == "mpi":
        mpiexec = Path(sys.executable).with_name("mpiexec")
        if not mpiexec.exists():
            pytest.skip(f"no {mpiexec}: a Python of the user's own, without the mpich of requirements.txt")
        jobs = [[str(mpiexec), "-n", str(processes), sys.executable, "-m", "mpi4py", *arguments]]
        environments = [environment]
    else:
        jobs = [[sys.executable, *arguments]] * processes
        meeting = {"MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": str(processes)}
        environments = [{**environment, **meeting, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(processes)]
    running = [subprocess.Popen(job, env=env, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
               for job, env in zip(jobs, environments, strict=True)]
    try:
        said = [process.communicate(timeout=1200)[0] for process in running]
    finally:
        for process in running:
            process.kill()
    assert [process.returncode for process in running] == [0] * len(running), "\n".join(said)[-3000:]


@pytest.mark.parametrize(("workers", "fabric", "processes"), [
    (2, "mpi", 2), (2, "gloo", 2), *(pytest.param(4, fabric, processes, marks=pytest.mark.slow)
                                     for fabric in ("mpi", "gloo") for processes in (2, 4))])
def test_one_result_whoever_computes(make_store, tmp_path, root, expected, workers, fabric, processes):
    """After 200 exchanges and more: the same parameters and history to the bit where sums are in order, else nearly."""
    store, folder = expected(make_store, workers)
    run_job(fabric, processes, commands(store, tmp_path, workers, fabric), root)
    for name in SYNCHRONOUS:
        (one, _), (other, history) = outcome(folder / f"{name}-false"), outcome(tmp_path / f"{name}-false")
        assert float((one[0] - other[0]).norm() / one[0].norm()) < 1e-5, name
        assert history[-1]["updates"] > 200
        assert_same(folder / f"{name}-true", tmp_path / f"{name}-true")


def test_serial_warmup_has_the_cores_of_those_that_wait(store, tmp_path, monkeypatch):
    order, alone, run = [], Job.alone, Trainer.run

    @contextlib.contextmanager
    def watched(job):
        with alone(job):
            order.append("alone")
            yield
        order.append("not alone")

    def trained(trainer):
        order.append(len(trainer.workers))
        run(trainer)

    monkeypatch.setattr(Job, "alone", watched)
    monkeypatch.setattr(Trainer, "run", trained)
    train(store, tmp_path, "--ngpu", "2", "--fabric", "virtual", *STRATEGIES["ma"], "--serial-warmup", "1", *KINDS["sgd"],
          "--learn-rate", "0.02")
    assert order == ["alone", 1, "not alone", 2]
