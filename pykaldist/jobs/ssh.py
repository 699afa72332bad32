"""Jobs on other machines by ssh: ssh.pl, with the machines of .queue/machines in turn, and this folder under the same path on each."""

from __future__ import annotations

import os
import shlex

from pykaldist.jobs.local import Job, run_jobs
from pykaldist.jobs.wrapper import Wanted, picked

MACHINES = ".queue/machines"
# The connection's other end is what the job's shell reads. When it closes, as it does with ssh.pl, the job and what it has started end.
REMOTE = """cd {folder} || exit 1
[ ! -f path.sh ] || . ./path.sh
echo "# Running on $(hostname)"
set -m
exec 3<&0
( {command}
) </dev/null 3<&- &
job=$!
{{ cat <&3 >/dev/null; kill -TERM -- -$job; sleep 10; kill -KILL -- -$job; }} >/dev/null 2>&1 3<&0 &
watch=$!
exec 3<&-
wait $job; status=$?
kill -KILL -- -$watch
exit $status"""


def read_machines() -> list[str]:
    """The machines, one a line. Raises ValueError where there are none."""
    if not os.path.isfile(MACHINES):
        raise ValueError(f"there is no file {MACHINES}; write the machines' names into it, one a line.")
    with open(MACHINES, encoding="utf-8") as stream:
        lines = [line.split() for line in stream if line.strip()]
    wrong = next((line for line in lines if len(line) != 1 or line[0].startswith("-")), None)
    if wrong or not lines:
        raise ValueError(f"{MACHINES}: expected a machine's name a line, found {' '.join(wrong) if wrong else 'none'}.")
    return [line[0] for line in lines]


def run(wanted: Wanted) -> int:
    """Run the jobs, all at the same time or --max-jobs-run of them; returns as run.pl does."""
    machines, waiting, failed = read_machines(), [], []
    here, there = os.pipe()  # nothing is written: it closes when this process ends
    os.set_inheritable(there, False)
    for number in wanted.numbers:
        log, command = wanted.numbered(wanted.log, number), wanted.numbered(wanted.command, number)
        wants, status = picked(wanted, log)
        if wants:
            remote = REMOTE.format(folder=shlex.quote(os.getcwd()), command=command)
            words = ["ssh", machines[(number - 1) % len(machines)], f"bash -c {shlex.quote(remote)}"]
            waiting.append((number, Job(command, log, threads=wanted.threads, words=words, held=here)))
        elif status:
            failed.append(number)
    return run_jobs(wanted, "ssh.pl", waiting, failed, int(wanted.options.get("max_jobs_run", len(wanted.numbers))))
