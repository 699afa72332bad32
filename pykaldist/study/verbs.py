"""Several `pykaldist` verbs in one process, on one core, so that PyTorch is loaded once; and stage scripts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from pykaldist.errors import UserError

SINGLE = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
PROGRAM = """
import json, sys
from pykaldist.cli import main
for words in json.loads(sys.argv[1]):
    if status := main(words):
        sys.exit(status)
"""


class VerbError(UserError):
    """The error of a verb that ended with a status other than 0, after so many `seconds` of CPU."""

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message)
        self.seconds = seconds


_children: set[subprocess.Popen[bytes]] = set()


def end_all() -> None:
    """End the verbs that other threads of this process run; what they were at goes on when they are run again."""
    for child in list(_children):
        os.kill(child.pid, signal.SIGTERM)


def run_verbs(log: Path, *commands: Sequence[object], folder: Path | None = None) -> float:
    """Run verbs, one after the other, their output in a log; returns the seconds of CPU. Raises VerbError where one fails.

    `folder`: where they run, in place of this one; then paths in `commands` are absolute.
    """
    words = json.dumps([[str(word) for word in command] for command in commands])
    return _run(log, folder or Path.cwd(), ", ".join(str(command[0]) for command in commands), [sys.executable, "-c", PROGRAM, words])


def run_script(log: Path, recipe: Path, *command: object) -> float:
    """Run a stage script in a recipe's folder, in the same way."""
    return _run(log, recipe, str(command[0]), [str(word) for word in command])


def _run(log: Path, folder: Path, named: str, words: Sequence[str]) -> float:
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "w", encoding="utf-8") as stream:
        child = subprocess.Popen(words, stdout=stream, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=folder,
                                 env={**os.environ, **SINGLE})
        _children.add(child)
        try:
            _, status, usage = os.wait4(child.pid, 0)
        except BaseException:
            child.kill()
            raise
        finally:
            _children.discard(child)
    child.returncode = os.waitstatus_to_exitcode(status)
    seconds = usage.ru_utime + usage.ru_stime
    if child.returncode:
        raise VerbError(f"{named} ended with status {child.returncode}; see {log}.", seconds)
    return seconds
