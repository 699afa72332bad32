"""The contract: the table at the start of every run, which says what depends on the number of workers, and what does not."""

from __future__ import annotations

import dataclasses
from typing import Any

from pykaldist.parallel.launch.job import Job, JobOptions
from pykaldist.parallel.strategies.base.strategy import Strategy
from pykaldist.train.trainer import Trainer


def differing(options: Any) -> str:
    """The options that differ from their defaults, in words."""
    values = {f.name: getattr(options, f.name) for f in dataclasses.fields(options) if getattr(options, f.name) != f.default}
    changed = [f"{name.replace('_', ' ')} {value if isinstance(value, str) else f'{value:g}'}" for name, value in values.items()]
    return ", ".join(changed) or "its options at their defaults"


def scaling(options: JobOptions, strategy: Strategy) -> str:
    """How the learning rate depends on the number of workers, in words."""
    scale = options.lr_scale or strategy.lr_scale
    if strategy.reads_all:
        return "x the workers that train, linear"
    return {"none": "not scaled", "linear": f"x {options.ngpu}, linear", "sqrt": f"x {options.ngpu ** 0.5:.3g}, sqrt"}[scale]


def job_rows(job: Job, options: JobOptions, strategy_options: Any, trainer: Trainer, train_frames: int,
             dev_frames: int) -> list[tuple[str, str]]:
    """The rows about workers, data and exchange."""
    worker, strategy, n = trainer.workers[0], trainer.strategies[0], job.host.size
    size, minibatches = worker.sampler.minibatch_size, worker.sampler.minibatches
    blocks = f", {options.blocks} blocks" * (options.blocks > 1)
    dealt = f", {options.partition_level}s dealt out to {n} workers{blocks}" * (n > 1 or options.blocks > 1)
    turns = f", which compute {'together' if trainer.stack else 'one after the other'}" * (len(trainer.workers) > 1 and not options.cluster)
    rows = [("workers", f"{n} on {job.hosting}{turns}"),
            ("strategy", f"{options.strategy}, {differing(strategy_options)}" + ", deterministic" * options.deterministic),
            ("frames", f"{train_frames:,} train{dealt}, {dev_frames:,} cross-validation"),
            ("global minibatch", f"{n * size} frames" + f", {n} x {size}" * (n > 1)
             + f"; {minibatches:,} updates{' of a worker' * (n > 1)} an epoch")]
    return rows + strategy.contract(n, size)


def table(rows: list[tuple[str, str]]) -> str:
    """Names and texts as aligned lines."""
    return "\n".join(f"  {name:17s} {value}" for name, value in rows)
