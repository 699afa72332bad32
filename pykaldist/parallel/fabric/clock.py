"""Clocks: they take the seconds in which a process's workers compute, exchange and wait.

On a CPU a clock is read before and after. On a GPU that would take the time of launching: the host hands work to the device, and goes on.
There, marks are events. The device notes the time at which it comes to each of them, in the order of its work. The time between two events
is that in which the device did what was handed to it between them, and then had nothing to do. So the seconds of waiting are those in which
the device stood still while the host waited for others, not those in which it still had work. Nobody waits for the device until the seconds
are asked for.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import torch

OPEN = 64  # spans of a device's time that stay open before those that are over are closed


class Clock:
    """The clock of workers on a CPU."""

    def mark(self) -> Any:
        """A mark at this moment, for `add`."""
        return time.perf_counter()

    def add(self, since: Any, what: str, those: Sequence[dict[str, float]]) -> None:
        """Add the seconds since a mark to the entries `what` of `those`, in equal parts."""
        part = (time.perf_counter() - since) / len(those)
        for seconds in those:
            seconds[what] += part

    def settle(self) -> None:
        """See to it that all seconds are added."""


class DeviceClock(Clock):
    """The clock of workers on a GPU, the current device. A helper thread's spans are those of the stream on which it exchanges."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: deque[tuple[torch.cuda.Event, torch.cuda.Event, str, Sequence[dict[str, float]]]] = deque()

    def mark(self) -> Any:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def add(self, since: Any, what: str, those: Sequence[dict[str, float]]) -> None:
        with self._lock:
            self._open.append((since, self.mark(), what, those))
            while len(self._open) > OPEN and self._open[0][1].query():
                self._close()

    def settle(self) -> None:
        with self._lock:
            for _, until, _, _ in reversed(self._open):
                if not until.query():
                    until.synchronize()
            while self._open:
                self._close()

    def _close(self) -> None:
        """Add the seconds of the oldest span, which is over."""
        since, until, what, those = self._open.popleft()
        for seconds in those:
            seconds[what] += since.elapsed_time(until) / 1000.0 / len(those)


def clock_of(device: torch.device) -> Clock:
    """A new clock for workers on a device."""
    return DeviceClock() if device.type == "cuda" else Clock()
