"""The network of a simulated cluster: how long messages and exchanges take.

    averages    an all-reduce between the devices (`costs.allreduce_seconds`), which begins when the last worker has come. Gathering and
                scattering take half of one. A few numbers cost nothing but the waiting.
    messages    latency + bytes / bandwidth, where nothing else is under way. A device has a port to the other devices of its node; a node
                has a port to the other nodes. A port carries one message at a time in each direction, in the order in which they come.
                The sender's port is busy for bytes / bandwidth. So is the receiver's, from a latency later on, or from when it is free.
                A message without values takes the latency only. Where all workers exchange at once, the fullest port sets the time.
An all-reduce has the links for itself: it does not slow down the messages of other groups, nor they the all-reduce.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from pykaldist.parallel.clusters.cluster import Cluster, Link
from pykaldist.parallel.clusters.costs import allreduce_seconds, sharing
from pykaldist.parallel.fabric.interface import Average, Exchange, Gather, Mean, Request, Scatter, Sum, num_bytes


class Network:
    """The network between `size` workers on `devices` devices, each shared by `sharing` workers.

    It records what is under way through the ports.
    """

    def __init__(self, cluster: Cluster, size: int) -> None:
        self.cluster = cluster
        self.sharing = sharing(cluster, size)
        self.devices = min(size, cluster.workers)
        self.reset()

    def reset(self) -> None:
        """Forget all messages, at the beginning of an epoch."""
        self._out: dict[int, float] = {}  # port -> time when it will have sent all messages so far
        self._into: dict[int, float] = {}  # port -> time when it will have received all messages so far

    def allreduce_seconds(self, size: int, workers: int | None = None) -> float:
        """Seconds of an all-reduce of `size` bytes, between all workers, or between `workers` workers with consecutive ranks."""
        return allreduce_seconds(self.cluster, self.devices if workers is None else -(-workers // self.sharing), size)

    def seconds(self, requests: list[Any]) -> float:
        """Seconds of an exchange that all workers make."""
        first: Request = requests[0]
        if isinstance(first, Average | Mean) and not any(request.weight for request in requests):
            return 0.0
        if isinstance(first, Average | Mean | Sum):
            return self.allreduce_seconds(num_bytes(first.buffer))
        if isinstance(first, Gather):
            return self.allreduce_seconds(sum(num_bytes(r.buffer) for r in requests)) / 2
        if isinstance(first, Scatter):
            return self.allreduce_seconds(max(sum(map(num_bytes, r.parts)) for r in requests)) / 2
        return self._exchange_seconds(requests) if isinstance(first, Exchange) else 0.0

    def _exchange_seconds(self, requests: list[Exchange]) -> float:
        """Seconds of an exchange in which each worker sends a message to another one, all at once."""
        out: defaultdict[int, float] = defaultdict(float)
        into: defaultdict[int, float] = defaultdict(float)
        latency = 0.0
        for rank, request in enumerate(requests):
            link, sender, receiver = self.way(rank, request.to)
            if link is not None:
                latency = max(latency, link.latency)
                out[sender] += num_bytes(request.buffer) / link.bandwidth
                into[receiver] += num_bytes(request.buffer) / link.bandwidth
        return latency + max([*out.values(), *into.values()], default=0.0)

    def way(self, sender: int, receiver: int) -> tuple[Link | None, int, int]:
        """(the link between two workers, None where the cluster has none within their node; the ports at its ends).

        Ports of devices have the devices' numbers; those of nodes follow.
        """
        cluster, ends = self.cluster, (sender // self.sharing, receiver // self.sharing)
        one, other = (end // cluster.devices for end in ends)
        if one == other:
            return cluster.within or cluster.between, *ends
        return cluster.between, cluster.workers + one, cluster.workers + other

    def depart(self, time: float, sender: int, receiver: int, size: int) -> tuple[float, int, float]:
        """Send a message of `size` bytes.

        Returns (time when its first byte is at the receiver's port; this port; seconds that it takes there).

        A message without values, or on a way that takes no known time, has arrived completely at that time.
        """
        link, out, into = self.way(sender, receiver)
        if link is None or size == 0:
            return time + (link.latency if link else 0.0), into, 0.0
        begin, seconds = max(time, self._out.get(out, 0.0)), size / link.bandwidth
        self._out[out] = begin + seconds
        return begin + link.latency, into, seconds

    def arrive(self, time: float, port: int, seconds: float) -> float:
        """The first byte of a message is at a port. Returns the time when all of it has arrived."""
        self._into[port] = max(time, self._into.get(port, 0.0)) + seconds
        return self._into[port]

    def state_dict(self) -> dict[str, Any]:
        return {"out": self._out, "into": self._into}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._out, self._into = state["out"], state["into"]
