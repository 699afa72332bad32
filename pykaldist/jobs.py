"""Jobs of scripts on this machine: `utils/run.sh` runs them, and a guard ends what a script has started when the script has ended.

    python jobs.py run [JOB=FIRST:LAST] LOG COMMAND...     what utils/run.sh does
    python jobs.py guard PID MARK PARENT                   waits until a script has ended, however that came, then ends all with its mark

A script can end by a signal that it cannot handle (SIGKILL), and leaves behind what it waits for. So it starts a guard, in a session of its
own, which neither a terminal that is closed nor a signal to the script's process group reaches. What the script starts has its mark in the
environment (`STARTED_BY`), and so has what that starts, and so on, whatever sessions and process groups they make. When the script has
ended, the guard sends SIGTERM to all that have the mark, and SIGKILL to those that are still there after `GRACE_S`. Where the script is
itself a foreground command of another program, in that program's process group, it counts as ended when that program has. As a background
command, or with SIGHUP ignored (nohup), it does not.

The outermost script has a guard (utils/shared/guard.sh), and each utils/run.sh has one, so that its jobs do not outlive it where it is
killed alone. Its jobs get SIGTERM from the system, too, when it ends (PR_SET_PDEATHSIG), should both be killed.

Only the standard library is used, and no other module of the package: the interpreter is started with -I -S, which takes 15 ms.
"""

from __future__ import annotations

import os
import signal
import sys
import time

TYPE_CHECKING = False  # typing, re and dataclasses would take longer to import than all the rest
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import NoReturn

STARTED_BY = "PYKALDIST_STARTED_BY"  # the marks of the scripts that have started a process, the outermost first, with colons between
GRACE_S = 10.0  # from SIGTERM to SIGKILL; in this time a training writes its checkpoint
GIVE_UP_S = 60.0  # after which the guard leaves what not even SIGKILL ends
LOOK_S = 0.2
PR_SET_PDEATHSIG = 1
PROGRESS_FD = 3
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Process:
    """A process of this machine, as /proc shows it. `start`, in clock ticks since boot, tells it from a later one with its pid."""

    def __init__(self, pid: int, parent: int, group: int, start: int) -> None:
        self.pid, self.parent, self.group, self.start = pid, parent, group, start

    @classmethod
    def find(cls, pid: int) -> Process | None:
        """The process with a pid; None where there is none, or where it has ended and its parent has not yet looked."""
        state, parent, group, *others = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split() or [b"X", b"", b""]
        return None if state in b"ZX" else cls(pid, int(parent), int(group), int(others[16]))

    @property
    def running(self) -> bool:
        """True until it has ended."""
        now = Process.find(self.pid)
        return now is not None and now.start == self.start

    def ignores(self, number: int) -> bool:
        """True where it ignores a signal."""
        words = _read(f"/proc/{self.pid}/status").partition(b"\nSigIgn:")[2].split()
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
            for entry in _read(f"/proc/{name}/environ").split(b"\0"):
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
                _send(pid, signal.SIGKILL if late else signal.SIGTERM)
        time.sleep(LOOK_S)


def guard(pid: int, mark: str, parent: int = 0) -> None:
    """Wait until a script has ended, then end all with its mark. `parent` is who had started the script."""
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
    end_marked(mark)


def start_guard(mark: str) -> None:
    """Start a guard of this process."""
    pid, parent = os.getpid(), os.getppid()
    if os.fork() == 0:
        try:
            guard(pid, mark, parent)
        finally:
            os._exit(0)


class Job:
    """A job: its command, its log, and, when it runs, its pid; its exit status when it has ended."""

    def __init__(self, command: list[str], log: str) -> None:
        self.command, self.log, self.pid = command, log, 0
        self.status: int | None = None

    def write(self, text: str, mode: str = "a") -> None:
        """Write to the log."""
        with open(self.log, mode, encoding="utf-8", errors="surrogateescape") as stream:
            stream.write(text)

    def start(self, mark: str, terminal: int | None) -> None:
        """Start the command. The job with the terminal may draw its progress bar there."""
        self.write(f"# {' '.join(self.command)}\n# Started at {_date()}\n", "w")
        parent, self.pid = os.getpid(), os.fork()
        if self.pid == 0:
            try:
                self._become(mark, terminal, parent)
            finally:
                os._exit(126)

    def _become(self, mark: str, terminal: int | None, parent: int) -> NoReturn:
        """Be the command, in the new process."""
        env = {**os.environ, STARTED_BY: mark}
        env.pop("PYKALDIST_PROGRESS_FD", None)
        if terminal is None:
            os.closerange(PROGRESS_FD, PROGRESS_FD + 1)
        else:
            env["PYKALDIST_PROGRESS_FD"] = str(PROGRESS_FD)
            os.dup2(terminal, PROGRESS_FD)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(os.open(self.log, os.O_WRONLY | os.O_APPEND), 1)
        os.dup2(1, 2)
        _send_at_parents_end(signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(128 + signal.SIGTERM)
        for number in (signal.SIGINT, signal.SIGQUIT):  # Ctrl-C comes as SIGTERM, by which a job cleans up
            signal.signal(number, signal.SIG_IGN)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD, *ENDS})
        try:
            os.execvpe(self.command[0], self.command, env)
        except OSError as error:
            os.write(2, f"run.sh: ERROR: cannot run {self.command[0]}: {error.strerror}.\n".encode())
            os._exit(127 if isinstance(error, FileNotFoundError) else 126)

    def ended(self, status: int) -> None:
        """Note the end, with the exit status as a shell has it."""
        code = os.waitstatus_to_exitcode(status)
        self.status = 128 - code if code < 0 else code
        self.write(f"# Ended (code {self.status}) at {_date()}\n")

    def complaint(self) -> str:
        """The line of the log that says best what went wrong: the last error; else the last line of output."""
        lines = _read(self.log).decode(errors="replace").splitlines()
        found = [line for line in lines if "ERROR:" in line] or [line for line in lines if not line.startswith("#")]
        return found[-1] if found else ""


def parse(words: list[str]) -> list[Job]:
    """The jobs of run.sh's arguments. Raises ValueError with a sentence."""
    name, equals, span = words[0].partition("=")
    if equals and name.replace("_", "a").isalpha() and name.isascii():
        first, colon, last = span.partition(":")
        last = last if colon else first
        if not (first.isdecimal() and last.isdecimal()) or int(first) > int(last):
            raise ValueError(f"expected JOB=<first>:<last> from low to high, found {words[0]}.")
        numbers, words = range(int(first), int(last) + 1), words[1:]
    else:
        name, numbers = "", range(1, 2)
    if len(words) < 2:
        raise ValueError("expected a log and a command; run.sh --help shows its usage.")
    return [Job(own[1:], own[0]) for number in numbers for own in [[word.replace(name, str(number)) if name else word for word in words]]]


def run(words: list[str]) -> int:
    """Run jobs, all at the same time. Returns 0 if each job's status was, else 1; 128 and the signal's number where a signal ended it.

    Raises ValueError for arguments that are none, and OSError where a log cannot be written.
    """
    jobs = parse(words)
    for job in jobs:
        os.makedirs(os.path.dirname(job.log) or ".", exist_ok=True)
    mark = f"{os.getpid()}-{time.time_ns()}"
    marks = ":".join(filter(None, [os.environ.get(STARTED_BY), mark]))
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    awaited = {signal.SIGCHLD, *(number for number in ENDS if signal.getsignal(number) != signal.SIG_IGN)}  # nohup ignores one of them
    signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    start_guard(mark)
    for job in jobs:
        job.start(marks, 2 if job is jobs[0] else None)
    ended_by = _await(jobs, awaited)
    if ended_by:
        return 128 + ended_by  # the guard ends what is left
    failed = [job for job in jobs if job.status]
    if not failed:
        return 0
    if complaint := failed[0].complaint():
        print(complaint, file=sys.stderr)
    print(f"run.sh: {len(failed)} of {len(jobs)} jobs failed; log: {failed[0].log}", file=sys.stderr)
    return 1


def _await(jobs: list[Job], awaited: set[signal.Signals]) -> int:
    """Wait until all jobs have ended. After a signal of `ENDS`, which they get as SIGTERM, not for ever. Returns this signal, or 0."""
    running, ended_by, left = {job.pid: job for job in jobs}, 0, GRACE_S
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid in running:
            running.pop(pid).ended(status)
        elif not pid:
            begin = time.monotonic()
            came = signal.sigtimedwait(awaited, left if ended_by else 3600.0)
            if ended_by:
                left -= time.monotonic() - begin
                if left <= 0.0:
                    break
            elif came is not None and came.si_signo in ENDS:
                ended_by = came.si_signo
                for other in running:
                    _send(other, signal.SIGTERM)
    return ended_by


def _send(pid: int, number: int) -> None:
    """Send a process a signal, if it is still there. A stopped one goes on, to see it."""
    try:
        os.kill(pid, number)
        os.kill(pid, signal.SIGCONT)
    except OSError:
        pass


def _read(path: str) -> bytes:
    """The bytes of a file; none where it is not there, or nothing for us."""
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except OSError:
        return b""


def _send_at_parents_end(number: int) -> None:
    """Let the system send this process a signal when the process that started it ends."""
    import ctypes  # only here: it takes half as long as all the rest

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)


def _date() -> str:
    return time.strftime("%a %b %e %H:%M:%S %Z %Y")


def main(argv: list[str]) -> int:
    """Do what the command line says; returns the exit status."""
    if argv[0] == "guard":
        guard(int(argv[1]), argv[2], int(argv[3]))
        return 0
    try:
        return run(argv[1:])
    except ValueError as error:
        print(f"run.sh: ERROR: {error}", file=sys.stderr)
    except OSError as error:
        print(f"run.sh: ERROR: {error.strerror}: {error.filename}.", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
