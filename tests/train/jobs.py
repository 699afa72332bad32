"""Runs of `pykaldist train` in processes of their own, which tests disturb."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import torch

from pykaldist.io import container
from pykaldist.parallel.launch.watch import read_records

PATIENCE_S = 240.0  # of a test with a loaded machine
EPOCHS = 9
OPTIONS = ["--hid-layers", "2", "--hid-dim", "32", "--splice", "1", "--minibatch-size", "32", "--num-threads", "1", "--device", "cpu",
           "--schedule", "fixed", "--learn-rates", ",".join(["0.002"] * EPOCHS), "--momentum", "0.5", "--checkpoint-minutes", "0"]
JOB = ["--ngpu", "2", "--nproc", "2", "--strategy", "ma", "--average-period", "5"]  # where a test says nothing else
HERE = socket.gethostname()


def environment(**more: str) -> dict[str, str]:
    """This one's, as outside of any job."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PMI", "SLURM", "OMPI", "PYKALDIST_"))}
    root = Path(__file__).resolve().parents[2]
    return {**own, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1", "PYKALDIST_TOLD": "true", **more}


class Run:
    """`pykaldist train` in a process of its own, as a job of so many `processes`; `limit` of the size of files."""

    def __init__(self, store: Path, exp: Path, *options: str, job: list[str] = JOB, processes: int = 2, limit: int | None = None) -> None:
        self.exp, self.processes = exp, processes
        words = [sys.executable, "-m", "pykaldist", "train", *OPTIONS, *job, *options, str(store), str(exp)]

        def prepare() -> None:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # which tests that run in the background would hand on ignored
            if limit is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(),
                                        preexec_fn=prepare)
        self.pids: dict[int, int] = {}

    def wait_for(self, epochs: int) -> dict[int, int]:
        """Until so many epochs are in the history: the pids by rank."""
        self.pids = wait_for_epochs(self.process, self.exp, epochs, self.processes)
        return self.pids

    def end(self) -> tuple[int, str, str]:
        """Status, stdout and stderr; checks that no process is left."""
        out, err = self.process.communicate(timeout=PATIENCE_S)
        deadline = time.monotonic() + 20
        while left := [pid for pid in self.pids.values() if alive(pid)]:
            assert time.monotonic() < deadline, f"processes {left} are left"
            time.sleep(0.05)
        assert not (self.exp / ".ranks").exists() or self.process.returncode < 0
        return self.process.returncode, out, err


def wait_for_epochs(process: subprocess.Popen[str], exp: Path, epochs: int, processes: int = 2) -> dict[int, int]:
    """Until a run of so many processes has so many epochs in its history: their pids by rank."""
    deadline = time.monotonic() + PATIENCE_S
    while process.poll() is None and time.monotonic() < deadline:
        records = read_records(exp / ".ranks")
        if len(records) == processes and epochs_done(exp) >= epochs:
            return {rank: record["pid"] for rank, record in records.items()}
        time.sleep(0.01)
    raise AssertionError(f"ended, or hung, before epoch {epochs}: {process.communicate(timeout=1)}")


def in_a_recipe(root: Path) -> dict[str, str]:
    """The environment that path.sh makes."""
    path = os.pathsep.join([str(root / "utils"), str(Path(sys.executable).parent), os.environ["PATH"]])
    return environment(PATH=path, PYKALDIST_PYTHON=sys.executable)


def complaints(err: str) -> list[str]:
    """Lines but the warnings, of a checkpoint that was not finished, say."""
    return [line for line in err.splitlines() if not line.startswith("WARNING")]


def epochs_done(exp: Path) -> int:
    return len((exp / "history.jsonl").read_text().splitlines()) if (exp / "history.jsonl").exists() else 0


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def descendants(pid: int) -> set[int]:
    """A process, its children, theirs, and so on."""
    found = {pid}
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread may end meanwhile
            for child in path.read_text().split():
                found |= descendants(int(child))
    return found


def listening(pid: int) -> set[tuple[str, int]]:
    """The addresses and ports at which a process, and what it has started, listens by TCP."""
    inodes, found = set(), set()
    for one in descendants(pid):
        with contextlib.suppress(FileNotFoundError):  # a process may end meanwhile
            for path in Path(f"/proc/{one}/fd").iterdir():
                with contextlib.suppress(FileNotFoundError):  # a file may be closed meanwhile: a checkpoint's, say
                    inodes.add(os.readlink(path))
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            _, local, _, state, _, _, _, _, _, inode, *_ = line.split()
            if state == "0A" and f"socket:[{inode}]" in inodes:
                address, port = local.split(":")
                words = [bytes.fromhex(address[k : k + 8])[::-1] for k in range(0, len(address), 8)]  # each in the machine's order
                found.add((socket.inet_ntop(family, b"".join(words)), int(port, 16)))
    return found


def send_garbage(places: set[tuple[str, int]], count: int) -> None:
    """So many connections to these addresses and ports by turns, with what is no message of anybody."""
    for number in range(count):
        with socket.create_connection(sorted(places)[number % len(places)]) as stranger, contextlib.suppress(OSError):
            stranger.sendall((b"GET / HTTP/1.0\r\n\r\n", bytes(range(256)) * 4, b"")[number % 3])


def outcome(exp: Path) -> tuple[torch.Tensor, list[dict[str, object]]]:
    history = [json.loads(line) for line in (exp / "history.jsonl").read_text().splitlines()]
    return container.load(exp / "final.pt")["params"], [{k: v for k, v in line.items() if k != "seconds"} for line in history]


def assert_same(exp: Path, reference: Path) -> None:
    params, history = outcome(exp)
    expected = outcome(reference)
    assert torch.equal(params, expected[0]) and history == expected[1]
