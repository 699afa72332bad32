"""Checks the GPUs of this machine in ten minutes, on the real thing: `tests/run.sh --gpu [CHECK ...]`, all of them or those that are named.

    limits           what the device itself does: matrix products, copies, the least time of a kernel
    tests            those that are marked gpu, but for the emulated device's own
    parity           networks trained and passed through here, and on the CPU, in float64
    fabrics          two workers over every fabric that is possible here, beside two virtual ones
    two-gpus         the frames a second of two processes with a GPU each, over those of one
    launches         what the host launches for a minibatch, against the budget of tests/cuda/test_launches.py; what it waits for
    throughput       frames a second, beside the prediction for this GPU (docs/gpu.md)
    memory           the most that a run took, against its ledger (docs/training.md)

It prints a table, as Markdown. Exit status: 0; 1 where something is not as wanted, or did not fit into the time; 77 without a GPU.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import functools
import importlib.util
import io
import json
import multiprocessing
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from pykaldist.cli import main as pykaldist
from pykaldist.frames.sampler import Partition, Sampler
from pykaldist.frames.sequences import SequenceOptions, SequenceSampler
from pykaldist.frames.store import FrameStore, pack
from pykaldist.io import container
from pykaldist.nnet.arithmetic import arithmetic, cpu
from pykaldist.nnet.kinds import KINDS, PRESETS, default_splice, init_nnet, make_nnet
from pykaldist.nnet.learner import Supervised
from pykaldist.nnet.network import Network
from pykaldist.nnet.objective import CrossEntropy
from pykaldist.optim.registry import FRAME_OPTIMIZERS, make_optimizer
from pykaldist.parallel.fabric.worker import Worker
from pykaldist.parallel.launch.commands import mpiexec
from pykaldist.parallel.planning.counting import Step, count_step
from pykaldist.parallel.planning.gpus import FROM_HOST, IN_GRAPH, known_as
from pykaldist.train import experiment
from pykaldist.train.memory import Ledger, gigabytes

ROOT = Path(__file__).resolve().parents[2]
NO_GPU = 77
SECONDS = 600.0
JOB_SECONDS = 120.0  # of a job of several processes: one that hangs leaves time for the other checks
TESTS = ("tests/optim", "tests/train", "tests/hmm/gmm", "tests/nnet", "tests/decode", "tests/frames", "tests/parallel", "tests/programs",
         "tests/cuda/test_stacked.py", "tests/cuda/test_matrix.py")
# Files with tests that are marked gpu which are left out.
WITHOUT = {
    "tests/cuda/test_gpu_check.py": "tests of this file, which is running",
    "tests/cuda/test_launches.py": "counts the launches of the emulated device; `launches` does so here",
    "tests/cuda/test_mutants.py": "faults that the emulated device has to find",
}
MARK = "pykaldist minibatch"
LAUNCHES = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx", "cudaGraphLaunch", "cudaMemcpyAsync",
            "cudaMemsetAsync")
WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaMemcpy")  # for events, NG-SGD's helper threads wait on purpose
NETWORKS = {
    "dnn": ["--hid-layers", "2", "--hid-dim", "64", "--splice", "2", "--minibatch-size", "64"],
    "cnn": ["--nnet", "cnn", "--conv", "3x3x8/2", "--hid-layers", "1", "--hid-dim", "32", "--splice", "2", "--minibatch-size", "64"],
    "lstm": ["--nnet", "lstm", "--hid-layers", "2", "--hid-dim", "16", "--projection-dim", "8", "--peepholes", "true", "--num-streams", "8",
             "--chunk", "10"],
    "blstm": ["--nnet", "blstm", "--hid-layers", "1", "--hid-dim", "16", "--num-streams", "8", "--chunk", "5-10+5"],
}
SIZES = {"su2015-dnn": 1024, "chan2015-cnn": 1024, "chan2015-rnn": 0, "ibm2019-lstm": 0}  # of throughput: networks and minibatches
MEASURED = ("sgd", "ngsgd")  # with every network and in every arithmetic; the other optimisers once
DTYPES = ("float32", "tf32", "bf16")
PDFS = 24


@dataclass(frozen=True)
class Row:
    """A row of the table. `good` is None for what is measured and has no bound."""

    what: str
    found: str
    wanted: str = ""
    good: bool | None = None


def random_store(path: Path, lengths: Sequence[int], dim: int = 16, num_pdfs: int = PDFS) -> FrameStore:
    """A frame store of random features whose pdfs show in them."""
    rng = np.random.default_rng(0)
    pdfs = {f"utt{i:04d}": rng.integers(0, num_pdfs, n) for i, n in enumerate(lengths)}
    means = rng.standard_normal((num_pdfs, dim)).astype(np.float32)
    pack(pdfs, lambda utt: means[pdfs[utt]] + rng.standard_normal((len(pdfs[utt]), dim)).astype(np.float32), pdfs.__getitem__, num_pdfs,
         path)
    return FrameStore(path)


def stores(folder: Path, lengths: Sequence[int], dim: int = 16) -> Path:
    """The folder of two frame stores, train and dev."""
    if not (folder / "store").is_dir():
        random_store(folder / "store" / "train", lengths, dim)
        random_store(folder / "store" / "dev", lengths[:2], dim)
    return folder / "store"


def train(store: Path, exp: Path, *options: str) -> torch.Tensor:
    """Train in this process; returns the parameters."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        status = pykaldist(["train", "--schedule", "fixed", "--learn-rates", "0.01", *options, str(store), str(exp)])
    if status:
        raise RuntimeError(f"pykaldist train ended with status {status}: {out.getvalue()[-200:]}")
    return torch.as_tensor(container.load(exp / "final.pt")["params"])


def distance(one: torch.Tensor, other: torch.Tensor) -> float:
    """The norm of a difference over that of the second."""
    return float((one - other).norm() / other.norm())


def finished(what: str, command: Sequence[str], until: float) -> subprocess.CompletedProcess[str]:
    """Run a command. Raises TimeoutError where it has not ended by the time `until` (of time.monotonic): all its processes are killed."""
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True) as running:
        try:
            out, err = running.communicate(timeout=max(until - time.monotonic(), 0.0))
        except BaseException as error:  # Ctrl-C too, which does not reach a session of its own
            os.killpg(running.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise TimeoutError(f"{what} ran out of time") from None
            raise
    return subprocess.CompletedProcess(command, running.returncode, out, err)


def the_tests(folder: Path, device: str, until: float) -> Iterable[Row]:
    """Run the tests that are marked gpu."""
    done = finished("pytest", [sys.executable, "-m", "pytest", "-q", "-m", "gpu and not slow", *TESTS], until)
    yield Row("tests marked gpu", (done.stdout.strip().splitlines() or ["nothing"])[-1].strip("= "), "none fails", done.returncode == 0)


def parity(folder: Path, device: str, until: float) -> Iterable[Row]:
    """Train networks here and on the CPU: ten minibatches, in which NG-SGD updates its Fisher matrices at once on both."""
    store = stores(folder, [160, 160, 160, 160])
    for name, options in NETWORKS.items():
        for optimizer in FRAME_OPTIMIZERS:
            found = [train(store, folder / f"{name}-{optimizer}-{on[:4]}", *options, "--optimizer", optimizer, "--dtype", "float64",
                           "--device", on) for on in ("cpu", device)]
            far = distance(found[1], found[0])
            yield Row(f"{name}, {optimizer}: parameters beside the CPU's", f"{far:.1e}", "1e-9", far < 1e-9)
        feats = np.random.default_rng(1).standard_normal((50, 16)).astype(np.float32)
        here, there = (Network.load(folder / f"{name}-sgd-cpu" / "final.pt", on).log_posteriors(feats) for on in (device, "cpu"))
        far = float(np.abs(here - there).max())
        yield Row(f"{name}: log posteriors beside the CPU's", f"{far:.1e}", "1e-3", far < 1e-3)


def possible_fabrics(gpus: int) -> dict[str, str]:
    """The fabrics of several processes: fabric -> why it is not possible here, empty where it is."""
    no_nccl = "" if torch.distributed.is_available() and torch.distributed.is_nccl_available() else "PyTorch has no NCCL"
    no_mpi = "" if mpiexec() and importlib.util.find_spec("mpi4py") else "there is no MPI"
    return {"nccl": no_nccl or ("" if gpus > 1 else "there is one GPU"), "gloo": "", "mpi": no_mpi}


def fabrics(folder: Path, device: str, until: float) -> Iterable[Row]:
    """Train by two workers over each fabric, in processes of their own, and virtually."""
    store = stores(folder, [160, 160, 160, 160])
    for strategy in ("ma", "onebit"):
        period = ["--average-period", "2"] if strategy == "ma" else []
        options = [*NETWORKS["dnn"], "--ngpu", "2", "--strategy", strategy, *period, "--dtype", "float64", "--lr-scale", "none"]
        expected = train(store, folder / f"virtual-{strategy}", *options, "--fabric", "virtual", "--device", device)
        for fabric, why_not in possible_fabrics(torch.cuda.device_count()).items():
            what = f"{strategy} over {fabric}, two processes: parameters beside two virtual workers'"
            if why_not:
                yield Row(what, f"not possible: {why_not}")
                continue
            exp = folder / f"{fabric}-{strategy}"
            in_processes(store, exp, until, *options, "--nproc", "2", "--fabric", fabric, "--device", device.partition(":")[0])
            far = distance(torch.as_tensor(container.load(exp / "final.pt")["params"]), expected)
            yield Row(what, f"{far:.1e}", "1e-9", far < 1e-9)


def in_processes(store: Path, exp: Path, until: float, *options: str) -> None:
    """Train as a job of its own, which ends by the time `until`, and before JOB_SECONDS are over."""
    command = [sys.executable, "-m", "pykaldist", "train", "--schedule", "fixed", "--learn-rates", "0.01", *options, str(store), str(exp)]
    done = finished(f"the job {exp.name}", command, min(until, time.monotonic() + JOB_SECONDS))
    if done.returncode:
        raise RuntimeError((done.stderr.strip() or done.stdout.strip() or f"status {done.returncode}").splitlines()[-1])


def two_gpus(folder: Path, device: str, until: float) -> Iterable[Row]:
    """Train on one GPU, and on two."""
    if torch.cuda.device_count() < 2:
        yield Row("two GPUs over one", "not possible: there is one GPU")
        return
    random_store(folder / "large" / "train", [1024] * 512, 40, 3000)
    random_store(folder / "large" / "dev", [1024], 40, 3000)
    rates = []
    for ngpu in (1, 2):
        exp = folder / f"gpus{ngpu}"
        options = ["--strategy", "ma", "--average-period", "10", "--fabric", "nccl"] if ngpu > 1 else []
        in_processes(folder / "large", exp, until, "--nnet", "su2015-dnn", "--minibatch-size", "1024", "--optimizer", "ngsgd",
                     "--dtype", "bf16", "--learn-rates", "1e-5,1e-5", "--ngpu", str(ngpu), *options)
        line = json.loads((exp / "history.jsonl").read_text(encoding="utf-8").splitlines()[-1])
        rates.append(1024 * 512 / line["seconds"]["total"])
    yield Row("two GPUs over one: su2015-dnn, ngsgd, bf16, ma, period 10", f"{rates[1] / rates[0]:.2f} ({rates[0]:,.0f} frames/s alone)",
              "1.5", rates[1] > 1.5 * rates[0])


def calls(work: Callable[[], object]) -> tuple[float, float]:
    """Launches and waits of the host for a minibatch, in some of the last minibatches of a training; by PyTorch's profiler."""
    done = Worker._done

    def marked(worker: Worker, *args: Any) -> None:
        done(worker, *args)
        with torch.profiler.record_function(MARK):
            pass

    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with mock.patch.object(Worker, "_done", marked), torch.profiler.profile(activities=activities) as profiler:
        work()
    return calls_between(profiler.events())


def calls_between(events: Iterable[Any], window: int = 4) -> tuple[float, float]:
    """Launches and waits a minibatch among profiled events, in the `window` minibatches before the last one."""
    known = list(events)
    marks = sorted(event.time_range.start for event in known if event.name == MARK)
    if len(marks) < window + 2:
        raise RuntimeError(f"the profiler has seen {len(marks)} minibatches, fewer than {window + 2}")
    first, last = marks[-2 - window], marks[-2]
    inside = [event.name for event in known if first <= event.time_range.start < last]
    return sum(name in LAUNCHES for name in inside) / window, sum(name in WAITS for name in inside) / window


def launches(folder: Path, device: str, until: float) -> Iterable[Row]:
    """Count what the host launches for a minibatch, and what it waits for."""
    from test_launches import BUDGET

    random_store(folder / "counted" / "train", [21] * 96, 8)
    random_store(folder / "counted" / "dev", [21] * 4, 8)
    for number, (name, (options, budget)) in enumerate(BUDGET.items()):
        launched, waits = calls(functools.partial(train, folder / "counted", folder / f"launches{number}", *options, "--device", device))
        yield Row(f"{name}: launches a minibatch", f"{launched:g}", f"{budget:g}", 0 < launched <= budget)
        yield Row(f"{name}: waits of the host a minibatch", f"{waits:g}", "0", waits == 0)


def limits(folder: Path, device: str, until: float) -> Iterable[Row]:
    """Measure what the device itself does, of which what is trained has a share."""
    gpu = known_as(torch.cuda.get_device_name(device))
    side = 8192
    for dtype in DTYPES:
        kind, compute = arithmetic(dtype, torch.device(device))
        a, b = (torch.randn(side, side, device=device, dtype=compute or kind) for _ in range(2))
        rate = 2 * side**3 / timed(lambda a=a, b=b: torch.mm(a, b), 10)
        published = f"published {gpu.rates[dtype] / 1e12:,.0f}: {100 * rate / gpu.rates[dtype]:.0f} %" if gpu else ""
        yield Row(f"matrix products of {side}, {dtype}: TFLOP/s", f"{rate / 1e12:,.0f}", published)
    values = torch.randn(1 << 29, device=device)
    rate = 2 * values.nbytes / timed(lambda: values.clone(), 10)
    published = f"published {gpu.memory_bandwidth / 1e12:.2f}: {100 * rate / gpu.memory_bandwidth:.0f} %" if gpu else ""
    yield Row("a copy, read and written: TB/s", f"{rate / 1e12:.2f}", published)
    one, count = torch.zeros(256, device=device), 1000
    launched = timed(lambda: [one.add_(1.0) for _ in range(count)], 5) / count
    yield Row("a small kernel, launched by the host: us", f"{1e6 * launched:.1f}", f"assumed {1e6 * FROM_HOST:g}")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            one.add_(1.0)
    replayed = timed(graph.replay, 5) / count
    yield Row("the same in a recorded graph: us", f"{1e6 * replayed:.1f}", f"assumed {1e6 * IN_GRAPH:g}")


def timed(work: Callable[[], object], times: int) -> float:
    """Seconds of the device for some work, the median of so many times after three more."""
    for _ in range(3):
        work()
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(times)]
    for begun, done in events:
        begun.record()
        work()
        done.record()
    torch.cuda.synchronize()
    return statistics.median(begun.elapsed_time(done) for begun, done in events) / 1e3


def counted(preset: str, optimizer: str, dtype: str) -> Step:
    """The step of a published network, counted; a few seconds of one core."""
    torch.set_num_threads(1)
    kind, changes = PRESETS[preset]
    nnet = KINDS[kind].options(**changes)
    return count_step(nnet, optimizer, dtype, SIZES[preset], 40 * getattr(nnet, "channels", 1))


def throughput(folder: Path, device: str, until: float) -> Iterable[Row]:
    """Measure training steps, loading included, beside what is predicted; other processes count meanwhile."""
    name = torch.cuda.get_device_name(device)
    gpu = known_as(name)
    cases = [(preset, optimizer, dtype) for preset in SIZES for optimizer in FRAME_OPTIMIZERS for dtype in DTYPES
             if optimizer in MEASURED or (preset, dtype) == ("su2015-dnn", "bf16")]
    with concurrent.futures.ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as others:
        # Each step once: that of tf32 is that of float32.
        alike = {case: (*case[:2], case[2].replace("tf32", "float32")) for case in cases}
        steps = {case: others.submit(counted, *case) for case in dict.fromkeys(alike.values())} if gpu else {}
        for preset, optimizer, dtype in cases:
            kind, changes = PRESETS[preset]
            found = rate(folder, KINDS[kind].options(**changes), SIZES[preset], optimizer, dtype, torch.device(device))
            predicted = f"no prediction for {name}"
            if gpu is not None:
                step = steps[alike[preset, optimizer, dtype]].result()
                bound = step.frames / gpu.seconds(step, dtype)
                predicted = f"predicted {bound:,.0f}: {100 * found / bound:.0f} %"
            yield Row(f"{preset}, {optimizer}, {dtype}: frames/s", f"{found:,.0f}", predicted)


def rate(folder: Path, nnet: Any, minibatch: int, optimizer: str, dtype: str, device: torch.device, seconds: float = 2.0,
         num_pdfs: int = 8806, lengths: Sequence[int] = (1024,) * 96) -> float:
    """Frames a second of training steps with their loading, measured for so many seconds after two epochs."""
    dim, splice = 40 * getattr(nnet, "channels", 1), default_splice(nnet)
    path = folder / f"rate{dim}"
    store = FrameStore(path) if path.is_dir() else random_store(path, lengths, dim, num_pdfs)
    kind, compute = arithmetic(dtype, device)
    model = make_nnet(nnet, len(splice) * dim, num_pdfs, len(splice), device, kind, compute)
    init_nnet(model, nnet, torch.Generator().manual_seed(0))
    learner = Supervised(model, CrossEntropy())
    shift, scale = torch.zeros(len(splice) * dim), torch.ones(len(splice) * dim)
    sampler: Sampler
    if isinstance(nnet, SequenceOptions):
        sampler = SequenceSampler(store, Partition(store, 1, 1, "utterance"), 0, nnet, splice, shift, scale, 0, device)
    else:
        sampler = Sampler(store, Partition(store), 0, minibatch, splice, shift, scale, 0, device)
    learner.reserve(sampler.capacity)
    own = make_optimizer(optimizer, learner, FRAME_OPTIMIZERS[optimizer][0]())
    totals = torch.zeros(learner.num_totals, dtype=torch.float64, device=device)
    frames, begun, epoch = 0, 0.0, 0
    with torch.no_grad():
        while epoch < 3 or time.perf_counter() - begun < seconds:
            if epoch == 2:  # what is recorded has been by now
                torch.cuda.synchronize(device)
                frames, begun = 0, time.perf_counter()
            for one in sampler.epoch(epoch):
                own.local_step(one, 1e-6, totals)
                frames += len(one)
            torch.cuda.synchronize(device)
            epoch += 1
    return frames / (time.perf_counter() - begun)


def memory(folder: Path, device: str, until: float) -> Iterable[Row]:
    """Compare the most that a run takes with its ledger. The networks are large, as libraries take some megabytes of their own."""
    large = ["--hid-layers", "4", "--hid-dim", "2048", "--minibatch-size", "1024"]
    cases = {"dnn, ngsgd": [*large, "--optimizer", "ngsgd"],
             "dnn, bf16, four workers, bmuf": [*large, "--dtype", "bf16", "--ngpu", "4", "--fabric", "virtual", "--strategy", "bmuf"],
             "lstm": ["--nnet", "lstm", "--hid-layers", "2", "--hid-dim", "1024", "--num-streams", "64"]}
    yield from (memory_of(folder, device, name, options) for name, options in cases.items())


def memory_of(folder: Path, device: str, name: str, options: Sequence[str], lengths: Sequence[int] = (1024,) * 64) -> Row:
    """The row of one run."""
    settle, ledgers = experiment.settled, list[Ledger]()

    def noted(ledger: Ledger, *args: Any) -> Any:
        ledgers.append(ledger)
        return settle(ledger, *args)

    store = folder / "memory"
    if not store.is_dir():
        random_store(store / "train", lengths, 40)
        random_store(store / "dev", lengths[:1], 40)
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    with mock.patch.object(experiment, "settled", noted):
        train(store, folder / f"memory {name}", *options, "--learn-rates", "1e-5", "--device", device)
    most, forecast = torch.cuda.max_memory_allocated(device) - before, ledgers[0].total
    return Row(f"{name}: memory at most", gigabytes(most), f"the ledger's {gigabytes(forecast)} and 5 %", most <= 1.05 * forecast)


Check = Callable[[Path, str, float], Iterable[Row]]  # of a folder, a device, and the time (of time.monotonic) by which it is to end
CHECKS: dict[str, Check] = {
    "limits": limits, "parity": parity, "fabrics": fabrics, "memory": memory, "launches": launches, "throughput": throughput,
    "two-gpus": two_gpus, "tests": the_tests}


def run(checks: dict[str, Check], device: str, until: float) -> list[Row]:
    """Run checks, one after the other; what raises an error, or comes after the time `until` (of time.monotonic), is not as wanted."""
    rows: list[Row] = []
    for name, check in checks.items():
        with tempfile.TemporaryDirectory(prefix="pykaldist-gpu-") as folder:
            try:
                if time.monotonic() > until:
                    raise TimeoutError("the time is over")
                for row in check(Path(folder), device, until):
                    rows.append(row)
                    print(f"{'' if row.good is None else 'good' if row.good else 'BAD':5s}{row.what}: {row.found}", flush=True)
                    if time.monotonic() > until:
                        raise TimeoutError("the time is over")
            except Exception as error:
                traceback.print_exc()
                rows.append(Row(name, f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}", "to the end", False))
    return rows


def render(rows: Sequence[Row], machine: str) -> str:
    """The table, as Markdown, with what it was measured on."""
    said = {None: "", True: "yes", False: "**no**"}
    lines = [machine, "", "| check | found | wanted, at most or at least | as wanted |", "| --- | --- | --- | --- |"]
    cells = [(row.what, row.found, row.wanted, said[row.good]) for row in rows]
    lines += ["|" + "|".join(f" {cell} " if cell else " " for cell in line) + "|" for line in cells]
    bad = sum(row.good is False for row in rows)
    return "\n".join([*lines, "", f"{bad} of {len(rows)} rows are not as wanted." if bad else "All is as wanted."])


def machine() -> str:
    """The machine in a sentence."""
    names = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    gpus = ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
    return f"{gpus}; {cpu().name}; torch {torch.__version__}, CUDA {torch.version.cuda}, Python {platform.python_version()}."


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests/run.sh --gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checks", nargs="*", choices=[*CHECKS, []], metavar="CHECK", help=f"of {', '.join(CHECKS)} (default: all of them)")
    names = parser.parse_args().checks or list(CHECKS)
    if not torch.cuda.is_available():
        print("gpu_check: this machine has no CUDA device that PyTorch can use: nothing was checked.", file=sys.stderr)
        return NO_GPU
    rows = run({name: CHECKS[name] for name in names}, "cuda:0", time.monotonic() + SECONDS)
    print("\n" + render(rows, machine()))
    return int(any(row.good is False for row in rows))


if __name__ == "__main__":
    sys.exit(main())
