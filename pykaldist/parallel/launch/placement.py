"""Placement: on which device each process of a job computes, and by which fabric the processes exchange.

`place` is a function of what the processes see and of what the user asks for, and of nothing else. Every process of a job calls it with the
same facts, so that all come to the same placement, or to the same error.

Devices. Each process takes, of the devices that it sees on its host, the one that the fewest processes before it have taken; the first of
these. So processes that see the same devices take them in turn, and tasks of SLURM that see one device each take their own. A device has
one name in all processes (its UUID): number 0 of one task may be another device than number 0 of the next.

Fabric. Where the user names none it is nccl if each process has a GPU of its own and NCCL; else mpi, or gloo where torchrun has started the
processes. gloo exchanges buffers on a GPU through host memory. So does mpi, unless MPI says in every process that it is CUDA-aware.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pykaldist.devices import parse_device
from pykaldist.errors import UserError


@dataclass(frozen=True)
class Seen:
    """What a process of a job sees: its host, the names of the CUDA devices there by their numbers, and what its libraries can do.

    `nccl`: its PyTorch has NCCL. `cuda_mpi`: its MPI says that it is CUDA-aware.
    """

    host: str
    devices: tuple[str, ...] = ()
    nccl: bool = False
    cuda_mpi: bool = False


@dataclass(frozen=True)
class Placement:
    """The host and the device of each process, as "cpu" or "cuda:1", by rank, and the fabric of the job.

    `fabric` is mpi, nccl or gloo, and empty for a job of one process. `staged`: buffers on a GPU are exchanged through host memory.
    `sharing` says in words how many processes share devices; it is empty where none do.
    """

    hosts: tuple[str, ...]
    devices: tuple[str, ...]
    fabric: str
    staged: bool = False
    sharing: str = ""


def place(seen: Sequence[Seen], device: str = "auto", fabric: str | None = None, starter: str = "mpi") -> Placement:
    """Place the processes of a job, of which each sees `seen[rank]`.

    `device` and `fabric` are the options of these names; `starter` has started the processes: mpi (mpiexec, srun) or torch (torchrun, or
    `pykaldist` itself). Raises UserError where what is asked for is not possible.
    """
    numbers, hosts = _device_numbers(seen, device), tuple(one.host for one in seen)
    if numbers is None:
        devices, most, sharing = tuple("cpu" for _ in seen), 0, ""
    else:
        devices = tuple(f"cuda:{number}" for number in numbers)
        taken = Counter((one.host, one.devices[number]) for one, number in zip(seen, numbers, strict=True))
        most = max(taken.values())
        names = f"the device {devices[0]}" if len(taken) == 1 else f"{len(taken)} devices"
        sharing = f"{len(seen)} processes share {names}" if most > 1 else ""
    if fabric == "nccl":
        _check_nccl(seen, device, numbers is not None, sharing)
    if len(seen) == 1:
        return Placement(hosts, devices, "")
    if fabric == "mpi" and starter == "torch":
        raise UserError("--fabric mpi: torchrun has started these processes; use --fabric nccl or gloo, or leave torchrun out.")
    if fabric is None:
        own = most == 1 and all(one.nccl for one in seen)
        fabric = "nccl" if own else "gloo" if starter == "torch" else "mpi"
    direct = fabric == "nccl" or (fabric == "mpi" and all(one.cuda_mpi for one in seen))
    return Placement(hosts, devices, fabric, numbers is not None and not direct, sharing)


def _device_numbers(seen: Sequence[Seen], device: str) -> list[int] | None:
    """The number of each process's CUDA device; None where they compute on CPUs."""
    kind, named = parse_device(device)
    if kind == "cpu" or (kind == "auto" and not any(one.devices for one in seen)):
        return None
    for rank, one in enumerate(seen):
        if len(one.devices) > (named or 0):
            continue
        if len(seen) == 1:
            raise UserError(f"--device {device}: this machine has {len(one.devices)} CUDA devices; use --device cpu.")
        others = ", and other processes do" * any(other.devices for other in seen)
        if not one.devices:
            raise UserError(f"--device {device}: process {rank} on {one.host} sees no CUDA device{others}; give each process one, or use "
                            "--device cpu.")
        raise UserError(f"--device {device}: process {rank} on {one.host} sees {len(one.devices)} CUDA devices; use --device cuda, by "
                        "which processes take them in turn.")
    used: Counter[tuple[str, str]] = Counter()
    numbers = []
    for one in seen:
        choices = range(len(one.devices)) if named is None else (named,)
        number = min(choices, key=lambda n: used[one.host, one.devices[n]])  # the first of those that are used least
        used[one.host, one.devices[number]] += 1
        numbers.append(number)
    return numbers


def _check_nccl(seen: Sequence[Seen], device: str, on_devices: bool, sharing: str) -> None:
    """Check that NCCL can exchange between these processes; raises UserError where it cannot."""
    if not on_devices:
        why = f"--device {device} is the CPU" if parse_device(device)[0] == "cpu" else "there is no CUDA device here"
        raise UserError(f"--fabric nccl: NCCL exchanges between GPUs, and {why}; use --fabric mpi or gloo.")
    lacking = [rank for rank, one in enumerate(seen) if not one.nccl]
    if lacking:
        raise UserError(f"--fabric nccl: the PyTorch of process {lacking[0]} on {seen[lacking[0]].host} has no NCCL; install a PyTorch "
                        "that has, or use --fabric mpi or gloo.")
    if sharing:
        raise UserError(f"--fabric nccl: {sharing}, and NCCL wants one for each process; give --nproc no more processes than devices, or "
                        "use --fabric mpi, whose processes can share a device.")
