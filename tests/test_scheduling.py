"""Short time slices on shared cores: every verb asks for them, and keeps what else the system was told."""

import subprocess
import sys

import pytest

from pykaldist import scheduling

SHOW = """
import contextlib, io, os
from pykaldist import cli, scheduling
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    {}
print(scheduling.time_slice(), os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0))
"""
VERB = "cli.main(['compile', '--help'])"


def shown(code: str, *prefix: str) -> list[str]:
    """Time slice, niceness and policy of a process after some code."""
    return subprocess.run([*prefix, sys.executable, "-c", SHOW.format(code)], capture_output=True, text=True, check=True).stdout.split()


def test_a_verb_asks_for_short_time_slices_and_keeps_its_niceness() -> None:
    time_slice, nice, policy = shown("pass")
    if time_slice == "None":  # older systems say 0 for every process: there is nothing to compare
        pytest.skip("this system does not tell a process's time slice (Linux before 6.12)")
    assert shown(VERB, "nice", "-n", "5") == [str(scheduling.TIME_SLICE), str(int(nice) + 5), policy]


def test_a_process_with_a_policy_of_its_own_keeps_it() -> None:
    batch = "os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0));"
    assert shown(batch + VERB) == shown(batch + "pass")
