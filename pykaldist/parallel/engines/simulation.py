"""A host whose clock is simulated: all workers of a job run in one process, each with the times that it would have on a cluster.

What the workers compute is really computed. How long it takes is read from a cluster file (`parallel/clusters/cluster.py`). The strategies'
coroutines are driven by events in the order of simulated time; events of equal time in the order of ranks. So the order in which
asynchronous workers exchange depends only on the cluster file and the seed: a run gives the same model, and the same log, whenever it is
made.

Times. Work takes what `simulated_worker.py` says. It is done when it begins, on the parameters of that time; its result is there when it
ends. Exchanges and messages take what they take on the cluster's network (`parallel/clusters/network.py`). Calls also take the time of the
worker that is called (`simulated_calls.py`). An exchange that is begun and finished later (`priced.py`) takes the time that computing does
not hide. A worker that fails is gone from that time on, with all that it had under way.

Checkpoints. Synchronous strategies have safe points. Asynchronous workers are never all at rest. But between two events every coroutine
waits for something, and all that is under way is data: events, messages, answers. The `state_dict` holds these. When a run is resumed, each
coroutine is restarted from its last mark, and is given the answers that it has received since then (`Fabric.mark`), up to the request for
which it waits.
"""

from __future__ import annotations

import gc
import heapq
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import torch

from pykaldist.errors import UserError
from pykaldist.parallel.clusters.cluster import Cluster, Workload
from pykaldist.parallel.clusters.costs import score_seconds
from pykaldist.parallel.clusters.network import Network
from pykaldist.parallel.engines.elastic.simulated import SimulatedChanges
from pykaldist.parallel.engines.host import CHECKPOINT
from pykaldist.parallel.engines.priced import PricedHost
from pykaldist.parallel.engines.simulated_calls import KINDS as CALLS
from pykaldist.parallel.engines.simulated_calls import SimulatedCalls
from pykaldist.parallel.engines.simulated_worker import SimulatedFabric, WorkTimes
from pykaldist.parallel.fabric.interface import (
    AwaitAnswer,
    Begin,
    BeginParts,
    Call,
    Compute,
    Finish,
    MoreMinibatches,
    NextRound,
    Request,
    TakeMinibatch,
    WithinGroup,
    num_bytes,
)
from pykaldist.parallel.fabric.minibatch_queue import MinibatchQueue, MinibatchSources
from pykaldist.parallel.strategies.base.strategy import on_device

CONSENSUS_SAMPLES = 8  # times in an epoch at which the workers' distance from their mean is measured


class Simulation(SimulatedChanges):
    """Runs all workers of a job in simulated time. `workers` has to be set before the first epoch.

    `num_events` counts the events of the epoch. An event costs what its worker does, whatever the number of workers is.
    """

    time = "simulated"
    keeps_time = keeps_dead = True
    priced = PricedHost  # what carries out the exchanges that are begun now and finished later

    def __init__(self, size: int, cluster: Cluster, seed: int = 0, deterministic: bool = False) -> None:
        super().__init__(size, deterministic)
        self.cluster = cluster
        self.fabrics: Sequence[SimulatedFabric] = [SimulatedFabric(rank, size) for rank in range(size)]
        self._share_living()
        self._network = Network(cluster, size)
        self._priced = self.priced(size, self._network, deterministic)
        self._priced.living = self.living
        self._calls = SimulatedCalls(self.fabrics, self.living, self._network, self._add_event)
        self._times = WorkTimes(cluster, size, self._network.sharing, seed)
        for fabric in self.fabrics:
            fabric.node_size = min(size, cluster.devices * self._network.sharing)
        special = [*map(int, cluster.slow), *(pause.worker for pause in cluster.pauses), *(worker for _, _, worker in cluster.changes())]
        worst = max(special, default=0)
        if worst >= max(size, cluster.workers):
            raise UserError(f"cluster {cluster.name} has a slow, pausing or failing worker {worst}, but room for {cluster.workers}, from 0 "
                            "on.")
        self._before = 0.0  # simulated seconds of the epochs before this one
        self._loaded: dict[str, Any] | None = None  # a state within an epoch, from which to go on
        self._running = False
        self._serve[BeginParts] = self._begin_parts
        self._alone: dict[type[Request], Callable[[int, Any], tuple[bool, Any]]] = {  # requests that a worker makes by itself, or its group
            Compute: self._begin_compute, TakeMinibatch: self._take, MoreMinibatches: self._rest, Call: self._call,
            AwaitAnswer: self._await_answer, WithinGroup: self._join}
        self._reset()

    def _reset(self) -> None:
        """Forget all that is under way, at the beginning of an epoch."""
        n = self.size
        self._clock = [0.0] * n  # time of each worker's last answer
        self._numbers = [0] * n  # number of each worker's last event
        self._events: list[tuple[float, int, int, str, Any]] = []  # (time, worker, number, kind, data)
        self._network.reset()
        self._calls.reset()
        self._priced.reset()
        self._computing = [False] * n
        self._computed = [(0.0, 0.0)] * n  # when each worker's last computing ends, and how long it takes
        self._gathered: set[int] = set()  # first workers of the groups whose exchange is under way
        self._resting: dict[int, MoreMinibatches] = {}  # workers that wait for more minibatches, or for the epoch's end
        self._steps = self.num_events = 0
        self._consensus: list[float] = []
        self._epoch_end = 0.0
        self._reset_changes()

    def begin_epoch(self) -> None:
        if self._loaded is not None:
            return
        super().begin_epoch()
        self._before += self._epoch_end
        self._reset()
        if self.elastic:
            self.elastic.begin_epoch()
        for fabric in self.fabrics:
            fabric.trace = None
            fabric.staleness.clear()

    def abandon(self) -> None:
        """Forget the epoch. Its seconds count."""
        super().abandon()
        self._priced.reset()
        if self.elastic:
            self.elastic.abandon()
        if self._loaded is not None:
            self._clock, self._loaded, self._running = list(self._loaded["clock"]), None, True
        if self._running:
            self._epoch_end, self._running = self._latest(), False

    def elapsed(self) -> float:
        return self._epoch_end

    def now(self) -> float:
        return self._latest()

    def spent(self) -> list[float]:
        return self.spent_so_far()

    def spent_so_far(self) -> list[float]:
        """Seconds in this epoch, as means over workers: computing, exchanging, waiting, loading."""
        return [sum(fabric.seconds[name] for fabric in self.fabrics) / self.size for name in ("compute", "exchange", "wait", "load")]

    def notes(self) -> dict[str, Any]:
        late = sum((fabric.staleness for fabric in self.fabrics), Counter())
        dead = [rank for rank in range(self.size) if rank not in self.living]
        lost = {"dead": dead} if dead else {}
        if self.elastic:
            return {**self.elastic.notes(), **lost}
        if not late:
            return lost
        ends = self._calls.num_servers
        load = {"server_load": self._calls.busy / ends / self._latest()} if ends else {}
        return {"staleness": {str(steps): late[steps] for steps in sorted(late)}, "consensus": self._consensus, **load, **lost}

    # Driving the workers.

    def _run(self, work: list[Coroutine[Any, Any, Any]]) -> list[Any]:
        self._work, self._results = work, [None] * self.size
        self._parked: dict[int, Request] = {}  # worker -> its request of the kind that all workers make together
        self._joined: dict[int, WithinGroup] = {}  # worker -> its request of the kind that its group makes together
        self._come = [0] * self.size  # how many of a group have joined, by its first worker
        self._going = set(self.living)
        self._prepare()
        self._running = True
        replay = self._load()
        self._replay: list[list[Any]] = replay or [[] for _ in work]
        if not replay:
            for number, (kind, at, worker) in enumerate(self.cluster.changes()):
                if number not in self._past:
                    self._add_event(max(0.0, at - self._before), worker, kind, number)
        for rank in list(self.living):
            self._drive(rank, None)
        gc.freeze()  # what thousands of workers hold stays to the epoch's end: collections need not look through it again and again
        try:
            self._handle_events()
        finally:
            gc.unfreeze()
        self._running = False
        if self.elastic:
            self.elastic.end_epoch()
        score = score_seconds(self._workload(), self._times.seconds, self.cluster, self.size)
        self._epoch_end = self._latest() + score + self._times.seconds.epoch_seconds
        return self._results

    def _handle_events(self) -> None:
        """Handle the events in the order of simulated time, until all workers have ended."""
        while self._going:
            self._meet()
            if not self._going:
                break
            self._offer_checkpoint()
            time, rank, _, kind, about = heapq.heappop(self._events)
            self.num_events += 1
            if kind in CALLS:
                self._on_call(time, rank, kind, about)
            else:
                getattr(self, f"_on_{kind}")(time, rank, about)

    def _workload(self) -> Workload:
        """The run's workload, where its workers are known; else that of the cluster file."""
        if not self.workers:
            return self.cluster.workload
        samplers = [worker.sampler for worker in self.workers]
        frames = sum(sampler.frames for sampler in samplers)
        return Workload("the run's", len(self.workers[0].params), samplers[0].minibatch_size, frames, self.cv_frames)

    def forget(self) -> None:
        super().forget()
        self._sources = MinibatchSources(lambda split: self.workers[split].sampler, 0, 0)  # those of the last epoch hold frames

    def _prepare(self) -> None:
        self._times.scale(self._workload())
        self._calls.server_seconds = self._times.seconds.server_seconds
        self._minibatches = MinibatchQueue([worker.sampler.minibatches for worker in self.workers])
        for rank in set(range(self.size)) - set(self.living):
            self._minibatches.remove_dead(rank)
        epoch = self.workers[0].epoch if self.workers else 0
        self._sources = MinibatchSources(lambda split: self.workers[split].sampler, epoch, 2 * self.size)
        self._saved = max((self.workers[rank].updates for rank in self.living), default=0) if self.workers else 0

    def _drive(self, rank: int, answer: Any) -> None:
        """Run a worker with an answer, up to a request for which it has to wait."""
        fabric, coroutine = self.fabrics[rank], self._work[rank]
        while True:
            try:
                request = coroutine.send(answer)
            except StopIteration as end:
                self._results[rank] = end.value
                self._going.discard(rank)
                return
            if self._replay[rank]:
                answer = self._replay[rank].pop(0)
            else:
                waits, answer = self._ask(rank, request)
                if waits:
                    return
            if fabric.trace is not None:
                fabric.trace.append(answer)

    def _answer(self, rank: int, time: float, answer: Any) -> None:
        self._clock[rank] = time
        if (trace := self.fabrics[rank].trace) is not None:
            trace.append(answer)
        self._drive(rank, answer)

    def _ask(self, rank: int, request: Request) -> tuple[bool, Any]:
        """Handle a worker's request. Returns (the worker has to wait, the answer if it has not)."""
        handle = self._alone.get(type(request))
        if handle is not None:
            return handle(rank, request)
        if isinstance(request, Begin) and self._inherited.get(rank):
            return False, self._inherit(rank, request)
        self._parked[rank] = request
        return True, None

    def _call(self, rank: int, request: Call) -> tuple[bool, Any]:
        return False, self._calls.begin(self._clock[rank], rank, request)

    def _await_answer(self, rank: int, request: AwaitAnswer) -> tuple[bool, Any]:
        answer = self._calls.wait(request.ticket)
        return answer is None, answer

    def _add_event(self, time: float, rank: int, kind: str, about: Any) -> None:
        self._numbers[rank] += 1
        heapq.heappush(self._events, (time, rank, self._numbers[rank], kind, about))

    # Requests that all workers make together.

    def _meet(self) -> None:
        """Carry out the requests that all workers make together, while all wait for such a request."""
        while self._going and len(self._parked) == len(self._going):
            requests = [self._parked[rank] for rank in range(self.size) if rank in self._parked]
            kinds = {type(request).__name__ for request in requests}
            if len(requests) < len(self.living) or len(kinds) > 1:
                raise RuntimeError(f"{len(requests)} of {len(self.living)} workers wait for {', '.join(sorted(kinds))}: every worker has "
                                   "to make the same requests, as often")
            begin = max(self._latest(), self._noticed)
            if isinstance(requests[0], NextRound) and self._coming:
                self._admit(begin)
                continue
            seconds = self._collective_seconds(requests)
            for rank in self.living:
                spent = self.fabrics[rank].seconds
                spent["wait"] += begin - self._clock[rank]
                spent["exchange"] += seconds
                self._clock[rank] = begin + seconds
            self._parked = {}
            answers = self._serve[type(requests[0])](requests)
            for rank, answer in zip(list(self.living), answers, strict=True):
                self._answer(rank, begin + seconds, answer)

    def _timed(self, what: str, before: Any) -> None:
        """Do nothing: real time is not recorded here."""

    def _latest(self) -> float:
        """The latest time of a worker's last answer."""
        return max(self._clock[rank] for rank in self.living)

    def _collective_seconds(self, requests: list[Any]) -> float:
        if isinstance(requests[0], Begin | BeginParts):
            return 0.0
        if isinstance(requests[0], Finish):
            return max(0.0, self._priced.ends[requests[0].ticket] - self._latest())
        return self._network.seconds(requests)

    def _begin(self, requests: list[Begin]) -> list[int]:
        if self.elastic is None:
            return self._priced.begin(self._latest(), requests)
        tickets = self._priced.begin(self._latest(), requests, self.elastic.inherited)
        self.elastic.settle(self.living)
        return tickets

    def _begin_parts(self, requests: list[BeginParts]) -> list[list[int]]:
        return self._priced.begin_parts([self._computed[rank] for rank in self.living], requests)

    def _finish(self, requests: list[Finish]) -> list[Any]:
        results = self._priced.finish(requests[0].ticket)
        return [results[0]] * len(requests) if self.elastic else results  # of those that live now

    # Requests that a group makes together.

    def _join(self, rank: int, request: WithinGroup) -> tuple[bool, Any]:
        first, members = request.members[0], request.members
        self._joined[rank] = request
        self._come[first] += 1
        if first in self._gathered or self._come[first] < len(members):
            return True, None  # its exchange was under way at the checkpoint; or not all have come
        begin = max([self._clock[k] for k in members])
        seconds = self._network.allreduce_seconds(num_bytes(request.buffer), len(members)) / (1 if request.sums else 2)
        for k in members:
            spent = self.fabrics[k].seconds
            spent["wait"] += begin - self._clock[k]
            spent["exchange"] += seconds
        self._gathered.add(first)
        self._add_event(begin + seconds, first, "within", len(members))
        return True, None

    def _on_within(self, time: float, rank: int, count: int) -> None:
        self._gathered.remove(rank)
        self._come[rank] = 0
        requests = [self._joined.pop(k) for k in range(rank, rank + count)]
        if requests[0].sums:
            self._add(self.processes, [r.buffer for r in requests], [1.0] * count, 1.0)
        self._hand_out([r.buffer for r in requests])
        total = sum(r.value for r in requests)
        for k in range(rank, rank + count):
            self._answer(k, time, total)

    # Computing.

    def _begin_compute(self, rank: int, request: Compute) -> tuple[bool, Any]:
        if self._computing[rank]:  # the work was under way at the checkpoint
            return True, None
        if request.what:
            self._begin_work(rank, request)
            return True, None
        worker = self.workers[rank] if self.workers else None
        before = worker.frames if worker else 0
        result = request.work()
        part = (worker.frames - before) / worker.sampler.minibatch_size if worker else 1.0
        compute, load = self._times.minibatch(rank, part)
        begin = self._clock[rank]
        end = self._times.end(rank, begin, compute + load, self._before)
        spent = self.fabrics[rank].seconds
        spent["compute"] += compute
        spent["load"] += load
        spent["wait"] += max(0.0, end - begin - compute - load)  # standing still
        self._computing[rank], self._computed[rank] = True, (end, compute)
        self._add_event(end, rank, "compute", result)
        return True, None

    def _begin_work(self, rank: int, request: Compute) -> None:
        """Do a strategy's own work, and add the event of its end."""
        result, begin = request.work(), self._clock[rank]
        seconds = self._times.own_work(request.what, request.moved)
        end = self._times.end(rank, begin, seconds, self._before)
        self.fabrics[rank].seconds["exchange"] += seconds
        self.fabrics[rank].seconds["wait"] += end - begin - seconds
        self._computing[rank] = True
        self._add_event(end, rank, "work", result)

    def _on_work(self, time: float, rank: int, result: Any) -> None:
        self._computing[rank] = False
        self._answer(rank, time, result)

    def _on_compute(self, time: float, rank: int, result: Any) -> None:
        self._computing[rank] = False
        self._steps += 1
        if self.fabrics[rank].trace is not None and self._steps % max(1, self._minibatches.total // CONSENSUS_SAMPLES) == 0:
            self._sample_consensus()
        self._answer(rank, time, result)

    def _sample_consensus(self) -> None:
        """Measure the distance of the workers' models from their mean: the mean over workers of ||w_k - mean|| / ||mean||."""
        if not self.workers:
            return
        models = [self.workers[rank].params for rank in self.living]
        mean = models[0].clone()
        for model in models[1:]:
            mean.add_(model)
        mean.div_(len(models))
        far = sum(float(torch.linalg.vector_norm(model - mean)) for model in models)
        self._consensus.append(far / len(models) / (float(torch.linalg.vector_norm(mean)) or 1.0))
        self.disagreement = self._consensus[-1]

    # Minibatches.

    def _take(self, rank: int, request: TakeMinibatch) -> tuple[bool, Any]:
        found = self._minibatches.take(rank, request.queue, request.unsettled)
        if self._minibatches.over:
            self._wake(self._clock[rank])
        if found is None:
            return False, None
        place, fraction = found
        self._sources.assign(self.workers[rank], place)
        return False, fraction

    def _rest(self, rank: int, request: MoreMinibatches) -> tuple[bool, Any]:
        """Handle a request for more minibatches. Returns (the worker has to wait, the answer if it has not)."""
        self._minibatches.settle(rank, request.unsettled)
        if self._minibatches.more(rank, request.queue):
            return False, True
        if self._minibatches.over:
            self._wake(self._clock[rank])
            return False, False
        self._resting[rank] = request
        return True, None

    def _wake(self, time: float) -> None:
        """Answer the resting workers for which there is another minibatch, or all where the epoch is over."""
        for rank in sorted(self._resting):
            request = self._resting.get(rank)
            if request is not None and (self._minibatches.over or self._minibatches.more(rank, request.queue)):
                del self._resting[rank]
                self.fabrics[rank].seconds["wait"] += time - self._clock[rank]
                self._answer(rank, time, not self._minibatches.over)

    # Failures.

    def _on_failure(self, time: float, rank: int, number: int) -> None:
        self._past.append(number)
        if rank not in self.living:
            return
        lost = self.lost_with(rank, self.size, self.fabrics[rank].node_size)
        if rank in self.essential:
            what = "the process that leads an elastic job" if self.elastic else "the server beside it"
            raise UserError(f"cluster {self.cluster.name} lets worker {rank} fail at {self._before + time:g} s, and with it {what}: that "
                            "ends the job.")
        if len(self.living) == len(lost):
            raise UserError(f"cluster {self.cluster.name} lets all workers fail.")
        for one in lost:
            self.living.remove(one)
            self._going.discard(one)
            self._work[one].close()
            if isinstance(parked := self._parked.pop(one, None), Begin):
                parked.exchange.close()
            self._resting.pop(one, None)
            self._joined.pop(one, None)
        if self.elastic:
            self._remove_lost(time, rank)
            return
        self._gathered.discard(lost.start)
        self._come[lost.start] = 0
        again = sum(map(self._minibatches.remove_dead, lost))
        group = f", and with it its group, workers {lost.start} to {lost.stop - 1}" * (len(lost) > 1)
        self.log(f"worker {rank} has died at {self._before + time:.3f} s{group}; {len(self.living)} go on, and do {again} minibatches "
                 "again")
        for one in lost:
            events, self._events = [event for event in self._events if event[1] != one], []
            self._events += self._calls.remove_dead(time, one, events)
        heapq.heapify(self._events)
        self._wake(time)

    # Calls.

    def _on_call(self, time: float, rank: int, kind: str, about: Any) -> None:
        ticket = self._calls.on_event(time, rank, kind, about)
        if ticket is not None:
            blocked = time - self._clock[rank]
            wait = min(blocked, max(0.0, ticket.admitted - self._clock[rank]))
            self.fabrics[rank].seconds["wait"] += wait
            self.fabrics[rank].seconds["exchange"] += blocked - wait
            self._answer(rank, time, (ticket.buffer, ticket.value))

    # Checkpoints.

    def _offer_checkpoint(self) -> None:
        """Take a checkpoint if one is wanted, between two events. No two mere checkpoints have the same count of updates, which names them.
        """
        wish = int(self.wish())
        if not wish or not self.workers or any(self.fabrics[rank].trace is None for rank in self.living):
            return
        updates = max(self.workers[rank].updates for rank in self.living)
        if wish > CHECKPOINT or (wish and updates != self._saved):
            self._saved = updates
            self.on_safe_point(wish)

    def state_dict(self) -> dict[str, Any]:
        more = {"drawn": list(self._times.drawn), **self._changes_state()}
        if not self._running:
            return {"seconds_before": self._before + self._epoch_end, "living": list(self.living), **more}
        return {
            **more,
            "seconds_before": self._before, "living": list(self.living), "minibatches": self._minibatches.state_dict(),
            "clock": self._clock, "priced": self._priced.state_dict(), "numbers": self._numbers, "events": [list(e) for e in self._events],
            "calls": self._calls.state_dict(), "network": self._network.state_dict(),
            "computing": self._computing, "gathered": sorted(self._gathered), "steps": self._steps,
            "consensus": self._consensus, "disagreement": self.disagreement,
            "traces": [fabric.trace for fabric in self.fabrics], "seconds": [fabric.seconds for fabric in self.fabrics],
            "staleness": [dict(fabric.staleness) for fabric in self.fabrics]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._before, self.living[:] = state["seconds_before"], state["living"]
        self._times.load_drawn(state["drawn"])
        self._load_changes(state)
        self._loaded = state if "clock" in state else None

    def _load(self) -> list[list[Any]] | None:
        """Restore a state within an epoch. Returns the answers that each worker has to be given again."""
        if self._loaded is None:
            return None
        state: dict[str, Any] = on_device(self.workers[0].params.device, self._loaded)
        self._loaded = None
        for name in ("clock", "numbers", "computing", "steps", "consensus"):
            setattr(self, f"_{name}", state[name])
        self._gathered = set(state["gathered"])
        self._minibatches.load_state_dict(state["minibatches"])
        self.disagreement = state["disagreement"]
        self._events = [tuple(event) for event in state["events"]]
        self._priced.load_state_dict(state["priced"])
        self._calls.load_state_dict(state["calls"])
        self._network.load_state_dict(state["network"])
        for fabric, seconds, staleness in zip(self.fabrics, state["seconds"], state["staleness"], strict=True):
            fabric.seconds, fabric.staleness = dict(seconds), Counter(staleness)
        return [list(trace or []) for trace in state["traces"]]
