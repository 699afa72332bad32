"""What all job runners have in common: their arguments, the command line that these make, the log's first and last lines, the last word.

The arguments are those of Kaldi's run.pl, queue.pl, slurm.pl and ssh.pl: `[options] [JOB=1:4] <log> <command>...`, the name JOB being any.
The command is for bash. A word with a space in it is quoted, in double quotes, or in single ones where it has a double quote; others
stand as they are, so that a recipe's escaped `|`, `>` and `$HOME` are a pipe, a file and a variable there.
"""

from __future__ import annotations

import itertools
import sys
import time

TYPE_CHECKING = False  # typing, re and dataclasses would take longer to import than all the rest
if TYPE_CHECKING:
    from collections.abc import Iterable

PICKS = ("all", "failed", "incomplete")


class Wanted:
    """What a runner is asked for: options, the array's name and numbers, the log's name and the command, both with that name in them.

    `options` are those with two dashes, by name, with `_` in it; `native` are the others, for the scheduler. `name` is empty where there
    is no array.
    """

    def __init__(self) -> None:
        self.options: dict[str, str] = {}
        self.native: list[str] = []
        self.name, self.first, self.last = "", 1, 1
        self.log, self.command = "", ""

    @property
    def numbers(self) -> range:
        """The numbers of the jobs."""
        return range(self.first, self.last + 1)

    @property
    def threads(self) -> int:
        """How many threads a job is to have."""
        if "-pe" in self.native:
            return int(self.native[self.native.index("-pe") + 2])
        return int(self.options.get("num_threads", "1"))

    def numbered(self, text: str, number: object) -> str:
        """The log's name or the command of a job."""
        return text.replace(self.name, str(number)) if self.name else text


def parse(words: list[str], runner: str) -> Wanted:
    """The arguments of a runner. Raises ValueError with a sentence."""
    wanted, words = Wanted(), list(words)
    while len(words) > 1:
        name, equals, span = words[0].partition("=")
        if words[0].startswith("-"):
            _take_option(wanted, words, runner)
        elif equals and not wanted.name and name.replace("_", "a").isalnum() and name.isascii() and not name[0].isdigit():
            wanted.name = name
            wanted.first, wanted.last = _span(words.pop(0), span)
        else:
            break
    if len(words) < 2:
        raise ValueError(f"expected a log and a command; {runner} --help shows its usage.")
    if wanted.options.get("pick", "all") not in PICKS:
        raise ValueError(f"option --pick takes all, failed or incomplete, found '{wanted.options['pick']}'.")
    for option in ("max_jobs_run", "num_threads"):
        if not (value := wanted.options.get(option, "1")).isdecimal() or int(value) < 1:
            raise ValueError(f"option --{option.replace('_', '-')} takes a number from 1 up, found '{value}'.")
    wanted.log, wanted.command = words[0], " ".join(map(quoted, words[1:]))
    if wanted.last > wanted.first and wanted.name not in wanted.log:
        raise ValueError(f"{wanted.last - wanted.first + 1} jobs would write the same log {wanted.log}; put {wanted.name} in its name.")
    return wanted


def _take_option(wanted: Wanted, words: list[str], runner: str) -> None:
    """Take an option and its value from `words`."""
    option, equals, value = words.pop(0).partition("=")
    if option == "-V":
        wanted.native.append(option)
        return
    if not equals:
        value = words.pop(0)
        if value.startswith("--"):
            print(f"{runner}: WARNING: suspicious argument '{value}' to {option}; starts with '-'", file=sys.stderr)
    if option == "-tc" and runner != "queue.pl":
        option = "--max-jobs-run"
    if option == "-sync":
        return  # the runner waits by itself
    if option.startswith("--"):
        name = option[2:].replace("-", "_")
        if name == "max_jobs_run" and value.isdecimal() and wanted.options.get(name, "").isdecimal():
            value = str(min(int(value), int(wanted.options[name])))
        wanted.options[name] = value
    else:
        wanted.native += [option, value, *([words.pop(0)] if option == "-pe" else [])]


def _span(word: str, span: str) -> tuple[int, int]:
    """The first and the last number of JOB=1:4, or of JOB=3."""
    first, colon, last = span.partition(":")
    last = last if colon else first
    if not (first.isdecimal() and last.isdecimal()) or not 1 <= int(first) <= int(last):
        raise ValueError(f"expected {word.partition('=')[0]}=<first>:<last> from low to high, from 1 up, found {word}.")
    return int(first), int(last)


def quoted(word: str) -> str:
    """A word of the command, for bash."""
    if word and not any(map(str.isspace, word)):
        return word
    return f"'{word}'" if '"' in word else f'"{word}"'


def now() -> str:
    """The time, as `date` prints it."""
    return time.strftime("%a %b %e %H:%M:%S %Z %Y")


def status_in(log: str) -> int | None:
    """The exit status that a log's last lines tell; None where it tells none."""
    for line in reversed(read_lines(log)[-10:]):
        for begin in ("# Ended (code ", "# Finished at "):
            if line.startswith(begin):
                word = line.rpartition(" with status ")[2] if begin.startswith("# F") else line[len(begin) :].partition(")")[0]
                return int(word) if word.isdecimal() else None
    return None


def picked(wanted: Wanted, log: str) -> tuple[bool, int]:
    """Whether a job is to run, by --pick and the log of the last time; and else the status that it had."""
    pick, status = wanted.options.get("pick", "all"), status_in(log)
    if pick == "all" or status is None or (pick == "failed" and status):
        return True, 0
    return False, status


def read_lines(path: str) -> list[str]:
    """The lines of a log; none where it is not there."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read().splitlines()
    except OSError:
        return []


COMMANDS = ("  command: ", "  e.g.: ")  # lines under an error, by pykaldist.cures


def complaint(log: str) -> str:
    """The line of a log that says best what went wrong: the last error, with the commands under it; else the last line of output."""
    lines = read_lines(log)
    errors = [number for number, line in enumerate(lines) if "ERROR:" in line]
    if errors:
        below = itertools.takewhile(lambda line: line.startswith(COMMANDS), lines[errors[-1] + 1 :])
        return "\n".join([lines[errors[-1]], *below])
    return next((line for line in reversed(lines) if not line.startswith("#")), "")


def say_failed(wanted: Wanted, runner: str, failed: Iterable[int], status: int | None = None) -> None:
    """Say which jobs have failed, after the sentence of the first of them."""
    numbers = list(failed)
    log = wanted.numbered(wanted.log, numbers[0])
    line, signal = complaint(log), (status_in(log) or 0) - 128  # as the shell counts
    if signal > 0 and "ERROR:" not in line:
        line = f"{runner}: ERROR: its process was killed by signal {signal}{' (was there memory enough?)' * (signal == 9)}; run the same " \
               "command again."
    if line:
        print(line, file=sys.stderr)
    if len(wanted.numbers) == 1:
        with_status = "" if status is None else f" with status {status}"
        print(f"{runner}: job failed{with_status}, log is in {log}", file=sys.stderr)
        if not wanted.name and "JOB" in log:
            print(f"{runner}: probably you forgot to put JOB=1:$nj in your script.", file=sys.stderr)
    else:
        print(f"{runner}: {len(numbers)} / {len(wanted.numbers)} failed, log is in {wanted.numbered(wanted.log, '*')} "
              f"({wanted.name}={spans(numbers)})", file=sys.stderr)


def spans(numbers: list[int]) -> str:
    """Numbers in short: 1,3-5."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][-1] == number - 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ",".join("-".join(map(str, part)) for part in parts)
