"""ZeroMQ sockets of one process of a job: encrypted connections to all others, and the news that one of them has ended.

Each process has two ROUTER sockets. `incoming` is bound to an address; only the thread that reads uses it. `outgoing` is connected to
everyone's incoming socket; who sends uses it, and has to hold the transport's lock, as ZeroMQ's sockets are not safe for threads. So a
message leaves from the thread that makes it. Waking another Python thread for it would take longer than all else.

Who gets in. Each process makes a CURVE key pair for the job. They tell each other the public keys by MPI or gloo, by which they have met;
secret keys are told nobody. ZeroMQ encrypts and signs all with them, and asks about the key of whoever connects (`_check_key`): those of
the job are accepted. Anybody else is refused before a message of his is read. Public keys are of no use to who only listens on the way.

Who has died. The outgoing socket's monitor reports that a connection has ended: at once where the system of the other end closes it.
Where that machine is gone, TCP's own keepalive finds out within SILENCE_S. ZeroMQ's heartbeats are not used: the process answers them, not
its system, so that one that is stopped (SIGSTOP, a debugger) would count as dead, though it goes on later. ZeroMQ is told not to connect
again, as the process could have missed messages.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Interface
from typing import Any

import torch
import zmq
from torch import Tensor
from zmq.utils import z85
from zmq.utils.monitor import recv_monitor_message

from pykaldist.errors import UserError
from pykaldist.parallel.fabric.processes import Processes
from pykaldist.parallel.transport.addresses import LOOPBACK, facing, interfaces, machine

SILENCE_S = 60  # of a machine, after which it counts as gone
CONNECT_S = 10.0
READ_AHEAD = 4096  # bytes
CLOSED = zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED


@dataclass
class Peer:
    """Another process of the job: its `pid`, and where it listens; `here`: on this machine. `extra`: what else it has told."""

    host: str
    here: bool
    pid: int
    endpoint: str
    extra: Any


class Sockets:
    """Those of process `processes.rank`; all processes have to make theirs at the same time.

    `extra` is told to the others. `interface`: the network interface to listen at, if the user has named one.
    """

    def __init__(self, processes: Processes, pid: int, extra: Any, interface: str = "") -> None:
        self.rank = processes.rank
        self._context = zmq.Context()
        self.incoming, self.outgoing = self._context.socket(zmq.ROUTER), self._context.socket(zmq.ROUTER)
        self._key_requests = self._context.socket(zmq.REP)  # of ZeroMQ, about keys
        self._key_requests.bind("inproc://zeromq.zap.01")
        self._missing: set[bytes] = set()  # public keys of those who have not connected yet
        self._known: set[bytes] = set()
        public, secret = zmq.curve_keypair()
        for one in (self.incoming, self.outgoing):
            one.curve_publickey, one.curve_secretkey = public, secret
            for option, value in {zmq.LINGER: 0, zmq.SNDHWM: 0, zmq.RCVHWM: 0, zmq.BACKLOG: 2 * processes.size + 100, zmq.TCP_KEEPALIVE: 1,
                                  zmq.TCP_KEEPALIVE_IDLE: SILENCE_S // 4, zmq.TCP_KEEPALIVE_INTVL: SILENCE_S // 4, zmq.TCP_KEEPALIVE_CNT: 3,
                                  zmq.TCP_MAXRT: 1000 * SILENCE_S}.items():
                one.setsockopt(option, value)
        self.incoming.curve_server = True
        self.outgoing.setsockopt(zmq.ROUTING_ID, _name(self.rank))
        self.outgoing.setsockopt(zmq.RECONNECT_IVL, -1)
        self._monitor = self.outgoing.get_monitor_socket(CLOSED | zmq.EVENT_HANDSHAKE_SUCCEEDED)
        self._poller = zmq.Poller()
        for one in (self.incoming, self._monitor, self._key_requests):
            self._poller.register(one, zmq.POLLIN)
        self.peers = self._meet(processes, public, pid, extra, interface)

    def _meet(self, processes: Processes, public: bytes, pid: int, extra: Any, interface: str) -> dict[int, Peer]:
        """A connection to every other process."""
        about = {"machine": machine(), "host": socket.gethostname(), "networks": {n: str(i) for n, i in interfaces().items()}}
        places = allgather_json(processes, about)
        others = {p["machine"]: [IPv4Interface(i) for i in p["networks"].values()] for p in places if p["machine"] != about["machine"]}
        address = facing(interfaces(), list(others.values()), interface) if others else LOOPBACK
        port = self.incoming.bind_to_random_port(f"tcp://{address}")
        cards = allgather_json(processes, {"endpoint": f"tcp://{address}:{port}", "key": public.decode(), "pid": pid, "extra": extra})
        self._known = {z85.decode(card["key"]) for card in cards}
        self._missing = self._known - {z85.decode(public)}
        peers = {}
        for peer, (place, card) in enumerate(zip(places, cards, strict=True)):
            if peer != self.rank:
                peers[peer] = Peer(place["host"], place["machine"] == about["machine"], card["pid"], card["endpoint"], card["extra"])
                self.outgoing.curve_serverkey = card["key"].encode()
                self.outgoing.setsockopt(zmq.CONNECT_ROUTING_ID, _name(peer))
                self.outgoing.connect(card["endpoint"])
        self._rank_of = {one.endpoint.encode(): peer for peer, one in peers.items()}
        self._await_handshakes(peers)
        processes.barrier()
        return peers

    def _await_handshakes(self, peers: dict[int, Peer]) -> None:
        """Until all connections are there, both ways; raises UserError where one is not in time."""
        missing, deadline = set(peers), time.monotonic() + CONNECT_S
        while missing or self._missing:
            ready = dict(self._poller.poll(max(0, round(1000 * (deadline - time.monotonic())))))
            if not ready:
                names = ", ".join(f"process {peer} on {peers[peer].host} ({peers[peer].endpoint})" for peer in sorted(missing))
                whom = f"cannot reach {names}" if missing else "is not reached by all other processes"
                raise UserError(f"process {self.rank} on {socket.gethostname()} {whom} within {CONNECT_S:g} s; do the hosts reach each "
                                "other by TCP? --interface names the network interface to use.")
            if self._monitor in ready:
                event = recv_monitor_message(self._monitor)
                if event["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                    missing.discard(self._rank_of[event["endpoint"]])
            if self._key_requests in ready:
                self._check_key()

    def _check_key(self) -> None:
        """Somebody connects: ZeroMQ asks whether he may (its RFC 27). Only processes of the job may."""
        _, request, _, _, _, mechanism, *credentials = self._key_requests.recv_multipart()
        known = mechanism == b"CURVE" and credentials[0] in self._known
        self._missing -= set(credentials)
        self._key_requests.send_multipart([b"1.0", request, *((b"200", b"OK") if known else (b"400", b"not of this job")), b"", b""])

    def send(self, to: int, head: bytes, buffer: Tensor | None = None) -> None:
        """Send a message, which is copied; to one who is gone it goes nowhere. To be called with the transport's lock."""
        frames: list[Any] = [_name(to), head]
        if buffer is not None:
            frames.append(buffer.detach().contiguous().view(torch.uint8).numpy().data)
        self.outgoing.send_multipart(frames, zmq.DONTWAIT)

    def listen(self, take: Callable[[int, bytes, zmq.Frame | None], object], lose: Callable[[int], object], pipe: int,
               woken: Callable[[], object]) -> None:
        """Hand on what arrives, who ends, and that something has been written to a pipe. What a process has sent before it ended, and has
        come, goes first."""
        self._poller.register(pipe, zmq.POLLIN)
        while True:
            ready = dict(self._poller.poll())
            if pipe in ready:
                os.read(pipe, READ_AHEAD)
                woken()
            for message in self._arrived() if self.incoming in ready or self._monitor in ready else ():
                take(*message)
            if self._monitor in ready:
                event = recv_monitor_message(self._monitor)
                if event["event"] & CLOSED:
                    lose(self._rank_of[event["endpoint"]])
            if self._key_requests in ready:
                self._check_key()

    def _arrived(self) -> Iterator[tuple[int, bytes, zmq.Frame | None]]:
        """The messages that are there: from whom, the head, and the buffer's bytes, if it has one."""
        while True:
            try:
                sender = self.incoming.recv(zmq.DONTWAIT)
            except zmq.Again:
                return
            head = self.incoming.recv()
            yield int(sender), head, self.incoming.recv(copy=False) if self.incoming.getsockopt(zmq.RCVMORE) else None

    def close_outgoing(self, linger: float) -> None:
        """What has been sent may still leave for so many seconds. To be called with the transport's lock."""
        self.outgoing.disable_monitor()
        self.outgoing.close(int(1000 * linger))

    def close_incoming(self) -> None:
        """To be called by the thread that has read, or after it has ended."""
        self._monitor.close()
        self.incoming.close()
        self._key_requests.close()

    def end(self) -> None:
        """Until all has left that is to leave. A thread that listens gets zmq.ContextTerminated, and has to close its sockets."""
        self._context.term()


def allgather_json(processes: Processes, thing: Any) -> list[Any]:
    """What each process tells, by rank."""
    own = torch.frombuffer(bytearray(json.dumps(thing).encode()), dtype=torch.uint8)
    return [json.loads(bytes(part.tolist())) for part in processes.gather(own)]


def _name(rank: int) -> bytes:
    """A process's name among ZeroMQ's sockets."""
    return str(rank).encode()
