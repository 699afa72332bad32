"""The costs of the parts of an epoch on a cluster, for any strategy: steps, all-reduces, waiting for the slowest, cross-validation.

Where minibatch and parameters differ from those of the cluster's times, all times are scaled in proportion. This is right for large
networks, whose time is that of matrix products, and for exchanges that are limited by bandwidth. `planning/plan.py` explains how an epoch
is made of these parts.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import numpy as np

from pykaldist.errors import UserError
from pykaldist.parallel.clusters.cluster import Cluster, Compute, Link, Workload


def allreduce_seconds(cluster: Cluster, workers: int, size: float) -> float:
    """Seconds of an all-reduce of `size` bytes between `workers` workers, each with a device of its own.

    It is one ring of all, or, `by_node`, a ring within each node, one between a device of each, and a broadcast back within the nodes.
    """
    if workers == 1:
        return 0.0
    table = cluster.allreduce
    if table is not None and str(workers) in table.seconds:
        return table.seconds[str(workers)] * size / table.bytes
    nodes = min(-(-workers // cluster.devices), cluster.nodes)
    links = {cluster.between} if nodes > 1 else set()
    if nodes < workers:  # some node has several workers
        links.add(cluster.within or cluster.between)
    if None in links:
        raise UserError(f"cluster {cluster.name} has {cluster.devices} devices a node and no link within it; give its bandwidth (within).")
    within = cluster.within or cluster.between
    if cluster.by_node and cluster.between and within and 1 < nodes < workers:
        of_node = min(cluster.devices, workers)
        back = math.ceil(math.log2(of_node)) * (within.latency + size / within.bandwidth)
        return _ring_seconds({within}, of_node, size) + _ring_seconds({cluster.between}, nodes, size) + back
    return _ring_seconds(links, workers, size)


def _ring_seconds(links: set[Link | None], workers: int, size: float) -> float:
    """Seconds of an all-reduce in a ring whose every step takes as long as its slowest link."""
    return 2 * (workers - 1) * max(link.latency + size / (workers * link.bandwidth) for link in links if link)


@functools.lru_cache(256)
def expected_maximum(workers: int) -> float:
    """The expected maximum of `workers` independent standard normal variables: the integral of 1 - Phi^N - (1 - Phi)^N over x > 0."""
    if workers == 1:
        return 0.0
    x = np.linspace(0.0, 10.0, 20001)
    above = np.array([math.erfc(value / math.sqrt(2.0)) / 2.0 for value in x.tolist()])  # 1 - Phi(x); scipy.stats takes a second to load
    return float(np.trapezoid(1.0 - (1.0 - above) ** workers - above**workers, x))


def scaled(cluster: Cluster, workload: Workload) -> Compute:
    """The cluster's seconds for a workload: in proportion to minibatch and parameters."""
    own, base = cluster.compute, cluster.workload
    size, parameters = workload.minibatch_size / base.minibatch_size, workload.parameters / base.parameters
    step = size * parameters
    factors = {"minibatch_seconds": step, "single_minibatch_seconds": step, "load_seconds": size, "score_seconds": step,
               "server_seconds": parameters}
    values: dict[str, Any] = {name: getattr(own, name) for name in factors}
    changed: dict[str, Any] = {n: None if v is None else v * factors[n] for n, v in values.items()}
    return dataclasses.replace(own, **changed)


def score_seconds(workload: Workload, seconds: Compute, cluster: Cluster, workers: int) -> float:
    """Seconds of an epoch's cross-validation, which is shared out like training; `seconds` are those of `scaled`."""
    return sharing(cluster, workers) * seconds.score_seconds * math.ceil(workload.cv_frames / workers) / workload.minibatch_size


def sharing(cluster: Cluster, workers: int) -> int:
    """The number of workers that share a device."""
    return -(-workers // cluster.workers)


def work_seconds(compute: Compute, what: str, moved: float) -> float | None:
    """Seconds of a strategy's own work, `what`, that reads and writes so many bytes; None where its bandwidth is not known."""
    bandwidth = compute.work_bandwidth.get(what, compute.memory_bandwidth)
    return None if bandwidth is None else moved / bandwidth
