"""Scripts that a test kills: what belongs to them is found in /proc by a variable of its environment. And a PATH without a program."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

PATIENCE_S = 120.0  # with a loaded machine


class Script:
    """A script that has been started, `words`, in a folder, with the output of all that it starts."""

    def __init__(self, folder: Path, *words: str | Path, **more: str) -> None:
        self.folder, self.mark = folder, f"TEST_KILLED={folder}"
        own = {name: value for name, value in os.environ.items() if not name.startswith("PYKALDIST_STARTED")}
        env = {**own, "TEST_KILLED": str(folder), "PYKALDIST_PYTHON": sys.executable, **more}
        self.process = subprocess.Popen(words, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                        start_new_session=True, preexec_fn=lambda: [signal.signal(one, signal.SIG_DFL) for one in
                                                                                    (signal.SIGINT, signal.SIGHUP)])

    def pids(self) -> list[int]:
        """The processes that there are of it; the test's own are not among them."""
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                if self.mark.encode() in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                    found.append(int(name))
            except OSError:
                continue
        return found

    def ended(self) -> tuple[int, str]:
        """Status and output. Waits until all of its processes are gone."""
        out, _ = self.process.communicate(timeout=PATIENCE_S)
        self.until(lambda: not self.pids())
        return self.process.returncode, out

    def until(self, true: Callable[[], bool]) -> None:
        """Wait until something is true."""
        deadline = time.monotonic() + PATIENCE_S
        while not true():
            if time.monotonic() > deadline:
                left = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in self.pids()}
                raise AssertionError((left, left or self.process.communicate()))
            time.sleep(0.05)


def path_without(program: str, path: str, folder: Path) -> str:
    """A PATH without `program`: where a folder has it, `folder` stands in its place, with links to all else. Jobs run here without qsub."""
    found = []
    for entry in path.split(":"):
        if Path(entry, program).exists():
            folder.mkdir(exist_ok=True)
            for other in Path(entry).iterdir():
                if other.name != program and not (folder / other.name).is_symlink():
                    (folder / other.name).symlink_to(other)
            found.append(str(folder))
        else:
            found.append(entry)
    return ":".join(found)
