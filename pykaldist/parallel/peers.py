"""The processes of a job as peers: messages that come when they come, and a process whose death is not the end of the others.

MPI and NCCL offer neither. Their messages want a matching call at the other end, they wait for it by spinning, which takes the core from
whoever computes on it, and they end a job with any of its processes. So what workers tell each other that go each their own way takes
connections of its own: TCP between each two processes, set up with the help of the processes as they have met (by MPI, NCCL or gloo).

A message is a kind, a few numbers, and a buffer or none. One without a buffer leaves at once, from whichever thread sends it, where the
connection takes it without waiting: a thread to wake on the way takes longer than all else that such a message needs. The others are
queued for a thread of the connection's own. Another one reads: it calls `heed` with whatever arrives. Both sleep in the system while there
is nothing to do. Everything that they change is guarded by `changed`, a condition whose lock `heed` is called with.

Large buffers for a process of the same machine lie in memory that both share (`parallel/shared.py`); what is sent then says where. While
that process computes, and looks about from time to time (`attending`), messages without a buffer are left in its mailbox there
(`parallel/mailbox.py`), and it calls `heed` itself. Who comes to wait for something nudges those who have not found what he left. What
is left in a mailbox may overtake what was sent before by the connection, and is dropped where its writer is lost.

A process that ends without `close` is lost to the others: at once where its system closes its connections, within about `SILENCE_S` where
its machine is gone. Who connects has to know a secret that only the job's processes have told each other.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import queue
import secrets
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pykaldist.errors import ProcessLostError, UserError
from pykaldist.parallel.mailbox import BYTES, Mailbox
from pykaldist.parallel.processes import Processes
from pykaldist.parallel.shared import Slots, make, mapped, proof, readable

FAREWELL, FAILED, NUDGE = range(3)  # kinds of messages of a connection's own
SHARE, RESULT, CALL, ANSWER, KNOCK, GRANT, ASK, TOLD = range(3, 11)  # and of its users'
SILENCE_S = 60  # of a machine, after which it counts as gone
CONNECT_S = 10.0
READ_AHEAD = 4096  # bytes
SECRET = 16  # bytes
DTYPES = (None, torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8)  # None: no buffer
HEADER = struct.Struct("<BBHQ")  # kind, type of the buffer, how many numbers, the buffer's bytes
GREETING = struct.Struct(f"<{SECRET}sI?")  # the other's secret, one's rank, whether one can read the other's memory
WELCOME = struct.Struct("<?")  # whether that can read one's own
SIOCGIFADDR = 0x8915


class GoneError(Exception):
    """A peer has ended in the middle of something."""


@dataclass
class Message:
    """What is left to send of one; `sent` is called when all of it has left."""

    head: memoryview
    buffer: Tensor | None
    sent: Callable[[], object] | None

    @classmethod
    def of(cls, kind: int, numbers: Sequence[float] = (), buffer: Tensor | None = None,
           sent: Callable[[], object] | None = None) -> Message:
        code, size = (0, 0) if buffer is None else (DTYPES.index(buffer.dtype), buffer.numel() * buffer.itemsize)
        head = HEADER.pack(kind, code, len(numbers), size) + struct.pack(f"<{len(numbers)}d", *numbers)
        return cls(memoryview(head), buffer, sent)

    def write(self, sock: socket.socket) -> None:
        sock.sendall(self.head)
        if self.buffer is not None and len(self.buffer):
            sock.sendall(memoryview(self.buffer.detach().contiguous().view(torch.uint8).numpy()))


@dataclass
class Link:
    """To one peer, process `pid` of its machine, whose mailboxes are its file `boxes`; where memory is `shared`, there is one each way."""

    socket: socket.socket
    pid: int
    boxes: int
    shared: bool
    outbox: Mailbox | None = None
    inbox: Mailbox | None = None
    threads: list[threading.Thread] = field(default_factory=list)
    _outgoing: queue.SimpleQueue[Message | None] = field(default_factory=queue.SimpleQueue)
    _queued: int = 0  # messages, and the one being written
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def put(self, message: Message | None) -> None:
        """Queue a message; None: there will be no more."""
        with self._turn:
            self._enqueue(message)

    def _enqueue(self, message: Message | None) -> None:
        self._queued += 1
        self._outgoing.put(message)

    def send(self, message: Message) -> bool:
        """Send a message without a buffer at once, if nothing is before it and the connection takes it, else queue what is left of it; True
        where all of it has left."""
        with self._turn:
            if not self._queued:
                with contextlib.suppress(OSError):  # there is no room, or nobody: whoever writes the queue finds out
                    message.head = message.head[self.socket.send(message.head, socket.MSG_DONTWAIT) :]
            if len(message.head):
                self._enqueue(message)
            return not len(message.head)

    def write_queued(self) -> Message | None:
        """Wait for a message in the queue, and for the connection to take it; None where there will be no more."""
        message = self._outgoing.get()
        if message is not None:
            message.write(self.socket)
            with self._turn:
                self._queued -= 1
        return message


class Peers:
    """Of process `processes.rank` of `processes.size`, which have to make theirs at the same time.

    `heed(peer, kind, numbers, buffer)` takes what arrives, `lost(peer)` learns that a process has ended; both are called with the lock of
    `changed`. What they raise is `failure`, for whoever waits.
    """

    def __init__(self, processes: Processes, heed: Callable[[int, int, list[float], Tensor | None], None],
                 lost: Callable[[int], None]) -> None:
        self.rank, self.size, self._heed, self._lost = processes.rank, processes.size, heed, lost
        self.changed = threading.Condition(threading.RLock())
        self.failure: Exception | None = None
        self.gone: set[int] = set()  # those lost
        self._closing = self._waits = False
        self._links = _meet(processes)
        self._slots = Slots(self.rank, self.size)
        for peer, link in self._links.items():
            link.threads = [threading.Thread(target=target, args=(peer, link), name=f"{target.__name__.strip('_')} {peer}", daemon=True)
                            for target in (self._read, self._write)]

    def start(self) -> None:
        """Begin to hear the others."""
        for link in self._links.values():
            for thread in link.threads:
                thread.start()

    def send(self, to: int, kind: int, numbers: Sequence[float] = (), buffer: Tensor | None = None,
             sent: Callable[[], object] | None = None) -> None:
        """Send a message, or queue it; the buffer, on the host, must stay as it is until it is `sent`. To one who is gone it goes nowhere.

        To be called with the lock, as `sent` is.
        """
        link, message = self._links[to], Message.of(kind, numbers, buffer, sent)
        if buffer is not None:
            link.put(message)
        elif (self._leave(link, kind, numbers) or link.send(message)) and sent is not None:
            sent()

    def _leave(self, link: Link, kind: int, numbers: Sequence[float]) -> bool:
        """Leave a message where the peer will find it; False where it does not look there."""
        if link.outbox is None or not link.outbox.put(kind, numbers):
            return False
        if self._waits or not link.outbox.attended:
            link.send(Message.of(NUDGE))
        return True

    @contextlib.contextmanager
    def attending(self) -> Iterator[None]:
        """Entered while this process calls `look` from time to time."""
        inboxes = [link.inbox for link in self._links.values() if link.inbox is not None]
        for inbox in inboxes:
            inbox.attended = True
        try:
            yield
        finally:
            for inbox in inboxes:
                inbox.attended = False
            self.look()

    def look(self) -> None:
        """Deal with what others have left here."""
        for peer, link in self._links.items():
            if link.inbox is not None and link.inbox.unread:
                with self.changed:
                    for message in link.inbox.take():
                        self._take(peer, *message, None)

    def shares(self, to: int) -> bool:
        """Whether memory is shared with a peer."""
        return self._links[to].shared

    def lend(self, like: Tensor, device: torch.device | str | None = None) -> Tensor:
        """A tensor of `like`'s length and type, on its device or another; on the host, in memory that is shared. That is not lent
        again until neither it nor what peers have been granted of it is referred to any more."""
        return self._slots.lend(like, like.device if device is None else torch.device(device))

    def is_lent(self, tensor: Tensor) -> bool:
        """Whether this is what `lend` has returned."""
        return self._slots.is_lent(tensor)

    def grant(self, to: int, tensor: Tensor) -> list[float]:
        """The numbers by which a peer finds what is lent; none where no memory is shared."""
        file = self._slots.grant(tensor, to) if self.shares(to) else None
        return [] if file is None else [file, tensor.numel() * tensor.itemsize, DTYPES.index(tensor.dtype)]

    def borrowed(self, peer: int, numbers: Sequence[float]) -> Tensor:
        """What a peer has granted, by these numbers, for as long as this is referred to. To be called with the lock."""
        file, size, code = (int(n) for n in numbers)
        dtype = DTYPES[code]
        assert dtype is not None
        try:
            return self._slots.borrow(self._links[peer].pid, file, size, dtype)
        except FileNotFoundError as error:
            raise GoneError from error

    def wait(self, until: Callable[[], object]) -> None:
        """Until this is true, whatever arrives meanwhile; raises `failure`. To be called with the lock."""
        if not until():
            self._waits = True
            for link in self._links.values():
                if link.outbox is not None and link.outbox.unread:
                    link.send(Message.of(NUDGE))
        self.changed.wait_for(lambda: self.failure is not None or until())
        self._waits = False
        if self.failure is not None:
            raise self.failure

    def close(self, kind: int = FAREWELL) -> None:
        """Part from the others, in agreement; or, with `FAILED`, because something here has ended the job."""
        with self.changed:
            self._closing = True
        for link in self._links.values():
            link.put(Message.of(kind))
            link.put(None)
        for peer, link in self._links.items():
            for thread in link.threads if kind == FAREWELL else link.threads[1:]:
                if peer not in self.gone:
                    thread.join(CONNECT_S)
            link.socket.close()

    def _write(self, peer: int, link: Link) -> None:
        try:
            while (message := link.write_queued()) is not None:
                if message.sent is not None:
                    with self.changed:
                        message.sent()
                        self.changed.notify_all()
                del message  # what it refers to may be lent again
        except OSError:
            self._lose(peer)
        except Exception as error:  # of what is done when a message has left
            self._fail(error)

    def _read(self, peer: int, link: Link) -> None:
        header, incoming = bytearray(HEADER.size), Incoming(link.socket, READ_AHEAD)
        try:
            while True:
                incoming.fill(header)
                kind, code, count, size = HEADER.unpack(header)
                numbers = bytearray(8 * count)
                incoming.fill(numbers)
                buffer, dtype = None, DTYPES[code]
                if dtype is not None:
                    buffer = torch.empty(size // dtype.itemsize, dtype=dtype)
                    incoming.fill(buffer.view(torch.uint8).numpy())
                self.look()
                if kind == FAREWELL:
                    return  # ours is on its way
                if kind == NUDGE:
                    continue
                if not self._take(peer, kind, list(struct.unpack(f"<{count}d", numbers)), buffer):
                    return
        except OSError:
            self._lose(peer)

    def _take(self, peer: int, kind: int, numbers: list[float], buffer: Tensor | None) -> bool:
        """What has been read; False where nothing more is to be."""
        with self.changed:
            if peer in self.gone:
                return False  # what it had sent before it was lost comes too late
            try:
                if kind == FAILED:
                    raise ProcessLostError(f"process {peer} has failed")
                self._heed(peer, kind, numbers, buffer)
            except GoneError:
                self._lose(peer)
            except Exception as error:  # whatever it is, this thread cannot deal with it
                self._fail(error)
            self.changed.notify_all()
            return peer not in self.gone and self.failure is None

    def _lose(self, peer: int) -> None:
        with self.changed:
            if peer in self.gone or self._closing:
                return
            self.gone.add(peer)
            self._slots.forget(peer)
            self._links[peer].outbox = None
            try:
                self._lost(peer)
            except Exception as error:  # the job cannot go on without this peer: for the main thread to say
                self._fail(error)
            self.changed.notify_all()

    def _fail(self, error: Exception) -> None:
        with self.changed:
            self.failure = self.failure or error
            self.changed.notify_all()


class Incoming:
    """What arrives by a socket, read up to `ahead` bytes ahead of what is asked for."""

    def __init__(self, sock: socket.socket, ahead: int = 0) -> None:
        self._socket, self._space = sock, memoryview(bytearray(ahead))
        self._held = self._space[:0]

    def fill(self, buffer: bytearray | np.ndarray) -> None:
        """Read as much as the buffer holds; raises OSError where the other end has closed."""
        view = memoryview(buffer)
        while len(view):
            if len(self._held):
                count = min(len(view), len(self._held))
                view[:count], self._held = self._held[:count], self._held[count:]
            elif len(view) >= len(self._space):
                count = self._receive(view)
            else:
                count, self._held = 0, self._space[: self._receive(self._space)]
            view = view[count:]

    def _receive(self, into: memoryview) -> int:
        count = self._socket.recv_into(into)
        if not count:
            raise ConnectionResetError("Connection closed by peer")
        return count


def _meet(processes: Processes) -> dict[int, Link]:
    """A connection to every other process."""
    secret = secrets.token_bytes(SECRET)
    shown, size = proof(secret), processes.size * BYTES
    boxes = make(size)
    try:
        links = dict(sorted(_connections(processes, secret, shown, boxes).items()))
        inboxes = mapped(os.getpid(), boxes, size)
        for peer, link in links.items():
            if link.shared:
                link.inbox = Mailbox(inboxes, peer)
                link.outbox = Mailbox(mapped(link.pid, link.boxes, size), processes.rank)
        return links
    finally:
        processes.barrier()
        os.close(shown)
        os.close(boxes)


def _connections(processes: Processes, secret: bytes, shown: int, boxes: int) -> dict[int, Link]:
    with socket.socket() as listener:
        listener.bind(("", 0))
        listener.listen(processes.size)
        card = {"host": socket.gethostname(), "addresses": _addresses(), "port": listener.getsockname()[1], "secret": secret.hex(),
                "pid": os.getpid(), "proof": shown, "boxes": boxes}
        own = torch.frombuffer(bytearray(json.dumps(card).encode()), dtype=torch.uint8)
        cards = [json.loads(bytes(part.tolist())) for part in processes.gather(own)]
        links = {peer: _connect(cards[peer], processes.rank, peer) for peer in range(processes.rank)}
        listener.settimeout(CONNECT_S)
        while len(links) < processes.size - 1:
            try:
                sock, _ = listener.accept()
            except TimeoutError as error:
                missing = sorted(set(range(processes.size)) - {*links, processes.rank})
                raise UserError(f"process {', '.join(map(str, missing))} has not connected to process {processes.rank} on {card['host']} "
                                f"within {CONNECT_S:g} s; do the hosts reach each other by TCP?") from error
            sock.settimeout(CONNECT_S / 4)
            greeting = bytearray(GREETING.size)
            try:
                Incoming(sock).fill(greeting)
            except OSError:
                sock.close()  # a stranger
                continue
            known, peer, reads = GREETING.unpack(greeting)
            if secrets.compare_digest(known, secret) and processes.rank < peer < processes.size:
                if peer in links:
                    links[peer].socket.close()  # it has tried again
                can = _can_read(cards[peer])
                sock.sendall(WELCOME.pack(can))
                links[peer] = Link(sock, cards[peer]["pid"], cards[peer]["boxes"], can and reads)
            else:
                sock.close()
    for link in links.values():
        sock = link.socket
        sock.settimeout(None)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, SILENCE_S // 4)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, SILENCE_S // 4)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * SILENCE_S)
    return links


def _can_read(card: dict[str, Any]) -> bool:
    return card["host"] == socket.gethostname() and readable(card["pid"], card["proof"], bytes.fromhex(card["secret"]))


def _connect(card: dict[str, Any], rank: int, peer: int) -> Link:
    """To process `peer`, by the first of its addresses at which it is found."""
    addresses = list(card["addresses"])
    if card["host"] == socket.gethostname():
        addresses.reverse()  # loopback first
    for address in addresses:
        sock = socket.socket()
        sock.settimeout(CONNECT_S / 4)
        try:
            sock.connect((address, card["port"]))
            can, welcome = _can_read(card), bytearray(WELCOME.size)
            sock.sendall(GREETING.pack(bytes.fromhex(card["secret"]), rank, can))
            Incoming(sock).fill(welcome)
            return Link(sock, card["pid"], card["boxes"], can and WELCOME.unpack(welcome)[0])
        except OSError:
            pass
        sock.close()
    raise UserError(f"process {rank} on {socket.gethostname()} cannot reach process {peer} on {card['host']} at any of its addresses "
                    f"{', '.join(addresses)}, port {card['port']}; do the hosts reach each other by TCP?")


def _addresses() -> list[str]:
    """The IPv4 addresses of this machine's interfaces, loopback last."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                reply = fcntl.ioctl(probe.fileno(), SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue  # an interface without an address
            found.append(socket.inet_ntoa(reply[20:24]))
    return sorted(found, key=lambda address: address.startswith("127."))
