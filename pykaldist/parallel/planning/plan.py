"""What an epoch costs on a cluster with N workers, for each strategy.

Let F be the frames of an epoch, m the minibatch, t a minibatch's seconds, B the bytes of a model, D the devices of the cluster.

Compute. The worker with the largest shard has f = l F / N frames (l its size over the mean, 1 for even shards) and f / m minibatches. An
incomplete minibatch costs its share. Workers beyond D share devices, s = ceil(N / D) on one, and take turns:
    compute = s t f / m.
A worker that trains alone may have another t than one among others, which compete for memory, disk and bus.

Loading costs s d f / m, with d the seconds to load a minibatch. Where it overlaps with computing, it costs only what it takes longer.
Cross-validation is shared by all workers, as training is. The once-an-epoch seconds of a cluster are not shared.

Exchanges are those that the strategy makes: its own code is run without training (`dry_run.py`), and the times of its requests are added
up. A ring all-reduce of b bytes between n = min(N, D) workers has n - 1 steps of summing and n - 1 steps of passing on the result. In each
step every worker passes b / n bytes to the next one (Patarasuk & Yuan, 2009). The slowest link sets the time:
    T(b) = 2 (n - 1) max over links (latency + b / (n bandwidth)).
Workers are placed node by node. The ring of one node has only links within the node. The ring of several nodes has links between them, and
links within them where they have more than one device. Where the cluster file has measured all-reduces of n workers, T(b) is the measured
time, times b over its bytes. Gathering and scattering take half of one. Messages take latency + b / bandwidth. A strategy's own work, such
as a filter, takes s times the bytes that it moves in memory, as it says itself, over the device's bandwidth. With R = ceil(f / (m p))
periods of p minibatches in an epoch this gives
    ma: R T(B)        bmuf: R (T(B) + its filter)        ssgd: the same as ma with p = 1        local: T(B)
    onebit, p = 1: R (T(b) + quantising), b = B / 32 and two values a column
and an exchange during computing costs only what it takes longer.

Waiting. Let a minibatch's seconds have the standard deviation v t, independently. A device computes q = s f / (m R) minibatches between two
exchanges. These take q t +- sqrt(q) v t, nearly normal. The slowest of n devices is expected e(n) standard deviations above the mean, where
e(n) is the expected maximum of n standard normal variables:
    wait = R e(n) v t sqrt(q).
`local` waits at its safe points, too.

The seconds of a strategy with independent workers come from a simulation of an epoch, in which every minibatch's seconds are drawn at
random (`simulation.py`). All workers have equally many frames in it, as nobody waits for the largest shard.

The accuracy that a strategy reaches is not predicted; `recommend` says what is known about it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

from pykaldist.errors import UserError
from pykaldist.parallel.clusters.cluster import Cluster, Workload
from pykaldist.parallel.clusters.costs import scaled, score_seconds, sharing
from pykaldist.parallel.planning.dry_run import rehearse, simulated
from pykaldist.parallel.strategies.base.registry import make_strategy, strategies, strategy_class, strategy_options
from pykaldist.progress import progress

TOLERANCE = 1.1  # an epoch up to this factor longer than the fastest is as good, and is preferred if its workers exchange more often
EFFICIENCY = 0.5  # least speed-up per worker of the number of workers recommended
LARGEST_GLOBAL_MINIBATCH = 4096  # up to which synchronous SGD converged for Zhang et al. (2019); larger ones are a risk


@dataclass(frozen=True)
class Prediction:
    """The seconds of an epoch, by their parts. `speed_up` is that over one worker alone."""

    ngpu: int
    strategy: str
    period: int | None  # minibatches between exchanges; none for one worker, and for strategies that have none
    compute: float
    load: float
    wait: float
    exchange: float
    score: float
    fixed: float
    one_worker: float  # seconds of an epoch of one worker alone
    uncounted: str = ""  # work whose cost is not known, as the cluster file has no memory bandwidth

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


def has_period(strategy: str) -> bool:
    """True for a strategy that has an averaging period in minibatches."""
    return "average_period" in {field.name for field in dataclasses.fields(strategy_options(strategy))}


def predict(workload: Workload, cluster: Cluster, ngpu: int, strategy: str, period: int | None = None) -> Prediction:
    """Predict an epoch with `ngpu` workers and a strategy with its default options; `period` in minibatches for strategies that have one.

    Raises UserError where the strategy cannot be used with so many workers on such nodes.
    """
    if strategy not in strategies():
        raise UserError(f"--strategy {strategy} is not one that is known; choose among {', '.join(strategies())}.")
    if ngpu < 1 or (period is not None and period < 1):
        raise UserError(f"--ngpu {ngpu}, --average-period {period}: expected positive numbers.")
    if (period is not None) != has_period(strategy):
        raise UserError(f"--strategy {strategy} has {'a' if period is None else 'no'} period (--average-period).")
    seconds = scaled(cluster, workload)
    score = [score_seconds(workload, seconds, cluster, n) for n in (1, ngpu)]
    alone = workload.frames / workload.minibatch_size
    load = max(0.0, seconds.load_seconds - seconds.alone) if seconds.load_overlaps else seconds.load_seconds
    one = Prediction(1, "local", None, alone * seconds.alone, alone * load, 0.0, 0.0, score[0], seconds.epoch_seconds, 0.0)
    one = dataclasses.replace(one, one_worker=one.total)
    if ngpu == 1:
        return one
    options = strategy_options(strategy)(**({} if period is None else {"average_period": period}))
    if make_strategy(strategy, options).independent:
        calm = dataclasses.replace(cluster, slow={}, pauses=(), failures=(), sources={})
        _, compute, exchange, wait, load = simulated(strategy, options, workload, calm, ngpu, alone / ngpu)
        return Prediction(ngpu, strategy, period, compute, load, wait, exchange, score[1], seconds.epoch_seconds, one.total)
    shard = min(workload.frames, math.ceil(workload.largest_shard * workload.frames / ngpu))
    minibatches, turns = shard / workload.minibatch_size, sharing(cluster, ngpu)
    step, load = turns * seconds.minibatch_seconds, turns * seconds.load_seconds
    if seconds.load_overlaps:
        load = max(0.0, load - step)
    found = rehearse(strategy, options, workload, cluster, ngpu, minibatches)
    return Prediction(ngpu, strategy, period, minibatches * step, minibatches * load, found.wait, found.exchange, score[1],
                      seconds.epoch_seconds, one.total, found.uncounted)


def plan(workload: Workload, cluster: Cluster, ngpus: Sequence[int], strategies: Sequence[str],
         periods: Sequence[int]) -> tuple[list[Prediction], list[str]]:
    """Predict every combination, in order. Returns (the predictions, notes on combinations that are not possible).

    Strategies without a period, and one worker, appear once.
    """
    found: list[Prediction] = []
    notes: list[str] = []
    failure: UserError | None = None
    each = [(s, p) for s in strategies for p in (periods if has_period(s) else [None])]
    asked = [(ngpu, *one) for ngpu in ngpus for one in (each if ngpu > 1 else [("local", None)])]
    for ngpu, strategy, period in progress(asked, "simulating epochs", unit="prediction"):
        try:
            found.append(predict(workload, cluster, ngpu, strategy, period))
        except UserError as error:
            if ngpu == 1:
                raise
            failure = error
            notes.append(f"{strategy} is left out: {error}")
    if failure is not None and not any(p.ngpu > 1 for p in found):
        raise failure
    return found, list(dict.fromkeys(notes))


def recommend(predictions: Sequence[Prediction], workload: Workload) -> tuple[Prediction | None, list[str]]:
    """Choose among predictions. Returns (the one to use or None, the reasons in sentences).

    For each number of workers: of the strategies within TOLERANCE of the fastest, the one that exchanges most often is chosen, because the
    accuracy lost to parallel training grows with the period (Su et al. (2015), table 3: 15.1 % WER with 10 minibatches, 15.8 % with 20, on
    16 workers). Of several, the fastest is chosen. Left out are: strategies after whose exchanges the workers' models differ, as seconds do
    not say what that costs; strategies whose updates use the minibatches of all workers (`ships_gradients`) where the global minibatch
    exceeds LARGEST_GLOBAL_MINIBATCH; strategies with costs that are not known. Then the largest number of workers is chosen whose
    efficiency is at least EFFICIENCY.
    """
    reasons, choices = [], []
    apart = sorted({p.strategy for p in predictions if p.ngpu > 1 and not strategy_class(p.strategy).one_model})
    large = sorted({p.strategy for p in predictions if p.ngpu > 1 and strategy_class(p.strategy).ships_gradients})

    def able(p: Prediction) -> bool:
        too_large = p.strategy in large and p.ngpu * workload.minibatch_size > LARGEST_GLOBAL_MINIBATCH
        return p.ngpu == 1 or not (p.strategy in apart or p.uncounted or too_large)

    for ngpu in sorted({p.ngpu for p in predictions}):
        fit = [p for p in predictions if p.ngpu == ngpu and able(p)]
        if fit:
            fastest = min(p.total for p in fit)
            choices.append(min((p for p in fit if p.total <= TOLERANCE * fastest), key=lambda p: (p.period or 1, p.total)))
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
    for p in among:
        if p.strategy != best.strategy and p.period == best.period and able(p) and p.total <= TOLERANCE * best.total:
            advice = strategy_class(p.strategy).advice
            reasons.append(f"{p.strategy} takes about as long" + f"; {advice}" * bool(advice))
    if apart and best.ngpu > 1:
        reasons.append(f"{', '.join(apart)} {'is' if len(apart) == 1 else 'are'} left out: workers' models stay apart, and what "
                       "that costs in accuracy is not predicted")
    if large and best.ngpu * workload.minibatch_size > LARGEST_GLOBAL_MINIBATCH:
        reasons.append(f"{' and '.join(large)} {'is' if len(large) == 1 else 'are'} left out: the global minibatch would be "
                       f"{best.ngpu * workload.minibatch_size:,} frames, and synchronous SGD has been seen to converge up to "
                       f"{LARGEST_GLOBAL_MINIBATCH:,} (Zhang et al., 2019)")
    if any(p.uncounted for p in among):
        left = sorted({f"{p.strategy} ({p.uncounted})" for p in among if p.uncounted})
        reasons.append(f"left out for costs that were not counted: {', '.join(left)}")
    return best, reasons
