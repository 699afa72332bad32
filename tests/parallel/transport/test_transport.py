"""Messages between processes, shared memory, and the live group after a process has died. The processes are threads here."""

from __future__ import annotations

import os
import threading
import time
from functools import partial

import numpy as np
import pytest
import torch

from pykaldist.errors import ProcessLostError
from pykaldist.parallel.engines.live_group import LiveGroup
from pykaldist.parallel.transport.message_queue import POLLED, MessageQueue
from pykaldist.parallel.transport.shared_memory import Slots
from pykaldist.parallel.transport.transport import DTYPES, FAILED, Link, Transport

NOTE = 100


class Heard:
    """What has arrived."""

    def __init__(self, those) -> None:
        self.messages, self.lost = [], []
        self.transport = Transport(those, lambda *message: self.messages.append(message), self.lost.append)
        self.transport.start()

    def wait(self, until) -> None:
        with self.transport.changed:
            assert self.transport.changed.wait_for(lambda: self.transport.failure is not None or until(), 20)
            if self.transport.failure:
                raise self.transport.failure


def cut(transport: Transport) -> None:
    """The process ends without a word."""
    transport._end(linger=0.0)


@pytest.mark.parametrize("shared", [True, False])
def test_messages_come_whole_and_in_order(in_processes, no_shared_memory, shared):
    """Small and large ones, which lie in shared memory where there is any."""
    if not shared:
        no_shared_memory()
    buffers = [None, *(torch.arange(-3, 1000 * k).to(dtype) for k, dtype in enumerate(DTYPES[1:], 1)), torch.zeros(0), torch.ones(1 << 16)]

    def work(those):
        heard = Heard(those)
        for peer in range(those.size):
            if peer != those.rank:
                for number, buffer in enumerate(buffers):
                    heard.transport.send(peer, NOTE, [number, 0.5, -1e300], buffer)
        heard.wait(lambda: len(heard.messages) == (those.size - 1) * len(buffers))
        for peer in range(those.size):
            own = [message for message in heard.messages if message[0] == peer]
            own.sort(key=lambda message: message[2][0] * shared)  # what is left in shared memory may overtake
            for number, (message, buffer) in enumerate(zip(own, buffers if own else [], strict=True)):
                assert message[1:3] == (NOTE, [number, 0.5, -1e300])
                assert message[3] is None if buffer is None else message[3].dtype == buffer.dtype and torch.equal(message[3], buffer)
        borrowed = len(heard.transport._slots._borrowed)
        those.barrier()
        heard.transport.close()
        assert heard.lost == [] and heard.transport.failure is None
        return borrowed

    assert in_processes(3, work) == [2 * (len(buffers) - 2) * shared] * 3


def test_no_sender_waits_for_a_process_that_does_not_read(in_processes):
    """Far more than the system holds of a connection, for one who does not read for a while."""
    count = 20_000

    def work(those):
        heard = Heard(those)
        if those.rank == 0:
            for number in range(count):
                heard.transport.send(1, NOTE, [number, *range(20)])
            those.barrier()
        else:
            with heard.transport.changed:  # which reading needs
                those.barrier()
                assert len(heard.messages) < count
            heard.wait(lambda: len(heard.messages) == count)
            assert [message[2][0] for message in heard.messages] == list(range(count))
        those.barrier()
        heard.transport.close()

    in_processes(2, work)


def test_memory_that_is_lent_is_read_and_answered_in_place(in_processes):
    def work(those):
        heard = Heard(those)
        mine = heard.transport.lend(torch.zeros(5, dtype=torch.float64)).fill_(those.rank + 1)
        heard.transport.send(1 - those.rank, NOTE, [], mine)
        heard.wait(lambda: heard.messages)
        heard.messages[0][3].mul_(10)
        those.barrier()
        assert mine.tolist() == [10.0 * (those.rank + 1)] * 5
        heard.transport.close()
        return True

    assert in_processes(2, work) == [True, True]


def test_a_slot_is_lent_again_when_nobody_anywhere_refers_to_it():
    host, pid, like = torch.device("cpu"), os.getpid(), torch.zeros(3, dtype=torch.uint8)
    owner, reader = Slots(0, 2), Slots(1, 2)
    first, second = owner.lend(like, host), owner.lend(like, host)
    places = [tensor.data_ptr() for tensor in (first, second)]
    assert places[0] != places[1] and owner.is_lent(first) and not owner.is_lent(like) and not reader.is_lent(first)
    assert not owner.is_lent(first[:2]) and owner.grant(first[:2], 1) is None
    file = owner.grant(first.fill_(7), 1)
    assert owner.grant(first, 1) == file and owner.grant(like, 1) is None
    borrowed = [reader.borrow(pid, file, 3, torch.uint8) for _ in range(2)]
    assert borrowed[0].tolist() == [7] * 3
    del first
    assert owner.lend(like, host).data_ptr() not in places  # the reader refers to it twice
    borrowed.pop()
    assert owner.lend(like, host).data_ptr() not in places
    borrowed.pop()
    assert owner.lend(torch.zeros(5000), host).data_ptr() not in places  # too small
    again = owner.lend(like, host)
    assert again.data_ptr() == places[0]
    owner.grant(again, 1)
    kept = reader.borrow(pid, file, 3, torch.uint8)
    del again
    owner.forget(1)  # it has died
    again = owner.lend(like, host)
    assert again.data_ptr() == places[0] and len(second) == 3 and len(kept) == 3


class Computing:
    """Process 1 of two computes, and `heard` of it answers NOTE with another one; process 0 does `ask(its transport)` meanwhile.

    What process 1 had heard when that was done, and when it had computed.
    """

    def __init__(self, in_processes, ask, looks=True) -> None:
        def work(those):
            heard = Heard(those)
            if those.rank == 0:
                those.barrier()
                ask(heard)
                those.barrier()
                found = None
            else:
                heard.transport._handle_message = lambda *message: (heard.messages.append(message), heard.transport.send(0, NOTE))
                with heard.transport.polling():
                    those.barrier()
                    those.barrier()
                    before = [message[2] for message in heard.messages]
                    if looks:
                        heard.transport.poll()
                        assert not heard.transport._links[0].inbox.unread
                found = before, [message[2] for message in heard.messages]
            those.barrier()
            heard.transport.close()
            return found

        self.before, self.after = in_processes(2, work)[1]


def send(heard, *numbers, **more):
    with heard.transport.changed:
        heard.transport.send(1, NOTE, numbers, **more)


@pytest.mark.parametrize("looks", [True, False])
def test_a_polling_process_finds_messages_when_it_polls_or_has_computed(in_processes, looks):
    def ask(heard):
        send(heard, 1)
        send(heard, 2)
        time.sleep(0.1)

    done = Computing(in_processes, ask, looks)
    assert (done.before, done.after) == ([], [[1.0], [2.0]])


def test_a_process_that_begins_to_wait_wakes_the_reader(in_processes):
    def ask(heard):
        send(heard, 1)
        with heard.transport.changed:
            heard.transport.wait(lambda: heard.messages)

    assert Computing(in_processes, ask).before == [[1.0]]


def test_a_waiting_process_wakes_the_reader_for_messages_of_its_reading_thread(in_processes):
    def ask(heard):
        def wait():
            with heard.transport.changed:
                heard.transport.wait(lambda: heard.messages)

        waiting = threading.Thread(target=wait)
        waiting.start()
        time.sleep(0.1)
        send(heard, 1)
        waiting.join(20)
        assert heard.messages

    assert Computing(in_processes, ask).before == [[1.0]]


def test_queued_messages_come_before_those_of_the_connection(in_processes):
    def ask(heard):
        send(heard, 1)
        send(heard, *range(20))  # too long for a message queue
        heard.wait(lambda: len(heard.messages) == 2)

    assert Computing(in_processes, ask).before == [[1.0], list(range(20))]


def test_a_reader_that_just_stops_polling_is_woken(in_processes, monkeypatch):
    """It is polled when the message is left, and not any more when the writer looks again; the reader has had its last look."""

    def put(self, kind, numbers):
        left = MessageQueue.put(self, kind, numbers)
        self._marks[POLLED] = False
        return left

    def ask(heard):
        monkeypatch.setattr(heard.transport._links[1].outbox, "put", partial(put, heard.transport._links[1].outbox))
        send(heard, 1)
        heard.wait(lambda: heard.messages)

    assert Computing(in_processes, ask).before == [[1.0]]


def test_a_process_that_dies_while_polling_is_not_woken(in_processes, monkeypatch):
    """Nothing is left for it or queued any more, and what it was granted is lent again."""

    def work(those):
        heard = Heard(those)
        if those.rank == 1:
            with heard.transport.polling():
                those.barrier()
                cut(heard.transport)
                those.barrier()
            return True
        slot = heard.transport.lend(torch.zeros(5))
        place = slot.data_ptr()
        heard.transport._slots.grant(slot, 1)
        del slot
        those.barrier()
        heard.wait(lambda: heard.lost)
        sent = []
        monkeypatch.setattr(Link, "wake", sent.append)
        with heard.transport.changed:
            for _ in range(5):
                with pytest.raises(RuntimeError, match="ended"):
                    heard.transport.failure = None
                    threading.Timer(0.01, heard.transport._fail, [RuntimeError("ended")]).start()
                    heard.transport.wait(lambda: False)
        assert not sent and heard.transport.lend(torch.zeros(5)).data_ptr() == place
        those.barrier()
        return True

    assert in_processes(2, work) == [True, True]


def test_a_process_that_ends_is_lost_and_one_that_fails_ends_the_others(in_processes):
    def work(those):
        heard = Heard(those)
        if those.rank == 1:
            cut(heard.transport)
            return None
        heard.wait(lambda: heard.lost)
        assert heard.lost == [1]
        heard.transport.send(1, NOTE)  # goes nowhere
        if those.rank == 2:
            heard.wait(lambda: heard.messages)
            heard.transport.close(FAILED)
            return None
        heard.transport.send(2, NOTE)
        with pytest.raises(ProcessLostError, match="process 2 has failed"):
            heard.wait(lambda: False)
        return True

    assert in_processes(3, work) == [True, None, None]


def together(those):
    """Live groups, and the processes that they lose."""
    box = {}
    lost = []
    transport = Transport(those, lambda peer, kind, numbers, buffer: box["group"].deliver(peer, numbers, buffer), lost.append)
    box["group"] = LiveGroup(transport)
    transport.start()
    return transport, box["group"]


def test_a_live_group_exchanges_as_any_processes_do(in_processes):
    def work(those):
        transport, group = together(those)
        other = group.duplicate()
        for exchange in (group, other):
            buffer = torch.arange(5.0) * (those.rank + 1)
            exchange.sum(buffer, 0.5)
            assert torch.equal(buffer, torch.arange(5.0) * 3)
            assert exchange.control([those.rank, -those.rank]).tolist() == [3.0, -3.0]
            assert exchange.control([those.rank, -those.rank], largest=True).tolist() == [2.0, 0.0]
            gathered = exchange.gather(torch.full((those.rank,), those.rank))
            assert [part.tolist() for part in gathered] == [[], [1], [2, 2]]
            scattered = exchange.scatter([torch.full((p,), 10 * those.rank + p) for p in range(3)])
            assert [part.tolist() for part in scattered] == [[10 * p + those.rank] * those.rank for p in range(3)]
        those.barrier()
        transport.close()
        return True

    assert in_processes(3, work) == [True] * 3


@pytest.mark.parametrize("dead", [1, 3])
def test_a_live_group_goes_on_and_agrees_who_is_in_it(in_processes, dead):
    def work(those):
        transport, group = together(those)
        assert group.control([1.0])[0] == 4
        if those.rank == dead:
            cut(transport)
            return None
        sizes = {float(group.control([1.0])[0]) for _ in range(200)}
        with transport.changed:
            transport.changed.wait_for(lambda: dead in transport.dead, 20)
        group.barrier()
        assert sizes <= {3.0, 4.0} and group.control([1.0])[0] == 3 and group.size == 3
        assert [int(part[0]) for part in group.gather(torch.tensor([those.rank]))] == group.members == [p for p in range(4) if p != dead]
        assert group.members[group.rank] == those.rank
        group.barrier()
        transport.close()
        return True

    assert in_processes(4, work) == [None if rank == dead else True for rank in range(4)]


def test_without_process_0_all_ends(in_processes):
    def work(those):
        def lost(peer):
            raise ProcessLostError(f"process {peer} has died")

        box = {}
        transport = Transport(those, lambda peer, kind, numbers, buffer: box["group"].deliver(peer, numbers, buffer), lost)
        box["group"] = LiveGroup(transport)
        transport.start()
        if those.rank == 0:
            cut(transport)
            return None
        with pytest.raises(ProcessLostError, match="process 0"):
            for _ in range(3):
                box["group"].control(np.ones(2))
        return True

    assert in_processes(2, work) == [None, True]
