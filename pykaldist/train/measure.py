"""Measure this machine for the planner: the seconds of a minibatch alone and beside another worker's, of its loading, and of an all-reduce.

`measure(job)` times one worker in this process. Where the machine has two devices (groups of `num_threads` cores, or GPUs) it then starts
two processes by MPI (`python -m mpi4py -m pykaldist.train.measure JOB RESULT`), which take devices and a fabric as those of a job do. They
compute at the same time and then all-reduce. Between two workers that takes 2 latency + bytes / bandwidth. A buffer of one value shows the
first part. A buffer of a model's size, and of 4 MB at least, shows both. The times of longer rings follow from these by the model of
`parallel/planning/plan.py`.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch

from pykaldist.devices import computing_on
from pykaldist.errors import UserError
from pykaldist.frames.sampler import Minibatch, Partition, Sampler
from pykaldist.frames.store import FrameStore, pack
from pykaldist.io.atomic import write_text
from pykaldist.nnet.dnn import DnnOptions, make_dnn
from pykaldist.nnet.init import init_dnn
from pykaldist.nnet.learner import Supervised
from pykaldist.nnet.objective import CrossEntropy
from pykaldist.optim.natural_gradient import FIRST_UPDATES
from pykaldist.optim.registry import OPTIMIZERS, make_optimizer
from pykaldist.parallel.launch.commands import mpiexec
from pykaldist.parallel.launch.job import open_processes
from pykaldist.parallel.planning.dry_run import work_bandwidth
from pykaldist.parallel.transport.addresses import LOOPBACK_INTERFACE, variables

WARM_UP = FIRST_UPDATES + 2  # minibatches before the measurement; NG-SGD's first ones take longer
LEAST_MINIBATCHES = 16
GROUP = 4  # the spread is that of means over so many: what all workers do at the same minibatches (NG-SGD's updates) is not spread
REPEATS = 7  # repetitions of each measurement other than steps
LEAST_BUFFER = 1 << 20  # values of a timed exchange: enough to take longer than its latency
LEARN_RATE = 1e-5
TIMEOUT = 600  # seconds, of the two processes


@dataclass(frozen=True)
class Job:
    """What to measure. `store`: the folder of a packed training set; without it, random frames of `feat_dim` and `num_pdfs` are used.

    Minibatches are timed for `seconds`, and no fewer than LEAST_MINIBATCHES of them.
    """

    hid_layers: int
    hid_dim: int
    splice: int
    feat_dim: int
    num_pdfs: int
    minibatch_size: int
    optimizer: str
    device: str
    num_threads: int
    store: str = ""
    strategies: tuple[str, ...] = ()  # strategies whose own work is timed
    seconds: float = 2.0


@dataclass(frozen=True)
class Steps:
    """Mean seconds of a minibatch: of computing on it, and of loading it; and the standard deviation of the former over its mean."""

    compute: float
    load: float
    spread: float


@dataclass(frozen=True)
class Exchange:
    """The measurement of two processes: steps at the same time (the larger number of the two), and the link between them by a fabric."""

    steps: Steps
    latency: float  # seconds
    bandwidth: float  # bytes/s
    fabric: str  # in words


@dataclass(frozen=True)
class Measured:
    """The measurements of this machine. Where `exchange` is None, `no_exchange` says why."""

    parameters: int
    devices: int
    alone: Steps
    score_seconds: float
    memory_bandwidth: float  # bytes/s
    work_bandwidth: dict[str, float]  # of strategies' own work
    exchange: Exchange | None
    no_exchange: str = ""


def devices(job: Job) -> int:
    """The number of devices of this machine, for workers of this kind; one where a single GPU is named."""
    device = torch.device(job.device)
    if device.type == "cuda":
        return torch.cuda.device_count() if device.index is None else 1
    return max(1, len(os.sched_getaffinity(0)) // job.num_threads)


def measure(job: Job, exchange: bool = True) -> Measured:
    """Measure this machine. With `exchange` false the two processes are left out."""
    before = torch.get_num_threads()
    torch.set_num_threads(job.num_threads)
    try:
        with torch.no_grad(), computing_on(torch.device(job.device)), tempfile.TemporaryDirectory(prefix="pykaldist-plan-") as folder:
            trial = _Trial(job, Path(folder))
            alone, scoring = trial.steps(), trial.score_seconds()
            memory, work = trial.memory_bandwidth(), trial.work_bandwidth()
            parameters = len(trial.model.params)
            del trial
            found = devices(job)
            if not exchange or found < 2:
                pair, why = None, "this machine has one device for such workers" if found < 2 else "one worker has nothing to exchange"
            else:
                pair, why = _two_processes(job, Path(folder))
    finally:
        torch.set_num_threads(before)
    return Measured(parameters, found, alone, scoring, memory, work, pair, why)


class _Trial:
    """The data, model and optimiser of one worker."""

    def __init__(self, job: Job, folder: Path) -> None:
        self.job, self.device = job, torch.device(job.device)
        store = FrameStore(job.store) if job.store else _random_store(folder / f"store{os.getpid()}", job)
        splice = list(range(-job.splice, job.splice + 1))
        width = len(splice) * store.manifest.dim
        self.sampler = Sampler(store, Partition(store), 0, job.minibatch_size, splice, torch.zeros(width), torch.ones(width), 0,
                               self.device)
        options = DnnOptions(hid_layers=job.hid_layers, hid_dim=job.hid_dim)
        self.model = make_dnn(options, width, store.manifest.num_pdfs, self.device)
        init_dnn(self.model, options, torch.Generator().manual_seed(0))
        self.learner = Supervised(self.model, CrossEntropy())
        self.optimizer = make_optimizer(job.optimizer, self.learner, OPTIMIZERS[job.optimizer][0]())
        self.totals = torch.zeros(self.learner.num_totals, dtype=torch.float64, device=self.device)

    def synchronise(self) -> None:
        """Wait until the device has finished."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def minibatches(self) -> Iterator[tuple[float, Minibatch]]:
        """Yield (seconds of loading, a full minibatch) for ever. A store with fewer frames gives minibatches as large as it can."""
        epoch = 0
        while True:
            source = self.sampler.epoch(epoch)
            epoch += 1
            while True:
                before = time.perf_counter()
                minibatch = next(source, None)
                if minibatch is None:
                    break
                self.synchronise()
                if not minibatch.last or minibatch.index == 0:
                    yield time.perf_counter() - before, minibatch

    def steps(self) -> Steps:
        """Measure the seconds of a minibatch."""
        loading, computing = [], []
        for n, (load, minibatch) in enumerate(self.minibatches()):
            before = time.perf_counter()
            self.optimizer.local_step(minibatch, LEARN_RATE, self.totals)
            self.synchronise()
            if n >= WARM_UP:
                computing.append(time.perf_counter() - before)
                loading.append(load)
            enough = sum(computing) + sum(loading) > self.job.seconds and len(computing) >= LEAST_MINIBATCHES
            if enough and len(computing) % GROUP == 0:
                break
        mean = statistics.fmean(computing)
        spread = float(np.std(np.array(computing).reshape(-1, GROUP).mean(1))) * GROUP**0.5 / mean
        return Steps(mean, statistics.median(loading), spread)  # a median, as the first minibatch of an epoch includes its shuffling

    def score_seconds(self) -> float:
        """Median seconds of a minibatch of cross-validation."""
        _, minibatch = next(self.minibatches())
        return self.median(lambda: self.learner.score(minibatch, self.totals))

    def memory_bandwidth(self) -> float:
        """Bytes/s that are read and written when a buffer of the model's size is added to another."""
        one, other = (torch.zeros_like(self.model.params) for _ in range(2))
        return 3 * one.numel() * one.itemsize / self.median(lambda: one.add_(other))

    def work_bandwidth(self) -> dict[str, float]:
        """Bytes/s of the strategies' own work, as they count their bytes, on models of this size."""
        shapes = [shape for component in self.model.shapes for shape in component]
        found: dict[str, float] = {}
        for strategy in self.job.strategies:
            found.update(work_bandwidth(strategy, shapes, self.device, self.synchronise))
        return found

    def median(self, work: Callable[[], object], meet: Callable[[], object] = lambda: None) -> float:
        """Median seconds of `work`. Each repetition begins after `meet`. The first one does not count."""
        taken = []
        for _ in range(REPEATS + 1):
            meet()
            before = time.perf_counter()
            work()
            self.synchronise()
            taken.append(time.perf_counter() - before)
        return statistics.median(taken[1:])


def _random_store(path: Path, job: Job) -> FrameStore:
    """A frame store of random frames."""
    rng = np.random.default_rng(0)
    length = 1024
    utts = [f"utt{i}" for i in range(-(-LEAST_MINIBATCHES * job.minibatch_size // length))]
    pack(utts, lambda _: rng.standard_normal((length, job.feat_dim), np.float32), lambda _: rng.integers(0, job.num_pdfs, length),
         job.num_pdfs, path)
    return FrameStore(path)


def _two_processes(job: Job, folder: Path) -> tuple[Exchange | None, str]:
    """Measure two processes. Returns (their measurement, "") or (None, why there is none)."""
    starter = mpiexec()
    if starter is None or importlib.util.find_spec("mpi4py") is None:
        return None, "there is no MPI here (mpi4py and mpiexec)"
    request, result = folder / "job.json", folder / "result.json"
    write_text(request, json.dumps(dataclasses.asdict(job)))
    root = str(Path(__file__).resolve().parents[2])
    env = {**os.environ, **variables(LOOPBACK_INTERFACE),
           "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))}
    command = [starter, "-n", "2", sys.executable, "-m", "mpi4py", "-m", "pykaldist.train.measure", str(request), str(result)]
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=TIMEOUT)
    except subprocess.TimeoutExpired as error:
        raise UserError(f"two processes did not finish within {TIMEOUT} s; check MPI with: {starter} -n 2 hostname.") from error
    if done.returncode or not result.is_file():
        last = (done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}").splitlines()[-1]
        raise UserError(f"two processes could not be measured ({last}); check MPI with: {starter} -n 2 hostname.")
    found = json.loads(result.read_text(encoding="utf-8"))
    small, large, size = found["small"], found["large"], found["size"]
    return Exchange(Steps(**found["steps"]), small / 2, bandwidth(size, small, large), found["fabric"]), ""


def _one_of_two(request: Path, result: Path) -> None:
    """What each of the two processes does."""
    job = Job(**json.loads(request.read_text(encoding="utf-8")))
    torch.set_num_threads(job.num_threads)
    torch.set_grad_enabled(False)
    world, placement = open_processes(job.device, None)
    job = dataclasses.replace(job, device=placement.devices[world.rank])
    with tempfile.TemporaryDirectory(prefix="pykaldist-plan-") as folder:
        trial = _Trial(job, Path(folder))
        world.barrier()
        steps = trial.steps()
        slower = Steps(*world.control(dataclasses.astuple(steps), largest=True))
        model = torch.zeros(max(LEAST_BUFFER, trial.model.params.numel()), device=trial.device)
        small, large = (trial.median(partial(world.sum, buffer, 0.5), world.barrier) for buffer in (model[:1].clone(), model))
    if world.rank == 0:
        found = {"steps": dataclasses.asdict(slower), "small": small, "large": large, "size": model.numel() * model.itemsize,
                 "fabric": placement.fabric + " through host memory" * placement.staged}
        write_text(result, json.dumps(found))


def bandwidth(size: int, small: float, large: float) -> float:
    """Bytes/s of an exchange of `size` bytes that takes `large` seconds where one value takes `small`.

    Raises UserError if the large exchange took no longer: then other processes kept the machine busy, and nothing was measured.
    """
    if large <= small:
        raise UserError(f"an all-reduce of {size:,} bytes took {large * 1e6:.0f} us and one of a single value {small * 1e6:.0f} us; other "
                        "processes keep this machine busy: run the command again when it is idle.")
    return size / (large - small)


if __name__ == "__main__":
    _one_of_two(Path(sys.argv[1]), Path(sys.argv[2]))
