"""A `pykaldist` verb in a process of its own, on one core, its output in a log."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from pykaldist.errors import UserError

SINGLE = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class VerbError(UserError):
    """The error of a verb that ended with a status other than 0."""


def verb(log: Path, *words: object) -> float:
    """Run a verb; returns the seconds of CPU that it took. Raises VerbError where it fails."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "w", encoding="utf-8") as stream:
        child = subprocess.Popen([sys.executable, "-m", "pykaldist", *map(str, words)], stdout=stream, stderr=subprocess.STDOUT,
                                 stdin=subprocess.DEVNULL, env={**os.environ, **SINGLE})
        try:
            _, status, usage = os.wait4(child.pid, 0)
        except BaseException:
            child.kill()
            raise
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise VerbError(f"pykaldist {words[0]} ended with status {child.returncode}; see {log}.")
    return usage.ru_utime + usage.ru_stime
