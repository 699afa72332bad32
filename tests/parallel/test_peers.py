"""Messages between processes, memory that they share, and those who are left when one has died. The processes are threads here."""

from __future__ import annotations

import os
import socket
import threading
import time
from functools import partial

import numpy as np
import pytest
import torch

from pykaldist.errors import ProcessLostError
from pykaldist.parallel import peers as peers_module
from pykaldist.parallel.mailbox import ATTENDED, Mailbox
from pykaldist.parallel.peers import DTYPES, FAILED, Peers
from pykaldist.parallel.shared import Slots, proof, readable
from pykaldist.parallel.survivors import Survivors

NOTE = 10


class Heard:
    """What has arrived."""

    def __init__(self, those) -> None:
        self.messages, self.lost = [], []
        self.peers = Peers(those, lambda *message: self.messages.append(message), self.lost.append)
        self.peers.start()

    def wait(self, until) -> None:
        with self.peers.changed:
            assert self.peers.changed.wait_for(lambda: self.peers.failure is not None or until(), 20)
            if self.peers.failure:
                raise self.peers.failure


def cut(peers: Peers) -> None:
    """The process ends without a word."""
    for link in peers._links.values():
        link.socket.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("shared", [True, False])
def test_messages_come_whole_and_in_order(in_processes, monkeypatch, shared):
    if not shared:
        monkeypatch.setattr(peers_module, "readable", lambda *about: False)
    buffers = [None, *(torch.arange(-3, 1000 * k).to(dtype) for k, dtype in enumerate(DTYPES[1:], 1)), torch.zeros(0)]

    def work(those):
        heard, sent = Heard(those), threading.Event()
        for peer in range(those.size):
            if peer != those.rank:
                for number, buffer in enumerate(buffers):
                    last = number == len(buffers) - 1
                    heard.peers.send(peer, NOTE, [number, 0.5, -1e300], buffer, sent.set if last else None)
        heard.wait(lambda: len(heard.messages) == (those.size - 1) * len(buffers))
        assert sent.wait(20)
        for peer in range(those.size):
            own = [message for message in heard.messages if message[0] == peer]
            for number, (message, buffer) in enumerate(zip(own, buffers if own else [], strict=True)):
                assert message[1:3] == (NOTE, [number, 0.5, -1e300])
                assert message[3] is None if buffer is None else message[3].dtype == buffer.dtype and torch.equal(message[3], buffer)
        granted = heard.peers.grant(1 - those.rank, heard.peers.lend(torch.zeros(3))) if those.rank < 2 else []
        those.barrier()
        heard.peers.close()
        assert heard.lost == []
        return bool(granted)

    assert in_processes(3, work) == [shared, shared, False]


def test_what_a_connection_does_not_take_at_once_is_queued(in_processes):
    """Far more than the system holds of a connection, for one who does not read for a while."""
    count = 60_000

    def work(those):
        heard, left = Heard(those), []
        if those.rank == 0:
            with heard.peers.changed:
                for number in range(count):
                    heard.peers.send(1, NOTE, [number, *range(20)], None, lambda number=number: left.append(number))
                assert 0 < len(left) < count
                assert heard.peers.changed.wait_for(lambda: len(left) == count, 20)
            assert left == list(range(count))
        else:
            with heard.peers.changed:  # which reading needs
                time.sleep(1.0)
            heard.wait(lambda: len(heard.messages) == count)
            assert [message[2][0] for message in heard.messages] == list(range(count))
        those.barrier()
        heard.peers.close()

    in_processes(2, work)


def test_memory_that_is_lent_is_read_and_answered_in_place(in_processes):
    def work(those):
        heard = Heard(those)
        mine = heard.peers.lend(torch.zeros(5, dtype=torch.float64)).fill_(those.rank + 1)
        heard.peers.send(1 - those.rank, NOTE, heard.peers.grant(1 - those.rank, mine))
        heard.wait(lambda: heard.messages)
        heard.peers.borrowed(1 - those.rank, heard.messages[0][2]).mul_(10)
        those.barrier()
        assert mine.tolist() == [10.0 * (those.rank + 1)] * 5
        heard.peers.close()
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
    assert owner.lend(torch.zeros(3), host).data_ptr() not in places  # too small
    again = owner.lend(like, host)
    assert again.data_ptr() == places[0]
    owner.grant(again, 1)
    kept = reader.borrow(pid, file, 3, torch.uint8)
    del again
    owner.forget(1)  # it has died
    again = owner.lend(like, host)
    assert again.data_ptr() == places[0] and len(second) == 3 and len(kept) == 3


class Computing:
    """Process 1 of two computes, and `heard` of it answers NOTE with another one; process 0 does `ask(its peers)` meanwhile.

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
                heard.peers._heed = lambda *message: (heard.messages.append(message), heard.peers.send(0, NOTE))
                with heard.peers.attending():
                    those.barrier()
                    those.barrier()
                    before = [message[2] for message in heard.messages]
                    if looks:
                        heard.peers.look()
                        assert not heard.peers._links[0].inbox.unread
                found = before, [message[2] for message in heard.messages]
            those.barrier()
            heard.peers.close()
            return found

        self.before, self.after = in_processes(2, work)[1]


def send(heard, *numbers, **more):
    with heard.peers.changed:
        heard.peers.send(1, NOTE, numbers, **more)


@pytest.mark.parametrize("looks", [True, False])
def test_who_attends_finds_what_is_left_when_it_looks_or_has_computed(in_processes, looks):
    def ask(heard):
        send(heard, 1)
        send(heard, 2)
        time.sleep(0.1)

    done = Computing(in_processes, ask, looks)
    assert (done.before, done.after) == ([], [[1.0], [2.0]])


def test_who_comes_to_wait_nudges(in_processes):
    def ask(heard):
        send(heard, 1)
        with heard.peers.changed:
            heard.peers.wait(lambda: heard.messages)

    assert Computing(in_processes, ask).before == [[1.0]]


def test_who_waits_already_nudges_for_what_its_reading_thread_leaves(in_processes):
    def ask(heard):
        def wait():
            with heard.peers.changed:
                heard.peers.wait(lambda: heard.messages)

        waiting = threading.Thread(target=wait)
        waiting.start()
        time.sleep(0.1)
        send(heard, 1)
        waiting.join(20)
        assert heard.messages

    assert Computing(in_processes, ask).before == [[1.0]]


def test_what_was_left_is_heard_before_what_comes_by_the_connection(in_processes):
    def ask(heard):
        send(heard, 1)
        send(heard, *range(20))  # too long for a mailbox
        heard.wait(lambda: len(heard.messages) == 2)

    assert Computing(in_processes, ask).before == [[1.0], list(range(20))]


def test_who_leaves_a_message_for_one_who_just_goes_nudges(in_processes, monkeypatch):
    """It is attended when the message is left, and not any more when the writer looks again; the reader has had its last look."""

    def put(self, kind, numbers):
        left = Mailbox.put(self, kind, numbers)
        self._marks[ATTENDED] = False
        return left

    def ask(heard):
        monkeypatch.setattr(heard.peers._links[1].outbox, "put", partial(put, heard.peers._links[1].outbox))
        send(heard, 1)
        heard.wait(lambda: heard.messages)

    assert Computing(in_processes, ask).before == [[1.0]]


def test_one_who_dies_attending_is_left_alone(in_processes):
    """Nothing is left for it or queued any more, and what it was granted is lent again."""

    def work(those):
        heard = Heard(those)
        if those.rank == 1:
            with heard.peers.attending():
                those.barrier()
                cut(heard.peers)
                those.barrier()
            return True
        slot = heard.peers.lend(torch.zeros(5))
        place, link = slot.data_ptr(), heard.peers._links[1]
        heard.peers.grant(1, slot)
        del slot
        those.barrier()
        heard.wait(lambda: heard.lost)
        queued = link._queued
        with heard.peers.changed:
            for _ in range(5):
                with pytest.raises(RuntimeError, match="ended"):
                    heard.peers.failure = None
                    threading.Timer(0.01, heard.peers._fail, [RuntimeError("ended")]).start()
                    heard.peers.wait(lambda: False)
        assert link._queued == queued and heard.peers.lend(torch.zeros(5)).data_ptr() == place
        those.barrier()
        return True

    assert in_processes(2, work) == [True, True]


def test_whose_memory_can_be_read(tmp_path):
    file = proof(b"secret")
    assert readable(os.getpid(), file, b"secret") and not readable(os.getpid(), file, b"other!") and not readable(1 << 22, file, b"secret")
    os.close(file)


def test_a_process_that_ends_is_lost_and_one_that_fails_ends_the_others(in_processes):
    def work(those):
        heard = Heard(those)
        if those.rank == 1:
            cut(heard.peers)
            return None
        heard.wait(lambda: heard.lost)
        assert heard.lost == [1]
        heard.peers.send(1, NOTE)  # goes nowhere
        if those.rank == 2:
            heard.wait(lambda: heard.messages)
            heard.peers.close(FAILED)
            return None
        heard.peers.send(2, NOTE)
        with pytest.raises(ProcessLostError, match="process 2 has failed"):
            heard.wait(lambda: False)
        return True

    assert in_processes(3, work) == [True, None, None]


def test_strangers_are_not_let_in(in_processes, monkeypatch):
    """Somebody knocks at every port before the others do."""
    connect = peers_module._connect

    def after_strangers(card, rank, peer):
        for greeting in (b"", b"GET / HTTP/1.0\r\n\r\n" + bytes(40), peers_module.GREETING.pack(bytes(16), rank, True)):
            with socket.create_connection(("127.0.0.1", card["port"])) as stranger:
                stranger.sendall(greeting)
        return connect(card, rank, peer)

    monkeypatch.setattr(peers_module, "_connect", after_strangers)
    monkeypatch.setattr(peers_module, "CONNECT_S", 2.0)

    def work(those):
        heard = Heard(those)
        heard.peers.send(1 - those.rank, NOTE)
        heard.wait(lambda: heard.messages)
        those.barrier()
        heard.peers.close()
        return True

    assert in_processes(2, work) == [True, True]


def together(those):
    """Survivors and whom they lose."""
    box = {}
    lost = []
    peers = Peers(those, lambda peer, kind, numbers, buffer: box["group"].deliver(peer, numbers, buffer), lost.append)
    box["group"] = Survivors(peers)
    peers.start()
    return peers, box["group"]


def test_survivors_exchange_as_any_processes_do(in_processes):
    def work(those):
        peers, group = together(those)
        twin = group.twin()
        for exchange in (group, twin):
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
        peers.close()
        return True

    assert in_processes(3, work) == [True] * 3


@pytest.mark.parametrize("dead", [1, 3])
def test_survivors_go_on_and_agree_who_they_are(in_processes, dead):
    def work(those):
        peers, group = together(those)
        assert group.control([1.0])[0] == 4
        if those.rank == dead:
            cut(peers)
            return None
        sizes = {float(group.control([1.0])[0]) for _ in range(200)}
        with peers.changed:
            peers.changed.wait_for(lambda: dead in peers.gone, 20)
        group.barrier()
        assert sizes <= {3.0, 4.0} and group.control([1.0])[0] == 3 and group.size == 3
        assert [int(part[0]) for part in group.gather(torch.tensor([those.rank]))] == group.members == [p for p in range(4) if p != dead]
        assert group.members[group.rank] == those.rank
        group.barrier()
        peers.close()
        return True

    assert in_processes(4, work) == [None if rank == dead else True for rank in range(4)]


def test_without_process_0_all_ends(in_processes):
    def work(those):
        def lost(peer):
            raise ProcessLostError(f"process {peer} has died")

        box = {}
        peers = Peers(those, lambda peer, kind, numbers, buffer: box["group"].deliver(peer, numbers, buffer), lost)
        box["group"] = Survivors(peers)
        peers.start()
        if those.rank == 0:
            cut(peers)
            return None
        with pytest.raises(ProcessLostError, match="process 0"):
            for _ in range(3):
                box["group"].control(np.ones(2))
        return True

    assert in_processes(2, work) == [None, True]
