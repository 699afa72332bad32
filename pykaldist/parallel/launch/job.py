"""A job: who computes, and where. It says which processes there are, and which workers and which device each process has.

Every process of a training run calls `open_job`. Without `--ngpu`, or with one process for all workers, there is nothing to open. Otherwise
the process finds in its environment which one it is, and meets the others: by MPI under mpiexec, by torch.distributed with torchrun's
variables or with `--fabric nccl` and `gloo`; in a step of srun at a server of their own (`launch/rendezvous.py`), by which MPI or
torch.distributed starts then. They tell each other what they see, and `place` (`launch/placement.py`) says which
device each has, and by which fabric they go on. `pykaldist train` starts these processes itself, unless it is one of them.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import signal
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch

from pykaldist import deterministic
from pykaldist.devices import device_name, num_visible, parse_device
from pykaldist.errors import UserError
from pykaldist.options import option
from pykaldist.parallel.clusters.cluster import Cluster, shipped
from pykaldist.parallel.engines.concurrent import ConcurrentHost
from pykaldist.parallel.engines.elastic.processes import ElasticHost
from pykaldist.parallel.engines.host import Host
from pykaldist.parallel.engines.simulation import Simulation
from pykaldist.parallel.fabric.by_node import ByNode
from pykaldist.parallel.fabric.mpi import Mpi, cuda_aware, vendor
from pykaldist.parallel.fabric.processes import Processes, SingleProcess, SplittableProcesses
from pykaldist.parallel.fabric.torch_distributed import TorchDistributed
from pykaldist.parallel.launch import segments
from pykaldist.parallel.launch.placement import Placement, Seen, place
from pykaldist.parallel.launch.rendezvous import Rendezvous
from pykaldist.parallel.launch.supervisor import FOLDER, REPLACES
from pykaldist.parallel.launch.watch import MET, leave_now
from pykaldist.parallel.strategies.base.registry import PRESETS, make_strategy, strategies
from pykaldist.parallel.strategies.base.strategy import Strategy
from pykaldist.parallel.transport.addresses import LOOPBACK_INTERFACE, listening_address, machine_card, variables, variables_of_gloo
from pykaldist.parallel.transport.door import Guest
from pykaldist.parallel.transport.sockets import allgather_json

FABRICS = ("mpi", "nccl", "gloo", "virtual")
NO_TIMEOUT_S = 7 * 24 * 3600.0  # of an exchange, which may wait for a long serial phase; parallel/launch/watch.py finds processes that hang
DEFAULT_CLUSTER = "v100-ethernet"  # the cluster that is simulated for asynchronous virtual workers
LR_SCALES = {"none": lambda n: 1.0, "linear": float, "sqrt": lambda n: n**0.5}


def _own_scales() -> str:
    """Each scale of the learning rate with the strategies that have it by default, for a help text."""
    names = {scale: [name for name in strategies() if make_strategy(name).lr_scale == scale] for scale in LR_SCALES}
    return "; ".join(f"{', '.join(found)}: {scale}" for scale, found in names.items() if found)


@dataclass
class JobOptions:
    """Who computes, and where."""

    ngpu: int = option(1, "workers")
    strategy: str = option("local", "what workers exchange; kaldi: ma with Kaldi's schedule of parallel jobs", (*strategies(), *PRESETS))
    fabric: str | None = option(None, "between processes by mpi, nccl or gloo; or virtual, all workers in one process (nccl where "
                                      "each process has a GPU of its own, else mpi; virtual where there is one device or core)", FABRICS)
    nproc: int = option(0, "processes; several workers share one where there are fewer; 0: one a device, or a CPU core, up to --ngpu")
    hosts: str = option("", "hosts, as node1,node2:4 (processes on each), or a file with one a line")
    launcher: str = option("auto", "who starts the processes: ray, on a Ray cluster, to meet by gloo or nccl; auto: srun in an allocation "
                                   "of SLURM, else mpiexec or this process", ("auto", "ray"))
    interface: str = option("", "network interface, eth0 say, by which processes of several hosts reach each other (found out by itself "
                                "where this is left out); on one host they use loopback")
    hierarchical_allreduce: bool = option(False, "sums within each node first, then between one process of each node")
    device: str = option("auto", "cpu, cuda, cuda:N, or auto: cuda where there is one")
    num_threads: int = option(0, "CPU threads of a process; 0: the machine's cores, shared by its processes that compute")
    deterministic: bool = option(False, "the same numbers on every machine: sums in the order of workers, for any number of processes and "
                                        "any fabric; one thread a process; the code for one CPU type; --device auto is cpu")
    lr_scale: str | None = option(None, f"how the learning rate follows the number of workers ({_own_scales()})", tuple(LR_SCALES))
    blocks: int = option(1, "blocks of the partition into workers x blocks, drawn at random in each epoch")
    partition_level: str | None = option(None, "what is dealt out to workers (utterance for networks that train on sequences, else frame)",
                                         ("frame", "utterance"))
    serial_warmup: float = option(0.0, "epochs, or a part of one, that one worker trains before all go parallel")
    cluster: str = option("", "simulate this cluster: a cluster file, or the name of a known one. All workers in one process, with the "
                              "times and the order of events that they would have there")
    simulation_seed: int = option(777, "seed of the simulated cluster's random times")
    elastic: bool = option(False, "go on with the workers that are left when some die, and take in those that replace them (ma, bmuf, "
                                  "diloco)")
    replacements: int = option(1, "times that a process of an elastic job which was killed is started again, to join")
    stack_workers: str = option("auto", "workers of one process compute together (true), or one after the other (false); auto: together "
                                        "on a GPU, where they are small DNNs with SGD", ("auto", "true", "false"))
    timeout: float = option(600.0, "seconds without progress of any process, after which the job is ended")
    start_timeout: float = option(60.0, "seconds in which the processes have to meet, once the first has come, after which the job is "
                                        "ended; they begin again with each that comes")

    def __post_init__(self) -> None:
        self.deterministic |= deterministic.enabled()
        if self.deterministic:
            if self.num_threads > 1:
                raise UserError(f"--num-threads {self.num_threads} --deterministic true: sums depend on the number of threads, so that a "
                                "process has one; use --ngpu and --nproc for more cores.")
            self.device = "cpu" if self.device == "auto" else self.device
        for name in ("ngpu", "blocks", "timeout", "start_timeout"):
            if getattr(self, name) <= 0:
                raise UserError(f"--{name.replace('_', '-')} {getattr(self, name):g} is not positive.")
        for name in ("num_threads", "nproc", "serial_warmup", "replacements"):
            if getattr(self, name) < 0:
                raise UserError(f"--{name.replace('_', '-')} {getattr(self, name):g} is negative.")
        if self.nproc > self.ngpu:
            raise UserError(f"--nproc {self.nproc} --ngpu {self.ngpu}: a process without a worker; give no more processes than workers.")
        if self.cluster:
            if self.fabric not in (None, "virtual") or self.hosts or self.nproc > 1:
                raise UserError(f"--cluster {self.cluster} simulates all workers in one process: leave out --hosts and --nproc, and any "
                                "--fabric but virtual.")
            self.fabric = "virtual"
        if self.launcher == "ray" and (self.fabric in ("mpi", "virtual") or self.hosts or self.elastic):
            found = f"--fabric {self.fabric}" if self.fabric in ("mpi", "virtual") else "--hosts" if self.hosts else "--elastic true"
            raise UserError(f"--launcher ray {found}: Ray places the processes, which meet by gloo or nccl; leave one of the two out.")
        if self.hierarchical_allreduce and (self.deterministic or self.fabric == "virtual"):
            why = "--deterministic true: those sums go in the order of workers" if self.deterministic else \
                "--fabric virtual: one process has nobody to sum with"
            raise UserError(f"--hierarchical-allreduce true {why}; leave one of the two out.")
        if self.fabric == "virtual" and self.hosts:
            raise UserError(f"--fabric virtual --hosts {self.hosts}: virtual workers alone are one process; use --fabric mpi.")
        if self.fabric == "virtual" and self.nproc > 1:
            raise UserError(f"--fabric virtual --nproc {self.nproc}: virtual workers alone are one process; use --fabric mpi.")

    def settle(self, strategy: Strategy) -> None:
        """Set what follows from the strategy. Raises UserError for options that are not possible with it."""
        if self.hierarchical_allreduce and strategy.independent:
            raise UserError(f"--strategy {self.strategy} --hierarchical-allreduce true: its workers do not sum all together; leave it out.")
        if self.elastic and (why := self._inelastic(strategy)):
            raise UserError(f"--elastic true: {why}.")
        if strategy.reads_all and (self.lr_scale or strategy.lr_scale) != "linear":
            raise UserError(f"--lr-scale {self.lr_scale}: with --initial-workers the rate is that of one worker times those that train; "
                            "leave it at linear.")
        if not strategy.asynchronous:
            return
        if self.fabric == "virtual":
            self.cluster = self.cluster or DEFAULT_CLUSTER
        if self.deterministic and not self.cluster:
            raise UserError(f"--strategy {self.strategy} --deterministic true: between processes no two asynchronous runs are alike; those "
                            f"of a simulated cluster are (--cluster FILE, or one of {', '.join(shipped())}).")

    def _inelastic(self, strategy: Strategy) -> str:
        """Why this job cannot be elastic, in words; empty where it can."""
        if self.hierarchical_allreduce:
            return "its exchanges go over process 0, not node by node; leave out --hierarchical-allreduce"
        if self.fabric == "virtual" and not self.cluster:
            return "all virtual workers die with their process; use --nproc, or simulate a --cluster with failures"
        return strategy.inelastic()

    def set_partition_level(self, default: str) -> str:
        """Set what is dealt out to workers where the user does not say, and return what it is now: frame or utterance."""
        self.partition_level = self.partition_level or default
        return self.partition_level

    def result_options(self) -> dict[str, Any]:
        """The options that change a run's result, beside the number of workers."""
        names = ("strategy", "lr_scale", "deterministic", "blocks", "partition_level", "serial_warmup")
        bearing = {name: getattr(self, name) for name in names}
        if self.elastic:
            bearing.update(elastic=True)
        if self.cluster:
            bearing.update(cluster=Cluster.read(self.cluster).as_json(), simulation_seed=self.simulation_seed)
        return bearing

    def rate_factor(self, default: str) -> float:
        """The learning rate of N workers over that of one. `default` is the strategy's own scale."""
        return LR_SCALES[self.lr_scale or default](self.ngpu)


@dataclass
class Job:
    """This process's part of a run: its `host` with the workers, and its device.

    `threads`: its CPU threads; `threads_alone`: those that it has while the processes beside it wait.
    """

    host: Host
    device: torch.device
    hosting: str  # the processes and devices of the job, in words
    threads: int
    threads_alone: int

    @property
    def first(self) -> bool:
        """True for the one process that writes files and messages."""
        return self.host.processes.rank == 0

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Compute with the cores of the processes beside this one too, while they wait for it."""
        torch.set_num_threads(self.threads_alone)
        try:
            yield
        finally:
            torch.set_num_threads(self.threads)


def local_cores() -> int:
    """The number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0))


def started_by() -> str | None:
    """Who started the job of this process, as the environment says: torch (torchrun), mpi (mpiexec) or srun. None outside of a job."""
    if "WORLD_SIZE" in os.environ and "RANK" in os.environ:
        return "torch"
    by_mpiexec = any(name in os.environ for name in ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_SIZE"))  # which may have used srun itself
    if int(os.environ.get("SLURM_STEP_NUM_TASKS", "1")) > 1 and not by_mpiexec:
        return "srun"
    return "mpi" if by_mpiexec or any(name in os.environ for name in ("PMI_SIZE", "PMIX_RANK")) else None


def on_one_machine() -> bool:
    """True where all processes of this process's job are on this machine, as the environment says."""
    pairs = (("LOCAL_WORLD_SIZE", "WORLD_SIZE"), ("MPI_LOCALNRANKS", "PMI_SIZE"), ("OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_SIZE"))
    return any(local in os.environ and os.environ[local] == os.environ.get(everywhere) for local, everywhere in pairs)


def has_nccl() -> bool:
    """True where this PyTorch has NCCL."""
    return torch.distributed.is_available() and torch.distributed.is_nccl_available()


def open_processes(device: str, fabric: str | None, interface: str = "", start_timeout: float = 60.0,
                   folder: Path | None = None) -> tuple[Processes, Placement]:
    """The processes of this process's job, and where they compute. The device of this process is the current one then.

    `device`, `fabric`, `interface` and `start_timeout` are the options of these names; `folder` is where the processes of a step of srun
    find each other. Raises UserError, in all processes, where what is asked for is not possible, and NotMetError where processes of srun or
    torch.distributed do not meet within the time.
    """
    starter = started_by()
    processes: Processes = SingleProcess()
    if fabric != "virtual" and starter is not None:
        if starter == "srun":
            assert folder is not None
            processes = _meet_in_step(fabric, interface, start_timeout, folder)
        else:
            os.environ.update(variables(LOOPBACK_INTERFACE if on_one_machine() else interface))
            processes = _meet(fabric, starter, start_timeout)
    placement = place(_seen_by_all(processes, device), device, fabric, "torch" if starter == "torch" else "mpi")
    own = torch.device(placement.devices[processes.rank])
    if own.type == "cuda":
        torch.cuda.set_device(own)  # the default of streams, graphs and NCCL
    if placement.fabric == "mpi":
        assert isinstance(processes, Mpi)
        processes.takes_cuda = own.type == "cuda" and not placement.staged
    if placement.fabric == "nccl":
        if not isinstance(processes, TorchDistributed):
            processes = _meet_again(processes, interface, start_timeout)
        processes.use_nccl()
    if folder is not None and processes.rank == 0 and "PYKALDIST_JOB" in os.environ:
        (folder / MET).touch()
    return processes, placement


def _meet(fabric: str | None, starter: str, timeout: float) -> Processes:
    """Meet the other processes, by gloo where torch.distributed is what they are to use, else by MPI."""
    if starter == "torch" or fabric in ("nccl", "gloo"):
        _set_rendezvous(fabric or "gloo")
        return TorchDistributed(NO_TIMEOUT_S, timeout)
    processes = _mpi()
    started = int(next((os.environ[name] for name in ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE") if name in os.environ), "1"))
    if processes.size == 1 < started:
        raise UserError(f"--fabric mpi: mpiexec has started {started} processes, and mpi4py's MPI ({vendor()}) sees one: they are not of "
                        "the same MPI. Put the mpiexec of that MPI first on PATH, or use --fabric gloo.")
    return processes


def _meet_in_step(fabric: str | None, interface: str, timeout: float, folder: Path) -> Processes:
    """Meet the other processes of a step of srun, first at a server of their own, then by gloo or MPI."""
    with Rendezvous(folder, timeout, interface) as rendezvous:
        cards = rendezvous.meet()
        os.environ.update(variables(interface if len({card["machine"] for card in cards}) > 1 else LOOPBACK_INTERFACE))
        processes: Processes
        if fabric in ("nccl", "gloo"):
            where = rendezvous.gather(_listening(cards, interface))[0]
            os.environ.update(where, RANK=str(rendezvous.rank), WORLD_SIZE=str(rendezvous.size))
            processes = TorchDistributed(NO_TIMEOUT_S, timeout)
        else:
            if vendor() == "MPICH":  # another MPI has the plugin of its site
                rendezvous.start_mpi()
            processes = _mpi()
        if processes.size != rendezvous.size:
            raise UserError(f"--fabric mpi: {vendor()} sees {processes.size} processes of the {rendezvous.size} of this step of srun; name "
                            "SLURM's plugin for it (SLURM_MPI_TYPE, srun --mpi=list), or use --fabric gloo.")
        rendezvous.gather("started", last=True)
    return processes


def _mpi() -> Mpi:
    """All processes of the job, by MPI, whose shared memory has no name once they have met."""
    with _ended_by_sigterm():
        processes = Mpi()
        processes.barrier()
    segments.unname()
    segments.clear()
    return processes


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """A context in which SIGTERM ends the process at once: Python's handlers do not run while MPI_Init waits for the other processes."""
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _meet_again(processes: Processes, interface: str, timeout: float) -> TorchDistributed:
    """Meet the processes of an MPI job once more, by torch.distributed: at an address of process 0, where the environment names none."""
    where = allgather_json(processes, _listening(allgather_json(processes, machine_card()), interface))[0]
    for name, value in where.items():
        os.environ.setdefault(name, value)
    os.environ.update(RANK=str(processes.rank), WORLD_SIZE=str(processes.size))
    return TorchDistributed(NO_TIMEOUT_S, timeout)


def _listening(cards: Sequence[dict[str, Any]], interface: str) -> dict[str, str]:
    """The variables of torch.distributed with which this process listens for the processes that have told these cards.

    gloo is to use the same network interface, unless the user has named one: by itself it takes the address that the host's name has,
    which on some systems is a loopback address.
    """
    address = listening_address(cards, interface)
    os.environ.update(variables_of_gloo(address))
    return {"MASTER_ADDR": address, "MASTER_PORT": str(free_port(address))}


def free_port(address: str) -> int:
    """A port of an address of this machine that nobody uses."""
    with socket.socket() as sock:
        sock.bind((address, 0))
        return int(sock.getsockname()[1])


def _seen_by_all(processes: Processes, device: str) -> list[Seen]:
    """What each process of the job sees, by rank."""
    devices = () if parse_device(device)[0] == "cpu" else tuple(map(device_name, range(num_visible())))
    own = Seen(socket.gethostname(), devices, has_nccl(), isinstance(processes, Mpi) and bool(devices) and cuda_aware())
    return [Seen(**{**one, "devices": tuple(one["devices"])}) for one in allgather_json(processes, dataclasses.asdict(own))]


def _set_rendezvous(fabric: str) -> None:
    """Set torch.distributed's variables, where mpiexec has started the processes. Raises UserError where some are missing."""
    for name, others in (("RANK", ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")), ("WORLD_SIZE", ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE"))):
        value = next((os.environ[other] for other in others if other in os.environ), None)
        if name not in os.environ and value is not None:
            os.environ[name] = value
    missing = [name for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing:
        raise UserError(f"--fabric {fabric}: {', '.join(missing)} not set; let torchrun start the processes, or `pykaldist` by itself.")


def _as_guest(folder: Path) -> tuple[Processes, Placement]:
    """What `open_processes` returns, in a process that replaces another one in an elastic job."""
    rank = os.environ[REPLACES]
    try:
        guest = Guest(int(rank), folder)
    except OSError as error:
        raise UserError(f"{REPLACES}={rank}: there is no elastic job in {folder.parent} that a process could join.") from error
    facts = guest.facts
    own = torch.device(facts["devices"][guest.rank])
    if own.type == "cuda":
        torch.cuda.set_device(own)
    return guest, Placement(tuple(facts["hosts"]), tuple(facts["devices"]), facts["fabric"])


def open_job(options: JobOptions, strategy: Strategy, exp: Path | None = None) -> Job:
    """Meet the other processes, and share out workers, devices and CPU threads.

    `exp` is the experiment's folder, where the processes of a step of srun find each other.
    """
    options.settle(strategy)
    folder = exp and exp / FOLDER
    guest = folder is not None and REPLACES in os.environ
    processes, placement = _as_guest(folder) if folder is not None and guest else \
        open_processes(options.device, options.fabric, options.interface, options.start_timeout, folder)
    if processes.size > options.ngpu:
        raise UserError(f"{processes.size} processes for --ngpu {options.ngpu}: start no more processes than workers.")
    names = list(placement.hosts)
    local = [p for p, name in enumerate(names) if name == names[processes.rank]]
    device, fabric = torch.device(placement.devices[processes.rank]), placement.fabric
    alone = options.num_threads or (1 if options.deterministic else local_cores())
    threads = options.num_threads or max(1, alone // len(local))
    torch.set_num_threads(threads)
    if options.cluster:
        cluster = Cluster.read(options.cluster)
        if cluster.joins and not options.elastic:
            raise UserError(f"--cluster {options.cluster} replaces workers, which only a job with --elastic true can take in.")
        if cluster.failures and not (strategy.fault_tolerant or options.elastic):
            raise UserError(f"--cluster {options.cluster} lets workers fail, and --strategy {options.strategy} does not survive that: such "
                            "a job ends, and goes on from its last checkpoint when it is run again. Leave its failures out.")
        host: Host = Simulation(options.ngpu, cluster, options.simulation_seed, options.deterministic)
    elif strategy.independent:
        host = ConcurrentHost(options.ngpu, processes, strategy.fault_tolerant, names, options.interface)
        host.leave = leave_now
    elif options.elastic:
        if processes.size == 1 or folder is None:
            raise UserError("--elastic true: this job is one process, and all workers would die with it; use --nproc, or --hosts.")
        facts = {"hosts": names, "devices": list(placement.devices), "fabric": fabric}
        host = ElasticHost(options.ngpu, processes, names, folder, options.interface, facts)
    else:
        if options.hierarchical_allreduce:
            processes = ByNode(cast(SplittableProcesses, processes), names)
        host = Host(options.ngpu, processes, options.deterministic)
    host.essential, host.lost_with = strategy.essential, strategy.lost_with
    if options.elastic and options.cluster:
        host.be_elastic()
        host.essential = range(1)
    if not options.cluster:
        host.use_device(device)
    for fabric_end in host.fabrics if not options.cluster else ():
        fabric_end.node_size = _node_size(host, names)
    n, p = options.ngpu, processes.size
    nodes = len(set(names))
    over = f" over {fabric}" * bool(fabric) + " through host memory" * placement.staged + ", node by node" * options.hierarchical_allreduce
    where = f"{p} process{'es' * (p > 1)}{f' on {nodes} hosts' * (nodes > 1)}{over}, {device.type}, {threads} threads each"
    if n > p:
        most = -(-n // p)
        where += f"; {n} workers share them, up to {most} virtual ones in a process"
    where += "; elastic: it goes on without workers that die" * options.elastic
    if options.cluster:
        where += f"; all times are simulated, those of cluster {options.cluster}"
    if placement.sharing:
        where += f"; {placement.sharing}"
    return Job(host, device, where, threads, alone)


def _node_size(host: Host, names: list[str]) -> int:
    """The number of workers on a node, where all nodes have equally many with consecutive ranks; else 0."""
    of_worker = [name for name, a, b in zip(names, host.bounds, host.bounds[1:], strict=False) for _ in range(a, b)]
    sizes = [len(list(run)) for _, run in itertools.groupby(of_worker)]
    return sizes[0] if len(set(sizes)) == 1 and len(sizes) == len(set(names)) else 0
