"""What an epoch costs on a cluster with N workers, strategy by strategy.

Let F be the frames of an epoch, m the minibatch, t a minibatch's seconds, B the bytes of a model, D the devices of the cluster.

Compute. The worker with the largest shard has f = l F / N frames (l its size over the mean, 1 for even shards), f / m minibatches, an
incomplete one costing its share. Workers beyond D share devices, s = ceil(N / D) to one, and take turns:
    compute = s t f / m.
A worker alone may have another t than one among others (they contend for memory, disk, bus).

Loading costs s d f / m, or, where it overlaps with computing, what it takes longer than that. Cross-validation is shared out like
training; the once-an-epoch seconds of a cluster are not.

Exchanges. With period p there are R = ceil(f / (m p)) in an epoch; p = 1 for `ssgd` and `onebit`, and R = 1 for `local`, which averages
at its end. A ring all-reduce of b bytes between n = min(N, D) workers is n - 1 steps of summing and n - 1 of handing round, in each of
which every worker passes b / n bytes to the next (Patarasuk & Yuan, 2009); the slowest link sets the pace:
    T(b) = 2 (n - 1) max over links (latency + b / (n bandwidth)).
Workers are placed node by node: one node's ring has links within it only; the ring of several nodes has links between them, and within
them where they have more than one device. Where the cluster has measured all-reduces of n workers, T(b) is the measured one times b over
its bytes. b is B, and B / 32 for `onebit` (one bit in place of a float32; its two reconstruction values a column are left out), whose sum
is quantised again half-way, so that it moves through the same ring.
    exchange = R T(b) + R (seconds of BMUF's filter, or of quantising).

Waiting. If a minibatch's seconds are spread by v t (standard deviation), independently, the q = s f / (m R) that a device computes
between exchanges take q t +- sqrt(q) v t, nearly normal, and the slowest of n devices is expected e(n) standard deviations above the
mean, e(n) the expected maximum of n standard normal variables:
    wait = R e(n) v t sqrt(q).

Everything is proportional to minibatch and parameters where these are not those that the cluster's times are of: fair for the large
networks whose time is matrix products, and for exchanges that bandwidth bounds.

What is not in it: exchange while computing, and the accuracy that a strategy reaches, for which see `recommend`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from pykaldist.errors import UserError
from pykaldist.parallel.cluster import Cluster, Compute, Workload

STRATEGIES = ("ssgd", "onebit", "ma", "bmuf", "local")  # from the most frequent exchange to the rarest
WITH_PERIOD = ("ma", "bmuf")
ONEBIT_SHARE = 1 / 32  # of a gradient's bytes

TOLERANCE = 1.1  # an epoch this much longer than the fastest is as good: it is taken if its workers exchange more often
EFFICIENCY = 0.5  # least speed-up a worker of the number recommended
LARGEST_GLOBAL_MINIBATCH = 4096  # up to which synchronous SGD converged for Zhang et al. (2019); larger ones are a risk


@dataclass(frozen=True)
class Prediction:
    """An epoch's seconds, by what they go into; `speed_up` is over one worker alone."""

    ngpu: int
    strategy: str
    period: int | None  # minibatches between exchanges; none for one worker, and for local
    compute: float
    load: float
    wait: float
    exchange: float
    score: float
    fixed: float
    one_worker: float  # seconds of an epoch of one worker alone
    uncounted: str = ""  # of the cost, for want of a number in the cluster file

    @property
    def total(self) -> float:
        return self.compute + self.load + self.wait + self.exchange + self.score + self.fixed

    @property
    def speed_up(self) -> float:
        return self.one_worker / self.total

    @property
    def efficiency(self) -> float:
        return self.speed_up / self.ngpu

    @property
    def exchange_share(self) -> float:
        return self.exchange / self.total


def allreduce_seconds(cluster: Cluster, workers: int, size: float) -> float:
    """Seconds of an all-reduce of `size` bytes between `workers` workers, each with a device of its own."""
    if workers == 1:
        return 0.0
    table = cluster.allreduce
    if table is not None and str(workers) in table.seconds:
        return table.seconds[str(workers)] * size / table.bytes
    nodes = min(-(-workers // cluster.devices), cluster.nodes)
    links = {cluster.between} if nodes > 1 else set()
    if nodes < workers:  # some node has several
        links.add(cluster.within or cluster.between)
    if None in links:
        raise UserError(f"cluster {cluster.name} has {cluster.devices} devices a node and no link within it; give its bandwidth (within).")
    return 2 * (workers - 1) * max(link.latency + size / (workers * link.bandwidth) for link in links if link)


@functools.lru_cache(256)
def expected_maximum(workers: int) -> float:
    """The expected maximum of `workers` independent standard normal variables: the integral of 1 - Phi^N - (1 - Phi)^N over x > 0."""
    if workers == 1:
        return 0.0
    x = np.linspace(0.0, 10.0, 20001)
    return float(np.trapezoid(1.0 - norm.cdf(x) ** workers - norm.sf(x) ** workers, x))


def scaled(cluster: Cluster, workload: Workload) -> Compute:
    """The cluster's seconds for a workload: in proportion to minibatch and parameters."""
    own, base = cluster.compute, cluster.workload
    size, parameters = workload.minibatch_size / base.minibatch_size, workload.parameters / base.parameters
    factors = {"minibatch_seconds": size * parameters, "single_minibatch_seconds": size * parameters, "load_seconds": size,
               "score_seconds": size * parameters, "filter_seconds": parameters, "quantise_seconds": parameters,
               "server_seconds": parameters}
    values = {name: getattr(own, name) for name in factors}
    return dataclasses.replace(own, **{n: None if v is None else v * factors[n] for n, v in values.items()})


def predict(workload: Workload, cluster: Cluster, ngpu: int, strategy: str, period: int | None = None) -> Prediction:
    """An epoch with `ngpu` workers under a strategy; `period` in minibatches for those that have one."""
    if strategy not in STRATEGIES:
        raise UserError(f"--strategy {strategy} is not one that can be planned; choose among {', '.join(STRATEGIES)}.")
    if ngpu < 1 or (period is not None and period < 1):
        raise UserError(f"--ngpu {ngpu}, --average-period {period}: expected positive numbers.")
    if (period is not None) != (strategy in WITH_PERIOD):
        raise UserError(f"--strategy {strategy} has {'a' if period is None else 'no'} period (--average-period).")
    seconds = scaled(cluster, workload)
    one_worker = _epoch(workload, cluster, seconds, 1, "local", None, 0.0)
    one = dataclasses.replace(one_worker, one_worker=one_worker.total)
    return one if ngpu == 1 else _epoch(workload, cluster, seconds, ngpu, strategy, period, one.total)


def _epoch(workload: Workload, cluster: Cluster, seconds: Compute, ngpu: int, strategy: str, period: int | None,
           one_worker: float) -> Prediction:
    sharing = -(-ngpu // cluster.workers)
    shard = min(workload.frames, math.ceil(workload.largest_shard * workload.frames / ngpu))
    minibatches = shard / workload.minibatch_size
    step = sharing * (seconds.alone if ngpu == 1 else seconds.minibatch_seconds)
    load = sharing * seconds.load_seconds
    if seconds.load_overlaps:
        load = max(0.0, load - step)
    rounds = 1 if strategy == "local" else -(-shard // (workload.minibatch_size * (period or 1)))
    devices = min(ngpu, cluster.workers)
    wait = rounds * expected_maximum(devices) * seconds.spread * seconds.minibatch_seconds * math.sqrt(sharing * minibatches / rounds)
    exchange, uncounted = 0.0, ""
    if ngpu > 1:
        costs = {"bmuf": (seconds.filter_seconds, "the filter"), "onebit": (seconds.quantise_seconds, "quantising")}
        own, what = costs.get(strategy, (0.0, ""))
        uncounted = what if own is None else ""
        size = workload.bytes * (ONEBIT_SHARE if strategy == "onebit" else 1.0)
        exchange = rounds * (allreduce_seconds(cluster, devices, size) + sharing * (own or 0.0))
    score = sharing * seconds.score_seconds * math.ceil(workload.cv_frames / ngpu) / workload.minibatch_size
    return Prediction(ngpu, strategy, period, minibatches * step, minibatches * load, wait, exchange, score, seconds.epoch_seconds,
                      one_worker, uncounted)


def plan(workload: Workload, cluster: Cluster, ngpus: Sequence[int], strategies: Sequence[str],
         periods: Sequence[int]) -> list[Prediction]:
    """Every combination, in order; strategies without a period, and one worker, once."""
    found = []
    for ngpu in ngpus:
        if ngpu == 1:
            found.append(predict(workload, cluster, 1, "local"))
            continue
        for strategy in strategies:
            found += [predict(workload, cluster, ngpu, strategy, p) for p in (periods if strategy in WITH_PERIOD else [None])]
    return found


def recommend(predictions: Sequence[Prediction], workload: Workload) -> tuple[Prediction | None, list[str]]:
    """(what to use, the reasons in sentences); nothing where no prediction qualifies.

    For each number of workers: of the strategies within TOLERANCE of the fastest, the one that exchanges most often, for the accuracy
    lost to parallel training grows with the period (Su et al. (2015), table 3: 15.1 % WER with 10 minibatches, 15.8 % with 20, on 16
    workers). Left out: `local` beyond one worker, whose models drift apart for a whole epoch; `ssgd` and `onebit` where the global
    minibatch exceeds LARGEST_GLOBAL_MINIBATCH; what has costs that were not counted. Then the largest number of workers whose efficiency
    is at least EFFICIENCY.
    """
    reasons, choices = [], []
    for ngpu in sorted({p.ngpu for p in predictions}):
        able = [p for p in predictions if p.ngpu == ngpu and (ngpu == 1 or p.strategy != "local") and not p.uncounted
                and not (p.strategy in ("ssgd", "onebit") and ngpu * workload.minibatch_size > LARGEST_GLOBAL_MINIBATCH)]
        if able:
            fastest = min(p.total for p in able)
            often = [p for p in able if p.total <= TOLERANCE * fastest]
            choices.append(min(often, key=lambda p: (p.period or 1, STRATEGIES.index(p.strategy))))
    efficient = [p for p in choices if p.efficiency >= EFFICIENCY]
    if not efficient:
        return None, [f"no number of workers here reaches a speed-up of {EFFICIENCY:g} a worker with a strategy that can be recommended"]
    best = efficient[-1]
    among = [p for p in predictions if p.ngpu == best.ngpu]
    if len(among) > 1:
        reasons.append(f"it exchanges most often of what is within {100 * (TOLERANCE - 1):.0f} % of the fastest: the accuracy lost to "
                       "parallel training grows with the period (Su et al., 2015: 15.1 % WER at 10 minibatches, 15.8 % at 20, 16 workers)")
    beyond = [p for p in choices if p.ngpu > best.ngpu]
    if beyond:
        reasons.append(f"{beyond[0].ngpu} workers would give {beyond[0].speed_up:.1f}, less than {EFFICIENCY:g} a worker")
    if best.strategy == "ma" and any(p.strategy == "bmuf" for p in among):
        reasons.append("bmuf takes about as long; it was the more accurate one where a block was 22.5 minutes of speech a worker (Chen & "
                       "Huo, 2016), and needs blocks that are longer than the workers' own momentum lasts")
    if any(p.strategy in ("ssgd", "onebit") for p in among) and best.ngpu * workload.minibatch_size > LARGEST_GLOBAL_MINIBATCH:
        reasons.append(f"ssgd and onebit are left out: their global minibatch would be {best.ngpu * workload.minibatch_size:,} frames, and "
                       f"synchronous SGD has been seen to converge up to {LARGEST_GLOBAL_MINIBATCH:,} (Zhang et al., 2019)")
    if any(p.uncounted for p in among):
        left = sorted({f"{p.strategy} ({p.uncounted})" for p in among if p.uncounted})
        reasons.append(f"left out for costs that were not counted: {', '.join(left)}")
    return best, reasons
