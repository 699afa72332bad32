"""The guard of a script: ends what the script has started when the script has ended, however that came.

A script can end by a signal that it cannot handle (SIGKILL), and leaves behind what it waits for. So it starts a guard, in a session of its
own, which neither a terminal that is closed nor a signal to the script's process group reaches. What the script starts has its mark in the
environment (`STARTED_BY`), and so has what that starts, and so on, whatever sessions and process groups they make. When the script has
ended, the guard sends SIGTERM to all that have the mark, and SIGKILL to those that are still there after `GRACE_S`. Where the script is
itself a foreground command of another program, in that program's process group, it counts as ended when that program has. As a background
command, or with SIGHUP ignored (nohup), it does not.

The outermost script has a guard (utils/shared/guard.sh), and each utils/run.pl has one, so that its jobs do not outlive it where it is
killed alone. Its jobs get SIGTERM from the system, too, when it ends (PR_SET_PDEATHSIG), should both be killed.
"""

from __future__ import annotations

import os
import signal
import time

TYPE_CHECKING = False  # typing, re and dataclasses would take longer to import than all the rest
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LOG = "PYKALDIST_LOG"  # the log of the job that a process belongs to
STARTED_BY = "PYKALDIST_STARTED_BY"  # the marks of the scripts that have started a process, the outermost first, with colons between
GRACE_S = 10.0  # from SIGTERM to SIGKILL; in this time a training writes its checkpoint
GIVE_UP_S = 60.0  # after which the guard leaves what not even SIGKILL ends
LOOK_S = 0.2
PR_SET_PDEATHSIG = 1
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Process:
    """A process of this machine, as /proc shows it. `start`, in clock ticks since boot, tells it from a later one with its pid."""

    def __init__(self, pid: int, parent: int, group: int, start: int) -> None:
        self.pid, self.parent, self.group, self.start = pid, parent, group, start

    @classmethod
    def find(cls, pid: int) -> Process | None:
        """The process with a pid; None where there is none, or where it has ended and its parent has not yet looked."""
        state, parent, group, *others = read(f"/proc/{pid}/stat").rpartition(b")")[2].split() or [b"X", b"", b""]
        return None if state in b"ZX" else cls(pid, int(parent), int(group), int(others[16]))

    @property
    def running(self) -> bool:
        """True until it has ended."""
        now = Process.find(self.pid)
        return now is not None and now.start == self.start

    def ignores(self, number: int) -> bool:
        """True where it ignores a signal."""
        words = read(f"/proc/{self.pid}/status").partition(b"\nSigIgn:")[2].split()
        return bool(words) and bool(int(words[0], 16) >> (number - 1) & 1)


def watched(pid: int, parent: int = 0) -> list[Process | None]:
    """The processes whose end is the end of script `pid`, None for one that has ended: itself, and who it is a foreground command of.

    `parent` is who had started it, where that is known: it may have ended already.
    """
    script = Process.find(pid)
    if script is None or script.group == pid or script.ignores(signal.SIGINT) or script.ignores(signal.SIGHUP):
        return [script]
    above = Process.find(script.parent)
    if parent and (above is None or above.pid != parent):
        return [script, None]
    return [script, above] if above is not None and above.group == script.group else [script]


def marked(mark: str) -> Iterator[int]:
    """The pids of the processes of this user that a script has started: those with its mark in their environment."""
    wanted, own = f"{STARTED_BY}=".encode(), os.getpid()
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != own:
            for entry in read(f"/proc/{name}/environ").split(b"\0"):
                if entry.startswith(wanted) and mark.encode() in entry[len(wanted) :].split(b":"):
                    yield int(name)


def end_marked(mark: str) -> None:
    """End all processes with a mark. They have `GRACE_S` for it."""
    told: set[int] = set()
    begin, none = time.monotonic(), 0
    while none < 2 and time.monotonic() < begin + GIVE_UP_S:  # twice: a process may have been between fork and exec
        found = list(marked(mark))
        none = 0 if found else none + 1
        late = time.monotonic() > begin + GRACE_S
        for pid in found:
            if late or pid not in told:
                told.add(pid)
                send(pid, signal.SIGKILL if late else signal.SIGTERM)
        time.sleep(LOOK_S)


def guard(pid: int, mark: str, parent: int = 0, then: Callable[[], object] | None = None) -> None:
    """Wait until a script has ended, then call `then`, and end all with its mark. `parent` is who had started the script."""
    for number in ENDS:
        signal.signal(number, signal.SIG_IGN)
    if os.getpgrp() != os.getpid():
        os.setsid()
    os.chdir("/")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):  # nobody is to wait for this process to close a pipe
        os.dup2(nowhere, descriptor)
    os.closerange(3, max(map(int, os.listdir("/proc/self/fd"))) + 1)
    these = watched(pid, parent)
    while all(one is not None and one.running for one in these):
        time.sleep(LOOK_S)
    if then is not None:
        then()
    end_marked(mark)


def start_guard(mark: str, then: Callable[[], object] | None = None) -> int:
    """Start a guard of this process; returns its pid."""
    pid, parent = os.getpid(), os.getppid()
    child = os.fork()
    if child == 0:
        try:
            guard(pid, mark, parent, then)
        finally:
            os._exit(0)
    return child


def send(pid: int, number: int) -> None:
    """Send a process a signal, if it is still there. A stopped one goes on, to see it."""
    try:
        os.kill(pid, number)
        os.kill(pid, signal.SIGCONT)
    except OSError:
        pass


def read(path: str) -> bytes:
    """The bytes of a file; none where it is not there, or nothing for us."""
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except OSError:
        return b""


def send_at_parents_end(number: int) -> None:
    """Let the system send this process a signal when the process that started it ends."""
    import ctypes  # only here: it takes half as long as all the rest

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
