"""Work requests: asking process 0 for minibatches, prefetching, and pauses of a job. The tests carry the messages of two processes."""

from __future__ import annotations

import random
from collections import Counter, deque
from types import SimpleNamespace

from hypothesis import given, settings
from hypothesis import strategies as st

from pykaldist.parallel.engines.work_requests import WorkRequest, WorkRequests
from pykaldist.parallel.fabric.minibatch_queue import MinibatchQueue


class Pair:
    """Processes 0 and 1 with a worker each. `answers[k]`: the last answer to worker k; `minibatch_of[k]`: its last minibatch."""

    def __init__(self, counts):
        self.wished, self.mail, self.answers, self.minibatch_of = 0, deque(), [None, None], [None, None]
        self.both = []
        for rank in range(2):
            host = SimpleNamespace(job_processes=SimpleNamespace(rank=rank), ranks=range(rank, rank + 1), living=[0, 1],
                                   hosting=lambda r: r, wish=lambda: self.wished)
            host.transport = SimpleNamespace(
                send=lambda to, kind, numbers, rank=rank: self.mail.append((to, kind, list(map(float, numbers)))))
            self.both.append(WorkRequests(host, lambda _, answer, rank=rank: self.on_answer(rank, answer),
                                       lambda _, minibatch, rank=rank: self.minibatch_of.__setitem__(rank, minibatch)))
        self.minibatches = MinibatchQueue(counts)
        self.both[0].open(self.minibatches)

    def on_answer(self, rank, answer):
        self.answers[rank] = [answer]

    def deliver(self, count=1000):
        """Carry up to so many messages."""
        while self.mail and count:
            to, kind, numbers = self.mail.popleft()
            self.both[to].handle_message(kind, numbers)
            count -= 1

    def ask(self, rank, takes=True):
        self.answers[rank] = None
        self.both[rank].ask(0, WorkRequest(rank, takes, True, 0, range(rank, rank + 1), self.wished))

    def go_on(self):
        """After a rest."""
        self.wished = 0
        for requests in self.both:
            requests.rested()
        for requests in self.both:
            requests.go_on()


def test_the_next_minibatch_is_prefetched():
    pair = Pair([8, 8])
    pair.ask(1)
    assert pair.answers[1] is None
    pair.deliver()
    assert pair.answers[1] == [0.0] and pair.minibatch_of[1] == (1, 0)
    pair.ask(1)
    assert pair.answers[1] == [1 / 16] and pair.minibatch_of[1] == (1, 1)  # with no message in between
    assert list(pair.minibatches._held[1]) == [(1, 0), (1, 1)]
    pair.deliver()
    assert list(pair.minibatches._held[1]) == [(1, 1), (1, 2)]


def test_few_minibatches_left_are_not_prefetched():
    pair = Pair([2, 1])
    pair.ask(1)
    pair.deliver()
    assert pair.minibatch_of[1] == (1, 0) and len(pair.minibatches._held[1]) == 1  # refused one ahead
    pair.ask(1)
    assert pair.answers[1] is None
    pair.deliver()
    assert pair.minibatch_of[1] == (0, 0)


def test_a_job_at_rest_holds_nothing():
    pair = Pair([50, 50])
    for rank in (0, 1):
        pair.ask(rank)
    pair.deliver()
    pair.wished = 1
    for _ in range(3):
        for rank in (1, 0):
            if 0 not in pair.both[rank].paused:
                pair.ask(rank)
        pair.deliver()
    assert all(0 in requests.paused for requests in pair.both)
    assert not any(pair.minibatches._held)
    pair.go_on()
    pair.deliver()
    assert not any(requests.paused for requests in pair.both) and all(pair.answers)


@settings(max_examples=200)
@given(st.integers(0, 2**32), st.integers(0, 9), st.integers(0, 9))
def test_each_minibatch_is_given_once_whatever_comes_when(seed, own, others):
    """Messages are late, checkpoints are wanted, and in the end all minibatches are done and all workers know it."""
    rng = random.Random(seed)
    pair, done, waits, over = Pair([own, others]), Counter(), [False, False], [False, False]
    while not all(over):
        rank = rng.randrange(2)
        pair.deliver(rng.randrange(4))
        pair.wished = int(rng.randrange(10) == 0)
        if all(over[k] or 0 in pair.both[k].paused for k in (0, 1)):
            assert not any(pair.minibatches._held)
            pair.go_on()
        elif over[rank] or 0 in pair.both[rank].paused:
            pair.deliver()
        elif not waits[rank]:
            pair.ask(rank)
            waits[rank] = True
        if waits[rank] and pair.answers[rank] is not None:
            answer, waits[rank] = pair.answers[rank][0], False
            if answer is None:
                pair.ask(rank, takes=False)
                waits[rank] = True
            elif answer is False:
                over[rank] = True
            elif answer is not True:
                done[pair.minibatch_of[rank]] += 1
    assert done == Counter([(0, i) for i in range(own)] + [(1, i) for i in range(others)])
