"""Streams and events of an emulated device, and the copies between host and device that they order.

Each stream counts its kernels. What a stream, an event or the host knows to be over is the number of the last such kernel of each stream. A
kernel knows what its stream knows, and what the host knew when it was launched.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from emulated_cuda.tensor import Access, Allocation

Known = dict[int, int]  # of each stream, by its number, the last kernel that is over


def learn(known: Known, other: Known) -> None:
    """Add to what is known."""
    for stream, time in other.items():
        if known.get(stream, 0) < time:
            known[stream] = time


def span(host: Tensor) -> tuple[int, int]:
    """The first byte of a strided tensor, and the one behind its last."""
    last = sum((size - 1) * stride for size, stride in zip(host.shape, host.stride(), strict=True))
    return host.data_ptr(), host.data_ptr() + (last + 1) * host.element_size()


def poison(memory: Tensor) -> None:
    """Fill memory with NaN, or 0 where it holds no real numbers."""
    memory.fill_(float("nan") if memory.is_floating_point() else 0)


@dataclass(eq=False)
class Copy:
    """A copy that the host has not waited for: number `time` of a stream. `arrive` is called when it is over."""

    stream: int
    time: int
    arrive: Callable[[], None]


class Streams:
    """All streams of an emulation: clocks, races and copies that are under way."""

    def __init__(self) -> None:
        self.known: list[Known] = []  # of each stream; its own entry is its clock
        self.host: Known = {}
        self.copies: list[Copy] = []
        self.unread: list[tuple[int, int, Copy]] = []  # pinned memory that is being written: its first byte, the one behind its last
        self.side_streams = False

    def new(self) -> int:
        """The number of a new stream."""
        self.known.append({})
        return len(self.known) - 1

    def launch(self, stream: int, touched: list[tuple[Tensor, Allocation, bool]], name: str, place: Callable[[], str]) -> int:
        """Count a kernel, and look for races over what it touches: (values, their allocation, whether it writes). Returns its number."""
        known = self.known[stream]
        learn(known, self.host)
        time = known[stream] = known.get(stream, 0) + 1
        if self.side_streams:
            for host, allocation, writes in touched:
                if not host.numel():
                    continue
                low, high = span(host)
                kept = []
                for one in allocation.accesses:
                    overlaps = one.low < high and low < one.high
                    if overlaps and (writes or one.writes) and known.get(one.stream, 0) < one.time:
                        raise RuntimeError(f"stream {stream} {'writes' if writes else 'reads'} in {name} what stream {one.stream} "
                                           f"{'writes' if one.writes else 'reads'}, and nothing orders the two, at {place()}")
                    if not (low <= one.low and one.high <= high and (one.stream == stream or writes)):
                        kept.append(one)
                allocation.accesses = [*kept, Access(low, high, stream, time, writes)]
        return time

    def waited(self, known: Known) -> None:
        """The host has waited for what is known now to be over."""
        learn(self.host, known)
        over = [copy for copy in self.copies if self.host.get(copy.stream, 0) >= copy.time]
        self.copies = [copy for copy in self.copies if self.host.get(copy.stream, 0) < copy.time]
        wrong: list[RuntimeError] = []
        for copy in over:  # all of them: another thread of the host may be about to read what one brings
            try:
                copy.arrive()
            except RuntimeError as error:
                wrong.append(error)
        if wrong:
            raise wrong[0]

    def everything(self) -> Known:
        """What is over when the device has nothing left to do."""
        known: Known = {}
        for one in self.known:
            learn(known, one)
        return known

    def to_host(self, stream: int, time: int, values: Tensor, pinned: Tensor) -> None:
        """Begin a copy of `values` to pinned memory."""
        taken, (low, high) = values.clone(), span(pinned)
        poison(pinned)

        def arrive() -> None:
            self.unread = [one for one in self.unread if one[2] is not copy]
            if not any(one[0] < high and low < one[1] for one in self.unread):  # else a later copy writes here
                pinned.copy_(taken)

        copy = Copy(stream, time, arrive)
        self.unread.append((low, high, copy))
        self.copies.append(copy)

    def to_device(self, stream: int, time: int, pinned: Tensor, place: str) -> None:
        """Begin a copy from pinned memory, which has to stay as it is until that is over."""
        before = pinned.clone()

        def arrive() -> None:
            if not torch.equal(pinned.nan_to_num(), before.nan_to_num()):
                raise RuntimeError(f"pinned memory was written to while it was copied to the device at {place}")

        self.copies.append(Copy(stream, time, arrive))

    def check_read(self, tensor: Tensor) -> None:
        """Raise an error where a copy to the tensor's memory is under way."""
        if self.unread and tensor.numel():
            low, high = span(tensor)
            if any(one[0] < high and low < one[1] for one in self.unread):
                raise RuntimeError("pinned memory is read before the copy to it is over; wait for an event that is recorded after the copy")


class Stream:
    """A stream of an emulated device; `torch.cuda.Stream` makes side streams."""

    def __init__(self, device: Any = None, priority: int = 0, *, number: int | None = None) -> None:
        from emulated_cuda.device import EmulatedCuda

        self._cuda = EmulatedCuda.running()
        self.device = torch.device("cuda", self._cuda.index_of(device))
        self.device_index, self.priority = self.device.index, priority
        if number is None:
            number = self._cuda.streams.new()
            self._cuda.streams.side_streams = True
        self.number = self.stream_id = self.cuda_stream = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.number == self.number

    def __hash__(self) -> int:
        return hash(self.number)

    @property
    def known(self) -> Known:
        return self._cuda.streams.known[self.number]

    def synchronize(self) -> None:
        self._cuda.waits("stream.synchronize", self.known, flagged=False)

    def query(self) -> bool:
        return self._cuda.streams.host.get(self.number, 0) >= self.known.get(self.number, 0)

    def wait_event(self, event: Event) -> None:
        learn(self.known, event.known)

    def wait_stream(self, other: Stream) -> None:
        learn(self.known, other.known)

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record(self)
        return event


class Event:
    """An event of an emulated device."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False) -> None:
        from emulated_cuda.device import EmulatedCuda

        self._cuda, self._timed = EmulatedCuda.running(), enable_timing
        self.known: Known = {}

    def record(self, stream: Stream | None = None) -> None:
        self.known = dict((stream or self._cuda.current_stream()).known)

    def wait(self, stream: Stream | None = None) -> None:
        (stream or self._cuda.current_stream()).wait_event(self)

    def synchronize(self) -> None:
        self._cuda.waits("event.synchronize", self.known, flagged=False)

    def query(self) -> bool:
        """Whether what came before is over: as on a slow device, not before somebody has waited for it."""
        return all(self._cuda.streams.host.get(stream, 0) >= time for stream, time in self.known.items())

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds between two events: an emulated device has no time, and everything takes 1."""
        if not (self._timed and end._timed):
            raise RuntimeError("both events must be made with enable_timing=True")
        return 1.0
