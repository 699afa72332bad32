"""Messages and shared memory between the processes of a job: what asynchronous workers tell each other.

MPI and NCCL do not suit them. Their messages want a matching call at the other end, they wait for it by spinning, which takes the core from
whoever computes on it, and they end a job with any of its processes.

A message is a kind, a few numbers, and a buffer or none. It goes one of three ways:
    connection       ZeroMQ (`sockets.py`). A thread of the transport's own reads, and calls `heed` with what arrives; it sleeps while
                     nothing arrives.
    shared memory    buffers lie in memory that processes of one machine share (`shared_memory.py`); the message says where.
    message queue    short messages to a process of the same machine are left in its queue in shared memory (`message_queue.py`), and its
                     thread is woken by a pipe. While a process computes and looks about from time to time (`attending`), it is not
                     woken, and calls `heed` itself; who comes to wait for something wakes those who have not found what he left.
                     What is left there may overtake what was sent before by the connection.
All that `heed` and `lost` change is guarded by `changed`, a condition whose lock they are called with.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
import zmq
from torch import Tensor

from pykaldist.errors import ProcessLostError
from pykaldist.parallel.fabric.processes import Processes
from pykaldist.parallel.transport.message_queue import BYTES, MessageQueue
from pykaldist.parallel.transport.shared_memory import Slots, make, mapped
from pykaldist.parallel.transport.sockets import CONNECT_S, Sockets, allgather_json

CLOSED, FAILED = range(2)  # kinds of messages of the transport's own
SHARE, RESULT, CALL, ANSWER, RELEASE, REQUEST_TO_SEND, GRANT, WORK_REQUEST, WORK_ANSWER = range(2, 11)  # and of its users'
LENT = 128  # added to the kind where the last numbers are those of a lent buffer: its file, bytes and type
DTYPES = (None, torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8)  # None: no buffer
CLOSE_TIMEOUT_S = {CLOSED: CONNECT_S, FAILED: 2.0}  # who closes waits so long for the others' word
HEAD = struct.Struct("<BB")  # kind, type of the buffer; then the numbers


class PeerGoneError(Exception):
    """A process has ended in the middle of something."""


@dataclass
class Link:
    """The way to one process: where memory is shared with it, message queues each way, and the pipe by which it is woken."""

    pid: int
    shared: bool
    outbox: MessageQueue | None = None
    inbox: MessageQueue | None = None
    pipe: int = -1

    def wake(self) -> None:
        """Let the process look at what has been left for it."""
        with contextlib.suppress(OSError):  # it has been woken very often, or is gone
            os.write(self.pipe, b"!")


class Transport:
    """Of process `processes.rank` of `processes.size`, which have to make theirs at the same time.

    `handle_message(peer, kind, numbers, buffer)` takes what arrives; a buffer in shared memory is borrowed for as long as this tensor, not a view of
    it, is referred to. `lost(peer)` learns that a process has ended without `close`. What they raise is `failure`, for whoever waits.
    `interface`: the network interface to listen at where there are several machines, if the user has named one.
    """

    def __init__(self, processes: Processes, handle_message: Callable[[int, int, list[float], Tensor | None], None],
                 lost: Callable[[int], None], interface: str = "") -> None:
        self.rank, self.size, self._handle_message, self._handle_death = processes.rank, processes.size, handle_message, lost
        self.changed = threading.Condition(threading.RLock())
        self.failure: Exception | None = None
        self.dead: set[int] = set()  # those lost
        self._closed: set[int] = set()  # those who have closed
        self._closing = self._waits = False
        queues, self._pipe = make(self.size * BYTES), os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            self._sockets = Sockets(processes, os.getpid(), [queues, self._pipe[1]], interface)
            self._links = self._share(processes, queues)
            processes.barrier()
        finally:
            os.close(queues)
        self._slots = Slots(self.rank, self.size)
        self._reader = threading.Thread(target=self._read, name="transport", daemon=True)

    def _share(self, processes: Processes, queues: int) -> dict[int, Link]:
        """Map the message queues of the processes of this machine; memory is shared with those who can do so, too."""
        size, outboxes = self.size * BYTES, {}
        for peer, other in self._sockets.peers.items():
            if other.here:
                with contextlib.suppress(OSError):  # another user's
                    outbox = MessageQueue(mapped(other.pid, other.extra[0], size), self.rank)
                    outboxes[peer] = outbox, os.open(f"/proc/{other.pid}/fd/{other.extra[1]}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        inboxes, able = mmap.mmap(queues, size), allgather_json(processes, sorted(outboxes))
        links = {}
        for peer, other in self._sockets.peers.items():
            links[peer] = Link(other.pid, False)
            if peer in outboxes and self.rank in able[peer]:
                outbox, pipe = outboxes[peer]
                links[peer] = Link(other.pid, True, outbox, MessageQueue(inboxes, peer), pipe)
        return links

    def start(self) -> None:
        """Begin to hear the others."""
        self._reader.start()

    def send(self, to: int, kind: int, numbers: Sequence[float] = (), buffer: Tensor | None = None) -> None:
        """Send a message. The buffer is on the host; what is lent must stay as it is, anything else is copied. To one who is gone it goes
        nowhere."""
        with self.changed:
            if to in self.dead:
                return
            link = self._links[to]
            if buffer is not None and link.shared:
                if not self.is_lent(buffer):
                    buffer = self.sendable(to, buffer)
                file = self._slots.grant(buffer, to)
                if file is not None:
                    numbers = [*numbers, file, buffer.numel() * buffer.itemsize, DTYPES.index(buffer.dtype)]
                    kind, buffer = kind | LENT, None
            if buffer is None and link.outbox is not None and link.outbox.put(kind, numbers):
                if self._waits or not link.outbox.polled:
                    link.wake()
                return
            self._sockets.send(to, _head(kind, numbers, buffer), buffer)

    @contextlib.contextmanager
    def polling(self) -> Iterator[None]:
        """Entered while this process calls `look` from time to time."""
        inboxes = [link.inbox for link in self._links.values() if link.inbox is not None]
        for inbox in inboxes:
            inbox.polled = True
        try:
            yield
        finally:
            for inbox in inboxes:
                inbox.polled = False
            self.poll()

    def poll(self) -> None:
        """Deal with what others have left in the message queues here."""
        for peer, link in self._links.items():
            if link.inbox is not None and link.inbox.unread:
                with self.changed:
                    for message in link.inbox.take():
                        self._take(peer, *message, None)

    def shares(self, to: int) -> bool:
        """Whether memory is shared with a process."""
        return self._links[to].shared

    def lend(self, like: Tensor, device: torch.device | str | None = None) -> Tensor:
        """A tensor of `like`'s length and type, on its device or another; on the host, in memory that is shared. That is not lent
        again until neither it nor what others have been granted of it is referred to any more."""
        return self._slots.lend(like, like.device if device is None else torch.device(device))

    def is_lent(self, tensor: Tensor) -> bool:
        """Whether this is what `lend` has returned."""
        return self._slots.is_lent(tensor)

    def sendable(self, to: int, buffer: Tensor) -> Tensor:
        """A buffer as it is best sent to a process: a copy in memory that is shared with that; else itself, on the host."""
        return self.lend(buffer, "cpu").copy_(buffer) if len(buffer) and self.shares(to) else buffer.cpu()

    def wait(self, until: Callable[[], object]) -> None:
        """Until this is true, whatever arrives meanwhile; raises `failure`. To be called with the lock."""
        if not until():
            self._waits = True
            for link in self._links.values():
                if link.outbox is not None and link.outbox.unread and link.outbox.polled:
                    link.wake()
        self.changed.wait_for(lambda: self.failure is not None or until())
        self._waits = False
        if self.failure is not None:
            raise self.failure

    def close(self, kind: int = CLOSED) -> None:
        """Part from the others, in agreement; or, with `FAILED`, because something here has ended the job."""
        with self.changed:
            self._closing = True
            for peer in self._links.keys() - self.dead:
                self._sockets.send(peer, _head(kind))
            if self._reader.is_alive():
                self.changed.wait_for(lambda: self.dead | self._closed == self._links.keys(), CLOSE_TIMEOUT_S[kind])
        self._end()

    def _end(self, linger: float = 1.0) -> None:
        with self.changed:
            self._closing = True
            self._sockets.close_outgoing(linger)
        if not self._reader.is_alive():
            self._sockets.close_incoming()
        self._sockets.end()
        for pipe in (*self._pipe, *(link.pipe for link in self._links.values() if link.pipe >= 0)):
            os.close(pipe)

    def _read(self) -> None:
        try:
            self._sockets.listen(self._receive, self._end_of, self._pipe[0], self.poll)
        except zmq.ContextTerminated:
            pass
        finally:
            self._sockets.close_incoming()

    def _end_of(self, peer: int) -> None:
        """A process's connection has ended."""
        self.poll()  # what it had left comes first
        self._lose(peer)

    def _receive(self, peer: int, head: bytes, content: zmq.Frame | None) -> None:
        """A message has come by the connection."""
        kind, code = HEAD.unpack_from(head)
        numbers, dtype = list(struct.unpack_from(f"<{(len(head) - HEAD.size) // 8}d", head, HEAD.size)), DTYPES[code]
        buffer = None
        if dtype is not None:
            buffer = torch.empty(len(content) // dtype.itemsize if content is not None else 0, dtype=dtype)
            if content is not None and len(buffer):
                buffer.view(torch.uint8).numpy()[:] = content.buffer
        self.poll()
        self._take(peer, kind, numbers, buffer)

    def _take(self, peer: int, kind: int, numbers: list[float], buffer: Tensor | None) -> None:
        """A message has been read."""
        with self.changed:
            if peer in self.dead or (self.failure is not None and kind not in CLOSE_TIMEOUT_S):
                return  # what it had sent before it was lost comes too late
            try:
                if kind in CLOSE_TIMEOUT_S:
                    self._handle_close(peer, kind)
                else:
                    if kind & LENT:
                        *numbers, file, size, code = numbers
                        kind, buffer = kind - LENT, self._borrow(peer, int(file), int(size), int(code))
                    self._handle_message(peer, kind, numbers, buffer)
            except PeerGoneError:
                self._lose(peer)
            except Exception as error:  # whatever it is, this thread cannot deal with it
                self._fail(error)
            self.changed.notify_all()

    def _handle_close(self, peer: int, kind: int) -> None:
        """A process closes; one that has failed waits for this one's word before it ends."""
        if kind == FAILED:
            self._sockets.send(peer, _head(CLOSED))
        self._closed.add(peer)
        if kind == FAILED and not self._closing:
            raise ProcessLostError(f"process {peer} has failed")

    def _borrow(self, peer: int, file: int, size: int, code: int) -> Tensor:
        """What a process has lent."""
        dtype = DTYPES[code]
        assert dtype is not None
        try:
            return self._slots.borrow(self._links[peer].pid, file, size, dtype)
        except FileNotFoundError as error:
            raise PeerGoneError from error

    def _lose(self, peer: int) -> None:
        with self.changed:
            if peer in self.dead or peer in self._closed:
                return
            self.dead.add(peer)
            self._slots.forget(peer)
            self._links[peer].outbox = None
            try:
                if not self._closing:
                    self._handle_death(peer)
            except Exception as error:  # the job cannot go on without this process: for the main thread to say
                self._fail(error)
            self.changed.notify_all()

    def _fail(self, error: Exception) -> None:
        with self.changed:
            self.failure = self.failure or error
            self.changed.notify_all()


def _head(kind: int, numbers: Sequence[float] = (), buffer: Tensor | None = None) -> bytes:
    return HEAD.pack(kind, 0 if buffer is None else DTYPES.index(buffer.dtype)) + struct.pack(f"<{len(numbers)}d", *numbers)
