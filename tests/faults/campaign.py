"""The whole campaign: faults in stages and jobs, kills, networks that fail, damaged inputs; and its table.

    tests/faults/run.sh --seed 1                 # everything: every k of every class, up to 200 of each
    tests/faults/run.sh --seed 1 --sample        # a few minutes
    tests/faults/run.sh --seed 1 --table out     # the table of what has been tried
"""

from __future__ import annotations

import argparse
import dataclasses
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import kills
from faults import SAMPLED_ABOVE, Bench, Trial, append, read, wrong
from stages import Case, killed_jobs
from zoo import ROOT, missing

GROUPS = ("stages", "jobs", "kills", "network", "inputs")
HEAD = ("class", "tried", "clear sentence", "survived", "silent", "hang", "traceback", "no sentence", "half-written",
        "rerun differs or fails", "processes left")


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
    if trial.group == "inputs":
        return "inputs: other values of a format without a checksum" if trial.kind == "other values" else "inputs"
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


class Campaign:
    """Runs trials until the time is over, and writes each to the file `out`; those that stand there are not tried again."""

    def __init__(self, seed: int, out: Path, folder: Path, minutes: float, most: int, counts: dict[str, int]) -> None:
        self.seed, self.out, self.folder, self.most, self.counts = seed, out, folder, most, counts
        self.until = time.monotonic() + 60 * minutes
        self.had = {trial.key for trial in read(out)}

    def over(self) -> bool:
        return time.monotonic() > self.until

    def note(self, trial: Trial) -> None:
        append(self.out, trial)
        if wrong(trial):
            print(f"{name_of(trial)}: {trial.case}, {trial.where} {trial.k}, {trial.function} {trial.file}: {trial.outcome}, "
                  f"status {trial.status}" + f", half {trial.half}" * bool(trial.half) + f", rerun {trial.rerun}" * bool(trial.rerun)
                  + f", left {trial.left}" * bool(trial.left) + f": {trial.said}", flush=True)

    def each(self, trials: list[Trial], do: Callable[[Trial], Trial], group: str) -> None:
        trials = [dataclasses.replace(trial, group=group) for trial in trials][: self.counts.get(group, len(trials))]
        left = [trial for trial in trials if trial.key not in self.had]
        print(f"{group}: {len(trials)} to be tried, {len(trials) - len(left)} of them have been", flush=True)
        for trial in left:
            if self.over():
                return
            self.note(do(trial))

    def bench(self, name: str) -> Bench:
        base = self.folder / name
        shutil.rmtree(base, ignore_errors=True)
        return Bench(base, lambda line: print(line, flush=True))

    def faults(self, group: str, wanted: Callable[[Case], bool]) -> None:
        bench = self.bench(group)
        try:
            bench.prepare(wanted)
            self.each(bench.trials(self.seed, self.most), bench.inject, group)
        finally:
            bench.place.stop()

    def stages(self) -> None:
        self.faults("stages", lambda case: case.processes == 1)

    def jobs(self) -> None:
        self.faults("jobs", lambda case: case.processes > 1)

    def kills(self) -> None:
        bench = self.bench("kills")
        try:
            bench.prepare(lambda case: case.processes > 1, killed_jobs())
            trials = kills.trials(list(bench.prepared), self.seed, self.counts.get("kills", 100))
            self.each(trials, lambda trial: kills.kill(bench, trial), "kills")
        finally:
            bench.place.stop()

    def network(self) -> None:
        if reason := kills.without_networks():
            print(f"network: left out, {reason}", flush=True)
            return
        bench = self.bench("network")
        try:
            bench.prepare(lambda case: case.processes > 1 and "gloo" in case.name, killed_jobs())
            trials = kills.network_trials(list(bench.prepared), self.seed, self.counts.get("network", 100))
            with kills.Network() as network:
                self.each(trials, lambda trial: kills.disturb(bench, network, trial), "network")
        finally:
            bench.place.stop()

    def inputs(self) -> None:
        sys.path.append(str(ROOT / "tests"))
        import inputs

        formats = 52
        each = -(-self.counts.get("inputs", 5000) // formats)
        print(f"inputs: {each} of each format", flush=True)
        for trial in inputs.campaign(self.seed, each, str(self.folder)):
            trial.bit = self.seed
            if trial.key not in self.had:
                self.note(trial)
            if self.over():
                return


SAMPLE = {"stages": 40, "jobs": 4, "kills": 4, "network": 2, "inputs": 260}


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests/faults/run.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="of what is tried, and where (1)")
    parser.add_argument("--sample", action="store_true", help="a few of each, in under four minutes")
    parser.add_argument("--groups", default=",".join(GROUPS), help="which parts (all: %(default)s)")
    parser.add_argument("--minutes", type=float, default=1e9, help="end after so many, a share for each part; --out goes on")
    parser.add_argument("--most", type=int, default=SAMPLED_ABOVE, help="calls of a class that are tried in a case (%(default)s)")
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
    with tempfile.TemporaryDirectory(prefix="faults", dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as made:
        folder = args.dir or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        out = args.out or folder / "trials.jsonl"
        groups = args.groups.split(",")
        for group in groups:
            run = Campaign(args.seed, out, folder, args.minutes / len(groups), args.most, counts)
            getattr(run, group)()
        found = read(out)
        print(f"\nseed {args.seed}, commit {commit()}, {time.strftime('%Y-%m-%d')}\n\n{table(found)}")
        return int(any(wrong(trial) and trial.kind != "flip" and trial.group != "inputs" for trial in found))


if __name__ == "__main__":
    sys.exit(main())
