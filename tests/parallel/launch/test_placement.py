"""Placement: a table of jobs, and on which device each process computes, by which fabric, or the sentence that says why not."""

from __future__ import annotations

import pytest

from pykaldist.errors import UserError
from pykaldist.parallel.launch.placement import Placement, Seen, place


def host(name: str, devices: str = "", tasks: int = 1, **able: bool) -> list[Seen]:
    """So many processes of a host, all of which see the devices whose names are the letters of `devices`, and have NCCL."""
    return [Seen(name, tuple(name + letter for letter in devices), **{"nccl": True, **able})] * tasks


def slurm(name: str, devices: str, **able: bool) -> list[Seen]:
    """Tasks of which each sees one device of its own, which is number 0 for it."""
    return [one for letter in devices for one in host(name, letter, **able)]


EIGHT = "abcdefgh"
EACH = tuple(f"cuda:{n}" for n in range(8))
CASES = {  # name: (what the processes see, options, devices, fabric, staged, sharing)
    "one process on a CPU": (host("a"), {}, ("cpu",), "", False, ""),
    "one process on a GPU": (host("a", EIGHT), {}, ("cuda:0",), "", False, ""),
    "one process on the GPU named": (host("a", EIGHT), {"device": "cuda:5"}, ("cuda:5",), "", False, ""),
    "one process with NCCL": (host("a", "a"), {"fabric": "nccl"}, ("cuda:0",), "", False, ""),
    "virtual workers": (host("a", EIGHT), {"fabric": "virtual"}, ("cuda:0",), "", False, ""),
    "CPUs": (host("a", tasks=4), {}, ("cpu",) * 4, "mpi", False, ""),
    "CPUs beside GPUs": (host("a", "ab", 2), {"device": "cpu"}, ("cpu",) * 2, "mpi", False, ""),
    "CPUs under torchrun": (host("a", tasks=4), {"starter": "torch"}, ("cpu",) * 4, "gloo", False, ""),
    "CPUs over gloo": (host("a", tasks=2), {"fabric": "gloo"}, ("cpu",) * 2, "gloo", False, ""),
    "a GPU each": (host("a", EIGHT, 8), {}, EACH, "nccl", False, ""),
    "a GPU each, some left": (host("a", EIGHT, 3), {}, EACH[:3], "nccl", False, ""),
    "a GPU each under torchrun": (host("a", "ab", 2), {"starter": "torch"}, EACH[:2], "nccl", False, ""),
    "a GPU each on two hosts": (host("a", "ab", 2) + host("b", "abcd", 2), {}, EACH[:2] * 2, "nccl", False, ""),
    "ranks that go round the hosts": ((host("a", "ab") + host("b", "ab")) * 2, {}, ("cuda:0", "cuda:0", "cuda:1", "cuda:1"), "nccl",
                                      False, ""),
    "one visible GPU a task": (slurm("a", EIGHT), {}, ("cuda:0",) * 8, "nccl", False, ""),
    "one visible GPU a task, NCCL asked for": (slurm("a", "ab") + slurm("b", "ab"), {"fabric": "nccl"}, ("cuda:0",) * 4, "nccl", False, ""),
    "one visible GPU a task, named": (slurm("a", "ab"), {"device": "cuda:0"}, ("cuda:0",) * 2, "nccl", False, ""),
    "tasks that see some of the GPUs": (host("a", "ab") + host("a", "ba") + host("a", "bc"), {}, ("cuda:0", "cuda:0", "cuda:1"), "nccl",
                                        False, ""),
    "one visible GPU for two tasks": (slurm("a", "aab"), {}, ("cuda:0",) * 3, "mpi", True, "3 processes share 2 devices"),
    "more processes than GPUs": (host("a", "ab", 5), {}, ("cuda:0", "cuda:1", "cuda:0", "cuda:1", "cuda:0"), "mpi", True,
                                 "5 processes share 2 devices"),
    "more processes than GPUs under torchrun": (host("a", "a", 2), {"starter": "torch"}, ("cuda:0",) * 2, "gloo", True,
                                                "2 processes share the device cuda:0"),
    "one GPU named for all": (host("a", "abcd", 4), {"device": "cuda:1"}, ("cuda:1",) * 4, "mpi", True,
                              "4 processes share the device cuda:1"),
    "one GPU named on each host": (host("a", "ab") + host("b", "ab"), {"device": "cuda:1"}, ("cuda:1",) * 2, "nccl", False, ""),
    "a PyTorch without NCCL": (host("a", "ab", 2, nccl=False), {}, EACH[:2], "mpi", True, ""),
    "one PyTorch without NCCL": (host("a", "a") + host("b", "a", nccl=False), {}, ("cuda:0",) * 2, "mpi", True, ""),
    "MPI through host memory": (host("a", "ab", 2), {"fabric": "mpi"}, EACH[:2], "mpi", True, ""),
    "a CUDA-aware MPI": (host("a", "ab", 2, cuda_mpi=True), {"fabric": "mpi"}, EACH[:2], "mpi", False, ""),
    "a CUDA-aware MPI and a shared device": (host("a", "a", 2, cuda_mpi=True), {}, ("cuda:0",) * 2, "mpi", False,
                                             "2 processes share the device cuda:0"),
    "one CUDA-aware MPI": (host("a", "a", cuda_mpi=True) + host("b", "a"), {"fabric": "mpi"}, ("cuda:0",) * 2, "mpi", True, ""),
    "GPUs over gloo": (host("a", "ab", 2), {"fabric": "gloo"}, EACH[:2], "gloo", True, ""),
}


@pytest.mark.parametrize("case", CASES)
def test_where_processes_compute_and_how_they_exchange(case):
    seen, options, devices, fabric, staged, sharing = CASES[case]
    assert place(seen, **options) == Placement(tuple(one.host for one in seen), devices, fabric, staged, sharing)


@pytest.mark.parametrize(("seen", "options", "sentence"), [
    (host("a"), {"device": "cuda"}, "--device cuda: this machine has 0 CUDA devices; use --device cpu."),
    (host("a", "ab"), {"device": "cuda:2"}, "--device cuda:2: this machine has 2 CUDA devices; use --device cpu."),
    (host("a"), {"device": "tpu"}, "--device tpu is not supported; use cpu, cuda, cuda:0 or auto."),
    (host("a", tasks=2), {"device": "cuda"}, "process 0 on a sees no CUDA device; give each process one, or use --device cpu."),
    (host("a", "a") + host("b"), {}, "--device auto: process 1 on b sees no CUDA device, and other processes do; give each process one"),
    (host("a", "ab", 2) + host("b", "a"), {"device": "cuda:1"}, "process 2 on b sees 1 CUDA devices; use --device cuda, by which"),
    (host("a"), {"fabric": "nccl"}, "NCCL exchanges between GPUs, and there is no CUDA device here; use --fabric mpi or gloo."),
    (host("a", "a"), {"fabric": "nccl", "device": "cpu"}, "--fabric nccl: NCCL exchanges between GPUs, and --device cpu is the CPU;"),
    (host("a", tasks=4), {"fabric": "nccl"}, "--fabric nccl: NCCL exchanges between GPUs, and there is no CUDA device here"),
    (host("a", "ab") + host("b", "ab", nccl=False), {"fabric": "nccl"}, "the PyTorch of process 1 on b has no NCCL; install a PyTorch"),
    (host("a", "ab", 3), {"fabric": "nccl"}, "3 processes share 2 devices, and NCCL wants one for each process; give --nproc no more"),
    (host("a", "ab", 2), {"fabric": "nccl", "device": "cuda:1"}, "2 processes share the device cuda:1, and NCCL wants one"),
    (host("a", "ab", 2), {"fabric": "mpi", "starter": "torch"}, "--fabric mpi: torchrun has started these processes; use --fabric nccl"),
])
def test_what_cannot_be_is_one_sentence(seen, options, sentence):
    with pytest.raises(UserError) as error:
        place(seen, **options)
    said = str(error.value)
    assert sentence in said and said.endswith(".") and "\n" not in said
