"""Elastic jobs over processes, which are threads here: with deaths and a replacement they are what a slow and simple loop makes of them."""

from __future__ import annotations

import time

import pytest
import torch
from driven import epochs
from slow_elastic import MINIBATCH, slow_averaging

from pykaldist.errors import Terminated
from pykaldist.parallel.engines.elastic.processes import ElasticHost
from pykaldist.parallel.strategies.bmuf import Bmuf, BmufOptions
from pykaldist.parallel.strategies.ma import Ma, MaOptions
from pykaldist.parallel.transport.door import Guest

STRATEGIES = {"ma": (lambda: Ma(MaOptions(average_period=3)), None),
              "bmuf": (lambda: Bmuf(BmufOptions(average_period=3, block_momentum=0.4)), 0.4)}


class Process:
    """A process of a job of so many workers; it ends in the middle of the second round, if it `dies`."""

    def __init__(self, those, make_workers, name, folder, dies=False, size=3):
        self.host = ElasticHost(size, those, ["here"] * those.size, folder)
        self.workers = make_workers(size, ranks=self.host.ranks, blocks=2, minibatch_size=MINIBATCH, momentum=0.5)
        self.strategies, self.said = [STRATEGIES[name][0]() for _ in self.workers], []
        self.host.log = self.said.append
        self.host.state_of = lambda rank: {"worker": self.workers[0].state_dict(), "strategy": self.strategies[0].state_dict()}
        self.host.job_state = lambda: {"trainer": {"host": self.host.state_dict()}}
        if dies:
            self.workers[-1].on_step = self._die

    def _die(self):
        if self.workers[-1].index == 5:
            self.host.transport._end(linger=0.0)
            raise Terminated

    def hold_before(self, round_number):
        """On process 0: wait before this round until somebody is at the door, and let in nobody before."""
        let_in = self.host._let_in

        def wait(door):
            if self.host.agreed.shares is None or self.host.agreed.shares.rounds != round_number:
                return []
            while not (found := let_in(door)):
                time.sleep(0.01)
            return found

        self.host._let_in = wait

    def run(self):
        epochs(self.workers, self.strategies, self.host)
        self.host.close()
        return self.workers[0].params.clone(), self.said


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize(("dies", "joins"), [(False, False), (True, False), (True, True)])
def test_it_is_what_a_slow_loop_makes(make_workers, in_processes, tmp_path, name, dies, joins):
    def work(those):
        process = Process(those, make_workers, name, tmp_path, dies and those.rank == 1)
        if joins and those.rank == 0:
            process.hold_before(3)
        try:
            return process.run()
        except Terminated:
            if not joins:
                return None
        process = Process(Guest(1, tmp_path), make_workers, name, tmp_path)
        state = process.host.enter()
        process.host.load_state_dict(state["trainer"]["host"])
        process.workers[0].join(state["worker"])
        process.strategies[0].join(state["strategy"])
        return process.run()

    found = in_processes(3, work)
    expected, _ = slow_averaging(make_workers, 3, 3, {(0, 1): [1]} if dies else {}, {(0, 3): [1]} if joins else {}, STRATEGIES[name][1])
    assert (found[1] is None) == (dies and not joins)
    assert all(torch.equal(one[0], expected) for one in found if one is not None)
    said = [sentence.split(",")[0] for sentence in found[0][1]]
    assert said == ["process 1 on here has died", "worker 1 lost before round 3 of epoch 1; 2 go on"][: 2 * dies] + \
        ["worker 1 joined before round 4 of epoch 1"] * joins


@pytest.mark.parametrize("dies", [False, True])
def test_workers_of_one_process_die_together(make_workers, in_processes, tmp_path, dies):
    def work(those):
        try:
            return Process(those, make_workers, "bmuf", tmp_path, dies and those.rank == 1, 4).run()
        except Terminated:
            return None

    found = in_processes(2, work)
    expected, _ = slow_averaging(make_workers, 4, 3, {(0, 1): [2, 3]} if dies else {}, {}, 0.4)
    assert (found[1] is None) == dies and all(torch.equal(one[0], expected) for one in found if one is not None)
    assert [sentence.split(",")[0] for sentence in found[0][1][1:]] == ["workers 2"] * dies
