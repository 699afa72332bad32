"""Another try for jobs that have failed: retry.pl calls a runner again, for the failed jobs alone where the runner can pick them."""

from __future__ import annotations

import os
import sys

from pykaldist.jobs.wrapper import parse, status_in

RUNNERS = ("run.pl", "queue.pl", "slurm.pl", "ssh.pl")


def run(words: list[str]) -> int:
    """Run the jobs; returns 0 if each one's status was, at the last try; 1 else; the runner's status where a signal has ended it.

    Raises ValueError for arguments that are none.
    """
    tries = 2
    if words[0].partition("=")[0] == "--num-tries":
        value = words[0].partition("=")[2] or words[1]
        words = words[1 if "=" in words[0] else 2 :]
        if not value.isdecimal() or int(value) < 1:
            raise ValueError(f"option --num-tries takes a number from 1 up, found '{value}'.")
        tries = int(value)
    if len(words) < 3:
        raise ValueError("expected a runner, a log and a command; retry.pl --help shows its usage.")
    runner, arguments = words[0], words[1:]
    wanted = parse(arguments, os.path.basename(runner))
    logs = [wanted.numbered(wanted.log, number) for number in wanted.numbers]
    for at in range(1, tries + 1):
        again = at > 1 and os.path.basename(runner) in RUNNERS and len(logs) > 1
        status = os.spawnvp(os.P_WAIT, runner, [runner, *(["--pick", "failed"] if again else []), *arguments])
        if status != 1:
            return status if status >= 0 else 128 - status
        if at < tries:
            failed = [log for log in logs if os.path.exists(log) and status_in(log) != 0]
            for log in failed:
                with open(log, "rb") as old, open(f"{log}.bak", "wb") as kept:
                    kept.write(old.read())
            print(f"retry.pl: job failed; log {failed[0] if failed else logs[0]} is kept with .bak behind it, and it is run again.",
                  file=sys.stderr)
    log = wanted.numbered(wanted.log, "*") if len(logs) > 1 else logs[0]
    print(f"retry.pl: job failed {tries} times; log is in {log}", file=sys.stderr)
    return 1
