#!/usr/bin/env python3
"""A stand-in for Grid Engine, as its manual pages describe qsub, qstat and qdel: one machine, as many slots as asked for.

    GRID_ENGINE=FOLDER qsub -t 1-4 -tc 2 -o LOG -j y -cwd -v PATH -S /bin/bash -l mem_free=2G SCRIPT

It is called as qsub, qstat or qdel. Resources are taken as they are; a queue that is not `all.q` or `*.q` is
refused, as are options that qsub does not have.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

STATE = Path(os.environ["GRID_ENGINE"])
WITH_VALUE = {"-o", "-S", "-j", "-l", "-q", "-t", "-tc", "-N", "-p"}
QUEUES = ("all.q", "*.q")


def qsub(words: list[str]) -> int:
    """Queue a job or an array; a process of its own runs its tasks."""
    values: dict[str, str] = {}
    while words and words[0].startswith("-"):
        option = words.pop(0)
        if option in WITH_VALUE:
            values[option] = ",".join(filter(None, [values.get(option, ""), words.pop(0)]))
        elif option == "-v":
            values[option] = words.pop(0)
        elif option == "-pe":
            values[option] = " ".join((words.pop(0), words.pop(0)))
        elif option not in ("-cwd", "-V"):
            print(f"qsub: Unknown option {option}", file=sys.stderr)
            return 1
    if values.get("-q", "all.q") not in QUEUES:
        print(f'Unable to run job: Job was rejected because job requests unknown queue "{values["-q"]}".\nExiting.', file=sys.stderr)
        return 1
    script = words[0]
    number = str(1 + len(list(STATE.glob("job.*"))))
    (STATE / f"job.{number}").write_text(repr((sys.argv[1:], values)))
    first, _, last = values.get("-t", "").partition("-")
    tasks = list(range(int(first), int(last or first) + 1)) if first else [0]
    if os.fork() == 0:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):
            os.dup2(null, descriptor)
        keep = {name: os.environ[name] for name in ("PATH", "HOME", "TEST_KILLED", "GRID_ENGINE") if name in os.environ}
        run_tasks(number, script, tasks, int(values.get("-tc", "0")) or len(tasks), values["-o"], keep, bool(first))
        os._exit(0)
    name = Path(script).name
    array = f"-array {number}.{first}-{last or first}:1" if first else f" {number}"
    print(f'Your job{array} ("{name}") has been submitted')
    return 0


def run_tasks(number: str, script: str, tasks: list[int], most: int, log: str, env: dict[str, str], array: bool) -> None:
    """Run the tasks of a job, so many at a time; the file of the job goes when all have ended, or when it is deleted."""
    running: dict[int, subprocess.Popen[bytes]] = {}
    state, waiting, peak = STATE / f"job.{number}", list(tasks), 0
    while (waiting or running) and state.exists():
        while waiting and len(running) < most:
            task = waiting.pop(0)
            own = {**env, "JOB_ID": number, "SGE_TASK_ID": str(task) if array else "undefined"}
            with open(log, "ab") as stream:
                running[task] = subprocess.Popen(["/bin/bash", script], env=own, stdout=stream, stderr=stream, start_new_session=True)
            peak = max(peak, len(running))
            (STATE / f"peak.{number}").write_text(str(peak))
        for task in [task for task, process in running.items() if process.poll() is not None]:
            del running[task]
        for task in [int(path.suffix[1:]) for path in STATE.glob(f"delete.{number}.*")]:
            (STATE / f"delete.{number}.{task}").unlink()
            if task in running:
                os.killpg(running.pop(task).pid, signal.SIGKILL)
        time.sleep(0.02)
    for process in running.values():
        os.killpg(process.pid, signal.SIGKILL)
    if state.exists():
        state.rename(STATE / f"ended.{number}")


def qstat(words: list[str]) -> int:
    """`qstat -j NUMBER`."""
    number = words[words.index("-j") + 1]
    (STATE / "asked").touch()
    if (STATE / f"job.{number}").exists():
        print(f"==============\njob_number:                 {number}")
        reason = STATE / "reason"
        if reason.exists():
            print(reason.read_text())
        return 0
    print(f"Following jobs do not exist: \n{number}")
    return 1


def qdel(words: list[str]) -> int:
    """`qdel NUMBER`, or `qdel NUMBER -t TASK`."""
    if len(words) == 3:
        (STATE / f"delete.{words[0]}.{words[2]}").touch()
        return 0
    path = STATE / f"job.{words[0]}"
    if not path.exists():
        print(f'denied: job "{words[0]}" does not exist')
        return 1
    path.rename(STATE / f"deleted.{words[0]}")
    print(f"root has deleted job {words[0]}")
    return 0


if __name__ == "__main__":
    sys.exit({"qsub": qsub, "qstat": qstat, "qdel": qdel}[Path(sys.argv[0]).name](sys.argv[1:]))
