"""A cluster, for predictions and simulations: nodes x devices, the time of a minibatch, and the links.

A cluster file is this dataclass as JSON. Its times are those of one network and minibatch size, which the file names (`workload`).
`sources` says for every number where it comes from, by its place in the file (`compute.minibatch_seconds`). The cluster files in
`pykaldist/parallel/clusters` are of published experiments. `pykaldist plan --write-cluster FILE` writes one of the machine that it runs on.
"""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pykaldist.errors import UserError
from pykaldist.io.atomic import write_text
from pykaldist.io.schema import read_json, require

SHIPPED = Path(__file__).parent
FLOAT32 = 4  # bytes of a value in an exchange


@dataclass(frozen=True)
class Workload:
    """What is trained, and on how many frames.

    `largest_shard` is the number of frames of the worker with most frames, over the mean.
    """

    network: str  # in words or as 440-2048x6-8806
    parameters: int
    minibatch_size: int  # frames, of one worker
    frames: int  # in an epoch
    cv_frames: int = 0  # scored an epoch
    largest_shard: float = 1.0

    def __post_init__(self) -> None:
        for name in ("parameters", "minibatch_size", "frames"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "a positive number")
        require(self.cv_frames >= 0, "cv_frames", self.cv_frames, "0 or more")
        require(1.0 <= self.largest_shard < math.inf, "largest_shard", self.largest_shard, "1 or more")

    @property
    def bytes(self) -> int:
        """Bytes of a model, or of a gradient, in an exchange."""
        return FLOAT32 * self.parameters


@dataclass(frozen=True)
class Compute:
    """Seconds of one device, for the workload of the file."""

    minibatch_seconds: float  # mean, where other workers train at the same time
    single_minibatch_seconds: float | None = None  # of a worker that trains alone, where it differs
    spread: float = 0.0  # standard deviation of a minibatch's seconds over their mean
    load_seconds: float = 0.0  # of loading a minibatch, if minibatch_seconds do not contain it
    load_overlaps: bool = False  # True where a minibatch is loaded while the one before is trained on
    score_seconds: float = 0.0  # of a minibatch of cross-validation
    epoch_seconds: float = 0.0  # once in an epoch, for any number of workers
    memory_bandwidth: float | None = None  # bytes/s that are read and written by a strategy's own work, such as a filter
    work_bandwidth: dict[str, float] = field(default_factory=dict)  # name of a strategy's own work that was measured -> its bytes/s
    server_seconds: float = 0.0  # in which a parameter server applies an update

    def __post_init__(self) -> None:
        require(0.0 < self.minibatch_seconds < math.inf, "minibatch_seconds", self.minibatch_seconds, "a positive number")
        alone = self.single_minibatch_seconds
        require(alone is None or 0.0 < alone < math.inf, "single_minibatch_seconds", alone, "a positive number")
        for name in ("spread", "load_seconds", "score_seconds", "epoch_seconds", "server_seconds"):
            value = getattr(self, name)
            require(0.0 <= value < math.inf, name, value, "0 or more")
        memory = self.memory_bandwidth
        require(memory is None or 0.0 < memory < math.inf, "memory_bandwidth", memory, "a positive number of bytes a second")
        for what, bandwidth in self.work_bandwidth.items():
            require(0.0 < bandwidth < math.inf, f"work_bandwidth.{what}", bandwidth, "a positive number of bytes a second")

    @property
    def alone(self) -> float:
        """Seconds of a minibatch of a worker that trains alone."""
        return self.minibatch_seconds if self.single_minibatch_seconds is None else self.single_minibatch_seconds


@dataclass(frozen=True)
class Link:
    """One direction of a port: the port of a device, within a node, or that of a node, between nodes."""

    bandwidth: float  # bytes/s
    latency: float = 0.0  # seconds a message

    def __post_init__(self) -> None:
        require(0.0 < self.bandwidth < math.inf, "bandwidth", self.bandwidth, "a positive number of bytes a second")
        require(0.0 <= self.latency < math.inf, "latency", self.latency, "0 or more seconds")


@dataclass(frozen=True)
class Allreduce:
    """Measured all-reduces of a buffer of `bytes` bytes: number of workers -> seconds."""

    bytes: int
    seconds: dict[str, float]

    def __post_init__(self) -> None:
        require(self.bytes >= 1, "bytes", self.bytes, "a positive number")
        for workers, seconds in self.seconds.items():
            require(workers.isdigit() and int(workers) > 1, "a key of seconds", repr(workers), "a number of workers above 1")
            require(0.0 < seconds < math.inf, f"seconds.{workers}", seconds, "a positive number")


@dataclass(frozen=True)
class Pause:
    """Worker `worker` stands still for `seconds`, from second `at` of a simulated run."""

    worker: int
    at: float
    seconds: float

    def __post_init__(self) -> None:
        require(self.worker >= 0, "worker", self.worker, "the number of a worker, from 0")
        require(0.0 <= self.at < math.inf, "at", self.at, "0 or more seconds")
        require(0.0 < self.seconds < math.inf, "seconds", self.seconds, "a positive number")


@dataclass(frozen=True)
class Failure:
    """Worker `worker` dies in second `at` of a simulated run."""

    worker: int
    at: float

    def __post_init__(self) -> None:
        require(self.worker >= 0, "worker", self.worker, "the number of a worker, from 0")
        require(0.0 <= self.at < math.inf, "at", self.at, "0 or more seconds")


@dataclass(frozen=True)
class Join:
    """Worker `worker`, which has died, is replaced in second `at` of a simulated run; only in an elastic job."""

    worker: int
    at: float

    def __post_init__(self) -> None:
        require(self.worker >= 0, "worker", self.worker, "the number of a worker, from 0")
        require(0.0 <= self.at < math.inf, "at", self.at, "0 or more seconds")


@dataclass(frozen=True)
class Cluster:
    """A cluster of `nodes` nodes with `devices` devices each: so many workers do not share a device.

    `within` links the devices of a node, `between` those of different nodes. Without `within`, `between` is used for both. Where an
    `allreduce` was measured, it is used in place of what the links would give. `by_node`: all-reduces go as with --hierarchical-allreduce
    true, within each node first, then between the nodes. `slow`: worker -> factor on the time of its minibatches. `slow`, `pauses`,
    `failures` and `joins` are for simulations; predictions do not use them.
    """

    name: str
    description: str
    nodes: int
    devices: int  # of a node
    workload: Workload
    compute: Compute
    within: Link | None = None
    between: Link | None = None
    allreduce: Allreduce | None = None
    by_node: bool = False
    sources: dict[str, str] = field(default_factory=dict)
    slow: dict[str, float] = field(default_factory=dict)
    pauses: tuple[Pause, ...] = ()
    failures: tuple[Failure, ...] = ()
    joins: tuple[Join, ...] = ()

    def __post_init__(self) -> None:
        for name in ("nodes", "devices"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "a positive number")
        require(self.between is not None or self.nodes == 1, "between", "missing", f"the link between the {self.nodes} nodes")
        for worker, factor in self.slow.items():
            require(worker.isdigit(), "a key of slow", repr(worker), "the number of a worker, from 0")
            require(0.0 < factor < math.inf, f"slow.{worker}", factor, "a positive factor")
        for place in self.sources:
            part: Any = self
            for step in place.split("."):
                part = getattr(part, step, None)
            require(part is not None, f"sources.{place}", "about nothing", "a place in the file that has a value")

    @property
    def workers(self) -> int:
        """The number of workers that do not share a device."""
        return self.nodes * self.devices

    def changes(self) -> list[tuple[str, float, int]]:
        """What becomes of workers in a simulated run: (failure or join, second, worker) each, in the order of the file."""
        return [*(("failure", one.at, one.worker) for one in self.failures), *(("join", one.at, one.worker) for one in self.joins)]

    def numbers(self) -> dict[str, float]:
        """Every number that differs from its default, by its place in the file."""
        found: dict[str, float] = {}
        for part in ("", "workload", "compute", "within", "between", "allreduce"):
            owner = getattr(self, part) if part else self
            for f in dataclasses.fields(owner) if owner is not None else ():
                value = getattr(owner, f.name)
                if isinstance(value, int | float) and not isinstance(value, bool) and value != f.default:
                    found[f"{part}.{f.name}".lstrip(".")] = value
        if self.compute.work_bandwidth:
            found["compute.work_bandwidth"] = len(self.compute.work_bandwidth)
        if self.allreduce is not None:
            found["allreduce.seconds"] = len(self.allreduce.seconds)
        found.update({name: len(getattr(self, name)) for name in ("slow", "pauses", "failures", "joins") if getattr(self, name)})
        return found

    @classmethod
    def read(cls, path: str | Path) -> Cluster:
        """Read a cluster file, or one of `pykaldist/parallel/clusters` by its name. Raises UserError where it is not valid."""
        path = Path(path)
        if not path.is_file() and str(path) in shipped():
            path = SHIPPED / f"{path}.json"
        if not path.is_file():
            raise UserError(f"--cluster {path}: there is no such file, and the clusters known by name are {', '.join(shipped())}.")
        return read_json(path, cls, "correct the cluster file")

    def as_json(self) -> dict[str, Any]:
        """What a cluster file holds."""
        return _without_empty(dataclasses.asdict(self))

    def write(self, path: str | Path) -> None:
        """Write a cluster file."""
        write_text(path, json.dumps(self.as_json(), indent=2) + "\n")


def shipped() -> list[str]:
    """The names of the clusters of published experiments."""
    return sorted(path.stem for path in SHIPPED.glob("*.json"))


def _without_empty(part: dict[str, Any]) -> dict[str, Any]:
    """A dictionary without what is None or empty, and with lists in place of tuples."""
    return {k: _without_empty(v) if isinstance(v, dict) else list(v) if isinstance(v, tuple) else v
            for k, v in part.items() if v is not False and v not in (None, (), {})}
