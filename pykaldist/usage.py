"""What a stage takes: hours of speech, wall clock, CPU, the most memory, bytes read and written.

A process that is a stage counts the frames that it goes through (`heard`), or says that it is one (`stage`, `ended`). Under `$cmd` its log
ends with `USAGE: <verb>: ` and the line; `pykaldist report` adds these lines up. Frames are counted as those of 10 ms.
"""

from __future__ import annotations

import contextlib
import os
import resource
import threading
import time
from collections.abc import Iterator

FRAMES_AN_HOUR = 360_000  # of 10 ms
MARK = "USAGE: "
_lock = threading.Lock()
_frames: int | None = None  # None where this process is no stage
_of_others = 0.0


def heard(frames: int) -> None:
    """Count frames that this process goes through, which is a stage."""
    global _frames
    with _lock:
        _frames = (_frames or 0) + frames


def stage() -> None:
    """Say that this process is a stage, though it may hear nothing."""
    heard(0)


@contextlib.contextmanager
def others() -> Iterator[None]:
    """Leave out the CPU of processes that are started and end in the block, for they say themselves what they take."""
    global _of_others
    before = _cpu_of_children()
    try:
        yield
    finally:
        _of_others += _cpu_of_children() - before


def ending(verb: str) -> str | None:
    """The line at the end of a stage's log; None where this process is none."""
    return None if _frames is None else f"{MARK}{verb}: {usage_line(_frames)}"


def ended(done: str) -> str:
    """What a stage that hears nothing has done, and taken: `<done>; 12 s, 11 s of CPU, 300 MB of memory, 51 MB read, 2 MB written`."""
    stage()
    return f"{done}; {_taken()}"


def usage_line(frames: int) -> str:
    """Say what a stage has taken: `0.70 h of speech in 12 s, 11 s of CPU, 300 MB of memory, 51 MB read, 2 MB written`."""
    return f"{frames / FRAMES_AN_HOUR:.3g} h of speech in {_taken()}"


def _taken() -> str:
    times = os.times()
    cpu = times.user + times.system + _cpu_of_children() - _of_others
    memory = max(_most_memory(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
    read, written = _bytes()
    return (f"{_seconds(_since_start())} s, {_seconds(cpu)} s of CPU, "
            f"{memory / 1e6:.0f} MB of memory, {read / 1e6:.0f} MB read, {written / 1e6:.0f} MB written")


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f}" if seconds < 9.95 else f"{seconds:.0f}"


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _most_memory() -> int:
    """The most bytes that this program had in memory: ru_maxrss also has those of the process that started it."""
    with open("/proc/self/status", encoding="utf-8") as stream:
        return next(int(line.split()[1]) * 1024 for line in stream if line.startswith("VmHWM:"))


def _bytes() -> tuple[int, int]:
    """The bytes that this process, and its children that have ended, have read and written, pages of mapped files left out."""
    try:
        with open("/proc/self/io", encoding="utf-8") as stream:
            counts = dict(line.split(": ") for line in stream)
        return int(counts["rchar"]), int(counts["wchar"])
    except (OSError, KeyError, ValueError):
        return 0, 0  # a kernel that does not count them


def _since_start() -> float:
    """The seconds since the process began."""
    with open("/proc/self/stat", encoding="utf-8") as stream:
        began = int(stream.read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - began
