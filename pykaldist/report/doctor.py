"""What this machine can do, what that means for the options, and the command of a recipe that follows from it.

Counted is what this process may use: the cores that it may run on, within the quota and the memory that its control group leaves it.
Rates are measured, each for a fraction of a second.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch

from pykaldist.devices import num_visible
from pykaldist.errors import UserError
from pykaldist.nnet.arithmetic import check_bf16, cpu
from pykaldist.parallel.fabric.mpi import vendor
from pykaldist.parallel.launch.commands import mpiexec

CGROUP = Path("/sys/fs/cgroup")
MEMINFO = Path("/proc/meminfo")
GIB = 1 << 30
JOB_MEMORY = 1.0  # GiB of a job of the GMM stages and of decoding, on corpora of hundreds of hours
SIZE = 1024  # of the matrices whose product is timed
MEASURED_S = 0.25
WRITTEN = 64 << 20  # bytes
FRAME_STORE_HOUR = 360_000 * 40 * 4  # bytes of an hour of speech: 40 float32 a frame
WORTH = 1.3  # how many times as fast bf16 has to be to be chosen
ANSWERS_S = 10.0  # within which a scheduler has to answer
SCHEDULERS = {"slurm.pl": ("SLURM", "sbatch", ["sinfo", "-h", "-o", "%P %D nodes %c cores"]),
              "queue.pl": ("Grid Engine", "qsub", ["qstat", "-g", "c"])}


@dataclass
class Finding:
    """One thing that a machine has, and what it means for the options."""

    what: str
    found: str
    means: str = ""


@dataclass
class Machine:
    """What a recipe's command follows from: cores, memory in GiB, GPUs, whether to train in bf16, the command that runs jobs."""

    cores: int
    memory: float
    gpus: int
    bf16: bool
    cmd: str
    findings: list[Finding] = field(default_factory=list)

    @property
    def jobs(self) -> int:
        """Jobs at once."""
        return max(1, min(self.cores, int(self.memory / JOB_MEMORY)))

    def command(self, run_sh: str) -> str:
        """The command that runs a recipe with what is here."""
        words = [run_sh, "--nj", str(self.jobs), "--ngpu", str(self.gpus or self.cores)]
        words += ["--cmd", self.cmd] if self.cmd != "run.pl" else []
        words += ["--train-opts", "--dtype bf16"] if self.bf16 else []
        return shlex.join(words)


def examine(folder: Path) -> Machine:
    """Examine this machine, with the disk of `folder`."""
    cores, memory, gpus = usable_cores(), usable_memory() / GIB, num_visible()
    rates = product_rates()
    gain = rates.get("bf16", 0.0) / rates["float32"]
    cmd, scheduler = find_scheduler()
    bf16 = torch.cuda.is_bf16_supported(including_emulation=False) if gpus else gain >= WORTH
    machine = Machine(cores, memory, gpus, bf16, cmd)
    model = cpu().name
    machine.findings = [
        Finding("cores", f"{cores} of {os.cpu_count()}, {model}", f"--nj {machine.jobs}" + f" --ngpu {cores} --device cpu" * (not gpus)),
        Finding("memory", f"{memory:.1f} GiB", f"--nj {machine.jobs}: a job may take {JOB_MEMORY:g} GiB"),
        Finding("products", ", ".join(f"{name} {rate / 1e9:,.0f} GFLOPS" for name, rate in rates.items()) + f" ({blas()})",
                _about_bf16(rates, gain)),
        _gpus(gpus), find_mpi(), Finding("scheduler", scheduler, f"--cmd {cmd}"), disk(folder),
        Finding("shared memory", f"{shutil.disk_usage('/dev/shm').free / GIB:.1f} GiB free in /dev/shm",
                "asynchronous workers of a machine exchange models there" if os.access("/dev/shm", os.W_OK) else "cannot be written")]
    return machine


def usable_cores() -> int:
    """The cores that this process may use: those it may run on, and no more than its control group's quota."""
    cores = len(os.sched_getaffinity(0))
    try:
        quota, period = (CGROUP / "cpu.max").read_text(encoding="utf-8").split()
        return max(1, min(cores, int(quota) // int(period)))
    except (OSError, ValueError):  # no such file, or no quota ("max")
        return cores


def usable_memory() -> int:
    """The bytes of memory that are free for this process: of the machine, and of what its control group leaves."""
    lines = dict(line.split(":", 1) for line in MEMINFO.read_text(encoding="utf-8").splitlines())
    free = 1024 * int(lines["MemAvailable"].split()[0])
    try:
        limit, used = (int((CGROUP / name).read_text(encoding="utf-8")) for name in ("memory.max", "memory.current"))
    except (OSError, ValueError):
        return free
    return min(free, max(limit - used, 0))


def blas() -> str:
    """What multiplies matrices on the CPU."""
    lines = torch.__config__.show().splitlines()
    return "MKL and oneDNN" if any("Math Kernel Library" in line for line in lines) else "OpenBLAS and oneDNN"


def product_rates() -> dict[str, float]:
    """Flops a second of products on this CPU with all of its cores, by arithmetic; bf16 is there where it can be used."""
    kinds = {"float32": torch.float32}
    try:
        check_bf16()
        kinds["bf16"] = torch.bfloat16
    except UserError:
        pass
    return {name: _rate(dtype) for name, dtype in kinds.items()}


def _rate(dtype: torch.dtype) -> float:
    a = torch.ones(SIZE, SIZE, dtype=dtype)
    torch.mm(a, a)
    return 2.0 * SIZE**3 / repeated(lambda: torch.mm(a, a))


def repeated(work: Callable[[], object]) -> float:
    """The least seconds of a piece of work that is done again and again for MEASURED_S."""
    least, begin = float("inf"), time.perf_counter()
    while (start := time.perf_counter()) - begin < MEASURED_S:
        work()
        least = min(least, time.perf_counter() - start)
    return least


def _about_bf16(rates: dict[str, float], gain: float) -> str:
    if "bf16" not in rates:
        return "--dtype float32; this CPU does not multiply bf16 faster"
    return f"--dtype bf16 multiplies {gain:.1f} times as fast" + ("" if gain >= WORTH else "; float32 serves as well")


def _gpus(count: int) -> Finding:
    if not count:
        return Finding("GPUs", "none" + ("" if torch.version.cuda else ", and this PyTorch has no CUDA"), "--device cpu; auto chooses it")
    names = [torch.cuda.get_device_properties(number) for number in range(count)]
    shown = ", ".join(f"{one.name} ({one.total_memory / GIB:.0f} GiB)" for one in names)
    return Finding("GPUs", shown, f"--ngpu {count}" + " --fabric nccl" * (count > 1) + "; auto chooses them")


def find_mpi() -> Finding:
    """The MPI by which processes of a training exchange, and what starts them."""
    starter = mpiexec()
    try:
        name = vendor()
    except UserError as error:
        return Finding("MPI", f"none ({error})", "--fabric gloo")
    except ImportError:
        return Finding("MPI", "no mpi4py", "--fabric gloo")
    if starter is None:
        return Finding("MPI", f"{name}, and no mpiexec", "--fabric gloo, or start it with srun")
    return Finding("MPI", f"{name}, {starter}", "--fabric mpi; it is the default without GPUs")


def find_scheduler() -> tuple[str, str]:
    """The command that runs jobs (--cmd), and which scheduler that is; run.pl where none answers."""
    told = []
    for cmd, (name, submit, question) in SCHEDULERS.items():
        if shutil.which(submit) is None:
            continue
        try:
            done = subprocess.run(question, capture_output=True, text=True, timeout=ANSWERS_S, check=True)
            return cmd, f"{name}: {'; '.join(done.stdout.splitlines()[:3])}"
        except (OSError, subprocess.SubprocessError):
            told.append(f"{name}'s {submit} is here, and {shlex.join(question)} fails")
    return "run.pl", "; ".join(told) or "none (no sbatch, no qsub): jobs run on this machine"


def disk(folder: Path) -> Finding:
    """How fast the disk of a folder is written, until the data are on it, and how much room it has."""
    free = shutil.disk_usage(folder).free
    if free < 2 * WRITTEN or not os.access(folder, os.W_OK):
        return Finding("disk", f"{folder} has {free / GIB:.1f} GiB free" + " and cannot be written" * (not os.access(folder, os.W_OK)),
                       "make room, or work in another folder")
    block = os.urandom(1 << 20)
    with tempfile.TemporaryFile(dir=folder) as stream:
        begin = time.perf_counter()
        for _ in range(WRITTEN >> 20):
            stream.write(block)
        stream.flush()
        os.fsync(stream.fileno())
        rate = WRITTEN / (time.perf_counter() - begin)
    hours = free / FRAME_STORE_HOUR / 2  # features are there twice: in archives and in the store
    return Finding("disk", f"{rate / 1e6:,.0f} MB/s written, {free / GIB:,.0f} GiB free in {folder}",
                   f"features of 100 h are packed in {100 * FRAME_STORE_HOUR / rate / 60:.1f} min; there is room for {hours:,.0f} h")


def recipe_of(folder: Path, root: Path) -> str:
    """The run.sh of a folder, else that of the first recipe that the checkout `root` has."""
    if (folder / "run.sh").is_file():
        return "./run.sh" if folder == Path() else str(folder / "run.sh")
    default = root / "egs/prompts/s5/run.sh"
    if not default.is_file():
        raise UserError(f"{folder} has no run.sh, and {root} is no checkout; name a recipe's folder.")
    return os.path.relpath(default)


def render(machine: Machine, command: str) -> str:
    """Write what was found as text, and the command at its end."""
    widths = [max(len(getattr(one, name)) for one in machine.findings) for name in ("what", "found")]
    lines = [f"{one.what:{widths[0]}s}  {one.found:{widths[1]}s}  {one.means}".rstrip() for one in machine.findings]
    return "\n".join([*lines, "", f"python {sys.version.split()[0]}, torch {torch.__version__}", "", "To run a recipe with what is here:",
                      f"  {command}"])
