"""The program that starts the processes of a job on a Ray cluster, for `--launcher ray`.

    python -m pykaldist.parallel.launch.on_ray <processes> <cpu, cuda, or auto> <command> ...

Each process is a task of Ray, which holds a CPU, and with cuda, or with auto where the cluster has enough of them, a GPU as well. It runs
the command with torchrun's variables. The tasks are packed on as few machines as hold them, and numbered machine by machine; process 0 is
where all meet. What they print comes here, from where the launcher passes it on. The cluster is that of RAY_ADDRESS, or of this machine,
where one runs; else Ray is started for the job.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from pykaldist.errors import UserError
from pykaldist.parallel.transport.addresses import LOOPBACK, LOOPBACK_INTERFACE, variables

INSTALL = f"--launcher ray needs the package ray, which {sys.executable} does not have; install it there (pip install ray)."
GRACE_S = 20.0  # in which processes end by themselves, when one has failed
OWN = ("PYKALDIST_", "PYTHONPATH", "PYTHONUNBUFFERED", "OMP_NUM_THREADS", "GLOO_", "NCCL_")  # variables that go to the processes


def load_ray() -> Any:
    """The package ray. Raises UserError where it is not installed."""
    try:
        import ray
    except ModuleNotFoundError as error:
        raise UserError(INSTALL) from error
    return ray


def here() -> tuple[str, str, int]:
    """The machine of the task that calls this: its id in the cluster, its address, and a port that is free there."""
    import ray

    with socket.socket() as probe:
        probe.bind(("", 0))
        return ray.get_runtime_context().get_node_id(), ray.util.get_node_ip_address(), probe.getsockname()[1]


def process(words: list[str], env: dict[str, str]) -> Iterator[str | int]:
    """Run a command; gives the lines that it prints, and its exit status last."""
    child = subprocess.Popen(words, env={**os.environ, **env}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             text=True, errors="replace")
    try:
        assert child.stdout is not None
        for line in child.stdout:  # noqa: UP028  Ray sends to generators, which a file does not take
            yield line
        yield child.wait()
    finally:
        if child.poll() is None:
            child.kill()


def placed(machines: list[tuple[str, str, int]]) -> list[dict[str, str]]:
    """The variables of each process, from the machines (`here`) that the processes are on, in the order of tasks.

    Ranks go from machine to machine, in the order in which these appear.
    """
    order = list(dict.fromkeys(machine for machine, _, _ in machines))
    by_rank = sorted(range(len(machines)), key=lambda task: order.index(machines[task][0]))
    alone = len(order) == 1
    found: list[dict[str, str]] = [{} for _ in machines]
    for rank, task in enumerate(by_rank):
        mine = [other for other in by_rank if machines[other][0] == machines[task][0]]
        _, address, port = machines[by_rank[0]]
        found[task] = {"RANK": str(rank), "WORLD_SIZE": str(len(machines)), "LOCAL_RANK": str(mine.index(task)),
                       "LOCAL_WORLD_SIZE": str(len(mine)), "MASTER_ADDR": LOOPBACK if alone else address, "MASTER_PORT": str(port),
                       **(variables(LOOPBACK_INTERFACE) if alone else {})}
    return found


def needed(count: int, device: str, has: Mapping[str, float]) -> dict[str, int]:
    """What each of a job's processes holds of Ray's cluster, which has so much of each kind; raises UserError where it has too little."""
    gpu = device == "cuda" or (device == "auto" and has.get("GPU", 0) >= count)
    needs = {"CPU": 1, **({"GPU": 1} if gpu else {})}
    if lacking := [kind for kind in needs if has.get(kind, 0) < count]:
        raise UserError(f"the job wants {count} {lacking[0]}s of Ray, whose cluster has {has.get(lacking[0], 0):.0f}; use fewer processes "
                        "(--nproc).")
    return needs


def run(count: int, device: str, words: list[str]) -> int:
    """Run the processes of a job; returns the status of the first that failed, or 0."""
    ray = load_ray()
    with contextlib.suppress(ConnectionError):
        ray.init(address="auto", log_to_driver=False, logging_level="warning")
    if not ray.is_initialized():
        ray.init(log_to_driver=False, logging_level="warning", include_dashboard=False)
    needs = needed(count, device, ray.cluster_resources())
    group = ray.util.placement_group([needs] * count, strategy="PACK")
    ray.get(group.ready())

    def task(function: Any, number: int, **options: Any) -> Any:
        strategy = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=number)
        return ray.remote(function).options(num_cpus=1, num_gpus=needs.get("GPU", 0), max_retries=0, scheduling_strategy=strategy,
                                            **options)

    statuses: list[int] = []
    ended = threading.Event()

    def follow(lines: Any) -> None:
        """Print what a process prints, and note its status."""
        status = 1
        try:
            for reference in lines:
                line = ray.get(reference)
                if isinstance(line, int):
                    status = line
                else:
                    print(line, end="", flush=True)
        except ray.exceptions.RayError as error:
            print(f"Ray has lost a process: {str(error).splitlines()[-1]}", file=sys.stderr, flush=True)
        statuses.append(status)
        if status or len(statuses) == count:
            ended.set()

    own = {name: value for name, value in os.environ.items() if name.startswith(OWN)}
    machines = ray.get([task(here, number).remote() for number in range(count)])
    threads = [threading.Thread(target=follow, daemon=True, args=(task(process, number, num_returns="streaming").remote(words,
                                                                                                        {**own, **env}),))
               for number, env in enumerate(placed(machines))]
    for thread in threads:
        thread.start()
    ended.wait()
    failed = next((status for status in statuses if status), 0)
    for thread in threads:
        thread.join(GRACE_S if failed else None)
    ray.shutdown()  # which ends what is left
    return failed


def main() -> int:
    """Run the command line; returns its exit status."""
    try:
        return run(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
    except UserError as error:
        print(f"pykaldist on-ray: ERROR: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
