"""The matrix of exact resume: every valid combination of strategy, fabric, network, objective and optimiser, and how one is tried.

    python resuming.py CASES FOLDER STORES     in each process of a job by mpiexec, or with torchrun's variables

A case is trained twice, whole and stopped at some of its checkpoints; the parameters and the history have to be the same. The stop is an
exception that no part of the program knows, raised in every process when a checkpoint has been begun.
"""

from __future__ import annotations

import json
import os
import random
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from stopping import Interrupted

from pykaldist.cli import main
from pykaldist.io import container
from pykaldist.io.atomic import write_text
from pykaldist.nnet.kinds import KINDS
from pykaldist.nnet.objectives import OBJECTIVES
from pykaldist.optim.registry import FRAME_OPTIMIZERS
from pykaldist.parallel.strategies.base.registry import make_strategy, strategies, strategy_options
from pykaldist.train.checkpoints import Checkpoints

RESULTS = "results.json"
AGREED_S = 60  # so long may process 0 be behind the others
CLUSTER = {"name": "three", "description": "", "nodes": 3, "devices": 1, "compute": {"minibatch_seconds": 0.5, "spread": 0.3},
           "between": {"bandwidth": 1e4, "latency": 1e-3},
           "workload": {"network": "small", "parameters": 500, "minibatch_size": 8, "frames": 300}}
SCRIPT = {"failures": [{"worker": 2, "at": 2.2}, {"worker": 1, "at": 5.0}], "joins": [{"worker": 2, "at": 4.0}]}
MODELS = {
    "dnn": ["--hid-layers", "1", "--splice", "1"],
    "cnn": ["--conv", "2x2x4/2", "--hid-layers", "1", "--splice", "1", "--batch-norm", "true"],
    "lstm": ["--hid-layers", "1", "--projection-dim", "4"], "blstm": ["--hid-layers", "1"]}
SEQUENCES = {"lstm": ["--num-streams", "3", "--chunk", "4"], "blstm": ["--sequences", "chunks", "--num-streams", "2", "--chunk", "2-6+2"]}
OWN = {"ma": ["--average-period", "2"], "bmuf": ["--average-period", "3"], "easgd": ["--average-period", "3"],
       "diloco": ["--fragments", "2", "--average-period", "4", "--outer-momentum", "0.5"], "ngsgd": ["--update-period", "2"],
       "sgd": ["--momentum", "0.3"], "adam": ["--ema-decay", "0.9"], "muon": []}
REAL = ("mpi", "gloo")  # over two processes; the other fabrics are in one
WHOLE = [name for name, objective in OBJECTIVES.items() if objective.whole_utterances]
ANSWERING = ("easgd",)  # strategies that are asynchronous on request


@dataclass(frozen=True)
class Case:
    """A combination."""

    strategy: str
    fabric: str  # virtual, mpi, gloo; simulated: a cluster; elastic: a cluster in which workers die and are replaced
    nnet: str
    objective: str
    optimizer: str

    @property
    def name(self) -> str:
        return "-".join((self.strategy.replace(" ", ""), self.fabric, self.nnet, self.objective, self.optimizer))

    def words(self, folder: Path) -> list[str]:
        """The options; `folder` gets the cluster file."""
        strategy, _, asynchronous = self.strategy.partition(" ")
        words = ["--strategy", strategy, *(["--asynchronous", "true"] if asynchronous else []), "--nnet", self.nnet, *MODELS[self.nnet],
                 "--hid-dim", "8", "--objective", self.objective, "--optimizer", self.optimizer, "--learn-rate", "0.002",
                 "--lr-scale", "none", "--schedule", "exponential", "--num-epochs", "2", "--num-threads", "1", "--device", "cpu",
                 *OWN.get(strategy, []), *OWN[self.optimizer], "--ngpu", "3" if self.fabric == "elastic" else "2"]
        if self.nnet in SEQUENCES:
            words += ["--sequences", "whole", "--num-streams", "1"] if self.objective in WHOLE else SEQUENCES[self.nnet]
        elif self.objective not in WHOLE:
            words += ["--minibatch-size", "10"]
        if self.fabric in ("simulated", "elastic"):
            path = folder / f"{self.fabric}.json"
            path.write_text(json.dumps({**CLUSTER, **(SCRIPT if self.fabric == "elastic" else {})}))
            return [*words, "--cluster", str(path), *(["--elastic", "true"] if self.fabric == "elastic" else [])]
        return [*words, "--fabric", self.fabric]


def fabrics(strategy: str) -> list[str]:
    """The fabrics over which a run with this strategy can be repeated: not real processes, where it is asynchronous."""
    name, _, asynchronous = strategy.partition(" ")
    made = make_strategy(name, strategy_options(name)(asynchronous=True) if asynchronous else None)
    return ["simulated", *(() if made.asynchronous else ("virtual", *REAL)), *(() if made.inelastic() else ("elastic",))]


def matrix() -> list[Case]:
    """All cases, in a fixed order."""
    nnets = [(nnet, objective) for nnet in KINDS for objective in sorted(OBJECTIVES) if objective != "ctc" or nnet in SEQUENCES]
    return [Case(strategy, fabric, nnet, objective, optimizer)
            for strategy in [*strategies(), *(f"{name} asynchronous" for name in ANSWERING)] for fabric in fabrics(strategy)
            for nnet, objective in nnets for optimizer in sorted(FRAME_OPTIMIZERS)
            if optimizer not in ("adam", "muon") or (nnet, objective) == ("dnn", "xent")]


def sample(cases: list[Case], seed: int) -> list[Case]:
    """A few of the cases, drawn so that each value of each column is in one."""
    drawn, seen, found = random.Random(seed).sample(cases, len(cases)), set(), []
    for case in drawn:
        values = {(case.strategy,), (case.nnet, ""), (case.objective, ""), (case.optimizer, ""), (case.fabric, "")}
        if not values <= seen:
            seen |= values
            found.append(case)
    return found


def attempt(case: Case, folder: Path, stores: Path, ready: Callable[[], None] = lambda: None) -> str:
    """Try a case: what is wrong, in words; empty where nothing is. `ready` is called before each run."""
    store = stores / ("labels" if case.objective == "ctc" else "frames")
    exps = [folder / f"{case.name}-whole", folder / case.name]
    folder.mkdir(parents=True, exist_ok=True)
    lattices = ["--denlats", str(stores / "denlats")] if case.objective in WHOLE and case.objective != "ctc" else []
    train = ["train", *case.words(folder), *lattices, str(store)]
    ready()
    if main([*train, str(exps[0])]):
        return "the whole run failed"
    save, sync, count, stops = Checkpoints.save, os.fsync, 0, 0
    moments = [1, *random.Random(case.name).sample(range(2, 9), 1 if case.fabric in REAL else 2)]

    def save_and_stop(self, *state):
        nonlocal count
        save(self, *state)
        count += 1
        if count in moments:
            self.wait()
            raise Interrupted

    Checkpoints.save, os.fsync = save_and_stop, lambda file: None  # no power is to fail
    try:
        while True:
            ready()
            try:
                if main([*train, str(exps[1]), *(["--checkpoint-minutes", "0"] if count < max(moments) else [])]):
                    return "the run that was stopped failed"
                break
            except Interrupted:
                stops += 1
                if torch.distributed.is_initialized():
                    torch.distributed.destroy_process_group()
    finally:
        Checkpoints.save, os.fsync = save, sync
    (params, history), (others, other) = map(outcome, exps)
    if not stops:
        return "there was no checkpoint to stop at"
    return "" if torch.equal(params, others) and history == other else f"stopped {stops} times it is another run"


def outcome(exp: Path) -> tuple[torch.Tensor, list[dict[str, object]]]:
    history = [json.loads(line) for line in (exp / "history.jsonl").read_text().splitlines()]
    return container.load(exp / "final.pt")["params"], [{k: v for k, v in line.items() if k != "seconds"} for line in history]


def agreed_port(path: Path, first: bool) -> str:
    """A port that is free now, which the first process finds and writes to `path`, where the others wait for it."""
    if first:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            write_text(path, str(probe.getsockname()[1]))
    until = time.monotonic() + AGREED_S
    while not path.exists():
        if time.monotonic() > until:
            raise TimeoutError(f"process 0 has written no {path} for {AGREED_S} s")
        time.sleep(0.01)
    return path.read_text()


def job(cases: Path, folder: Path, stores: Path) -> None:
    """Try cases, in each process of a job. Process 0 writes what was wrong with each to `folder`."""
    runs, wrong = 0, {}
    first = os.environ.get("PMI_RANK", os.environ.get("RANK")) == "0"

    def ready() -> None:
        nonlocal runs
        os.environ["MASTER_PORT"] = agreed_port(folder / f"port.{runs}", first)  # each run of gloo has a meeting point of its own
        runs += 1

    for values in json.loads(cases.read_text()):
        case = Case(*values)
        wrong[case.name] = attempt(case, folder, stores, ready)
    if first:
        (folder / RESULTS).write_text(json.dumps(wrong))


if __name__ == "__main__":
    job(*map(Path, sys.argv[1:]))
