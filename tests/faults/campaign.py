"""The whole campaign: faults in stages and jobs, kills, networks that fail, damaged inputs; and its table.

    tests/faults/run.sh --seed 1                 # everything: every k of every class, 50 where it has more than 200
    tests/faults/run.sh --seed 1 --sample        # a few minutes
    tests/faults/run.sh --seed 1 --table out     # the table of what has been tried
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import kills
from faults import OF_MANY, SAMPLED_ABOVE, Bench, Trial, append, read, wrong
from stages import Case, killed_jobs
from zoo import ROOT, missing

GROUPS = ("stages", "jobs", "kills", "network", "inputs", "fuzz")
HEAD = ("class", "tried", "clear sentence", "survived", "silent", "hang", "traceback", "no sentence", "half-written",
        "rerun differs or fails", "processes left")
STOPPED_S = 5.0
READ_AS = {"other values": "other values", "empty": "an empty table", "fewer entries": "fewer entries", "other entries": "other entries"}


def row(name: str, found: list[Trial]) -> list[str]:
    outcomes = Counter(trial.outcome for trial in found)
    return [name, *map(str, (
        sum(outcomes.values()) - outcomes["not reached"], outcomes["sentence"], outcomes["survived"], outcomes["silent"], outcomes["hang"],
        outcomes["traceback"], outcomes["mute"], sum(bool(trial.half) for trial in found),
        sum(trial.rerun in ("differs", "fails") for trial in found), sum(trial.left > 0 for trial in found)))]


def name_of(trial: Trial) -> str:
    """The row of a trial."""
    kind = {"error": trial.what, "short": "short", "flip": "flipped bit", "kill": "SIGKILL", "torn": "half written, SIGKILL",
            "stop": "SIGSTOP", "delay": "delay"}.get(trial.kind, trial.kind)
    if trial.group in ("inputs", "fuzz"):
        return f"{trial.group}: read as {READ_AS[trial.kind]}" if trial.kind in READ_AS else trial.group
    if trial.group == "kills":
        return f"kills: {kind}, {trial.phase}"
    if trial.group == "network":
        return f"network: {kind}"
    return f"{trial.group}: {trial.where}, {kind}"


def table(found: Iterable[Trial]) -> str:
    rows: dict[str, list[Trial]] = {}
    for trial in found:
        rows.setdefault(name_of(trial), []).append(trial)
    order = sorted(rows, key=lambda name: (GROUPS.index(name.partition(":")[0]), name))
    lines = [HEAD, ["---"] * len(HEAD), *(row(name, rows[name]) for name in order)]
    lines.append(row("all", [trial for one in rows.values() for trial in one]))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def commit() -> str:
    done = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty=+"], capture_output=True, text=True, check=False)
    return done.stdout.strip()


class Clock:
    """Notices that all processes of this campaign have been stopped for a while: a frozen machine makes timeouts of its own."""

    def __init__(self) -> None:
        self.stops = 0
        threading.Thread(target=self._tick, daemon=True).start()

    def _tick(self) -> None:
        while True:
            before = time.monotonic()
            time.sleep(0.2)
            self.stops += time.monotonic() - before > STOPPED_S


class Campaign:
    """Runs trials, and writes each to the file `out`; those that stand there are not tried again. A part ends after its `minutes`."""

    def __init__(self, seed: int, out: Path, folder: Path, minutes: float, many: int, counts: dict[str, int], only: str = "") -> None:
        self.seed, self.out, self.folder, self.minutes, self.many, self.counts = seed, out, folder, minutes, many, counts
        self.only = only
        self.had = {trial.key for trial in read(out)}
        self.long: Bench | None = None
        self.clock = Clock()

    def note(self, trial: Trial) -> None:
        append(self.out, trial)
        if wrong(trial):
            print(f"{name_of(trial)}: {trial.case}, {trial.where} {trial.k}, {trial.function} {trial.file}: {trial.outcome}, "
                  f"status {trial.status}" + f", half {trial.half}" * bool(trial.half) + f", rerun {trial.rerun}" * bool(trial.rerun)
                  + f", left {trial.left}" * bool(trial.left) + f": {trial.said}", flush=True)

    def each(self, group: str, trials: list[Trial], do: Callable[[Trial], Trial]) -> None:
        """Try those that have not been tried, until the time is over."""
        trials = [dataclasses.replace(trial, group=group) for trial in trials][: self.counts.get(group, len(trials))]
        left = [trial for trial in trials if trial.key not in self.had]
        print(f"{group}: {len(trials)} to be tried, {len(trials) - len(left)} of them have been", flush=True)
        until = time.monotonic() + 60 * self.minutes
        for trial in left:
            if time.monotonic() > until:
                return
            stops = self.clock.stops
            done = do(dataclasses.replace(trial))
            if self.clock.stops > stops and wrong(done):
                done = do(dataclasses.replace(trial))
            self.note(done)

    def bench(self, name: str, wanted: Callable[[Case], bool], listed: list[Case] | None = None) -> Bench:
        base = self.folder / name
        shutil.rmtree(base, ignore_errors=True)
        bench = Bench(base, lambda line: print(line, flush=True))
        try:
            bench.prepare(lambda case: wanted(case) and re.search(self.only, case.name) is not None, listed)
        except BaseException:
            bench.place.stop()
            raise
        return bench

    def faults(self, group: str, wanted: Callable[[Case], bool]) -> None:
        bench = self.bench(group, wanted)
        try:
            self.each(group, bench.trials(self.seed, self.many), bench.inject)
        finally:
            bench.place.stop()

    def stages(self) -> None:
        self.faults("stages", lambda case: case.processes == 1)

    def jobs(self) -> None:
        self.faults("jobs", lambda case: case.processes > 1)

    def long_jobs(self) -> Bench:
        if self.long is None:
            self.long = self.bench("long", lambda case: case.processes > 1, killed_jobs())
        return self.long

    def kills(self) -> None:
        bench = self.long_jobs()
        trials = [trial for trial in kills.trials(LONG, self.seed, 100) if trial.case in bench.prepared]
        if "kills" in self.counts:  # few, none of them a stop, which ends after a job's --timeout
            trials = [trial for trial in trials if trial.kind == "kill"]
        self.each("kills", trials, lambda trial: kills.kill(bench, trial))

    def network(self) -> None:
        if reason := kills.without_networks():
            print(f"network: left out, {reason}", flush=True)
            return
        bench = self.long_jobs()
        names = [name for name in LONG if "gloo" in name]  # MPI's processes of one machine share memory
        trials = [trial for trial in kills.network_trials(names, self.seed, 100) if trial.case in bench.prepared]
        with kills.Network() as network:
            self.each("network", trials, lambda trial: kills.disturb(bench, network, trial))

    def inputs(self) -> None:
        sys.path.append(str(ROOT / "tests"))
        import inputs

        each = -(-self.counts.get("inputs", 5000) // FORMATS)
        print(f"inputs: {each} of each of {FORMATS} formats", flush=True)
        for trial in inputs.campaign(self.seed, each, str(self.folder)):
            trial.bit = self.seed
            if trial.key not in self.had:
                self.note(trial)

    def fuzz(self) -> None:
        sys.path.append(str(ROOT / "tests"))
        import fuzz

        minutes = min(self.minutes, self.counts.get("fuzz", FUZZ_MINUTES * 60) / 60)
        cases = self.out.with_suffix(".cases")
        print(f"fuzz: {minutes:g} minutes; what is found is kept in {cases}", flush=True)
        for trial in fuzz.campaign(self.seed, 60 * minutes, cases, str(self.folder)):
            append(self.out, trial)
            if trial.outcome in fuzz.WRONG:
                print(f"fuzz: {trial.case}, {trial.file}: {trial.outcome}: {trial.said}", flush=True)

    def end(self) -> None:
        if self.long is not None:
            self.long.place.stop()


LONG = [case.name for case in killed_jobs() if case.processes > 1]
FUZZ_MINUTES = 60
FORMATS = 52  # of tests/test_damage.py
SAMPLED_CASES = r"^(?!long|train )|^train (ma|asgd)|^long (ma.*mpi|bmuf.*gloo)"
SAMPLE = {"stages": 40, "jobs": 4, "kills": 4, "network": 2, "inputs": 260, "fuzz": 10}  # trials; of fuzz: seconds


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests/faults/run.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="of what is tried, and where (1)")
    parser.add_argument("--sample", action="store_true", help="a few of each, in under four minutes")
    parser.add_argument("--groups", default=",".join(GROUPS), help="which parts (all: %(default)s)")
    parser.add_argument("--cases", default="", help="only stages and jobs in whose names this regular expression is found")
    parser.add_argument("--minutes", type=float, default=1e9, help="for each part, without its preparation; --out goes on another time")
    parser.add_argument("--of-many", type=int, default=OF_MANY, help="calls that are tried of a class with more than "
                        f"{SAMPLED_ABOVE} in a case (%(default)s)")
    parser.add_argument("--out", type=Path, help="file that gets a line for each trial, and has those before (a temporary one)")
    parser.add_argument("--dir", type=Path, help="folder to work in (a temporary one, in memory where there is room)")
    parser.add_argument("--table", type=Path, help="print the table of this file, and try nothing")
    args = parser.parse_args()
    if args.table:
        print(table(read(args.table)))
        return 0
    if reason := missing():
        print(f"tests/faults/run.sh: {reason}; nothing was tried.", file=sys.stderr)
        return 77
    counts = SAMPLE if args.sample else {}
    cases = args.cases or (SAMPLED_CASES if args.sample else "")
    with tempfile.TemporaryDirectory(prefix="faults", dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as made:
        folder = args.dir or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        out = args.out or folder / "trials.jsonl"
        run = Campaign(args.seed, out, folder, args.minutes, args.of_many, counts, cases)
        try:
            for group in args.groups.split(","):
                getattr(run, group)()
        finally:
            run.end()
        found = read(out)
        print(f"\nseed {args.seed}, commit {commit()}, {time.strftime('%Y-%m-%d')}\n\n{table(found)}")
        # What has no checksum can change without a word: docs/faults.md.
        return int(any(wrong(trial) and trial.kind != "flip" and not (trial.group in ("inputs", "fuzz") and trial.outcome == "silent")
                       for trial in found))


if __name__ == "__main__":
    sys.exit(main())
