"""The commands that start the processes of a job: how many processes, on which hosts, and by mpiexec, srun or directly."""

from __future__ import annotations

import importlib.util
import os
import random
import re
import shutil
import socket
import sys
from dataclasses import dataclass, field
from pathlib import Path

from pykaldist.devices import num_visible, parse_device
from pykaldist.errors import UserError
from pykaldist.parallel.launch.job import JobOptions, free_port, has_nccl, local_cores, started_by
from pykaldist.parallel.launch.on_ray import load_ray
from pykaldist.parallel.launch.placement import Seen, place
from pykaldist.parallel.launch.supervisor import REPLACEMENTS
from pykaldist.parallel.transport.addresses import LOOPBACK, LOOPBACK_INTERFACE, is_here, variables


def devices_here(options: JobOptions) -> int:
    """The number of processes that this machine has room for: one for each GPU, or CPU core; one where `--device` names a single GPU."""
    kind, number = parse_device(options.device)
    devices = 0 if kind == "cpu" else num_visible()
    if not devices:
        return local_cores()
    return devices if number is None else 1


def expected_fabric(options: JobOptions, count: int) -> str:
    """The fabric of the job's `count` processes, as far as it is known before they are there.

    Where they are all to be on this machine, it is what `place` says. Raises UserError there for what is not possible.
    """
    if several_hosts(options) or by_srun(options):
        return options.fabric or "mpi"  # by which they meet; what other machines have is not known here
    devices = () if parse_device(options.device)[0] == "cpu" else tuple(map(str, range(num_visible())))
    return place([Seen(socket.gethostname(), devices, has_nccl())] * count, options.device, options.fabric).fabric


def parse_hosts(text: str) -> list[tuple[str, int | None]]:
    """Parse `node1,node2:4`, or a file with one host a line, to pairs (host, number of processes on it or None).

    A line is `node2:4` or `node2 slots=4`.
    """
    path = Path(text)
    if path.is_file():
        lines = [line.split("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines()]
        words = [line for line in lines if line]
    else:
        words = text.split(",")
    hosts = []
    for word in words:
        match = re.fullmatch(r"([\w.-]+)(?:(?::|\s+slots=)([1-9]\d*))?", word.strip())
        if match is None:
            raise UserError(f"--hosts {text}: {word!r} is no host; expected node1,node2:4, or a file with one a line.")
        hosts.append((match[1], int(match[2]) if match[2] else None))
    if not hosts:
        raise UserError(f"--hosts {text} names no host.")
    return hosts


def _counted_hosts(options: JobOptions) -> list[tuple[str, int | None]]:
    """The hosts of `--hosts`; those without a number have as much room as this machine, which has to be one of them."""
    hosts = parse_hosts(options.hosts)
    unknown = next((host for host, count in hosts if count is None), None)
    if unknown is not None and not any(is_here(host) for host, _ in hosts):
        raise UserError(f"--hosts {options.hosts}: {unknown} has no number of processes, and this machine is not one of the hosts, so that "
                        f"it is not known how many GPUs or cores these have; say it ({unknown}:8), or give --nproc.")
    return hosts


def under_slurm() -> bool:
    """True where srun has to start the processes."""
    return "SLURM_JOB_ID" in os.environ and shutil.which("srun") is not None


def by_srun(options: JobOptions) -> bool:
    """True where srun starts the processes of a job.

    It does in an allocation of SLURM, unless `--hosts` says otherwise, or the allocation is one task that sees several GPUs: then processes
    start here, one for each of them.
    """
    if not under_slurm() or options.hosts:
        return False
    one = os.environ.get("SLURM_JOB_NUM_NODES") == os.environ.get("SLURM_NTASKS") == "1"
    return not (one and parse_device(options.device)[0] != "cpu" and num_visible() > 1)


def num_processes(options: JobOptions) -> int:
    """The number of processes of a job: one for each device or CPU core on each host, but not more than workers."""
    if options.fabric == "virtual":
        return 1
    if options.nproc:
        return options.nproc
    if options.launcher == "ray":
        return options.ngpu  # Ray knows what room there is
    if options.hosts:
        room = sum(slots or devices_here(options) for _, slots in _counted_hosts(options))
    elif by_srun(options):
        room = int(os.environ.get("SLURM_NTASKS") or int(os.environ.get("SLURM_JOB_NUM_NODES", "1")) * devices_here(options))
    else:
        room = devices_here(options)
    return min(options.ngpu, room)


def several_hosts(options: JobOptions) -> bool:
    """True where the processes of a job may be on another machine than this one."""
    if options.hosts:
        return not all(is_here(host) for host, _ in parse_hosts(options.hosts))
    return by_srun(options) and os.environ.get("SLURM_JOB_NUM_NODES") != "1"


def needs_launcher(options: JobOptions) -> bool:
    """True where this process has to start others, and does not train itself."""
    return started_by() is None and num_processes(options) > 1


@dataclass
class Command:
    """A command of the launcher. It starts one process of the job, or all of them."""

    words: list[str]
    env: dict[str, str] = field(default_factory=dict)


def commands(options: JobOptions, argv: list[str], supervised: Path | None = None) -> list[Command]:
    """The commands that start a job with the command line `pykaldist <argv>`.

    `supervised` is the experiment folder of a job that goes on when one of its processes is killed: its processes get supervisors.
    """
    count = num_processes(options)
    verb = [sys.executable, "-m", "pykaldist", *argv]
    several = several_hosts(options)
    if options.launcher == "ray":
        load_ray()
        kind = "cuda" if options.fabric == "nccl" else parse_device(options.device)[0]
        return [Command([sys.executable, "-m", "pykaldist.parallel.launch.on_ray", str(count), kind, *verb], variables(options.interface))]
    env = variables(options.interface if several else LOOPBACK_INTERFACE)
    supervise = [sys.executable, "-m", "pykaldist.parallel.launch.supervisor", str(supervised)] if supervised is not None else []
    if options.elastic:
        env[REPLACEMENTS] = str(options.replacements)
    srun = by_srun(options)
    if expected_fabric(options, count) in ("gloo", "nccl"):
        if srun:
            env["SLURM_MPI_TYPE"] = "none"
        elif not several:
            port = str(free_port(LOOPBACK))
            if options.elastic:  # otherwise the launcher itself does without processes that are killed
                verb = [*supervise, *verb]
            return [Command(verb, {**env, "RANK": str(r), "WORLD_SIZE": str(count), "LOCAL_RANK": str(r), "LOCAL_WORLD_SIZE": str(count),
                                   "MASTER_ADDR": LOOPBACK, "MASTER_PORT": port}) for r in range(count)]
        else:
            env.update(MASTER_ADDR=parse_hosts(options.hosts)[0][0], MASTER_PORT=str(random.randrange(20000, 30000)))
    else:
        if importlib.util.find_spec("mpi4py") is None:
            raise UserError(f"--fabric mpi needs the package mpi4py, which {sys.executable} does not have; install it against your MPI "
                            "(pip install mpi4py), or use --fabric gloo.")
        verb = [sys.executable, "-m", "mpi4py", "-m", "pykaldist", *argv]
    verb = [*supervise, *verb]
    if srun:
        cpus = os.environ.get("SLURM_CPUS_PER_TASK")  # since 22.05 srun does not take it from there
        cores = [f"--cpus-per-task={cpus}"] if cpus else []
        return [Command(["srun", f"--ntasks={count}", *cores, "--kill-on-bad-exit=1", "--export=ALL", *verb], env)]
    starter = mpiexec(several)
    if starter is None:
        raise UserError(f"there is no mpiexec beside {sys.executable} or on PATH to start {count} processes; install mpich, or use "
                        "--fabric gloo or --fabric virtual.")
    where: list[str] = []
    if several:
        hosts = parse_hosts(options.hosts)
        each = -(-count // len(hosts))
        where = ["-iface", options.interface] if options.interface else []
        where += ["-hosts", ",".join(f"{host}:{slots or each}" for host, slots in hosts)]
    return [Command([starter, *where, "-n", str(count), *verb], env | of_open_mpi())]


def of_open_mpi() -> dict[str, str]:
    """What Open MPI wants to be told: that more processes than cores are meant, and that it may start them for root, as in a container."""
    policy = {"OMPI_MCA_rmaps_base_oversubscribe": "true", "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return policy | root if os.geteuid() == 0 else policy


def mpiexec(several_hosts: bool = False) -> str | None:
    """The program that starts MPI's processes: beside Python, from the mpich wheel, or on PATH. None where there is none."""
    names = ["mpiexec"] if several_hosts else ["mpiexec.gforker", "mpiexec"]
    beside = [path for path in map(Path(sys.executable).with_name, names) if path.is_file()]
    return str(beside[0]) if beside else shutil.which("mpiexec")
