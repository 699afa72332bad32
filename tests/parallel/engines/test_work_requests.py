"""Work requests: asking process 0 for minibatches, prefetching, and pauses of a job. The tests carry the messages of two processes."""

from __future__ import annotations

import random
from collections import Counter, deque
from types import SimpleNamespace

import pytest
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


@pytest.mark.parametrize("first_rests", [False, True])
def test_of_a_group_none_rests_behind_one_that_was_told_to_go_on(first_rests):
    """Else the one would wait for the other in the group's exchange, and the other for the one in the rest: a death, then a checkpoint."""
    answers, living = {}, list(range(6))
    host = SimpleNamespace(job_processes=SimpleNamespace(rank=0), ranks=range(6), living=living, wish=lambda: 0, transport=None)
    requests = WorkRequests(host, answers.__setitem__, lambda index, minibatch: None)
    requests.open(MinibatchQueue([1] * 6))

    def ask(rank, takes, unsettled=0, wish=0):
        answers.pop(rank, None)
        requests.ask(rank, WorkRequest(rank, takes, False, unsettled, range(rank // 2 * 2, rank // 2 * 2 + 2), wish))
        return answers.get(rank)

    assert all(ask(rank, True) is not None for rank in range(6))
    if first_rests:
        assert ask(3, False) is None and 3 not in requests.paused
    for rank in (4, 5):
        living.remove(rank)
    requests.remove_dead(range(4, 6))
    if not first_rests:
        assert ask(2, False) is True
    assert ask(0, True, 1, wish=1) is None and 0 in requests.paused  # the job is to rest
    assert ask(3, False) is True if not first_rests else answers[3] is True
    if first_rests:
        assert ask(2, False) is True
    assert ask(2, True) is None and ask(3, True) is None and {2, 3} <= requests.paused.keys()
