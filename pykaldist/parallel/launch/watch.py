"""The watch: it ends a job of several processes in which a process hangs, so that the others do not wait for it for ever.

In each process a thread writes a record of one line, about once a second, to <exp>/.ranks/<process>: that the process lives, its progress,
whether it computes or waits for an exchange, and how far its workers are, for those who look on (`pykaldist watch`). Progress grows with
each minibatch. Between epochs, where long phases have no steps (checksums, loading, cross-validation, the serial warm-up of another
process), it grows with the time in which the process does not wait for others. Whether it waits is read from the main thread's stack, at no
cost to that thread.

A process without progress for a tenth of the timeout begins to read the others' records. When no process has made progress for the timeout,
the first of the processes that still write names those at fault (those that write no more; else those that do not wait) and ends. Whatever
has started the processes then ends the rest. The only process of a job waits for nobody, so that it is never ended.

The launcher asks for an early end by the file <exp>/.ranks/stop, which reaches processes on all hosts. They then act as upon SIGTERM.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import pykaldist
from pykaldist.io.atomic import write_text
from pykaldist.parallel.fabric.processes import Processes
from pykaldist.parallel.launch.records import WAITING, read_records
from pykaldist.parallel.launch.supervisor import DONE, FOLDER
from pykaldist.parallel.transport.door import Guest

LAST_WORDS = "said-"  # prefix of a file with the last words of a process that a launcher has started; host and pid follow
CAME = "came-"  # prefix of the file in which a process tells its launcher that it has come; its rank follows
MET = "met"  # file by which process 0 says that all have met
STOP = "stop"  # file in which the launcher asks its processes to end; it holds their PYKALDIST_JOB
DIED = 75  # exit status of a job that died of a cause that another try may not meet (EX_TEMPFAIL)
PACKAGE = os.path.dirname(os.path.abspath(pykaldist.__file__)) + os.sep
EXCHANGING = ("parallel/fabric/mpi.py", "parallel/fabric/torch_distributed.py", "parallel/fabric/processes.py", "parallel/engines/host.py",
              "parallel/engines/concurrent.py", "parallel/engines/elastic/", "parallel/engines/live_group.py", "parallel/transport/")


class Pulse:
    """The progress of this process, for its watch: minibatches, counted by the trainer while it is `in_steps`."""

    def __init__(self) -> None:
        self.steps = 0
        self.in_steps = False
        self.terminating = False  # SIGTERM has arrived
        self.tell: Callable[[], dict[str, Any] | None] = lambda: None  # how far this process's workers are: a `Training`, as a dictionary

    @contextlib.contextmanager
    def stepping(self) -> Iterator[None]:
        """A context in which only steps count as progress. Outside of it, all time in which the process does not wait does."""
        self.in_steps = True
        try:
            yield
        finally:
            self.in_steps = False


pulse = Pulse()


def place(frame: FrameType | None) -> tuple[str, int]:
    """File, relative to the package, and line of the innermost frame of a stack that is in pykaldist; an empty name where there is none."""
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith(PACKAGE):
            return path.removeprefix(PACKAGE), frame.f_lineno
        frame = frame.f_back
    return "", 0


def activity(frame: FrameType | None) -> str:
    """What a thread with this innermost frame does: `WAITING` in an exchange; else that it computes, and where."""
    file, line = place(frame)
    if file.startswith(EXCHANGING):
        return WAITING
    return f"computing (pykaldist/{file}:{line})" if file else "computing"


class Watch:
    """Watches this process of a job in experiment folder `exp`. `timeout` is in seconds.

    `fail(sentence)` is called where the job hangs and this process has to say so. It ends the process.
    """

    def __init__(self, processes: Processes, exp: Path, timeout: float, fail: Callable[[str], object]) -> None:
        self.rank, self.size, self.folder, self.timeout, self.fail = processes.rank, processes.size, exp / FOLDER, timeout, fail
        self.interval = min(1.0, timeout / 20.0)
        job = random.randrange(1 << 40) if self.rank == 0 else 0
        if isinstance(processes, Guest):
            job = read_records(self.folder).get(0, {"job": 0})["job"]
        self.record: dict[str, Any] = {"job": int(processes.control([float(job)])[0]), "host": socket.gethostname(), "pid": os.getpid(),
                                       "beat": 0, "progress": 0, "state": ""}
        self._main = threading.main_thread().ident
        self._stepless = 0  # beats with progress outside of steps
        self._last = time.monotonic()  # time of this process's last progress
        # process -> (record, time when its beat changed, time when its progress changed)
        self._seen: dict[int, tuple[dict[str, Any], float, float]] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def __enter__(self) -> Watch:
        pulse.terminating = False
        self.folder.mkdir(parents=True, exist_ok=True)
        self._write()
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ended.set()
        self._thread.join()
        with contextlib.suppress(OSError):
            (self.folder / str(self.rank)).unlink()
            self.folder.rmdir()  # by the last one

    def _run(self) -> None:
        while not self._ended.wait(self.interval):
            self._beat()
            self._check_stop_request()
            idle = time.monotonic() - self._last
            if self.size > 1 and idle > self.timeout / 10.0:
                self._check_others(idle)
            else:
                self._seen = {}

    def _beat(self) -> None:
        """Write a record of this process."""
        record = self.record
        before = record["progress"]
        record["beat"] += 1
        record["state"] = activity(sys._current_frames().get(self._main or 0))
        self._stepless += not pulse.in_steps and record["state"] != WAITING
        record["progress"] = pulse.steps + self._stepless
        with contextlib.suppress(LookupError, RuntimeError, ValueError):  # the main thread may be changing what is read; then as before
            record["training"] = pulse.tell()
        if record["progress"] != before:
            self._last = time.monotonic()
        self._write()

    def _write(self) -> None:
        path = self.folder / str(self.rank)
        with contextlib.suppress(OSError):  # where the disk is full, the next checkpoint says so
            temporary = path.with_name(f".{self.rank}")
            temporary.write_text(json.dumps(self.record), encoding="utf-8")
            os.replace(temporary, path)

    def _check_stop_request(self) -> None:
        """Act as upon SIGTERM, if the launcher asks for an end."""
        token = os.environ.get("PYKALDIST_JOB")
        with contextlib.suppress(OSError):
            if token and not pulse.terminating and (self.folder / STOP).read_text(encoding="utf-8") == token:
                pulse.terminating = True
                os.kill(os.getpid(), signal.SIGTERM)

    def _check_others(self, idle: float) -> None:
        """Read the others' records. End the job where nobody has made progress for the timeout."""
        now = time.monotonic()
        records = {r: record for r, record in read_records(self.folder).items() if record["job"] == self.record["job"]}
        for rank in range(self.size):
            record = records.get(rank, {"beat": -1, "progress": -1})
            known, beat, progress = self._seen.get(rank, (record, now, now))
            self._seen[rank] = (record, now if record["beat"] != known["beat"] else beat,
                                now if record["progress"] != known["progress"] else progress)
        looked = min(now - progress for _, _, progress in self._seen.values())
        if idle < self.timeout or looked < 0.85 * self.timeout:
            return
        silent = [r for r in range(self.size) if r != self.rank and now - self._seen[r][1] > 0.8 * self.timeout]
        turn = [r for r in range(self.size) if r not in silent].index(self.rank)
        if idle > self.timeout + 5 * self.interval * turn:  # the others do it only if the first has not
            self.fail(self._sentence(records, silent))

    def _sentence(self, records: dict[int, dict[str, Any]], silent: list[int]) -> str:
        """The sentence that says which processes hang."""
        seconds = f"{self.timeout:g} s"
        blamed = silent or [r for r, record in sorted(records.items()) if record["state"] != WAITING]
        names = ", ".join(f"process {r} on {records[r]['host']} (pid {records[r]['pid']})" if r in records else f"process {r}"
                          for r in blamed)
        are = "are" if len(blamed) > 1 else "is"
        if silent:
            return f"{names} {are} hung: no sign of life for {seconds}, and no progress of any process"
        if blamed:
            return f"{names} {are} hung: no progress for {seconds}, still {records[blamed[0]]['state']}"
        return f"the job is hung: all {self.size} processes have been {WAITING} for {seconds}; the network may have failed"


def write_last_words(message: str, folder: Path) -> None:
    """Leave a process's last words for its launcher, as a file in folder <exp>/.ranks.

    They are also printed on stderr. mpiexec ends a job when one of its processes asks for it, and may not pass on first what this has
    printed.
    """
    if "PYKALDIST_JOB" in os.environ:
        with contextlib.suppress(OSError):
            write_text(folder / f"{LAST_WORDS}{socket.gethostname()}-{os.getpid()}", message)


def leave_now(sentence: str) -> NoReturn:
    """Print why this process leaves a job that goes on without it, and end it at once, whatever its main thread does."""
    with contextlib.suppress(OSError):
        os.write(1, f"{sentence}\n".encode())
    os._exit(DONE)


def end_now(message: str, folder: Path) -> NoReturn:
    """Print a message of one line and end this process at once, whatever its main thread does."""
    with contextlib.suppress(OSError):
        os.write(2, message.encode())
    word = threading.Thread(target=write_last_words, args=(message, folder), daemon=True)
    word.start()
    word.join(2.0)  # the disk may be what hangs
    os._exit(DIED)
