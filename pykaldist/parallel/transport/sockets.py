"""The ZeroMQ sockets of one process of a job: encrypted connections to all other processes, and the news that one has ended.

Each process has two ROUTER sockets. `incoming` is bound to an address. Only the reading thread uses it. `outgoing` is connected to the
incoming sockets of all others. Whoever sends uses it, and has to hold the transport's lock, as ZeroMQ's sockets are not safe for threads.
So a message is sent by the thread that makes it. To wake another Python thread for this would take longer than all the rest.

Who gets in. Each process makes a CURVE key pair for the job. The processes tell each other the public keys by MPI or gloo, by which they
have met. Secret keys are never sent. ZeroMQ encrypts and signs everything with these keys. It asks about the key of each process that
connects (`_check_key`): those of the job are accepted, all others are refused before any message of theirs is read. For a listener on the
way, the public keys are of no use.

Who has died. The monitor of the outgoing socket reports that a connection has ended: at once where the system of the other machine closes
it. Where that machine is gone, TCP's own keepalive finds this out within SILENCE_S. ZeroMQ's heartbeats are not used: the process itself
answers them, not its system. So a process that is stopped for a while (SIGSTOP, a debugger) would count as dead. ZeroMQ is told not to
connect again, as the process could have missed messages.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import zmq
from torch import Tensor
from zmq.utils import z85
from zmq.utils.monitor import recv_monitor_message

from pykaldist.errors import UserError
from pykaldist.parallel.fabric.processes import Processes
from pykaldist.parallel.transport.addresses import listening_address, machine_card
from pykaldist.parallel.transport.door import Guest

SILENCE_S = 60  # a machine that sends nothing for this time counts as gone
CONNECT_S = 10.0
READ_AHEAD = 4096  # bytes
LOOK_S = 0.1  # between two looks of a process that waits to be let in
CLOSED = zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED


@dataclass
class Peer:
    """Another process of the job.

    It has its machine, whether that is this one (`here`), its `pid`, the address where it listens, and `extra`, what else it has told.
    """

    host: str
    here: bool
    pid: int
    endpoint: str
    extra: Any


class Sockets:
    """The sockets of process `processes.rank`. All processes have to make theirs at the same time.

    `extra` is told to the others. `interface` is the network interface to listen at, if the user has named one. `card` tells others where
    this process listens. A guest makes its own later, and is connected with process 0 alone.
    """

    def __init__(self, processes: Processes, pid: int, extra: Any, interface: str = "") -> None:
        self.rank = processes.rank
        self._context = zmq.Context()
        self.incoming, self.outgoing = self._context.socket(zmq.ROUTER), self._context.socket(zmq.ROUTER)
        self._key_requests = self._context.socket(zmq.REP)  # ZeroMQ's requests to check the key of a process that connects
        self._key_requests.bind("inproc://zeromq.zap.01")
        self._missing: set[bytes] = set()  # public keys of the processes that have not connected yet
        self._known: set[bytes] = set()
        public, secret = zmq.curve_keypair()
        for one in (self.incoming, self.outgoing):
            one.curve_publickey, one.curve_secretkey = public, secret
            for option, value in {zmq.LINGER: 0, zmq.SNDHWM: 0, zmq.RCVHWM: 0, zmq.BACKLOG: 2 * processes.size + 100, zmq.TCP_KEEPALIVE: 1,
                                  zmq.TCP_KEEPALIVE_IDLE: SILENCE_S // 4, zmq.TCP_KEEPALIVE_INTVL: SILENCE_S // 4, zmq.TCP_KEEPALIVE_CNT: 3,
                                  zmq.TCP_MAXRT: 1000 * SILENCE_S}.items():
                one.setsockopt(option, value)
        self.incoming.curve_server = True
        guest = isinstance(processes, Guest)
        self.outgoing.setsockopt(zmq.ROUTING_ID, _name(self.rank, pid if guest else 0))
        self._names: dict[int, bytes] = {}  # processes that have replaced others
        self.outgoing.setsockopt(zmq.RECONNECT_IVL, -1)
        self._monitor = self.outgoing.get_monitor_socket(CLOSED | zmq.EVENT_HANDSHAKE_SUCCEEDED)
        self._poller = zmq.Poller()
        for one in (self.incoming, self._monitor, self._key_requests):
            self._poller.register(one, zmq.POLLIN)
        self.card: dict[str, Any] = {**machine_card(), "key": public.decode(), "pid": pid}
        self.peers = self._enter(processes, interface) if isinstance(processes, Guest) else \
            self._meet(processes, public, pid, extra, interface)

    def _meet(self, processes: Processes, public: bytes, pid: int, extra: Any, interface: str) -> dict[int, Peer]:
        """Connect to every other process. Returns what each has told."""
        about = machine_card()
        places = allgather_json(processes, about)
        address = listening_address(places, interface)
        port = self.incoming.bind_to_random_port(f"tcp://{address}")
        self.card["endpoint"] = f"tcp://{address}:{port}"
        cards = allgather_json(processes, {"endpoint": f"tcp://{address}:{port}", "key": public.decode(), "pid": pid, "extra": extra})
        self._known = {z85.decode(card["key"]) for card in cards}
        self._missing = self._known - {z85.decode(public)}
        peers = {}
        for peer, (place, card) in enumerate(zip(places, cards, strict=True)):
            if peer != self.rank:
                peers[peer] = Peer(place["host"], place["machine"] == about["machine"], card["pid"], card["endpoint"], card["extra"])
                self._connect(_name(peer), card)
        self._rank_of = {one.endpoint.encode(): peer for peer, one in peers.items()}
        self._await_handshakes(peers)
        processes.barrier()
        return peers

    def _connect(self, name: bytes, card: dict[str, Any]) -> None:
        """Begin to connect with a process, by its card."""
        self.outgoing.curve_serverkey = card["key"].encode()
        self.outgoing.setsockopt(zmq.CONNECT_ROUTING_ID, name)
        self.outgoing.connect(card["endpoint"])

    def _enter(self, guest: Guest, interface: str) -> dict[int, Peer]:
        """Wait until process 0 lets this one in, and connect with it."""
        facts = guest.facts
        address = listening_address([facts], interface)
        self.card["endpoint"] = f"tcp://{address}:{self.incoming.bind_to_random_port(f'tcp://{address}')}"
        self._known = {z85.decode(facts["key"])}
        self._missing = set(self._known)
        guest.knock(self.card)
        while not guest.let_in(self.card):
            if self._key_requests in dict(self._poller.poll(round(1000 * LOOK_S))):
                self._check_key()
        self._rank_of = {facts["endpoint"].encode(): 0}
        self._connect(_name(0), facts)
        peers = {0: Peer(facts["host"], False, facts["pid"], facts["endpoint"], None)}
        self._await_handshakes(peers)
        return peers

    def admit(self, peer: int, card: dict[str, Any]) -> None:
        """Connect with a process that replaces another one. To be called with the transport's lock."""
        self._known = {*self._known, z85.decode(card["key"])}
        self._names[peer] = _name(peer, card["pid"])
        known = {endpoint: rank for endpoint, rank in self._rank_of.items() if rank != peer}
        self._rank_of = {**known, card["endpoint"].encode(): peer}
        self._connect(self._names[peer], card)

    def _await_handshakes(self, peers: dict[int, Peer]) -> None:
        """Wait until there are connections with all others, both ways. Raises UserError where one is not there in time."""
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
        """Answer ZeroMQ, which asks whether a process may connect (its RFC 27). Only processes of the job may."""
        _, request, _, _, _, mechanism, *credentials = self._key_requests.recv_multipart()
        known = mechanism == b"CURVE" and credentials[0] in self._known
        self._missing -= set(credentials)
        self._key_requests.send_multipart([b"1.0", request, *((b"200", b"OK") if known else (b"400", b"not of this job")), b"", b""])

    def send(self, to: int, head: bytes, buffer: Tensor | None = None) -> None:
        """Send a message, which is copied. A message to a process that has ended is dropped. To be called with the transport's lock."""
        frames: list[Any] = [self._names.get(to) or _name(to), head]
        if buffer is not None:
            frames.append(buffer.detach().contiguous().view(torch.uint8).numpy().data)
        self.outgoing.send_multipart(frames, zmq.DONTWAIT)

    def listen(self, take: Callable[[int, bytes, zmq.Frame | None], object], lose: Callable[[int], object], pipe: int,
               woken: Callable[[], object]) -> None:
        """Read for ever: call `take` for each message, `lose` for each process that has ended, `woken` when something is written to `pipe`.

        Messages of a process that have arrived before its end are handled before its end.
        """
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
                if event["event"] & CLOSED and event["endpoint"] in self._rank_of:  # of none that has been replaced
                    lose(self._rank_of[event["endpoint"]])
            if self._key_requests in ready:
                self._check_key()

    def _arrived(self) -> Iterator[tuple[int, bytes, zmq.Frame | None]]:
        """The messages that have arrived: (the sender, the head, the bytes of the buffer if it has one)."""
        while True:
            try:
                sender = self.incoming.recv(zmq.DONTWAIT)
            except zmq.Again:
                return
            head = self.incoming.recv()
            yield int(sender.partition(b".")[0]), head, self.incoming.recv(copy=False) if self.incoming.getsockopt(zmq.RCVMORE) else None

    def close_outgoing(self, linger: float) -> None:
        """Close the outgoing socket. What has been sent may still leave for `linger` seconds. To be called with the transport's lock."""
        self.outgoing.disable_monitor()
        self.outgoing.close(int(1000 * linger))

    def close_incoming(self) -> None:
        """Close the incoming socket. To be called by the reading thread, or after it has ended."""
        self._monitor.close()
        self.incoming.close()
        self._key_requests.close()

    def end(self) -> None:
        """Wait until all has been sent. A thread that listens gets zmq.ContextTerminated, and has to close its sockets."""
        self._context.term()


def allgather_json(processes: Processes, thing: Any) -> list[Any]:
    """Gather one object of each process, sent as JSON: a list by rank."""
    own = torch.frombuffer(bytearray(json.dumps(thing).encode()), dtype=torch.uint8)
    return [json.loads(bytes(part.tolist())) for part in processes.gather(own)]


def _name(rank: int, pid: int = 0) -> bytes:
    """The name of a process among ZeroMQ's sockets; of one that replaces another one, with its pid."""
    return f"{rank}.{pid}".encode() if pid else str(rank).encode()
