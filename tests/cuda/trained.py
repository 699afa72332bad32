"""Trainings on an emulated device, and what they launch and wait for."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from emulated_cuda import EmulatedCuda

from pykaldist.cli import main
from pykaldist.io import container
from pykaldist.nnet.learner import Supervised
from pykaldist.optim.optimizer import Optimizer
from pykaldist.parallel.fabric.worker import Worker
from pykaldist.parallel.strategies.base.registry import strategy_class

TWO_NODES = {"name": "two", "description": "", "nodes": 2, "devices": 1, "compute": {"minibatch_seconds": 0.5, "spread": 0.3},
             "between": {"bandwidth": 1e4, "latency": 1e-3},
             "workload": {"network": "small", "parameters": 500, "minibatch_size": 8, "frames": 300}}


def train(store: Path, exp: Path, *options: str) -> torch.Tensor:
    """Train a network on the device; returns its parameters."""
    assert main(["train", *options, "--device", "cuda", "--num-threads", "1", "--lr-scale", "none", str(store), str(exp)]) == 0
    return container.load(exp / "final.pt")["params"]


def workers(strategy: str, folder: Path, ngpu: int = 2) -> list[str]:
    """The options of virtual workers under a strategy; `folder` takes the description of a cluster where it needs one."""
    options = ["--ngpu", str(ngpu), "--fabric", "virtual", "--strategy", strategy]
    if strategy in ("ma", "bmuf", "easgd"):
        options += ["--average-period", "3"]
    if strategy == "diloco":
        options += ["--fragments", "2", "--average-period", "4"]
    if strategy_class(strategy).asynchronous:
        (folder / "two.json").write_text(json.dumps(TWO_NODES))
        options += ["--cluster", str(folder / "two.json")]
    return options


@contextmanager
def launches_of_minibatches(cuda: EmulatedCuda) -> Iterator[list[int]]:
    """The number of launches so far at the end of each minibatch, of all epochs."""
    found: list[int] = []
    done = Worker._done

    def counted(worker: Worker, *args: Any) -> None:
        done(worker, *args)
        found.append(cuda.launches)

    with mock.patch.object(Worker, "_done", counted):
        yield found


RECORDING = "synchronize of nnet/cuda_graphs.py"  # within a step; those of steps are recorded around them


@contextmanager
def waits_of_steps(cuda: EmulatedCuda | None) -> Iterator[list[list[str]]]:
    """What the host waits for within the device's part of a step, but for events, to record, and for the first minibatch's Fisher matrices.

    A list for each step that waits. A real device (None) does not tell: nothing is found there (gpu_check.py asks PyTorch's profiler).
    """
    found: list[list[str]] = []
    if cuda is None:
        yield found
        return

    def watched(part: Callable[..., None]) -> Callable[..., None]:

        def step(worker: Optimizer | Supervised, *args: Any) -> None:
            before = cuda.synchronisations.copy()
            part(worker, *args)
            waits = [what for what in (cuda.synchronisations - before).elements()
                     if not what.startswith(("event", RECORDING))
                     and not ("natural_gradient.py" in what and worker.states[0].output.calls == 0)]
            if waits:
                found.append(waits)

        return step

    parts = "_step", "_gradient_alone", "_apply"
    names = [(owner, name) for owner in (Optimizer, *subclasses(Optimizer)) for name in parts if name in vars(owner)]
    names.append((Supervised, "objective_alone"))
    patches = [mock.patch.object(owner, name, watched(vars(owner)[name])) for owner, name in names]
    for patch in patches:
        patch.start()
    try:
        yield found
    finally:
        for patch in patches:
            patch.stop()


def subclasses(kind: type) -> list[type]:
    return [one for child in kind.__subclasses__() for one in (child, *subclasses(child))]


def recorded(cuda: EmulatedCuda | None) -> float:
    """The number of graphs' replays; a real device does not tell, and has had as many as anyone asks for."""
    return math.inf if cuda is None else cuda.kernels["graph"]


def same(cuda: EmulatedCuda | None, one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether parameters are equal: bit for bit on the emulated device, and on a real one as far as its atomic sums allow."""
    return torch.equal(one, other) if cuda is not None else torch.allclose(one, other, rtol=1e-4, atol=1e-5)
