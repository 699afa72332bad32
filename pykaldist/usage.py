"""What a stage has taken so far, for the line at its end: wall clock, CPU, and the most memory that its process had."""

from __future__ import annotations

import os
import resource
import time

FRAMES_AN_HOUR = 360_000  # of 10 ms


def usage_line(frames: int) -> str:
    """Say how much speech a stage has gone through, with what: `0.70 h of speech in 12 s, 11 s of CPU, 300 MB of memory`."""
    times = os.times()
    cpu = times.user + times.system + times.children_user + times.children_system
    memory = max(_most_memory(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
    return f"{frames / FRAMES_AN_HOUR:.3g} h of speech in {_since_start():.0f} s, {cpu:.0f} s of CPU, {memory / 1e6:.0f} MB of memory"


def _most_memory() -> int:
    """The most bytes that this program had in memory: ru_maxrss also has those of the process that started it."""
    with open("/proc/self/status", encoding="utf-8") as stream:
        return next(int(line.split()[1]) * 1024 for line in stream if line.startswith("VmHWM:"))


def _since_start() -> float:
    """The seconds since the process began."""
    with open("/proc/self/stat", encoding="utf-8") as stream:
        began = int(stream.read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - began
