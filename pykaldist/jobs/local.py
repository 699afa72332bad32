"""Jobs on this machine: run.pl, as many at a time as there are cores; and a job itself, its log and its end, wherever it runs."""

from __future__ import annotations

import os
import signal
import sys
import time

from pykaldist.jobs.guard import ENDS, GRACE_S, LOG, STARTED_BY, send, send_at_parents_end, start_guard
from pykaldist.jobs.wrapper import Wanted, now, picked, say_failed

TYPE_CHECKING = False  # typing, re and dataclasses would take longer to import than all the rest
if TYPE_CHECKING:
    from typing import NoReturn

PROGRESS_FD = 3


class Job:
    """A job: its command line for bash, its log, and, when it runs, its pid; its exit status when it has ended.

    `words` is the command that is carried out, where that is not bash with `command`; `held`, a descriptor that it has for its standard
    input in place of nothing. Of a `queued` one the log has the words of queue.pl in place of run.pl's.
    """

    def __init__(self, command: str, log: str, *, threads: int = 1, words: list[str] | None = None, held: int | None = None,
                 queued: bool = False) -> None:
        self.command, self.log, self.threads, self.held, self.queued = command, log, threads, held, queued
        self.words = words or ["bash", "-c", command]
        self.pid, self.began = 0, 0.0
        self.status: int | None = None

    def write(self, text: str, mode: str = "a") -> None:
        """Write to the log."""
        try:
            with open(self.log, mode, encoding="utf-8", errors="surrogateescape") as stream:
                stream.write(text)
        except OSError as error:
            error.filename = self.log  # of writing and closing the system does not tell it
            raise

    def start(self, mark: str, terminal: int | None) -> None:
        """Start the command. The job with the terminal may draw its progress bar there."""
        command, started = f"# {self.command}\n", f"# Started at {now()}\n"
        self.write(f"# Running on {os.uname().nodename}\n{started}{command}" if self.queued else f"{command}{started}#\n", "w")
        self.began = time.time()
        parent, self.pid = os.getpid(), os.fork()
        if self.pid == 0:
            try:
                self._become(mark, terminal, parent)
            except OSError as error:  # of the log, as a rule: the standard error is the runner's as yet
                os.write(2, f"run.pl: ERROR: {error.strerror}: {error.filename or self.log}.\n".encode())
            finally:
                os._exit(126)

    def _become(self, mark: str, terminal: int | None, parent: int) -> NoReturn:
        """Be the command, in the new process."""
        env = {**os.environ, STARTED_BY: mark, LOG: os.path.abspath(self.log)}
        env.pop("PYKALDIST_PROGRESS_FD", None)
        if self.held is not None:
            os.dup2(self.held, 0)
        if terminal is None:
            os.closerange(PROGRESS_FD, PROGRESS_FD + 1)
        else:
            env["PYKALDIST_PROGRESS_FD"] = str(PROGRESS_FD)
            os.dup2(terminal, PROGRESS_FD)
        if self.held is None:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(os.open(self.log, os.O_WRONLY | os.O_APPEND), 1)
        os.dup2(1, 2)
        send_at_parents_end(signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(128 + signal.SIGTERM)
        for number in (signal.SIGINT, signal.SIGQUIT):  # Ctrl-C comes as SIGTERM, by which a job cleans up
            signal.signal(number, signal.SIG_IGN)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD, *ENDS})
        try:
            os.execvpe(self.words[0], self.words, env)
        except OSError as error:
            os.write(2, f"ERROR: cannot run {self.words[0]}: {error.strerror}.\n".encode())
            os._exit(127 if isinstance(error, FileNotFoundError) else 126)

    def ended(self, status: int) -> None:
        """Note the end, with the exit status as a shell has it."""
        code, seconds = os.waitstatus_to_exitcode(status), round(time.time() - self.began)
        self.status = 128 - code if code < 0 else code
        self.write(f"# Accounting: time={seconds} threads={self.threads}\n")
        if self.queued:
            self.write(f"# Finished at {now()} with status {self.status}\n")
        else:
            self.write(f"# Ended (code {self.status}) at {now()}, elapsed time {seconds} seconds\n")


def most_at_once(wanted: Wanted, runner: str) -> int:
    """How many jobs run at the same time: --max-jobs-run; else as many as the machine has cores, or GPUs where jobs want one.

    A few jobs more than cores run at once, too: less than 1.4 times as many.
    """
    if "max_jobs_run" in wanted.options:
        return int(wanted.options["max_jobs_run"])
    if wanted.options.get("gpu", "0") != "0":
        with os.popen("nvidia-smi -L 2>/dev/null") as stream:
            gpus = len(stream.readlines())
        if not gpus:
            print(f"{runner}: Warning: failed to detect number of GPUs from nvidia-smi, using 1", file=sys.stderr)
        return gpus or 1
    most, jobs = max(1, len(os.sched_getaffinity(0)) // wanted.threads), len(wanted.numbers)
    return jobs if jobs < 1.4 * most else most


def run(wanted: Wanted, runner: str) -> int:
    """Run the jobs. Returns 0 if each one's status was, else 1; 128 and the signal's number where a signal ended it.

    Raises OSError where a log cannot be written.
    """
    waiting, failed = [], []
    for number in wanted.numbers:
        log = wanted.numbered(wanted.log, number)
        wants, status = picked(wanted, log)
        if wants:
            waiting.append((number, Job(wanted.numbered(wanted.command, number), log, threads=wanted.threads)))
        elif status:
            failed.append(number)
    return run_jobs(wanted, runner, waiting, failed, most_at_once(wanted, runner))


def run_jobs(wanted: Wanted, runner: str, waiting: list[tuple[int, Job]], failed: list[int], most: int) -> int:
    """Run jobs, by their numbers, `most` at a time; those of `failed` have failed before. Returns as `run` does."""
    for _, job in waiting:
        os.makedirs(os.path.dirname(job.log) or ".", exist_ok=True)
    ended_by = start_all([job for _, job in waiting], most)
    if ended_by:
        return 128 + ended_by  # the guard ends what is left
    failed = sorted([*failed, *(number for number, job in waiting if job.status)])
    if failed:
        say_failed(wanted, runner, failed)
    return 1 if failed else 0


def start_all(jobs: list[Job], most: int) -> int:
    """Run jobs, `most` at a time, and wait for them. Returns the signal that ended this, or 0."""
    mark = f"{os.getpid()}-{time.time_ns()}"
    marks = ":".join(filter(None, [os.environ.get(STARTED_BY), mark]))
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    awaited = {signal.SIGCHLD, *(number for number in ENDS if signal.getsignal(number) != signal.SIG_IGN)}  # nohup ignores one of them
    signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    start_guard(mark)
    waiting, running = list(reversed(jobs)), dict[int, Job]()
    ended_by, left = 0, GRACE_S
    while running or (waiting and not ended_by):
        if waiting and not ended_by and len(running) < most:
            job = waiting.pop()
            job.start(marks, 2 if job is jobs[0] and not job.queued else None)
            running[job.pid] = job
            continue
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid in running:
            running.pop(pid).ended(status)
        elif not pid:
            begin = time.monotonic()
            came = signal.sigtimedwait(awaited, left if ended_by else 3600.0)
            if ended_by:  # they have time to clean up, not for ever
                left -= time.monotonic() - begin
                if left <= 0.0:
                    break
            elif came is not None and came.si_signo in ENDS:
                ended_by = came.si_signo
                for other in running:
                    send(other, signal.SIGTERM)
    return ended_by
