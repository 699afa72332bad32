"""Starting the processes of a job, and seeing it to its end.

`pykaldist train --ngpu N` becomes a launcher where it is not itself one of a job's processes: it runs its own command line in each of them
    by mpiexec                     with --fabric mpi, or with --hosts (--fabric gloo and nccl too; ranks then come from mpiexec). On one
                                   host by MPICH's gforker, if it is there, which listens to nobody; hydra listens at all interfaces
    by srun                        within a SLURM allocation
    as processes of its own        with --fabric gloo and nccl on one machine
and under torchrun, or in a step of srun's or mpiexec's that the user has made, each process just takes part.

The launcher passes on what the processes print, but for the noise that MPI makes about an end, and says itself, last and once, what
ended the job. Signals: a scheduler's SIGTERM, whichever processes it is sent to, makes all write a checkpoint at the next safe point;
hydra, which would kill them at once, is started with SIGTERM blocked. Ctrl-C ends the job; so does the death of the launcher. gforker
ends a job in which a process was killed by SIGINT, which processes do not handle_message, and SIGQUIT, and its own exit status does not tell.
"""

from __future__ import annotations

import contextlib
import importlib.util
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
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO

import torch

import pykaldist
from pykaldist.errors import Terminated, UserError
from pykaldist.io.atomic import write_text
from pykaldist.io.lock import locked
from pykaldist.parallel.launch.job import JobOptions, local_cores, started_by
from pykaldist.parallel.launch.supervisor import DONE, FINISHED, FOLDER, die_with_parent
from pykaldist.parallel.launch.watch import DIED, LAST_WORDS, STOP, read_records
from pykaldist.parallel.transport.addresses import LOOPBACK_INTERFACE, variables

GO_ON = "the last checkpoint is whole: run the same command again to go on."
LOST = "lost its connection to another process"  # in the sentence of a process that another one's death ended
GRACE_S = 10.0  # for processes to end by themselves
NOISE = re.compile(r"={20,}$|=   |YOUR APPLICATION TERMINATED WITH|This typically refers to a problem with your|Please see the FAQ page|"
                   r"Abort\(\d+\) on node|\[\d+\]\d+:Return code =|"
                   r"\[(mpiexec|proxy:[\w:]*)@|srun: (error|Job step|Force Terminated)|slurmstepd: error: \*\*\*")
ERROR = re.compile(r"pykaldist [\w-]+: ERROR: (.*)")
ENDED_BY_SIGNAL = re.compile(r"pykaldist [\w-]+: (terminated|interrupted);")
SIGNAL_OF_MPIEXEC = re.compile(r"YOUR APPLICATION TERMINATED WITH THE EXIT STRING: .* \(signal (\d+)\)")
PROCESS_OF_GFORKER = re.compile(r"\[\d+\](\d+):Return code = (\d+)(?:, signaled with (.+))?$")
NUMBERS = {signal.strsignal(number): int(number) for number in signal.Signals}
ENDS_OTHERS = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)  # what gforker and the launcher end processes by
PID_OF_MPIEXEC = re.compile(r"=   PID (\d+) RUNNING AT (\S+)")
TASK_OF_SRUN = re.compile(r"srun: error: (\S+): task (\d+): (Killed|Segmentation fault|Aborted|Bus error|Out Of Memory)")


def devices_here(options: JobOptions) -> int:
    """Processes that this machine has room for: one a GPU, or a CPU core."""
    return torch.cuda.device_count() if options.device != "cpu" and torch.cuda.is_available() else local_cores()


def parse_hosts(text: str) -> list[tuple[str, int | None]]:
    """(host, processes on it where that is said) of `node1,node2:4`, or of a file with a host a line (`node2:4`, `node2 slots=4`)."""
    path = Path(text)
    if path.is_file():
        lines = [line.split("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines()]
        words = [line for line in lines if line]
    else:
        words = text.split(",")
    hosts = []
    for word in words:
        match = re.fullmatch(r"([\w.-]+)(?:(?::|\s+slots=)([1-9]\d*))?", word.strip())
        if match is None:
            raise UserError(f"--hosts {text}: {word!r} is no host; expected node1,node2:4, or a file with one a line.")
        hosts.append((match[1], int(match[2]) if match[2] else None))
    if not hosts:
        raise UserError(f"--hosts {text} names no host.")
    return hosts


def under_slurm() -> bool:
    """True where processes are to be started by srun."""
    return "SLURM_JOB_ID" in os.environ and shutil.which("srun") is not None


def num_processes(options: JobOptions) -> int:
    """Processes that a job has: one a device, or a CPU core, on each host, but no more than workers."""
    if options.fabric == "virtual":
        return 1
    if options.nproc:
        return options.nproc
    if options.hosts:
        room = sum(slots or devices_here(options) for _, slots in parse_hosts(options.hosts))
    elif under_slurm():
        room = int(os.environ.get("SLURM_NTASKS") or int(os.environ.get("SLURM_JOB_NUM_NODES", "1")) * devices_here(options))
    else:
        room = devices_here(options)
    return min(options.ngpu, room)


def several_hosts(options: JobOptions) -> bool:
    """True where the processes of a job may be on more than this machine."""
    return bool(options.hosts) or (under_slurm() and os.environ.get("SLURM_JOB_NUM_NODES") != "1")


def needed(options: JobOptions) -> bool:
    """True where this process is to start others, rather than to train itself."""
    return started_by() is None and num_processes(options) > 1


@dataclass
class Command:
    """A process of the launcher's, by which one process of the job is started, or all of them."""

    words: list[str]
    env: dict[str, str] = field(default_factory=dict)


def commands(options: JobOptions, argv: list[str], supervised: Path | None = None) -> list[Command]:
    """What is to be run, for a job with the command line `pykaldist <argv>`; one that goes on when a process of its is killed names its
    experiment folder."""
    count = num_processes(options)
    verb = [sys.executable, "-m", "pykaldist", *argv]
    env = variables(options.interface if several_hosts(options) else LOOPBACK_INTERFACE)
    if options.fabric in ("gloo", "nccl"):
        if not options.hosts and not under_slurm():
            port = str(_free_port())
            return [Command(verb, {**env, "RANK": str(r), "WORLD_SIZE": str(count), "LOCAL_RANK": str(r), "LOCAL_WORLD_SIZE": str(count),
                                   "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}) for r in range(count)]
        env.update(MASTER_ADDR=_first_host(options), MASTER_PORT=str(random.randrange(20000, 30000)))
    else:
        if importlib.util.find_spec("mpi4py") is None:
            raise UserError(f"--fabric mpi needs the package mpi4py, which {sys.executable} does not have; install it against your MPI "
                            "(pip install mpi4py), or use --fabric gloo.")
        verb = [sys.executable, "-m", "mpi4py", "-m", "pykaldist", *argv]
    if supervised is not None:
        verb = [sys.executable, "-m", "pykaldist.parallel.launch.supervisor", str(supervised), *verb]
    if under_slurm() and not options.hosts:
        return [Command(["srun", f"--ntasks={count}", "--kill-on-bad-exit=1", "--export=ALL", "--mpi=pmi2", *verb], env)]
    starter = mpiexec(several_hosts(options))
    if starter is None:
        raise UserError(f"there is no mpiexec beside {sys.executable} or on PATH to start {count} processes; install mpich, or use "
                        "--fabric gloo or --fabric virtual.")
    where: list[str] = []
    if options.hosts:
        hosts = parse_hosts(options.hosts)
        each = -(-count // len(hosts))
        where = ["-iface", options.interface] if options.interface else []
        where += ["-hosts", ",".join(f"{host}:{slots or each}" for host, slots in hosts)]
    return [Command([starter, *where, "-n", str(count), *verb], env)]


def mpiexec(several_hosts: bool = False) -> str | None:
    """What starts MPI's processes: beside Python, of the mpich wheel, or on PATH."""
    names = ["mpiexec"] if several_hosts else ["mpiexec.gforker", "mpiexec"]
    beside = [path for path in map(Path(sys.executable).with_name, names) if path.is_file()]
    return str(beside[0]) if beside else shutil.which("mpiexec")


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _first_host(options: JobOptions) -> str:
    """The host of process 0, where all meet."""
    if options.hosts:
        return parse_hosts(options.hosts)[0][0]
    match = re.match(r"([^,\[]+)(?:\[(\w+))?", os.environ.get("SLURM_JOB_NODELIST", socket.gethostname()))
    assert match is not None
    return match[1] + (match[2] or "")


def join_launched() -> None:
    """What a process of a job that was launched here does first: hear SIGTERM, end with what has started it, and find the way to the
    user's terminal."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    if "PYKALDIST_JOB" in os.environ:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        die_with_parent()
        if os.getppid() == 1:
            sys.exit(1)  # it is gone already
    host, _, path = os.environ.pop("PYKALDIST_TERMINAL", "").partition(":")
    if path and host == socket.gethostname() and _rank_by_environment() in ("0", None):
        with contextlib.suppress(OSError):
            os.environ["PYKALDIST_PROGRESS_FD"] = str(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOCTTY))


def _rank_by_environment() -> str | None:
    names = ("RANK", "PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
    return next((os.environ[name] for name in names if name in os.environ), None)


def process_name() -> str:
    """This process of a job in words, before or after it has met the others."""
    return f"process {_rank_by_environment()} on {socket.gethostname()}"


class Launcher:
    """Runs a job of the command line `pykaldist <argv>` in experiment folder `exp` to its end."""

    def __init__(self, options: JobOptions, argv: list[str], exp: Path, fault_tolerant: bool = False) -> None:
        self.commands, self.verb, self.folder = commands(options, argv, exp if fault_tolerant else None), argv[0], exp / FOLDER
        self.timeout, self.fault_tolerant = options.timeout, fault_tolerant
        self.token = f"{socket.gethostname()}-{os.getpid()}-{random.randrange(1 << 40)}"
        self.children: list[subprocess.Popen[str]] = []
        self._ended: queue.SimpleQueue[int] = queue.SimpleQueue()  # children, in the order in which they ended
        self._readers: list[threading.Thread] = []
        self._errors: list[str] = []  # sentences of processes
        self._warnings: set[str] = set()
        self._by_signal = ""  # terminated or interrupted, as a process said
        self._asked = False  # to end the job, by SIGTERM
        self._died = ""  # the process that was killed first, and the signal, as mpiexec or srun said
        self._noise: list[str] = []
        self._killed = False  # the rest, by the launcher

    def run(self) -> int:
        """0, or 75 where another try may mend it; raises UserError, Terminated or KeyboardInterrupt as a training process does."""
        with locked(self.folder.parent):  # by no other job
            shutil.rmtree(self.folder, ignore_errors=True)
        before = signal.signal(signal.SIGTERM, self._terminate)
        try:
            for command in self.commands:
                self._start(command)
            status = self._wait()
            finished = self.fault_tolerant and (self.folder / FINISHED).exists()  # maybe without some of the processes
        except BaseException:
            self._kill()
            raise
        finally:
            self._clear()
            signal.signal(signal.SIGTERM, before)
        return 0 if finished else self._verdict(status)

    def _start(self, command: Command) -> None:
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
            raise UserError(f"cannot run {command.words[0]}: {error.strerror}.") from error
        number = len(self.children)
        self.children.append(child)
        assert child.stdout is not None and child.stderr is not None
        streams = [threading.Thread(target=self._read, args=pair, daemon=True)
                   for pair in ((child.stdout, sys.stdout), (child.stderr, sys.stderr))]
        self._readers += [*streams, threading.Thread(target=self._await_child, args=(child, number), daemon=True)]
        for thread in self._readers[-3:]:
            thread.start()

    def _await_child(self, child: subprocess.Popen[str], number: int) -> None:
        child.wait()
        self._ended.put(number)

    def _read(self, source: IO[str], sink: IO[str]) -> None:
        for line in source:
            text = line.rstrip("\n")
            if match := ERROR.match(text):
                self._errors.append(match[1])
            elif match := ENDED_BY_SIGNAL.match(text):
                self._by_signal = match[1]
            elif NOISE.match(text) or self._known(text):
                self._note_noise(text)
            elif text:
                sink.write(line)
                sink.flush()

    def _read_last_words(self, words: list[str]) -> None:
        """The last words that a process has left: a sentence, behind its traceback maybe, that mpiexec may not have passed on."""
        for number, line in enumerate(words):
            if match := ENDED_BY_SIGNAL.match(line):
                self._by_signal = match[1]
            elif (match := ERROR.match(line)) and match[1] not in self._errors:
                self._errors.append(match[1])
                sys.stderr.writelines(f"{before}\n" for before in words[:number])

    def _known(self, text: str) -> bool:
        """True for a warning that another process has given too."""
        known = text in self._warnings
        if text.startswith("WARNING:"):
            self._warnings.add(text)
        return known

    def _note_noise(self, text: str) -> None:
        self._noise.append(text)
        if match := PID_OF_MPIEXEC.match(text):
            pid, host = int(match[1]), match[2]
            records = read_records(self.folder).items()
            rank = next((r for r, record in records if record["pid"] == pid and record["host"] == host), None)
            self._died = self._died or f"process{'' if rank is None else f' {rank}'} on {host} (pid {pid}) was killed"
        elif match := SIGNAL_OF_MPIEXEC.match(text):
            self._died += f" by signal {match[1]} ({signal.Signals(int(match[1])).name})"
        elif match := PROCESS_OF_GFORKER.match(text):
            number = NUMBERS.get(match[3], int(match[2]) - 128)  # of a process supervisor's status
            record = read_records(self.folder).get(int(match[1]), {"host": socket.gethostname(), "pid": "unknown"})
            if number in NUMBERS.values() and number not in ENDS_OTHERS:
                self._died = self._died or f"process {match[1]} on {record['host']} (pid {record['pid']}) was killed by signal {number} " \
                                           f"({signal.Signals(number).name})"
        elif match := TASK_OF_SRUN.match(text):
            self._died = self._died or f"process {match[2]} on {match[1]} died ({match[3].lower()})"

    def _wait(self) -> int:
        """Until all children have ended; the exit status of the first that failed, or 0."""
        failed = 0
        meeting: float | None = time.monotonic() + self.timeout  # from then on they watch each other
        deadline: float | None = None
        for _ in self.children:
            number = None
            while number is None:
                until = meeting if deadline is None else deadline
                try:
                    number = self._ended.get(timeout=None if until is None else max(0.0, until - time.monotonic()))
                except queue.Empty:
                    if deadline is None and not read_records(self.folder):
                        self._died = f"the processes have not met within {self.timeout:g} s of their start"
                        deadline = 0.0
                    meeting = None
                    if deadline is not None:
                        self._kill()
                        number = self._ended.get()
            status = self.children[number].returncode
            if status < 0 and not self._killed and len(self.children) > 1:
                self._died = self._died or f"process {number} on {socket.gethostname()} (pid {self.children[number].pid}) was killed by " \
                                           f"signal {-status} ({signal.Signals(-status).name})"
            if self.fault_tolerant and (status == DONE or (status < 0 and number)):
                continue  # it is through; or the others go on, or say that they cannot
            if status and not failed:
                failed = status
                # Those that were asked to end do; those that wait for a dead one would do so for ever.
                deadline = time.monotonic() + (GRACE_S if status == 128 + signal.SIGTERM else 0.5)
        return failed

    def _kill(self) -> None:
        """End every process of the job now."""
        self._killed = True
        for child in self.children:
            if child.poll() is None:
                if child.args[0] == "srun":  # type: ignore[index]  # Popen was given a list of words
                    child.send_signal(signal.SIGINT)
                    time.sleep(0.2)
                    child.send_signal(signal.SIGINT)  # the second one within a second ends all tasks
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        child.wait(GRACE_S)
                child.kill()  # hydra's proxies end theirs when mpiexec is gone

    def _clear(self) -> None:
        """Wait for the last processes on this machine to be gone, and for the last of what they said."""
        own = [record["pid"] for record in read_records(self.folder).values() if record["host"] == socket.gethostname()]
        deadline = time.monotonic() + GRACE_S
        for pid in own:
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
        """True for a process of this job: the pid of one that died may be somebody else's by now."""
        try:
            return f"PYKALDIST_JOB={self.token}".encode() in Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False

    def _terminate(self, signum: int, frame: FrameType | None) -> None:
        self._asked, self._by_signal = True, "terminated"
        with contextlib.suppress(OSError):
            write_text(self.folder / STOP, self.token)

    def _verdict(self, status: int) -> int:
        if not status and not self._died:
            return 0
        causes = [sentence for sentence in self._errors if LOST not in sentence]
        # Status 143 by itself tells nothing: some of MPI's own errors have it too.
        if self._by_signal and not causes and (self._asked or not self._died):
            raise KeyboardInterrupt if self._by_signal == "interrupted" else Terminated
        if causes and status != DIED:
            raise UserError(causes[0])
        sentence = (causes or [f"{self._died}; {GO_ON}"] * bool(self._died) or self._errors or [""])[0]
        if not sentence:
            raise UserError("\n".join([*self._noise, f"{self.commands[0].words[0]} ended with status {status}, and no process said why."]))
        print(f"pykaldist {self.verb}: ERROR: {sentence}", file=sys.stderr, flush=True)
        return DIED


def _before_exec() -> None:
    """In the child: hydra must not hear SIGTERM, and the child is not to outlive the launcher."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    die_with_parent()


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
