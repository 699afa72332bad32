"""Simulated speed-ups on the clusters of published experiments, beside the published ones."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from pykaldist.parallel.cluster import Cluster, Link
from pykaldist.parallel.simulation import Simulation
from pykaldist.parallel.strategy import make_strategy, strategy_options

PARAMETERS, STEPS = 64, 60


def shrunk(cluster, frames):
    """The cluster with a model of a few values and links as much slower, an epoch of `frames` frames."""
    work, share = cluster.workload, PARAMETERS / cluster.workload.parameters
    within, between = (link and Link(link.bandwidth * share, link.latency) for link in (cluster.within, cluster.between))
    allreduce = cluster.allreduce and dataclasses.replace(cluster.allreduce, bytes=4 * PARAMETERS)
    fixed = cluster.compute.epoch_seconds * frames / work.frames * work.minibatch_size / 8  # an epoch is shorter, and so is it
    work = dataclasses.replace(work, parameters=PARAMETERS, minibatch_size=8, frames=frames)
    compute = dataclasses.replace(cluster.compute, epoch_seconds=fixed)
    return dataclasses.replace(cluster, workload=work, compute=compute, within=within, between=between, allreduce=allreduce, sources={})


def seconds(descender, name, ngpu, strategy, **options):
    """Of an epoch, a minibatch of it a worker and step."""
    host = Simulation(ngpu, shrunk(Cluster.read(name), 8 * STEPS * ngpu))
    host.workers = [descender(lambda worker: torch.zeros(PARAMETERS), STEPS, torch.zeros(PARAMETERS)) for _ in range(ngpu)]
    strategies = [make_strategy(strategy, strategy_options(strategy)(**options)) for _ in host.workers]
    host.begin_epoch()
    host.run([s.epoch(w, fabric) for s, w, fabric in zip(strategies, host.workers, host.fabrics, strict=True)])
    return host.elapsed() / ngpu


@pytest.mark.parametrize(("name", "ngpu", "strategy", "options", "published", "least", "most"), [
    ("k20-infiniband", 16, "ma", {"average_period": 10}, 9.3, 0.97, 1.03),
    ("k20-infiniband", 32, "ma", {"average_period": 10}, 17.0, 0.97, 1.03),
    ("speech3", 2, "asgd", {}, 19.483 / 11.967, 0.95, 1.15),
    ("speech3", 3, "asgd", {}, 19.483 / 7.967, 0.95, 1.15),
    # Published is the time to an accuracy, which staleness costs too; an epoch's time is what is simulated.
    ("speech3", 4, "asgd", {}, 19.483 / 6.533, 1.15, 1.35),
    ("speech3", 5, "asgd", {}, 19.483 / 5.717, 1.15, 1.35),
    # The links within a node, and what a message has of the wire, are not published, nor is what the GPUs waited for their data.
    ("v100-ethernet", 64, "hadpsgd", {}, 40.0, 1.15, 1.4),
])
def test_speed_up(descender, name, ngpu, strategy, options, published, least, most):
    found = seconds(descender, name, 1, "local") / seconds(descender, name, ngpu, strategy, **options)
    assert least < found / published < most
