"""Jobs by a scheduler: queue.pl submits them to Grid Engine, slurm.pl to SLURM, and both wait for them.

An array is one submission. Its script goes to the recipe's folder, sources path.sh, and has `task` run the job of its number as
run.pl would: with the same log, the same end of all that the job has started. Then it leaves the status in a file of its own in q/sync, for
which queue.pl waits. Now and then it asks the scheduler whether the jobs are still there; one that is gone without such a file has failed.

What the options mean to qsub or sbatch is said by a configuration, in Kaldi's form (kaldi-asr.org/doc/queue.html):

    command qsub -v PATH -cwd                the command
    option mem=* -l mem_free=$0              what --mem adds to it, $0 being its value
    option gpu=0                             what --gpu 0 adds: nothing
    default gpu=0                            the value where the option is not given
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass

from pykaldist.jobs import local
from pykaldist.jobs.guard import ENDS, STARTED_BY, Process, send, start_guard
from pykaldist.jobs.wrapper import Wanted, picked, say_failed, spans

LONGEST_LOOK_S = 3.0
ASK_S = 10.0  # after which the scheduler is asked whether the jobs are still there
LATE_S = 60.0  # in which a file of another machine has to show itself here
SUBMISSIONS, BETWEEN_S = 4, 20.0  # tries, where the scheduler's server does not answer
NOT_OF_JOBS = {STARTED_BY, "PYKALDIST_PROGRESS_FD", "PYKALDIST_JOB"}
GRID_ENGINE = """command qsub -v PATH -cwd -S /bin/bash -j y -l arch=*64*
option mem=* -l mem_free=$0,ram_free=$0
option mem=0
option num_threads=* -pe smp $0
option num_threads=1
option max_jobs_run=* -tc $0
default gpu=0
option gpu=0
option gpu=* -l gpu=$0 -q '*.q'
"""
SLURM = """command sbatch --ntasks-per-node=1
option time=* --time $0
option mem=* --mem-per-cpu $0
option mem=0
option num_threads=* --cpus-per-task $0
option num_threads=1
default gpu=0
option gpu=0
option gpu=* --gres=gpu:$0
"""


@dataclass
class Scheduler:
    """What differs between schedulers. `array` gives the words for an array; `ask` tells why a job is no longer there, or None."""

    submits: str
    config: str
    default: str
    array: Callable[[Wanted], str]
    number: str
    submitted: str
    deletes: str
    ask: Callable[[str], str | None]


def run(wanted: Wanted, runner: str) -> int:
    """Run the jobs. Returns 0 if each one's status was, else 1; 128 and the signal's number where a signal ended it.

    Raises ValueError for options that the configuration does not have, and OSError where a file cannot be written.
    """
    scheduler = SCHEDULERS[runner]
    if not found(scheduler.submits):
        if runner != "queue.pl":
            raise ValueError(f"there is no {scheduler.submits} here; utils/run.pl runs jobs on a machine of no cluster.")
        say_once(f"queue.pl: no Grid Engine (qsub) here; jobs run on this machine's {len(os.sched_getaffinity(0))} cores, as by run.pl.")
        return local.run(wanted, runner)
    command = submission(wanted, scheduler, runner)
    failed, waiting = [], []
    for number in wanted.numbers:
        wants, status = picked(wanted, wanted.numbered(wanted.log, number))
        if wants:
            waiting.append(number)
        elif status:
            failed.append(number)
    if not waiting:
        return 1 if failed else 0
    awaited = {signal.SIGCHLD, *(number for number in ENDS if signal.getsignal(number) != signal.SIG_IGN)}
    signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    script, log, done = write_script(wanted, scheduler, waiting)
    job = submit(f"{command} -o {shlex.quote(log)} {shlex.quote(script)}", scheduler, runner)
    delete = f"{scheduler.deletes} {job} >/dev/null 2>&1"
    guard = start_guard(f"{os.getpid()}-{time.time_ns()}", lambda: os.system(delete))
    statuses, ended_by, why = wait(waiting, done, awaited, lambda: scheduler.ask(job))
    if ended_by or why:
        os.system(delete)
    send(guard, signal.SIGKILL)
    if ended_by:
        return 128 + ended_by
    for number in waiting:
        if number in statuses:
            os.unlink(f"{done}.{number}")
    if why:
        lost = [number for number in waiting if number not in statuses]
        print(f"{runner}: {wanted.name or 'job'}={spans(lost)} of job {job} is gone from the queue and has not ended ({why}); "
              f"what its script has said is in {log}.", file=sys.stderr)
    failed = sorted([*failed, *(number for number in waiting if statuses.get(number, 1))])
    if failed:
        say_failed(wanted, runner, failed, statuses.get(failed[0]))
    return 1 if failed else 0


def found(program: str) -> bool:
    """True if a program is on PATH."""
    return any(os.access(os.path.join(folder, program), os.X_OK) for folder in os.environ.get("PATH", "").split(":") if folder)


def submission(wanted: Wanted, scheduler: Scheduler, runner: str) -> str:
    """The command that submits the jobs, but for the script. Raises ValueError for what the configuration does not have."""
    path = wanted.options.get("config", scheduler.config)
    if os.path.isfile(path):
        with open(path, encoding="utf-8") as stream:
            text = stream.read()
    elif "config" in wanted.options:
        raise ValueError(f"there is no configuration {path}; leave --config out, or write one ({runner} --help shows the default).")
    else:
        text, path = scheduler.default, "the default configuration"
    options = {name: value for name, value in wanted.options.items() if name not in ("config", "pick")}
    command, meanings = read_config(text, path, options)
    words = [command]
    for name, value in options.items():
        if name == "max_jobs_run" and (not wanted.name or runner == "slurm.pl"):
            continue  # slurm.pl's array has it
        if (name, value) in meanings:
            words.append(meanings[name, value])
        elif (name, "*") in meanings:
            words.append(meanings[name, "*"].replace("$0", shlex.quote(value)))
        else:
            raise ValueError(f"{path} does not say what option --{name.replace('_', '-')} {value} means; it has: "
                             f"{', '.join(sorted({f'--{one}'.replace('_', '-') for one, _ in meanings}))}.")
    return " ".join([*words, *map(shlex.quote, wanted.native), *([scheduler.array(wanted)] if wanted.name else [])])


def read_config(text: str, path: str, options: dict[str, str]) -> tuple[str, dict[tuple[str, str], str]]:
    """The command of a configuration, and what an option with a value adds to it, the value `*` being any. Sets options to their defaults.

    Raises ValueError for a line that is none of a configuration.
    """
    command, meanings = "", {}
    for line in text.splitlines():
        words = re.sub(r"\s*#.*", "", line).strip()
        kind, _, rest = words.partition(" ")
        name, equals, more = rest.strip().partition("=")
        value, _, meaning = more.partition(" ")
        if kind == "command" and rest:
            command = rest
        elif kind == "option" and equals:
            meanings[name, value] = meaning.strip()
        elif kind == "default" and equals:
            options.setdefault(name, value)
        elif words:
            raise ValueError(f"{path}: expected a line with command, option <name>=<value> or default <name>=<value>, found '{line}'.")
    if not command:
        raise ValueError(f"{path} has no line with the command that submits.")
    return command, meanings


def write_script(wanted: Wanted, scheduler: Scheduler, numbers: list[int]) -> tuple[str, str, str]:
    """Write the script that is submitted, and what its tasks read.

    Returns its path, that of what it says, and how the names of the files begin that ended tasks leave.
    """
    folder, base = os.path.split(wanted.log)
    own = os.path.join(os.path.dirname(folder) if os.path.basename(folder).lower() == "log" else folder, "q")
    if wanted.name:
        base = base.replace(f".{wanted.name}", "").replace(wanted.name, "")
    os.makedirs(os.path.join(own, "sync"), exist_ok=True)
    os.makedirs(folder or ".", exist_ok=True)
    stem = os.path.abspath(os.path.join(own, re.sub(r"\.[a-zA-Z]{1,5}$", "", base)))
    done = os.path.join(os.path.abspath(own), "sync", f"done.{os.getpid()}-{time.time_ns()}")
    with open(f"{stem}.json", "w", encoding="utf-8") as stream:
        json.dump({"command": wanted.command, "log": wanted.log, "name": wanted.name, "threads": wanted.threads, "numbers": numbers,
                   "done": done}, stream)
    if os.path.exists(f"{stem}.log"):
        os.unlink(f"{stem}.log")
    variables = [f"export {name}={shlex.quote(value)}" for name, value in sorted(os.environ.items())
                 if name.startswith("PYKALDIST_") and name not in NOT_OF_JOBS]
    here = os.path.dirname(os.path.abspath(__file__))
    lines = ["#!/bin/bash", f"cd {shlex.quote(os.getcwd())} || exit 1", f"unset {' '.join(sorted(NOT_OF_JOBS))}", *variables,
             "[ ! -f path.sh ] || . ./path.sh",
             '[ "${CUDA_VISIBLE_DEVICES:-}" != NoDevFiles ] || unset CUDA_VISIBLE_DEVICES  # by which SLURM says that there are none',
             f'exec {shlex.join([sys.executable, "-I", "-S", here, "task", f"{stem}.json"])} "${{{scheduler.number}:-}}"']
    with open(f"{stem}.sh", "w", encoding="utf-8") as stream:
        stream.write("\n".join(lines) + "\n")
    os.chmod(f"{stem}.sh", 0o755)
    return f"{stem}.sh", f"{stem}.log", done


def submit(command: str, scheduler: Scheduler, runner: str) -> str:
    """Submit the jobs; returns the number by which the scheduler knows them. Raises ValueError where it does not take them."""
    for tries in range(SUBMISSIONS):
        told = subprocess.run(["bash", "-f", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors="replace", check=False)
        if told.returncode == 0:
            break
        if tries + 1 == SUBMISSIONS or not re.search("gdi request|qmaster|Unable to contact slurm controller", told.stdout):
            lacks = re.search(r'unknown resource "([^"]*)"', told.stdout)
            cure = f"\nThe cluster has no resource {lacks[1]}: have it defined (qconf -mc), or write what your cluster asks for to " \
                   f"{scheduler.config} ({runner} --help shows the default)." if lacks else ""
            raise ValueError(f"{scheduler.submits} did not take the jobs (status {told.returncode}): {told.stdout.strip()}\n"
                             f"The command was: {command}{cure}")
        print(f"{runner}: the scheduler does not answer; once more in {BETWEEN_S:g} s.", file=sys.stderr)
        time.sleep(BETWEEN_S)
    number = re.search(scheduler.submitted, told.stdout)
    if number is None:
        raise ValueError(f"{scheduler.submits} has not said which number the jobs have: {told.stdout.strip()}")
    return number[1]


def wait(numbers: list[int], done: str, awaited: set[signal.Signals], ask: Callable[[], str | None]) -> tuple[dict[int, int], int, str]:
    """Wait until all jobs have ended. Returns the statuses by number, the signal that ended this or 0, and why some jobs are gone."""
    statuses: dict[int, int] = {}
    look, asked, gone, why = 0.1, time.monotonic(), 0.0, ""
    while True:
        there = set(os.listdir(os.path.dirname(done)))  # which NFS looks up anew, as it does not each file
        for number in numbers:
            if number not in statuses and os.path.basename(f"{done}.{number}") in there:
                with open(f"{done}.{number}", encoding="utf-8") as stream:
                    statuses[number] = int(stream.read())
        if len(statuses) == len(numbers):
            return statuses, 0, ""
        now = time.monotonic()
        if why and now > gone + LATE_S:
            return statuses, 0, why
        if not why and now > asked + ASK_S:
            asked, gone, why = now, now, ask() or ""
        came = signal.sigtimedwait(awaited, look)
        if came is not None and came.si_signo in ENDS:
            return statuses, came.si_signo, ""
        look = min(1.2 * look, LONGEST_LOOK_S)


def task(path: str, number: str) -> int:
    """Run a job, or one of an array, as the scheduler has started it; leave its status for the runner. Returns 0 if it was, else 1."""
    with open(path, encoding="utf-8") as stream:
        asked = json.load(stream)
    wanted = Wanted()
    wanted.name = asked["name"]
    at = int(number) if number.isdecimal() else asked["numbers"][0]  # Grid Engine's is `undefined` where there is no array
    if at not in asked["numbers"]:
        return 0
    job = local.Job(wanted.numbered(asked["command"], at), wanted.numbered(asked["log"], at), threads=asked["threads"], queued=True)
    ended_by = local.start_all([job], 1)
    status = job.status if job.status is not None else 128 + ended_by
    with open(f"{asked['done']}.{at}.part", "w", encoding="utf-8") as stream:
        stream.write(str(status))
    os.rename(f"{asked['done']}.{at}.part", f"{asked['done']}.{at}")
    return 1 if status else 0


def _told(command: str) -> tuple[int, str]:
    """The status and the output of a command of the scheduler."""
    told = subprocess.run(shlex.split(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", check=False)
    return told.returncode, told.stdout


def ask_grid_engine(job: str) -> str | None:
    """Why a job is no longer there, or will never start; None where it is there, or the server does not answer."""
    status, text = _told(f"qstat -j {job}")
    if "qmaster" in text or "gdi request" in text:
        return None
    reasons = [line.strip() for line in text.splitlines() if line.startswith("error reason")]
    if status:
        return "qstat does not know it any more: a limit of the queue, qdel, or a machine that has died"
    return reasons[0] if reasons else None


def ask_slurm(job: str) -> str | None:
    """Why a job is no longer there; None where it is there, or the server does not answer."""
    status, text = _told(f"squeue --noheader --jobs {job}")
    if status and "Invalid job id" not in text:
        return None
    if not status and text.strip():
        return None
    states = sorted(set(re.findall(r"JobState=(\S+)", _told(f"scontrol -o show job {job}")[1])) - {"COMPLETED"})
    return f"{', '.join(states)}" if states else "squeue does not know it any more"


def say_once(sentence: str) -> None:
    """Say a sentence to standard error, if it has not been said in this folder since the terminal's session has begun."""
    leader = Process.find(os.getsid(0))
    name = re.sub(r"\W+", "-", f"{os.getcwd()}-{leader.pid if leader else 0}-{leader.start if leader else 0}")[-200:]
    folder = os.path.join(tempfile.gettempdir(), f"pykaldist-{os.getuid()}")
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        if os.lstat(folder).st_uid == os.getuid():
            for old in os.listdir(folder):
                pid = old.rpartition("-")[0].rpartition("-")[2]
                if pid.isdecimal() and Process.find(int(pid)) is None:
                    os.unlink(os.path.join(folder, old))
            os.close(os.open(os.path.join(folder, name), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return
    except OSError:
        pass  # it is said once more
    print(sentence, file=sys.stderr)


def _slurm_array(wanted: Wanted) -> str:
    most = wanted.options.get("max_jobs_run")
    return f"--open-mode=append --array={wanted.first}-{wanted.last}" + (f"%{most}" if most else "")


SCHEDULERS = {
    "queue.pl": Scheduler("qsub", "conf/queue.conf", GRID_ENGINE, lambda wanted: f"-t {wanted.first}-{wanted.last}", "SGE_TASK_ID",
                          r"Your job\S* (\d+)[. ].*has been submitted", "qdel", ask_grid_engine),
    "slurm.pl": Scheduler("sbatch", "conf/slurm.conf", SLURM, _slurm_array, "SLURM_ARRAY_TASK_ID", r"Submitted batch job (\d+)", "scancel",
                          ask_slurm),
}
