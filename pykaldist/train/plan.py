"""A plan: what the planner's options ask for, predicted for a cluster from a file, or for machines like this one, which is measured.

The file or the machine gives a `Cluster`, the options a `Workload`. `parallel/planning/plan.py` predicts from these two.
"""

from __future__ import annotations

import dataclasses
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pykaldist.devices import choose_device, parse_device
from pykaldist.errors import UserError
from pykaldist.frames.store import FrameStore
from pykaldist.nnet.dnn import DnnOptions, make_dnn
from pykaldist.nnet.objectives import OBJECTIVES
from pykaldist.optim.registry import FRAME_OPTIMIZERS
from pykaldist.options import option
from pykaldist.parallel.clusters.cluster import Cluster, Compute, Link, Workload
from pykaldist.parallel.planning.plan import Prediction, has_period, plan
from pykaldist.parallel.strategies.base.registry import strategies
from pykaldist.train.folder import open_stores
from pykaldist.train.measure import Job, Measured, measure

FRAMES_AN_HOUR = 360_000
DEFAULT_HOURS = 300.0
DEFAULT_PERIODS = "5,10,20"
BUSY = 0.5  # load of other programs, in processes that compute, above which a measurement is too slow
ONLY_MEASURED = ("optimizer", "device", "num_threads", "nodes", "bandwidth", "latency", "write_cluster")
NETWORK = {"hid_layers": 4, "hid_dim": 512, "splice": 5, "feat_dim": 40, "num_pdfs": 3000}  # where neither options nor files say otherwise


@dataclass
class PlanOptions:
    """What to plan for."""

    ngpu: str = option("2,4,8,16,32,64", "numbers of workers, with commas")
    strategy: str = option(",".join(strategies()), "strategies, with commas, with their options at their defaults")
    average_period: str = option(DEFAULT_PERIODS, "minibatches between exchanges, of the strategies that have a period, with commas")
    objective: str = option("xent", "what is trained; where it takes whole utterances, a minibatch is one of the store's mean length",
                            tuple(OBJECTIVES))
    store: str = option("", "folder with the frame stores train and dev: frames, dimensions, and data to time loading on")
    hours: float | None = option(None, "hours of training data in place of a store (the cluster file's; else 300)")
    minibatch_size: int | None = option(None, "frames in a minibatch of a worker (the cluster file's; else 256)")
    largest_shard: float | None = option(None, "frames of the worker that has most, over the mean (the cluster file's; else 1: even)")
    hid_layers: int | None = option(None, "hidden layers (the cluster file's network; else 4)")
    hid_dim: int | None = option(None, "units in a hidden layer (the cluster file's network; else 512)")
    splice: int | None = option(None, "frames of context on each side (the cluster file's network; else 5)")
    feat_dim: int | None = option(None, "dimension of the features (the store's, or the cluster file's network; else 40)")
    num_pdfs: int | None = option(None, "outputs of the network (the store's, or the cluster file's network; else 3000)")
    cluster: str = option("", "cluster file, or the name of one that is known, in place of measuring this machine")
    optimizer: str | None = option(None, "what a worker does with a minibatch, for measuring (sgd)", tuple(FRAME_OPTIMIZERS))
    device: str | None = option(None, "devices to measure: cpu, cuda, or auto: cuda where there is one (auto)")
    num_threads: int | None = option(None, "CPU threads of a worker, for measuring (1)")
    nodes: int | None = option(None, "machines like this one (1)")
    bandwidth: float | None = option(None, "GB/s between machines (as measured between two processes here)")
    latency: float | None = option(None, "microseconds of a message between machines (as measured here)")
    write_cluster: str = option("", "file to write what was measured to, as a cluster file")

    def __post_init__(self) -> None:
        for name in ("minibatch_size", "hid_dim", "feat_dim", "num_pdfs", "num_threads", "nodes", "hours", "bandwidth"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise UserError(f"--{name.replace('_', '-')} {value:g}: expected a positive number.")
        for name, least in (("hid_layers", 0), ("splice", 0), ("latency", 0), ("largest_shard", 1)):
            value = getattr(self, name)
            if value is not None and not least <= value < float("inf"):
                raise UserError(f"--{name.replace('_', '-')} {value:g}: expected {least} or more.")
        if self.store and (self.hours is not None or self.feat_dim is not None or self.num_pdfs is not None):
            raise UserError(f"--store {self.store} says how many hours, dimensions and pdfs there are; leave out --hours, --feat-dim and "
                            "--num-pdfs.")
        if self.cluster:
            for name in ONLY_MEASURED:
                if getattr(self, name) not in (None, ""):
                    raise UserError(f"--{name.replace('_', '-')} is for measuring this machine and is not used with --cluster; leave it "
                                    "out, or change the cluster file.")
        if self.latency is not None and self.bandwidth is None:
            raise UserError(f"--latency {self.latency:g} needs --bandwidth.")

    def ngpus(self) -> list[int]:
        """The numbers of workers."""
        return _integers("ngpu", self.ngpu)

    def periods(self) -> list[int]:
        """The averaging periods in minibatches."""
        return _integers("average-period", self.average_period)

    def strategies(self) -> list[str]:
        """The names of the strategies."""
        names = self.strategy.split(",")
        for name in names:
            if name not in strategies():
                raise UserError(f"--strategy {self.strategy}: there is no strategy {name!r}; choose among {', '.join(strategies())}.")
        return names


def _integers(name: str, text: str) -> list[int]:
    """Parse positive whole numbers with commas between them."""
    fields = text.split(",")
    if not all(field.isdecimal() and int(field) > 0 for field in fields):
        raise UserError(f"--{name} {text}: expected positive whole numbers with commas between them, such as 2,4,8.")
    return sorted({int(field) for field in fields})


@dataclass
class Plan:
    """A plan. `origin` says where each of the cluster's numbers is from, by its place in the cluster file: "measured", or something else.
    """

    cluster: Cluster
    workload: Workload
    predictions: list[Prediction]
    origin: dict[str, str]
    notes: list[str]
    advice: Sequence[str] = ()  # the objective's


def make_plan(options: PlanOptions) -> Plan:
    """Read or measure a cluster, and predict. Raises UserError for options that do not fit together."""
    ngpus, chosen = options.ngpus(), options.strategies()
    periods = options.periods()
    if options.average_period != DEFAULT_PERIODS and not any(has_period(name) for name in chosen):
        with_period = [name for name in strategies() if has_period(name)]
        raise UserError(f"--average-period belongs to --strategy {' and '.join(with_period)} and is not used by {options.strategy}; leave "
                        "it out.")
    stores = open_stores(Path(options.store)) if options.store else None
    if options.cluster:
        cluster = Cluster.read(options.cluster)
        workload = _workload(options, cluster.workload, stores)
        origin, notes = _from_file(options, cluster, workload)
    else:
        cluster, origin, notes = _measured(options, stores, max(ngpus) > 1)
        workload = cluster.workload
        if options.write_cluster:
            cluster.write(options.write_cluster)
    predictions, missing = plan(workload, cluster, ngpus, chosen, periods)
    return Plan(cluster, workload, predictions, origin, notes + missing, OBJECTIVES[options.objective].advice)


def _data(options: PlanOptions, base: Workload | None, stores: tuple[FrameStore, FrameStore] | None) -> dict[str, Any]:
    """The workload's numbers of frames, and its minibatch."""
    frames, cv_frames = (base.frames, base.cv_frames) if base else (round(DEFAULT_HOURS * FRAMES_AN_HOUR), 0)
    if stores:
        frames, cv_frames = len(stores[0]), len(stores[1])
    elif options.hours is not None:
        frames, cv_frames = round(options.hours * FRAMES_AN_HOUR), 0
    largest = options.largest_shard or (base.largest_shard if base else 1.0)
    size = options.minibatch_size or (base.minibatch_size if base else 256)
    if stores and not options.minibatch_size and OBJECTIVES[options.objective].whole_utterances:
        size = round(frames / stores[0].manifest.num_utts)
    return {"minibatch_size": size, "frames": max(1, frames),
            "cv_frames": cv_frames, "largest_shard": largest}


def _shape(options: PlanOptions, stores: tuple[FrameStore, FrameStore] | None) -> dict[str, int]:
    """The shape of the network that is asked for."""
    given = {name: getattr(options, name) for name in NETWORK}
    if stores:
        given |= {"feat_dim": stores[0].manifest.dim, "num_pdfs": stores[0].manifest.num_pdfs}
    return {name: NETWORK[name] if value is None else value for name, value in given.items()}


def _name(shape: dict[str, int]) -> str:
    """The name of a network of this shape."""
    inputs = (2 * shape["splice"] + 1) * shape["feat_dim"]
    return f"{inputs}-{shape['hid_dim']}x{shape['hid_layers']}-{shape['num_pdfs']}"


def _workload(options: PlanOptions, base: Workload, stores: tuple[FrameStore, FrameStore] | None) -> Workload:
    """The cluster file's workload, changed as the options say."""
    network: dict[str, Any] = {}
    if stores or any(getattr(options, name) is not None for name in NETWORK):
        shape = _shape(options, stores)
        dnn = DnnOptions(hid_layers=shape["hid_layers"], hid_dim=shape["hid_dim"])
        model = make_dnn(dnn, (2 * shape["splice"] + 1) * shape["feat_dim"], shape["num_pdfs"], "meta")
        network = {"network": _name(shape), "parameters": len(model.params)}
    return dataclasses.replace(base, **{**_data(options, base, stores), **network})


def _from_file(options: PlanOptions, cluster: Cluster, workload: Workload) -> tuple[dict[str, str], list[str]]:
    """Where the numbers of a cluster file are from, and notes."""
    notes = []
    label = "from the file"
    own = cluster.workload
    if (workload.parameters, workload.minibatch_size) != (own.parameters, own.minibatch_size):
        label = "from the file, scaled"
        notes.append(f"the file's times are of {own.network} and minibatches of {own.minibatch_size:,}; they are scaled in proportion to "
                     "parameters and minibatch.")
    return {place: label for place in cluster.numbers()}, notes


def _measured(options: PlanOptions, stores: tuple[FrameStore, FrameStore] | None,
              exchange: bool) -> tuple[Cluster, dict[str, str], list[str]]:
    """(the measured cluster, where each number is from, notes)."""
    shape, data = _shape(options, stores), _data(options, None, stores)
    chosen, named = choose_device(options.device or "auto"), parse_device(options.device or "auto")[1]
    device = chosen if named is not None else chosen.partition(":")[0]
    job = Job(**shape, minibatch_size=int(data["minibatch_size"]), optimizer=options.optimizer or "sgd", device=device,
              num_threads=options.num_threads or 1, store=str(stores[0].path) if stores else "",
              strategies=tuple(options.strategies()) if exchange else ())
    busy = os.getloadavg()[0]
    found = measure(job, exchange)
    workload = dataclasses.replace(Workload(_name(shape), found.parameters, 1, 1), **data)
    cluster, notes = as_cluster(found, job, workload, options)
    if busy > BUSY:
        notes.append(f"other programs were running (load {busy:.1f}): the times measured are longer than those of an idle machine.")
    origin = {place: "measured" for place in cluster.numbers()}
    if options.bandwidth is not None:
        origin |= {f"{part}.{name}": "given" for part in ("within", "between") for name in ("bandwidth", "latency")
                   if part == "between" or found.exchange is None}
    elif cluster.between is not None:
        origin |= {f"between.{name}": "measured within this machine" for name in ("bandwidth", "latency")}
    return cluster, origin, notes


def as_cluster(found: Measured, job: Job, workload: Workload, options: PlanOptions) -> tuple[Cluster, list[str]]:
    """(a cluster of machines like this one, notes about it)."""
    nodes = options.nodes or 1
    notes = [f"exchange was not measured: {found.no_exchange}."] if found.no_exchange else []
    given = None if options.bandwidth is None else Link(options.bandwidth * 1e9, (options.latency or 0.0) / 1e6)
    within = Link(found.exchange.bandwidth, found.exchange.latency) if found.exchange else given
    between = (given or within) if nodes > 1 else None
    if nodes > 1 and between is None:
        raise UserError(f"--nodes {nodes}: nothing is known of the link between machines; give --bandwidth (GB/s).")
    if nodes == 1 and given is not None and found.exchange is not None:
        raise UserError("--bandwidth is that between machines, and there is one; give --nodes, or leave it out.")
    steps = found.exchange.steps if found.exchange else found.alone
    compute = Compute(minibatch_seconds=steps.compute, single_minibatch_seconds=found.alone.compute, spread=steps.spread,
                      load_seconds=steps.load, score_seconds=found.score_seconds, memory_bandwidth=found.memory_bandwidth,
                      work_bandwidth=found.work_bandwidth)
    how = f"measured by pykaldist plan on {platform.node()}, {job.device}, {job.optimizer}, {job.num_threads} threads a worker"
    beside = " of two processes at the same time" if found.exchange else ""
    sources = {"compute.minibatch_seconds": how + beside, "compute.single_minibatch_seconds": how + ", one process",
               "compute.spread": how + beside, "compute.load_seconds": how + beside, "compute.score_seconds": how,
               "compute.memory_bandwidth": how}
    if found.work_bandwidth:
        sources["compute.work_bandwidth"] = how + ", two workers in one process"
    over = found.exchange.fabric if found.exchange else ""
    for part, link in (("within", within), ("between", between)):
        if link is not None:
            sources[part] = "given by option" if link is given else f"{how}, all-reduce of two processes of one machine over {over}"
    return Cluster(name="this machine", description=f"{nodes} x {platform.node()}", nodes=nodes, devices=found.devices, workload=workload,
                   compute=compute, within=within if found.devices > 1 else None, between=between,
                   sources={place: text for place, text in sources.items() if place != "within" or found.devices > 1}), notes
