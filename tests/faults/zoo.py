"""The place in which commands are disturbed: the shim and the stand-in interpreter, compiled; the zygote; what a command is told by.

`Control` is shim.c's struct: which call is to fail, and what came of it. `Place.run` runs a command with it.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CLASSES = ("open", "create", "write", "fsync", "rename", "mmap", "read", "send", "receive")
KINDS = ("none", "error", "short", "flip", "kill", "torn", "stop", "delay")
LAYOUT = struct.Struct("=512s128s4iqQ9q2i32s512s")
WARM_S = 300.0  # of a machine with other work


def missing() -> str:
    """Why faults cannot be injected here; empty where they can."""
    if not sys.platform.startswith("linux"):
        return "LD_PRELOAD is Linux's"
    return "" if shutil.which("gcc") or shutil.which("cc") else "there is no C compiler (gcc or cc) for tests/faults/shim.c"


@dataclass
class Fault:
    """One call that is to fail: the k-th of a class; k = 0: none."""

    kind: str = "none"
    where: str = "write"  # class
    k: int = 0
    error: int = 0
    bit: int = 0
    delay_ms: int = 0
    match: str = ""  # in the file's name


@dataclass
class Seen:
    """What the shim has seen."""

    counts: dict[str, int]
    fired: bool
    pid: int
    function: str
    file: str


class Control:
    """The file that tells the shim what to do."""

    def __init__(self, path: Path, root: Path) -> None:
        self.path, self.root = path, root
        path.write_bytes(bytes(LAYOUT.size))
        with open(path, "r+b") as stream:
            self.map = mmap.mmap(stream.fileno(), LAYOUT.size)
        self.arm(Fault())

    def arm(self, fault: Fault) -> None:
        self.map[:] = LAYOUT.pack(os.fsencode(self.root), fault.match.encode(), CLASSES.index(fault.where), KINDS.index(fault.kind),
                                  fault.error, fault.delay_ms, fault.k, fault.bit, *[0] * len(CLASSES), 0, 0, b"", b"")

    def seen(self) -> Seen:
        values = LAYOUT.unpack(self.map[:])
        counts = dict(zip(CLASSES, values[8 : 8 + len(CLASSES)], strict=True))
        fired, pid, function, file = values[8 + len(CLASSES) :]
        return Seen(counts, bool(fired), pid, function.rstrip(b"\0").decode(), file.rstrip(b"\0").decode(errors="replace"))


@dataclass
class Done:
    """How a command ended; `hung` where it had to be killed."""

    status: int
    out: str
    err: str
    hung: bool
    seconds: float


@dataclass
class Place:
    """A folder with the tools, the zygote, and the files of whoever is tried, of which `root` is watched."""

    base: Path
    root: Path = field(init=False)
    control: Control = field(init=False)

    def __post_init__(self) -> None:
        self.tools, self.root = self.base / "tools", self.base / "root"
        for folder in (self.tools, self.root):
            folder.mkdir(parents=True, exist_ok=True)
        compiler = shutil.which("gcc") or shutil.which("cc") or "cc"
        self.shim = self.tools / "shim.so"
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(self.shim), str(HERE / "shim.c"), "-ldl"], check=True)
        subprocess.run([compiler, "-O1", "-o", str(self.tools / "python"), str(HERE / "client.c")], check=True)
        beside = Path(sys.executable).parent
        for name, target in (("pykaldist", self.tools / "python"), *((n, beside / n) for n in ("mpiexec", "mpiexec.gforker"))):
            if target.exists() and not (self.tools / name).exists():
                (self.tools / name).symlink_to(target)
        self.control = Control(self.tools / "control", self.root)
        self.socket = self.tools / "socket"
        self.zygote: subprocess.Popen[bytes] | None = None

    def environment(self, faults: bool = True) -> dict[str, str]:
        own = {name: value for name, value in os.environ.items()
               if not name.startswith(("PMI", "SLURM", "OMPI", "PYKALDIST_", "FAULTS_", "PYTEST"))}
        path = [str(self.tools), str(ROOT / "utils"), str(ROOT / "utils" / "shared"), str(Path(sys.executable).parent), own["PATH"]]
        numbers = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
        armed = {"LD_PRELOAD": str(self.shim), "FAULTS_CONTROL": str(self.control.path)} if faults else {}
        return {**own, **numbers, "PATH": os.pathsep.join(path), "PYTHONPATH": str(ROOT), "PYKALDIST_PYTHON": sys.executable,
                "PYKALDIST_TOLD": "true", "LC_ALL": "C.UTF-8", "FAULTS_ZYGOTE": str(self.socket), **armed}

    def start(self) -> None:
        self.socket.unlink(missing_ok=True)
        env = {**self.environment(faults=False), "LD_PRELOAD": str(self.shim)}
        self.zygote = subprocess.Popen([sys.executable, str(HERE / "zygote.py"), str(self.socket), str(self.shim)], env=env,
                                       stdin=subprocess.PIPE, start_new_session=True)
        until = time.monotonic() + WARM_S
        while not self.socket.exists():
            if self.zygote.poll() is not None or time.monotonic() > until:
                raise RuntimeError("zygote.py has not started")
            time.sleep(0.02)

    def stop(self) -> None:
        if self.zygote is not None and self.zygote.stdin is not None:
            self.zygote.stdin.close()
            self.zygote.wait(30)

    def run(self, words: Sequence[str], folder: Path, fault: Fault | None = None, timeout: float = 60.0, warm: bool = False,
            meanwhile: Callable[[], None] | None = None, more: dict[str, str] | None = None) -> Done:
        """Run a command in `folder` with a fault, and `meanwhile` in a thread; with `more` environment."""
        self.control.arm(fault or Fault())
        env = {**self.environment(faults=not warm), **(more or {})}
        if warm:
            env["FAULTS_WARM"] = "true"
        started = time.monotonic()
        # Files, not pipes: a process that is left behind would keep a pipe open.
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = subprocess.Popen(words, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                       start_new_session=True)
            hung = False
            if meanwhile is not None:
                threading.Thread(target=meanwhile, daemon=True).start()
            try:
                process.wait(timeout)
            except subprocess.TimeoutExpired:
                hung = True
                self.end_all(process)
            seconds = time.monotonic() - started
            texts = []
            for stream in (out, err):
                stream.seek(0)
                texts.append(stream.read().decode(errors="replace"))
        return Done(process.returncode, *texts, hung, seconds)

    def end_all(self, process: subprocess.Popen[bytes]) -> None:
        """Kill a command, and all that it has started here: they have the control's name in their environment, or come of the zygote."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        self.sweep()
        process.wait(30)

    def left(self) -> list[int]:
        """Processes of disturbed commands that are still there."""
        zygote = self.zygote.pid if self.zygote else 0
        found, mark = [], f"FAULTS_CONTROL={self.control.path}".encode()
        for folder in Path("/proc").iterdir():
            if not folder.name.isdigit() or int(folder.name) in (zygote, os.getpid()):
                continue
            with contextlib.suppress(OSError, ProcessLookupError):
                stat = (folder / "stat").read_text().rpartition(")")[2].split()
                if stat[0] != "Z" and (int(stat[1]) == zygote or mark in (folder / "environ").read_bytes().split(b"\0")):
                    found.append(int(folder.name))
        return sorted(found)

    def sweep(self) -> list[int]:
        """Kill what is left; returns what was."""
        found = self.left()
        self.swept = []
        for pid in found:
            with contextlib.suppress(OSError):
                self.swept.append(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:200])
                os.kill(pid, signal.SIGKILL)
        return found
