"""Simulated epochs of thousands of workers: events, CPU time of an event, memory, by strategy and number of workers.

    tests/bench/run.sh simulator [--strategies "asgd,adpsgd --pattern random-ring"] [--ngpus 64,512,4096] [--minibatches 60]
        [--link BYTES/S,SECONDS] [--failures-every SECONDS] [--by-node]

An epoch without data or arithmetic (`parallel/planning/dry_run.py`) on nodes like those of v100-ethernet, as many as the workers need.
Minibatches' times vary. --link is between nodes; with --by-node sums go within each node first, then between the nodes. With
--failures-every a worker dies after each so many simulated seconds, in strategies that go on without; workers in step are elastic jobs
then. Each row is a process of its own, on one thread.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import resource
import subprocess
import sys
import time

import torch

from pykaldist.cli.simulate import parse_strategy
from pykaldist.parallel.clusters.cluster import Cluster, Failure, Link
from pykaldist.parallel.planning.dry_run import simulated_epoch
from pykaldist.parallel.strategies.base.registry import make_strategy

STRATEGIES = ("asgd", "adpsgd", "adpsgd --pattern random-ring", "adpsgd --pattern pairwise", "hadpsgd", "easgd",
              "bmuf --average-period 10", "diloco --average-period 10")
SPREAD = 0.1  # of a minibatch's seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategies", default=",".join(STRATEGIES))
    parser.add_argument("--ngpus", default="64,512,4096")
    parser.add_argument("--minibatches", type=int, default=60, help="of a worker in the epoch")
    parser.add_argument("--link", default="", help="bandwidth in bytes/s and latency in seconds, between nodes; those of v100-ethernet")
    parser.add_argument("--failures-every", type=float, default=0.0, help="simulated seconds from one failure to the next; 0: none")
    parser.add_argument("--by-node", action="store_true", help="sums in two levels")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        name, ngpu = json.loads(args.one)
        print(json.dumps(measured(name, ngpu, args)))
        return
    print("| strategy | workers | events | simulated s | died | CPU s | us an event | MB |\n" + "| --- " * 8 + "|")
    for name in args.strategies.split(","):
        for ngpu in map(int, args.ngpus.split(",")):
            command = [sys.executable, __file__, *sys.argv[1:], "--one", json.dumps([name, ngpu])]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"})
            row = json.loads(done.stdout)
            print(f"| {name} | {ngpu:,} | {row['events']:,} | {row['simulated']:.1f} | {row['died']} | {row['cpu']:.1f} | "
                  f"{1e6 * row['cpu'] / row['events']:.0f} | {row['memory']:,.0f} |", flush=True)


def measured(name: str, ngpu: int, args: argparse.Namespace) -> dict[str, float]:
    torch.set_num_threads(1)
    strategy, options = parse_strategy(name)
    cluster = Cluster.read("v100-ethernet")
    between = Link(*map(float, args.link.split(","))) if args.link else cluster.between
    compute = dataclasses.replace(cluster.compute, spread=SPREAD)
    cluster = dataclasses.replace(cluster, nodes=max(1, ngpu // cluster.devices), between=between, compute=compute, sources={},
                                  by_node=args.by_node)
    one = make_strategy(strategy, options)
    if args.failures_every and (one.fault_tolerant if one.independent else not one.inelastic()):
        deaths = [Failure(2 * k, k * args.failures_every) for k in range(1, ngpu // 2)]  # not rank 0, which may have a parameter server
        cluster = dataclasses.replace(cluster, failures=tuple(deaths))
    before = time.process_time()
    host = simulated_epoch(strategy, options, cluster.workload, cluster, ngpu, args.minibatches)
    cpu = time.process_time() - before
    return {"events": host.num_events, "simulated": host.elapsed(), "died": ngpu - len(host.living), "cpu": cpu,
            "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


if __name__ == "__main__":
    main()
