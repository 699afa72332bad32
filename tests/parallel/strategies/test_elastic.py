"""Elastic jobs on a simulated cluster: without deaths they are the plain ones, with deaths what a slow and simple loop makes of them."""

from __future__ import annotations

import copy
from collections import Counter

import pytest
import torch
from driven import Stopped, counted, epochs
from slow_elastic import MINIBATCH, slow_averaging

from pykaldist.errors import UserError
from pykaldist.parallel.clusters.cluster import Cluster, Compute, Failure, Join, Link, Workload
from pykaldist.parallel.engines.host import Host
from pykaldist.parallel.engines.simulation import Simulation
from pykaldist.parallel.strategies.adpsgd import Adpsgd, AdpsgdOptions
from pykaldist.parallel.strategies.bmuf import Bmuf, BmufOptions
from pykaldist.parallel.strategies.diloco import Diloco, DilocoOptions
from pykaldist.parallel.strategies.ma import Ma, MaOptions
from pykaldist.parallel.strategies.ssgd import Ssgd
from pykaldist.train.checkpoints import copied

PARAMETERS = 13 * 8 + 9 * 5  # of the workers of conftest.py
STRATEGIES = {
    "ma": lambda: Ma(MaOptions(average_period=3)), "ma, blocks": lambda: Ma(MaOptions(average_period=0)),
    "ma, overlap": lambda: Ma(MaOptions(average_period=2, overlap=True)),
    "ma, all": lambda: Ma(MaOptions(average_period=3, reduce_content="all")),
    "bmuf": lambda: Bmuf(BmufOptions(average_period=3, block_momentum=0.4)),
    "bmuf, average": lambda: Bmuf(BmufOptions(average_period=2, nesterov=False, local_momentum="average")),
    "diloco": lambda: Diloco(DilocoOptions(average_period=4, fragments=2, overlap_steps=1)),
    "diloco, late": lambda: Diloco(DilocoOptions(average_period=2, fragments=2, overlap_steps=1, mixing=0.2))}


def cluster(failures=(), joins=(), message=0.01):
    """A minibatch takes a second, a model a hundredth."""
    return Cluster("test", "", 64, 1, Workload("", PARAMETERS, MINIBATCH, 120), Compute(1.0), between=Link(4.0 * PARAMETERS / message, 0.0),
                   failures=tuple(Failure(*one) for one in failures), joins=tuple(Join(*one) for one in joins))


def elastic(size, failures=(), joins=()):
    host = Simulation(size, cluster(failures, joins), deterministic=True)
    host.be_elastic()
    host.essential = range(1)
    return host


class Job:
    """Workers of an elastic job, and its log."""

    def __init__(self, make_workers, name, size=3, failures=(), joins=(), blocks=2, **options):
        self.workers = make_workers(size, blocks=blocks, minibatch_size=MINIBATCH, momentum=0.5, **options)
        self.strategies, self.host, self.said = [STRATEGIES[name]() for _ in self.workers], elastic(size, failures, joins), []
        self.notes, self.host.log = [], self.said.append
        self.host.state_of, self.host.join = self.state_of, self.join

    def state_of(self, rank):
        return {"worker": self.workers[rank].state_dict(), "strategy": self.strategies[rank].state_dict()}

    def join(self, rank, state):
        state = copied(state)
        self.workers[rank].join(state["worker"])
        self.strategies[rank].join(state["strategy"])
        self.workers[rank].begin_epoch(self.workers[0].epoch, 0.01)
        return self.strategies[rank].epoch(self.workers[rank], self.host.fabrics[rank])

    def run(self, count=2, stop=None):
        epochs(self.workers, self.strategies, self.host, count, 0.01, stop, lambda: self.notes.append(self.host.notes()))
        living = [self.workers[rank] for rank in self.host.living]
        assert all(torch.equal(worker.params, living[0].params) for worker in living)
        return living[0].params

    def checkpoint(self):
        return copied({"host": self.host.state_dict(), **{str(rank): self.state_of(rank) for rank in self.host.living}})

    def resume(self, state):
        for rank in state["host"]["living"]:
            self.workers[rank].load_state_dict(state[str(rank)]["worker"])
            self.strategies[rank].load_state_dict(copy.deepcopy(state[str(rank)]["strategy"]))
        self.host.load_state_dict(state["host"])


@pytest.mark.parametrize("name", STRATEGIES)
def test_without_deaths_it_is_the_plain_job(make_workers, name):
    """Bit for bit, disagreement included."""
    plain, strategies = make_workers(3, blocks=2, minibatch_size=MINIBATCH, momentum=0.5), [STRATEGIES[name]() for _ in range(3)]
    host, job = Host(3, deterministic=True), Job(make_workers, name)
    epochs(plain, strategies, host)
    assert torch.equal(job.run(), plain[0].params) and job.notes == [{}, {}] and job.host.disagreement == host.disagreement
    assert torch.equal(job.workers[2].optimizer.velocity, plain[2].optimizer.velocity)


# Worker 1 dies in the second round of the first epoch (4 s: its second minibatch of three), worker 2 in the last of the second; or worker 1
# is replaced two rounds later.
@pytest.mark.parametrize(("name", "momentum"), [("ma", None), ("bmuf", 0.4)])
@pytest.mark.parametrize(("failures", "joins", "deaths", "joining"), [
    ([(1, 4.0)], [], {(0, 1): [1]}, {}),
    ([(1, 4.0)], [(1, 8.0)], {(0, 1): [1]}, {(0, 3): [1]}),
    ([(2, 1.0), (1, 5.0)], [(2, 7.0)], {(0, 0): [2], (0, 1): [1]}, {(0, 3): [2]}),
])
def test_with_deaths_it_is_what_a_slow_loop_makes(make_workers, name, momentum, failures, joins, deaths, joining):
    job = Job(make_workers, name, failures=failures, joins=joins)
    expected, trained = slow_averaging(make_workers, 3, 3, deaths, joining, momentum)
    assert torch.equal(job.run(), expected)
    minibatches = sum(worker.sampler.minibatches for worker in job.workers)
    assert len(set(trained)) == len(trained) == 2 * minibatches
    assert [one["worker"] for one in job.notes[0]["lost"]] == [rank for rank, _ in failures]
    assert job.notes[0]["lost"][0]["frames"] > 0 and "lost" not in job.notes[1]
    assert [one["worker"] for one in job.notes[0].get("joined", [])] == [rank for rank, _ in joins]
    assert job.notes[1].get("dead", []) == sorted({rank for rank, _ in failures} - {rank for rank, _ in joins})


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in ("ma, overlap", "bmuf", "diloco") else pytest.mark.slow)
                                  for name in STRATEGIES])
def test_a_state_at_any_checkpoint_goes_on_to_the_same_bits(make_workers, name):
    """Deaths, one of them in the last exchange of an epoch, and a replacement; block momentum and exchanges under way included."""
    script = {"failures": [(2, 3.5), (1, 13.2)], "joins": [(2, 6.0)]}
    whole = Job(make_workers, name, **script)
    expected = whole.run()
    assert len(whole.notes[0]["joined"]) == 1 and any("lost" in notes for notes in whole.notes)
    offers = 0
    for stop in (1, 2, 5, 11, 23):
        job = Job(make_workers, name, **script)
        try:
            job.run(stop=stop)
        except Stopped:
            offers += 1
        else:
            break
        again = Job(make_workers, name, **script)
        again.resume(job.checkpoint())
        assert torch.equal(again.run(), expected), stop
    assert offers >= 2


@pytest.mark.parametrize("name", ["ma", "bmuf", "diloco"])
def test_every_frame_is_trained_on_by_those_that_live(make_workers, name):
    """In each of two epochs that begin without a worker: each frame once."""
    job = Job(make_workers, name, failures=[(1, 0.0)])
    job.run(1)
    seen = counted([job.workers[rank] for rank in job.host.living])
    job.run(2)
    assert seen == Counter(dict.fromkeys(range(120), 2))


def test_a_replacement_has_what_the_others_have(make_workers):
    """Model, block momentum and the workers' own momentum, when it joins; then a share of what is left."""
    job = Job(make_workers, "bmuf, average", failures=[(1, 2.5)], joins=[(1, 5.0)])
    joined = {}

    def join(rank, state):
        work = Job.join(job, rank, state)
        joined.update(copied(job.state_of(rank)), others=copied(job.state_of(0)))
        return work

    job.host.join = join
    job.run(1)
    mine, others = joined["worker"], joined["others"]["worker"]
    assert torch.equal(mine["params"], others["params"]) and mine["index"] == others["index"] and mine["frames"] == 0
    assert torch.equal(mine["optimizer"]["velocity"], others["optimizer"]["velocity"]) and float(others["optimizer"]["velocity"].norm()) > 0
    assert torch.equal(joined["strategy"]["delta"], joined["others"]["strategy"]["delta"])
    assert float(joined["strategy"]["delta"].norm()) > 0
    assert job.workers[1].frames > 0 and job.host.living == [0, 1, 2]
    assert [sentence.split(",")[0] for sentence in job.said] == [
        "worker 1 has died at 2.500 s", "worker 1 lost before round 3 of epoch 1; 2 go on",
        "worker 1 joined before round 4 of epoch 1"]


def test_the_worker_that_leads_is_not_replaced(make_workers):
    with pytest.raises(UserError, match="worker 0 fail at 2 s, and with it the process that leads an elastic job: that ends the job"):
        Job(make_workers, "ma", failures=[(0, 2.0)]).run()


def test_strategies_say_why_they_cannot_be_elastic():
    assert all(not make().inelastic() for make in STRATEGIES.values())
    for strategy, words in ((Ssgd(), "average models at times"), (Adpsgd(AdpsgdOptions()), "average models at times"),
                            (Ma(MaOptions(reduce_type="ring")), "--reduce-type ring"), (Ma(MaOptions(exchange_dtype="bf16")), "bf16"),
                            (Bmuf(BmufOptions(exchange_dtype="bf16")), "bf16"), (Diloco(DilocoOptions(outer_bits=8)), "--outer-bits 8")):
        assert words in strategy.inelastic()
