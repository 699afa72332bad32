"""Reports of plans as text: the measured or given times they rest on, the predictions, the recommendation.

Each time says where it is from.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from pykaldist.parallel.clusters.costs import allreduce_seconds, scaled
from pykaldist.parallel.planning.plan import Prediction, recommend
from pykaldist.train.plan import Plan

HEADS = ("ngpu", "strategy", "period", "epoch", "speed-up", "per worker", "compute", "exchange", "wait", "load", "other")


def duration(seconds: float) -> str:
    """A time as text, with three or four digits in a fitting unit."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.1f} us"
    if seconds < 1.0:
        return f"{seconds * 1e3:.1f} ms"
    if seconds < 600.0:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 86400 else f"{seconds / 3600:.1f} h"


def rests_on(plan: Plan) -> list[tuple[str, str, str]]:
    """The times that enter a prediction: (what, how long, where it is from) of each."""
    cluster, work = plan.cluster, plan.workload
    compute = scaled(cluster, work)
    rows = []

    def add(what: str, place: str, value: float | None) -> None:
        if value:
            rows.append((what, duration(value), plan.origin[place]))

    add("minibatch, a worker alone", "compute.single_minibatch_seconds", compute.single_minibatch_seconds)
    several = "minibatch, among others" if compute.single_minibatch_seconds else "minibatch"
    add(several, "compute.minibatch_seconds", compute.minibatch_seconds)
    add("loading it", "compute.load_seconds", compute.load_seconds)
    add("minibatch of cross-validation", "compute.score_seconds", compute.score_seconds)
    add("once an epoch", "compute.epoch_seconds", compute.epoch_seconds)
    if compute.memory_bandwidth:
        rows.append(("memory", f"{compute.memory_bandwidth / 1e9:.3g} GB/s", plan.origin["compute.memory_bandwidth"]))
    for what, bandwidth in compute.work_bandwidth.items():
        rows.append((f"{what}, of its passes", f"{bandwidth / 1e9:.3g} GB/s", plan.origin["compute.work_bandwidth"]))
    if compute.spread:
        rows.append(("spread of a minibatch's time", f"{100 * compute.spread:.1f} %", plan.origin["compute.spread"]))
    for name, place, link in (("within a node", "within", cluster.within), ("between nodes", "between", cluster.between)):
        if link is not None:
            latency = f" + {duration(link.latency)} a message" if link.latency else ""
            rows.append((f"link {name}", f"{link.bandwidth / 1e9:.3g} GB/s{latency}", plan.origin[f"{place}.bandwidth"]))
    for ngpu in sorted({min(p.ngpu, cluster.workers) for p in plan.predictions} - {1}):
        in_table = cluster.allreduce is not None and str(ngpu) in cluster.allreduce.seconds
        origin = plan.origin["allreduce.seconds"] if in_table else "ring over these links"
        rows.append((f"all-reduce of a model, {ngpu} devices", duration(allreduce_seconds(cluster, ngpu, work.bytes)), origin))
    return rows


def _row(p: Prediction) -> list[str]:
    def share(seconds: float) -> str:
        return f"{100 * seconds / p.total:.1f} %"

    return [str(p.ngpu), "one worker" if p.ngpu == 1 else p.strategy, "" if p.period is None else str(p.period),
            duration(p.total) + " +" * bool(p.uncounted), f"{p.speed_up:.2f}", f"{p.efficiency:.2f}", share(p.compute), share(p.exchange),
            share(p.wait), share(p.load), share(p.score + p.fixed)]


def _table(heads: tuple[str, ...], rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    return ["  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)) for row in (heads, *rows)]


def as_dict(plan: Plan) -> dict[str, Any]:
    """A plan for JSON: seconds of an epoch by their parts, what they rest on, and the recommendation."""
    best, reasons = recommend(plan.predictions, plan.workload)
    predictions = [{**dataclasses.asdict(p), "total": p.total, "speed_up": p.speed_up, "efficiency": p.efficiency}
                   for p in plan.predictions]
    return {"cluster": plan.cluster.as_json(), "workload": plan.workload, "rests_on": rests_on(plan), "predictions": predictions,
            "recommended": None if best is None else {"ngpu": best.ngpu, "strategy": best.strategy, "average_period": best.period},
            "reasons": list(reasons), "notes": list(plan.notes), "advice": list(plan.advice)}


def render(plan: Plan) -> str:
    """Write the plan as text."""
    cluster, work = plan.cluster, plan.workload
    lines = [f"cluster   {cluster.name}: nodes {cluster.nodes}, devices a node {cluster.devices} ({cluster.description})",
             f"network   {work.network}, {work.parameters:,} parameters, {work.bytes / 1e6:.1f} MB an exchange",
             f"epoch     {work.frames:,} frames ({work.frames / 360_000:.4g} h), {work.cv_frames:,} of cross-validation, minibatch "
             f"{work.minibatch_size:,}, largest shard {work.largest_shard:g} of the mean", "", "It rests on"]
    rows = rests_on(plan)
    widths = [max(len(row[i]) for row in rows) for i in range(2)]
    lines += [f"  {what:{widths[0]}s}  {value:>{widths[1]}s}  {origin}" for what, value, origin in rows]
    lines += ["", "Predicted, an epoch and the shares of its time"]
    lines += _table(HEADS, [_row(p) for p in plan.predictions])
    notes = list(plan.notes)
    shared = [p.ngpu for p in plan.predictions if p.ngpu > cluster.workers]
    if shared:
        devices = f"one of the {cluster.workers} devices" if cluster.workers > 1 else "the one device"
        notes.append(f"from {min(shared)} workers on, several share {devices} and take turns.")
    for p in {p.strategy: p for p in plan.predictions if p.uncounted}.values():
        notes.append(f"{p.strategy} (+): {p.uncounted} is not counted, for want of a memory bandwidth; it will take longer.")
    lines += ["", *(f"Note: {note}" for note in notes)] if notes else []
    best, reasons = recommend(plan.predictions, work)
    if best is None:
        lines += ["", f"No recommendation: {reasons[0]}."]
    else:
        period = f" --average-period {best.period}" if best.period else ""
        strategy = "" if best.ngpu == 1 else f" --strategy {best.strategy}{period}"
        lines += ["", f"Recommended: --ngpu {best.ngpu}{strategy}: an epoch in {duration(best.total)} (predicted), speed-up "
                  f"{best.speed_up:.1f}, {100 * best.exchange_share:.0f} % of it exchange."]
        lines += [f"  - {reason}." for reason in reasons]
    lines += [f"  - {advice}." for advice in plan.advice]
    return "\n".join(lines)
