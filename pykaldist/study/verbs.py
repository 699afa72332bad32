"""Several `pykaldist` verbs in one process, on one core: PyTorch is loaded once."""

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
    """The error of a verb that ended with a status other than 0."""


_children: set[subprocess.Popen[bytes]] = set()


def end_all() -> None:
    """End the verbs that other threads of this process run; what they were at goes on when they are run again."""
    for child in list(_children):
        os.kill(child.pid, signal.SIGTERM)


def run_verbs(log: Path, *commands: Sequence[object]) -> float:
    """Run verbs, one after the other, their output in a log; returns the seconds of CPU. Raises VerbError where one fails."""
    log.parent.mkdir(parents=True, exist_ok=True)
    words = json.dumps([[str(word) for word in command] for command in commands])
    with open(log, "w", encoding="utf-8") as stream:
        child = subprocess.Popen([sys.executable, "-c", PROGRAM, words], stdout=stream, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
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
    if child.returncode:
        named = ", ".join(str(command[0]) for command in commands)
        raise VerbError(f"{named} ended with status {child.returncode}; see {log}.")
    return usage.ru_utime + usage.ru_stime
