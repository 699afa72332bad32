"""The transport: messages and shared memory between the processes of a job whose workers are asynchronous, or which is elastic.

MPI and NCCL are not suited for this. Their messages need a matching call at the other end. They wait for it by spinning, which takes the
core from whoever computes on it. And they end a job when any of its processes ends.

A message is a kind, a few numbers, and a buffer or none. It goes one of three ways:
    connection       ZeroMQ (`sockets.py`). The transport's own thread reads, and calls `handle_message` with what arrives. It sleeps
                     while nothing arrives.
    shared memory    a buffer lies in memory that processes of one machine share (`shared_memory.py`); the message says where.
    message queue    a short message to a process of the same machine is put into a queue in shared memory (`message_queue.py`). The
                     receiver's thread is woken by a pipe. A process that computes and polls from time to time (`polling`) is not woken:
                     it calls `handle_message` itself. A process that begins to wait wakes those that have not yet read its messages.
                     A message in a queue may overtake an earlier one by the connection.
`changed` is a condition. All that `handle_message` and `handle_death` change is guarded by its lock, which is held when they are called.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import zmq
from torch import Tensor

from pykaldist.errors import ProcessLostError
from pykaldist.parallel.fabric.processes import Processes
from pykaldist.parallel.transport.message_queue import BYTES, MessageQueue
from pykaldist.parallel.transport.shared_memory import Slots, make, mapped
from pykaldist.parallel.transport.sockets import CONNECT_S, Sockets, allgather_json

CLOSED, FAILED = range(2)  # kinds of the transport's own messages
# Kinds of its users' messages.
SHARE, RESULT, CALL, ANSWER, RELEASE, REQUEST_TO_SEND, GRANT, WORK_REQUEST, WORK_ANSWER, JOIN = range(2, 12)
LENT = 128  # flag in the kind: the last three numbers are file, bytes and type of a lent buffer
DTYPES = (None, torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8)  # None: no buffer
CLOSE_TIMEOUT_S = {CLOSED: CONNECT_S, FAILED: 2.0}  # a process that closes waits so long for the others to close
HEAD = struct.Struct("<BB")  # kind, type of the buffer; then the numbers


class PeerGoneError(Exception):
    """A process has ended in the middle of an operation."""


@dataclass
class Link:
    """The ways to one other process. Where memory is shared with it: a message queue each way, and the pipe that wakes it."""

    pid: int
    shared: bool
    outbox: MessageQueue | None = None
    inbox: MessageQueue | None = None
    pipe: int = -1

    def wake(self) -> None:
        """Wake the process, so that it reads its message queue."""
        with contextlib.suppress(OSError):  # the pipe is full (it has been woken already), or the process has ended
            os.write(self.pipe, b"!")


class Transport:
    """Sends and receives the messages of process `processes.rank`. All processes have to make theirs at the same time.

    `handle_message(peer, kind, numbers, buffer)` is called for each message. A buffer in shared memory is borrowed as long as this tensor
    itself (not a view of it) is referred to. `handle_death(peer)` is called when a process has ended without `close`. An exception in
    either is kept in `failure`, and raised in `wait`. `interface` is the network interface to listen at where there are several machines,
    if the user has named one.
    """

    def __init__(self, processes: Processes, handle_message: Callable[[int, int, list[float], Tensor | None], None],
                 lost: Callable[[int], None], interface: str = "") -> None:
        self.rank, self.size, self._handle_message, self._handle_death = processes.rank, processes.size, handle_message, lost
        self.changed = threading.Condition(threading.RLock())
        self.failure: Exception | None = None
        self.dead: set[int] = set()  # processes that have ended without closing
        self._closed: set[int] = set()  # processes that have closed
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
        """Map the message queues of the processes on this machine. Memory is shared with those that can map this process's, too."""
        size, outboxes = self.size * BYTES, {}
        for peer, other in self._sockets.peers.items():
            if other.here:
                with contextlib.suppress(OSError):  # a process of another user
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

    @property
    def card(self) -> dict[str, Any]:
        """Where this process listens, and its public key, for those that are to connect later."""
        return self._sockets.card

    def admit(self, peer: int, card: dict[str, Any]) -> None:
        """Take in a process that replaces a dead one. Only connections are used with it, and no shared memory."""
        with self.changed:
            before = self._links[peer]
            if before.pipe >= 0:
                os.close(before.pipe)
            self._links[peer] = Link(card["pid"], False)
            self.dead.discard(peer)
            self._sockets.admit(peer, card)

    def start(self) -> None:
        """Start the thread that reads."""
        self._reader.start()

    def send(self, to: int, kind: int, numbers: Sequence[float] = (), buffer: Tensor | None = None) -> None:
        """Send a message. A message to a process that has ended is dropped.

        The buffer must be on the host. A lent buffer must not be changed afterwards; any other buffer is copied.
        """
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
        """A context in which this process calls `poll` from time to time."""
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
        """Handle the messages in this process's queues."""
        for peer, link in self._links.items():
            if link.inbox is not None and link.inbox.unread:
                with self.changed:
                    for message in link.inbox.take():
                        self._take(peer, *message, None)

    def shares(self, to: int) -> bool:
        """True where memory is shared with a process."""
        return self._links[to].shared

    def lend(self, like: Tensor, device: torch.device | str | None = None) -> Tensor:
        """Return a tensor of `like`'s length and type, on its device or another; on the host in shared memory, where there is any.

        Its memory is used again only when neither this process nor another refers to it any more.
        """
        return self._slots.lend(like, like.device if device is None else torch.device(device))

    def is_lent(self, tensor: Tensor) -> bool:
        """True for a tensor that `lend` has returned."""
        return self._slots.is_lent(tensor)

    def sendable(self, to: int, buffer: Tensor) -> Tensor:
        """A buffer as it is sent best to a process: copied to memory that is shared with it; else the buffer itself, on the host."""
        return self.lend(buffer, "cpu").copy_(buffer) if len(buffer) and self.shares(to) else buffer.cpu()

    def wait(self, until: Callable[[], object]) -> None:
        """Wait until `until()` is true; messages are handled meanwhile. Raises `failure`. To be called with the lock."""
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
        """Leave the job, when all do; or at once, with `FAILED`, because something here has ended the job."""
        with self.changed:
            self._closing = True
            for peer in self._links.keys() - self.dead:
                self._sockets.send(peer, _head(kind))
            if self._reader.is_alive():
                self.changed.wait_for(lambda: self.dead | self._closed == self._links.keys(), CLOSE_TIMEOUT_S[kind])
        self._end()

    def _end(self, linger: float = 1.0) -> None:
        """Close the sockets and pipes."""
        with self.changed:
            self._closing = True
            self._sockets.close_outgoing(linger)
        if not self._reader.is_alive():
            self._sockets.close_incoming()
        self._sockets.end()
        for pipe in (*self._pipe, *(link.pipe for link in self._links.values() if link.pipe >= 0)):
            os.close(pipe)

    def _read(self) -> None:
        """What the reading thread does."""
        try:
            self._sockets.listen(self._receive, self._end_of, self._pipe[0], self.poll)
        except zmq.ContextTerminated:
            pass
        finally:
            self._sockets.close_incoming()

    def _end_of(self, peer: int) -> None:
        """Handle the end of a process's connection."""
        self.poll()  # first the messages that it had left in the queue
        self._lose(peer)

    def _receive(self, peer: int, head: bytes, content: zmq.Frame | None) -> None:
        """Handle a message that has come by the connection."""
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
        """Handle a message that has been read."""
        with self.changed:
            if peer in self.dead or (self.failure is not None and kind not in CLOSE_TIMEOUT_S):
                return  # a message of a process that counts as dead comes too late
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
            except Exception as error:  # of any kind: the main thread has to raise it
                self._fail(error)
            self.changed.notify_all()

    def _handle_close(self, peer: int, kind: int) -> None:
        """Note that a process closes. One that has failed waits for this process's answer before it ends."""
        if kind == FAILED:
            self._sockets.send(peer, _head(CLOSED))
        self._closed.add(peer)
        if kind == FAILED and not self._closing:
            raise ProcessLostError(f"process {peer} has failed")

    def _borrow(self, peer: int, file: int, size: int, code: int) -> Tensor:
        """The buffer that a process has lent."""
        dtype = DTYPES[code]
        assert dtype is not None
        try:
            return self._slots.borrow(self._links[peer].pid, file, size, dtype)
        except FileNotFoundError as error:
            raise PeerGoneError from error

    def _lose(self, peer: int) -> None:
        """Note that a process has ended without closing."""
        with self.changed:
            if peer in self.dead or peer in self._closed:
                return
            self.dead.add(peer)
            self._slots.forget(peer)
            self._links[peer].outbox = None
            try:
                if not self._closing:
                    self._handle_death(peer)
            except Exception as error:  # the job cannot go on without this process; the main thread has to raise it
                self._fail(error)
            self.changed.notify_all()

    def _fail(self, error: Exception) -> None:
        """Keep an exception for the main thread."""
        with self.changed:
            self.failure = self.failure or error
            self.changed.notify_all()


def _head(kind: int, numbers: Sequence[float] = (), buffer: Tensor | None = None) -> bytes:
    return HEAD.pack(kind, 0 if buffer is None else DTYPES.index(buffer.dtype)) + struct.pack(f"<{len(numbers)}d", *numbers)
