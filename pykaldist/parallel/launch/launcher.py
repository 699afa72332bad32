"""The launcher: it starts the processes of a job, passes on what they print, and says what ended the job.

`pykaldist train --ngpu N` becomes a launcher if it is not itself one of a job's processes. It runs its own command line in each process:
    by mpiexec                     with --fabric mpi, or with --hosts (--fabric gloo and nccl too; ranks then come from mpiexec). On one
                                   host by MPICH's gforker, if it is there, which opens no port; hydra listens on all interfaces
    by srun                        within a SLURM allocation; the processes then meet at a server of their own (`rendezvous.py`)
    as processes of its own        with --fabric gloo and nccl on one machine
    by Ray                         with --launcher ray, as tasks of a cluster (`on_ray.py`)
Under torchrun, or in a step of srun or mpiexec that the user has made, each process just takes part.

The launcher passes on what the processes print, without the noise that MPI prints about an end. Last, and once, it says what ended the job.
Signals: a scheduler may send SIGTERM to any of the processes; all then write a checkpoint at the next safe point. hydra would kill them at
once, so it is started with SIGTERM blocked. SIGTERM to the launcher makes all processes do so, or ends them where they have not yet met.
srun, on SIGTERM, kills its tasks. Ctrl-C ends the job. So does the death of the launcher. gforker ends a job in which a process was killed
by sending SIGINT, which processes ignore, and SIGQUIT; its own exit status does not tell the cause.
"""

from __future__ import annotations

import contextlib
import os
import queue
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import IO

import pykaldist
from pykaldist.errors import Terminated, UserError, missing_sentence
from pykaldist.io.atomic import write_text
from pykaldist.io.lock import locked
from pykaldist.parallel.launch.commands import Command, commands, num_processes
from pykaldist.parallel.launch.job import JobOptions
from pykaldist.parallel.launch.records import read_records
from pykaldist.parallel.launch.rendezvous import host_name
from pykaldist.parallel.launch.supervisor import DONE, FINISHED, FOLDER, die_with_parent
from pykaldist.parallel.launch.watch import CAME, DIED, LAST_WORDS, MET, STOP

GO_ON = "the last checkpoint is whole: run the same command again to go on."
LOST = "lost its connection to another process"  # in the error of a process that ended because another one had died
GRACE_S = 10.0  # time in which processes may end by themselves
LOOK_S = 1.0  # between two looks at what the processes have written
NOISE = re.compile(r"={20,}$|=   |YOUR APPLICATION TERMINATED WITH|This typically refers to a problem with your|Please see the FAQ page|"
                   r"Abort\(\d+\) on node|\[\d+\]\d+:Return code =|"
                   r"\[(mpiexec|proxy:[\w:]*)@|srun: (error|Job step|Force Terminated|forcing|got SIG|launch/slurm)|"
                   r"slurmstepd(-\S+)?: error: \*\*\*|"
                   r"\[rank\d+\]:\[[A-Z]\d+ .*NCCL|(\[rank\d+\]:)?(frame #\d+: |Exception raised from \w+ at )|"
                   r"terminate called after throwing an instance of 'c10::|  what\(\):  \[PG ")
# What the watchdog of PyTorch's NCCL says before it ends the process by SIGABRT: its rank, and why.
NCCL_ENDS = re.compile(r"\[rank(\d+)\]:\[[A-Z]\d+ .*NCCL\.cpp:\d+\] .*(?:terminated with exception: (?:\[Rank \d+\] )?|"
                       r"(?=Watchdog caught collective operation timeout))(.+?)(?:, NCCL version.*|: WorkNCCL.*)?$")
ERROR = re.compile(r"pykaldist [\w-]+: ERROR: (.*)")
ENDED_BY_SIGNAL = re.compile(r"pykaldist [\w-]+: (terminated|interrupted);")
SIGNAL_OF_MPIEXEC = re.compile(r"YOUR APPLICATION TERMINATED WITH THE EXIT STRING: .* \(signal (\d+)\)")
PROCESS_OF_GFORKER = re.compile(r"\[\d+\](\d+):Return code = (\d+)(?:, signaled with (.+))?$")
NUMBERS = {signal.strsignal(number): int(number) for number in signal.Signals}
ENDS_OTHERS = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)  # the signals by which gforker and the launcher end processes
PID_OF_MPIEXEC = re.compile(r"=   PID (\d+) RUNNING AT (\S+)")
TASK_OF_SRUN = re.compile(r"srun: error: (\S+): tasks? (\d+)\S*: "
                          r"(Killed|Segmentation fault|Aborted|Bus error|Out Of Memory|Terminated|Exited with exit code 143)")


def join_launched(folder: Path) -> None:
    """Join the job, as the first act of a process that the launcher has started, whose files are in `folder` (<exp>/.ranks).

    It lets SIGTERM through, ends with the process that has started it, tells the launcher that it has come, and finds the user's terminal
    for the progress bar.
    """
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    if "PYKALDIST_JOB" in os.environ:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        die_with_parent()
        if os.getppid() == 1:
            sys.exit(1)  # the parent has ended already
        with contextlib.suppress(OSError):
            write_text(folder / f"{CAME}{_rank_by_environment() or 0}", f"{process_name()} (pid {os.getpid()})")
    host, _, path = os.environ.pop("PYKALDIST_TERMINAL", "").partition(":")
    if path and host == socket.gethostname() and _rank_by_environment() in ("0", None):
        with contextlib.suppress(OSError):
            os.environ["PYKALDIST_PROGRESS_FD"] = str(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOCTTY))


def _rank_by_environment() -> str | None:
    """The rank of this process, as the environment says."""
    names = ("RANK", "PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
    return next((os.environ[name] for name in names if name in os.environ), None)


def process_name() -> str:
    """The name of this process for messages, also before it has met the others."""
    return f"process {_rank_by_environment()} on {host_name()}"


class Launcher:
    """Runs a job of the command line `pykaldist <argv>` in experiment folder `exp` to its end.

    `fault_tolerant`: the job goes on when a process dies.
    """

    def __init__(self, options: JobOptions, argv: list[str], exp: Path, fault_tolerant: bool = False) -> None:
        self.commands, self.verb, self.folder = commands(options, argv, exp if fault_tolerant else None), argv[0], exp / FOLDER
        self.timeout, self.start_timeout, self.fault_tolerant = options.timeout, options.start_timeout, fault_tolerant
        self.size, self._by_srun = num_processes(options), self.commands[0].words[0] == "srun"
        self._start_signs, self._start_sign_at = -1, 0.0  # of the start: how many processes have come, or met; and since when so many
        self._beats: dict[int, int] = {}  # of the processes' records, when the launcher last looked
        self._still, self._looked = 0.0, 0.0  # seconds in which it saw none of them change; the time when it last looked
        self.token = f"{socket.gethostname()}-{os.getpid()}-{random.randrange(1 << 40)}"
        self.children: list[subprocess.Popen[str]] = []
        self._ended: queue.SimpleQueue[int] = queue.SimpleQueue()  # numbers of children, in the order in which they ended
        self._readers: list[threading.Thread] = []
        self._errors: list[str] = []  # error sentences of processes
        self._warnings: set[str] = set()
        self._by_signal = ""  # "terminated" or "interrupted", if a process said so
        self._asked = False  # True after SIGTERM to the launcher
        self._died = ""  # the process that was killed first, and the signal, in words
        self._noise: list[str] = []
        self._killed = False  # True after the launcher has killed the rest

    def run(self) -> int:
        """Run the job.

        Returns 0, or 75 where another try may help. Raises UserError, Terminated or KeyboardInterrupt as a training process does.
        """
        with locked(self.folder.parent):  # no other job may use the folder
            shutil.rmtree(self.folder, ignore_errors=True)
        before = signal.signal(signal.SIGTERM, self._terminate)
        try:
            for command in self.commands:
                self._start(command)
            status = self._wait()
            finished = self.fault_tolerant and (self.folder / FINISHED).exists()  # some processes may have died
        except BaseException:
            self._kill()
            raise
        finally:
            self._clear()
            signal.signal(signal.SIGTERM, before)
        return 0 if finished else self._verdict(status)

    def _start(self, command: Command) -> None:
        """Start one command, with threads that read its output and wait for its end."""
        root = str(Path(pykaldist.__file__).resolve().parent.parent)
        env = {**os.environ, **command.env, "PYKALDIST_JOB": self.token, "PYTHONUNBUFFERED": "1",
               "PYTHONPATH": os.pathsep.join(dict.fromkeys([root, *os.environ.get("PYTHONPATH", "").split(os.pathsep)])).rstrip(os.pathsep)}
        terminal = env.pop("PYKALDIST_PROGRESS_FD", "") or ("2" if os.isatty(2) else "")
        if terminal.isdigit():
            env["PYKALDIST_TERMINAL"] = f"{socket.gethostname()}:/proc/{os.getpid()}/fd/{terminal}"
        try:
            child = subprocess.Popen(command.words, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                     text=True, errors="replace", start_new_session=True, preexec_fn=_before_exec)
        except OSError as error:
            raise UserError(f"cannot run {command.words[0]}: {error.strerror}; put its folder on PATH, where this finds it: command -v "
                            f"{command.words[0]}.") from error
        number = len(self.children)
        self.children.append(child)
        assert child.stdout is not None and child.stderr is not None
        streams = [threading.Thread(target=self._read, args=pair, daemon=True)
                   for pair in ((child.stdout, sys.stdout), (child.stderr, sys.stderr))]
        self._readers += [*streams, threading.Thread(target=self._await_child, args=(child, number), daemon=True)]
        for thread in self._readers[-3:]:
            thread.start()

    def _await_child(self, child: subprocess.Popen[str], number: int) -> None:
        """Wait for the end of a child, and note it."""
        child.wait()
        self._ended.put(number)

    def _read(self, source: IO[str], sink: IO[str]) -> None:
        """Read the output of a child. Pass it on, but for errors and noise, which are kept."""
        for line in source:
            text = line.rstrip("\n")
            if match := ERROR.match(text):
                self._errors.append(match[1])
            elif match := ENDED_BY_SIGNAL.match(text):
                self._by_signal = match[1]
            elif NOISE.match(text) or self._known(text):
                self._note_noise(text)
            elif text:
                with contextlib.suppress(OSError):  # as of a full disk: the next line's flush writes this one
                    sink.write(line)
                    sink.flush()

    def _read_last_words(self, words: list[str]) -> None:
        """Read the last words that a process has left in a file: an error, maybe after a traceback. mpiexec may not have passed them on."""
        for number, line in enumerate(words):
            if match := ENDED_BY_SIGNAL.match(line):
                self._by_signal = match[1]
            elif (match := ERROR.match(line)) and match[1] not in self._errors:
                self._errors.append(match[1])
                sys.stderr.writelines(f"{before}\n" for before in words[:number])

    def _known(self, text: str) -> bool:
        """True for a warning that another process has printed, too."""
        known = text in self._warnings
        if text.startswith("WARNING:"):
            self._warnings.add(text)
        return known

    def _note_noise(self, text: str) -> None:
        """Keep a line of MPI's noise, and find in it which process was killed."""
        self._noise.append(text)
        if match := PID_OF_MPIEXEC.match(text):
            pid, host = int(match[1]), match[2]
            records = read_records(self.folder).items()
            rank = next((r for r, record in records if record["pid"] == pid and record["host"] == host), None)
            self._died = self._died or f"process{'' if rank is None else f' {rank}'} on {host} (pid {pid}) was killed"
        elif match := SIGNAL_OF_MPIEXEC.match(text):
            self._died += f" by signal {match[1]} ({signal.Signals(int(match[1])).name})"
        elif match := PROCESS_OF_GFORKER.match(text):
            number = NUMBERS.get(match[3], int(match[2]) - 128)  # a process supervisor's exit status is 128 plus the signal
            record = read_records(self.folder).get(int(match[1]), {"host": socket.gethostname(), "pid": "unknown"})
            if number in NUMBERS.values() and number not in ENDS_OTHERS:
                self._died = self._died or f"process {match[1]} on {record['host']} (pid {record['pid']}) was killed by signal {number} " \
                                           f"({signal.Signals(number).name})"
        elif match := NCCL_ENDS.match(text):
            record = read_records(self.folder).get(int(match[1]), {"host": socket.gethostname(), "pid": "unknown"})
            self._died = self._died or f"process {match[1]} on {record['host']} (pid {record['pid']}) {LOST} by NCCL ({match[2].strip()})"
        elif match := TASK_OF_SRUN.match(text):
            if match[3] in ("Terminated", "Exited with exit code 143"):
                self._by_signal = self._by_signal or "terminated"
            elif not self._by_signal:  # srun kills the others when the first has ended
                self._died = self._died or f"process {match[2]} on {match[1]} died ({match[3].lower()})"

    def _wait(self) -> int:
        """Wait until all children have ended. Returns the exit status of the first that failed, or 0."""
        failed = 0
        starting = True  # they have not yet met; then they watch each other
        deadline: float | None = None
        error: float | None = None  # the time when a process was found to have said an error
        for _ in self.children:
            number = None
            while number is None:
                if deadline is None:
                    starting = starting and not read_records(self.folder)
                    if self._start_fails() if starting else self._signs_cease():
                        deadline = 0.0
                if error is None and self._error_said():
                    error = time.monotonic()
                elif error is not None and time.monotonic() > error + GRACE_S:
                    self._kill_stopped()
                try:
                    number = self._ended.get(timeout=LOOK_S if deadline is None else min(LOOK_S, max(0.0, deadline - time.monotonic())))
                except queue.Empty:
                    if deadline is not None and time.monotonic() >= deadline:
                        self._kill()
                        number = self._ended.get()
            status = self.children[number].returncode
            if status < 0 and not self._killed and len(self.children) > 1:
                self._died = self._died or f"process {number} on {socket.gethostname()} (pid {self.children[number].pid}) was killed by " \
                                           f"signal {-status} ({signal.Signals(-status).name})"
            if self.fault_tolerant and (status == DONE or (status < 0 and number)):
                continue  # it has finished; or the others go on, or say that they cannot
            if status and not failed:
                failed = status
                # Processes that were asked to end will end; those that wait for a dead process would wait for ever.
                deadline = time.monotonic() + (GRACE_S if status == 128 + signal.SIGTERM else 0.5)
        return failed

    def _start_fails(self) -> bool:
        """True where the start is to be given up: SIGTERM has come before all have met, or nobody has come in time."""
        come = {int(path.name.removeprefix(CAME)): path for path in self.folder.glob(f"{CAME}*")}
        met = (self.folder / MET).exists()
        signs = self.size + 1 if met else len(come)
        if signs != self._start_signs:
            self._start_signs, self._start_sign_at = signs, time.monotonic()
        if self._asked and not met:
            return True
        # Before the first has come srun may wait for nodes, and all read programs from a slow disk; when all have met they read their data.
        # In a step of srun the processes themselves find out who is missing.
        limit = self.timeout if met or not come else self.start_timeout + GRACE_S * self._by_srun
        if time.monotonic() < self._start_sign_at + limit:
            return False
        missing = [rank for rank in range(self.size) if rank not in come]
        if met or not missing:
            self._died = f"the {self.size} processes have {'met, and then not begun' if met else 'come, and not met'} within {limit:g} s"
        else:
            known = {}
            for rank, path in come.items():
                with contextlib.suppress(OSError):
                    known[rank] = path.read_text(encoding="utf-8")
            self._died = missing_sentence(self.size, missing, known, limit)
        return True

    def _signs_cease(self) -> bool:
        """True where no process has given a sign of life for half as long again as the timeout.

        A process has its watch for as long as it trains. One that is stopped when the others' watches are over has nobody else to see it.
        """
        records, now = read_records(self.folder), time.monotonic()
        beats = {rank: record["beat"] for rank, record in records.items()}
        # A launcher that was itself stopped meanwhile has not looked.
        self._still = self._still + min(now - self._looked, 2 * LOOK_S) if beats == self._beats else 0.0
        self._beats, self._looked = beats, now
        if self._still < 1.5 * self.timeout:
            return False
        names = [f"process {rank} on {record['host']} (pid {record['pid']})" for rank, record in sorted(records.items())]
        self._died = f"{', '.join(names)} {'are' if len(names) > 1 else 'is'} hung: no sign of life" if names else \
            "the processes have trained, and not ended"
        self._died += f" for {1.5 * self.timeout:g} s"
        return True

    def _error_said(self) -> bool:
        """True if a process has left an error as its last words: then the whole job ends."""
        for path in self.folder.glob(f"{LAST_WORDS}*"):
            with contextlib.suppress(OSError):
                if any(ERROR.match(line) for line in path.read_text(encoding="utf-8").splitlines()):
                    return True
        return False

    def _own(self) -> list[int]:
        """The pids of the job's processes on this machine, so far as they have recorded them."""
        return [record["pid"] for record in read_records(self.folder).values() if record["host"] == socket.gethostname()]

    def _kill_stopped(self) -> None:
        """Kill the processes on this machine that have not ended after an error: a stopped one does not handle the signals of gforker."""
        for pid in self._own():
            if _alive(pid) and self._started(pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _kill(self) -> None:
        """Kill every process of the job now."""
        self._killed = True
        for child in self.children:
            if child.poll() is None:
                if self._by_srun:
                    child.send_signal(signal.SIGTERM)  # by which srun kills all tasks
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        child.wait(GRACE_S)
                child.kill()  # hydra's proxies end theirs when mpiexec is gone

    def _clear(self) -> None:
        """Wait until the last processes on this machine have ended, and read the last of their output."""
        deadline = time.monotonic() + GRACE_S
        for pid in self._own():
            while _alive(pid) and self._started(pid):
                if time.monotonic() > deadline:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                time.sleep(0.05)
        for thread in self._readers:
            thread.join(GRACE_S)
        for path in sorted(self.folder.glob(f"{LAST_WORDS}*")):
            with contextlib.suppress(OSError):
                self._read_last_words(path.read_text(encoding="utf-8").splitlines())
        shutil.rmtree(self.folder, ignore_errors=True)

    def _started(self, pid: int) -> bool:
        """True for a process of this job: the pid of a dead process may have been given to another program."""
        try:
            return f"PYKALDIST_JOB={self.token}".encode() in Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False

    def _terminate(self, signum: int, frame: FrameType | None) -> None:
        """Ask the processes to end, upon SIGTERM."""
        self._asked, self._by_signal = True, "terminated"
        with contextlib.suppress(OSError):
            write_text(self.folder / STOP, self.token)

    def _verdict(self, status: int) -> int:
        """The exit status of the job, or the exception that says what ended it."""
        if not status and not self._died:
            return 0
        causes = [sentence for sentence in self._errors if LOST not in sentence]
        # Status 143 by itself tells nothing: some of MPI's own errors have it too.
        if self._by_signal and not causes and (self._asked or not self._died):
            raise KeyboardInterrupt if self._by_signal == "interrupted" else Terminated
        if causes and status != DIED and not causes[0].endswith(GO_ON):
            raise UserError(causes[0])
        sentence = (causes or [f"{self._died}; {GO_ON}"] * bool(self._died) or self._errors or [""])[0]
        if not sentence:
            raise UserError("\n".join([*self._noise, f"{self.commands[0].words[0]} ended with status {status}, and no process said why."]))
        print(f"pykaldist {self.verb}: ERROR: {sentence}", file=sys.stderr, flush=True)
        return DIED


def _before_exec() -> None:
    """Prepare the child: hydra must not receive SIGTERM, and the child must not outlive the launcher."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    die_with_parent()


def _alive(pid: int) -> bool:
    """True for a process that has not ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
