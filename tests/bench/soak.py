"""A long run under faults: kills, full disks, checkpoints, resumes; memory, files, threads and /dev/shm are sampled, fitted and drawn.

    tests/bench/run.sh soak --hours 4 --out DIR                     # 64 virtual workers of one process, block momentum
    tests/bench/run.sh soak --hours 4 --processes 2 --out DIR       # the same workers in two processes over MPI
    tests/bench/run.sh soak --hours 4 --simulate 1000 --out DIR     # 1,000 simulated asynchronous workers
    tests/bench/run.sh soak --hours 0 --out DIR                     # report on what is there, of a run that was stopped, say

A run that was stopped goes on where DIR has its beginning, to the same number of hours in all.

One training job after the other on a store of random frames. At random moments a process is killed (SIGKILL), or the job is asked to end
(SIGTERM), or the disk with the experiment is full for a while; the same command then goes on. Each finished job has to have the model and
the history of the first one, bit for bit, though their faults were others. All of it is in namespaces of its own (`unshare`): what is left
of a process, in /dev/shm or on the experiment's disk can only be the soak's. The disk is a tmpfs.

Memory is what processes have in private and in shared memory, without files that are mapped. Slopes are Theil-Sen's: the median of the
slopes of all pairs of samples, with its 95 % interval; `in a process` takes pairs of one process's life only. Samples of a process's first
`--settle` seconds are left out. The experiment's folder grows by a line of history an epoch, and is not judged. DIR gets samples.csv,
events.jsonl, train.log, soak.png and soak.md.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import hashlib
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from scipy.stats import theilslopes

from pykaldist.frames.store import pack
from pykaldist.io import container
from pykaldist.report.figures import pyplot, save
from pykaldist.report.text import markdown

DIM, PDFS, UTT = 13, 50, 512
PER_WORKER = 30  # minibatches in an epoch
WHAT = {"memory": "memory, MB", "files": "open files", "threads": "threads", "shm": "bytes in /dev/shm", "disk": "experiment, MB"}
OVERALL = ("shm", "disk")  # of no single process
GROWS = "disk"  # by the lines of the history, and is not judged
INSIDE = "PYKALDIST_SOAK"  # set within the namespaces
LIMIT = 1.0  # % an hour
JUDGED_HOURS = 1.0  # slopes of shorter runs say little
MOST = 2000  # samples of a fit; more are thinned out
CLEAR_S = 10.0  # after a job's end, until nothing of it may run


def enter(hours: float) -> None:
    """Start this command again in namespaces of its own: mounts, processes, and users where it is not root."""
    if INSIDE in os.environ or not hours:
        return
    if shutil.which("unshare") is None:
        sys.exit("soak: ERROR: there is no program unshare (of util-linux) on this machine; install it.")
    words = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"] + ["--user", "--map-root-user"] * bool(os.geteuid())
    if subprocess.run([*words, "true"], capture_output=True).returncode:
        sys.exit(f"soak: ERROR: this machine does not allow `{' '.join(words)}`; run it where it does.")
    os.environ[INSIDE] = "true"
    os.execvp("unshare", [*words, sys.executable, *sys.argv])


def mount(folder: Path, megabytes: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "soak", str(folder)], check=True)


def used(folder: Path) -> int:
    """Bytes in use on a file system."""
    found = os.statvfs(folder)
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def others() -> dict[int, str]:
    """All processes of this namespace but this one: pid -> name."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            name, state = re.match(r"\d+ \((.*)\) (\S)", (path / "stat").read_text()).groups()  # type: ignore[union-attr]
            if state != "Z" and int(path.name) != os.getpid():
                found[int(path.name)] = name
    return found


def usage(pids: list[int]) -> dict[str, float]:
    """What these processes have together: memory (MB), open files, threads."""
    total = dict.fromkeys(("memory", "files", "threads"), 0.0)
    for pid in pids:
        with contextlib.suppress(OSError):
            status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
            files = len(os.listdir(f"/proc/{pid}/fd"))
            total["memory"] += sum(int(status.get(name, "0").split()[0]) for name in ("RssAnon", "RssShmem")) / 1024
            total["threads"] += int(status["Threads"])
            total["files"] += files
    return total


class Soak:
    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.out, self.random = args, args.out.absolute(), random.Random(args.seed)
        self.disk, self.exp, self.ballast = self.out / "disk", self.out / "disk/exp", self.out / "disk/ballast"
        self.started, self.life, self.job, self.log_end = time.monotonic(), 0, 1, 0  # started: less the hours before, where it goes on
        self.full_until = 0.0
        self.reference = ""
        if (self.out / "events.jsonl").exists():
            self.go_on()
        self.next_full = self.started + self._interval(args.full_minutes)

    def go_on(self) -> None:
        """Continue the run that stands in the folder: at its hour, with a job of its own, for the disk of the last one is gone."""
        events, samples = read_events(self.out / "events.jsonl"), read_samples(self.out / "samples.csv")
        self.started -= 3600 * float(samples["hours"][-1])
        self.life, self.job = int(samples["life"][-1]), events[-1]["job"] + 1
        self.reference = next((event["digest"] for event in events if "digest" in event), "")
        self.random = random.Random(f"{self.args.seed} {len(events)}")

    def _interval(self, minutes: float) -> float:
        """Seconds until a fault, a third of `minutes` at least and three times as much at most."""
        return 60.0 * minutes * min(3.0, max(1 / 3, self.random.expovariate(1.0)))

    def command(self) -> list[str]:
        args = self.args
        if args.simulate:
            who = ["--ngpu", args.simulate, "--strategy", "adpsgd", "--pattern", "random-ring", "--cluster", "v100-ethernet",
                   "--lr-scale", "none", "--hid-layers", 1, "--hid-dim", 32]
        else:
            where = ["--nproc", args.processes, "--fabric", "mpi"] if args.processes > 1 else ["--fabric", "virtual"]
            who = ["--ngpu", args.workers, "--strategy", "bmuf", "--average-period", 10, *where, "--hid-layers", 2, "--hid-dim", 64]
        rates = ",".join(["0.001"] * args.epochs)
        words = ["train", *who, "--splice", 1, "--minibatch-size", args.minibatch_size, "--schedule", "fixed", "--learn-rates", rates,
                 "--momentum", 0.5, "--num-threads", 1, "--device", "cpu", "--checkpoint-minutes", args.checkpoint_minutes,
                 "--on-divergence", "stop", *args.options.split(), self.out / "store", self.exp]
        return [sys.executable, "-m", "pykaldist", *map(str, words)]

    def make_store(self) -> None:
        """Random frames, whose pdf is one of a random linear classifier."""
        rng = np.random.default_rng(0)
        of = rng.standard_normal((DIM, PDFS), np.float32)
        frames = (self.args.simulate or self.args.workers) * PER_WORKER * self.args.minibatch_size
        for name, count in (("train", frames), ("dev", 8192)):
            feats = rng.standard_normal((count, DIM), np.float32)
            parts = {f"utt{k:06d}": feats[k * UTT : (k + 1) * UTT] for k in range(-(-count // UTT))}
            pack(list(parts), parts.__getitem__, lambda utt, parts=parts: (parts[utt] @ of).argmax(1), PDFS, self.out / "store" / name)

    def run(self) -> None:
        shutil.rmtree(self.out / "store", ignore_errors=True)
        self.make_store()
        mount(self.disk, self.args.disk_megabytes)
        mount(Path("/dev/shm"), 4096)
        command = re.sub(r"([\d.]+)(,\1)+", lambda match: f"{match[1]},... ({match[0].count(',') + 1} times)", " ".join(self.command()[3:]))
        what = "goes on" if self.life else "start"
        self.note(what, command=command.replace(str(self.out), "DIR"), hours=self.args.hours, seed=self.args.seed)
        while time.monotonic() < self.started + 3600 * self.args.hours:
            self.run_life()
        self.note("end")

    def note(self, what: str, **more: Any) -> None:
        line = {"hours": round((time.monotonic() - self.started) / 3600, 5), "life": self.life, "job": self.job, "what": what, **more}
        with open(self.out / "events.jsonl", "a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")
        print(json.dumps(line), flush=True)

    def run_life(self) -> None:
        """Start the job's command, and wait for its end, which may be a fault."""
        self.life += 1
        log = self.out / "train.log"
        with open(log, "ab") as stream:
            self.log_end = stream.tell()
            process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=stream, stderr=stream)
        begun, fault = time.monotonic(), ""
        kill_at, end = begun + self._interval(self.args.kill_minutes), self.started + 3600 * self.args.hours
        next_sample = begun
        while process.poll() is None:
            now = time.monotonic()
            if now >= next_sample:
                self.sample(now - begun)
                next_sample = now + self.args.sample_seconds
            self.fill(now)
            if now >= end and not fault:
                fault = "the soak's end"
                process.terminate()
            elif now >= kill_at and not fault:
                fault = self.kill(process)
            time.sleep(0.2)
        self.ended(process.returncode, fault, time.monotonic() - begun)

    def sample(self, age: float) -> None:
        row = {"hours": (time.monotonic() - self.started) / 3600, "life": self.life, "age": age, **usage(list(others())),
               "shm": used(Path("/dev/shm")), "disk": (used(self.disk) - self._ballast()) / 1e6}
        path = self.out / "samples.csv"
        head = not path.exists()
        with open(path, "a", encoding="utf-8") as stream:
            stream.write(",".join(row) + "\n" if head else "")
            stream.write(",".join(f"{value:.6g}" for value in row.values()) + "\n")

    def _ballast(self) -> int:
        return self.ballast.stat().st_size if self.ballast.exists() else 0

    def fill(self, now: float) -> None:
        """Fill the disk when it is time, and free it when it was full for long enough."""
        if self.full_until and now >= self.full_until:
            self.ballast.unlink()
            self.full_until = 0.0
            self.next_full = now + self._interval(self.args.full_minutes)
            self.note("the disk has room again")
        elif not self.full_until and now >= self.next_full:
            with open(self.ballast, "wb") as stream:
                while self._ballast() == 0 and (free := os.statvfs(self.disk)).f_bfree:
                    with contextlib.suppress(OSError):  # the job has written meanwhile
                        os.posix_fallocate(stream.fileno(), 0, free.f_bfree * free.f_frsize)
            self.full_until = now + 60.0 * self.args.checkpoint_minutes * self.random.uniform(1.0, 3.0)
            self.note("the disk is full")

    def kill(self, process: subprocess.Popen[bytes]) -> str:
        """End the job, or kill one of its processes; says which."""
        if self.random.random() < 0.3:
            process.terminate()
            return "SIGTERM"
        pids = others()
        victim = self.random.choice(sorted(pids))
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
        return f"SIGKILL to {'the command' if victim == process.pid else pids[victim]}"

    def ended(self, status: int, fault: str, age: float) -> None:
        """Judge how the job's command has ended."""
        deadline = time.monotonic() + CLEAR_S
        while (left := others()) and time.monotonic() < deadline:
            time.sleep(0.1)
        while adopted():
            pass
        with open(self.out / "train.log", "rb") as stream:
            stream.seek(self.log_end)
            said = stream.read().decode(errors="replace")
        sentences = [line for line in said.splitlines() if "ERROR" in line]
        full = any("no space left" in line for line in sentences)
        expected = status == 0 or (bool(fault) and status in (-signal.SIGKILL, -signal.SIGTERM, 128 + signal.SIGTERM, 75)) or (
            full and status in (1, 75))
        good = expected and "Traceback" not in said and not left
        result = {"disk full": "no space"} if full else {}
        if status == 0:
            same = digest(self.exp)
            self.reference = self.reference or same
            result.update(model="as the first" if same == self.reference else "another than the first", digest=same)
            good &= same == self.reference
        self.note("ended", status=status, fault=fault or ("full disk" if full else ""), seconds=round(age, 1), good=good, **result,
                  **({"sentence": sentences[-1]} if sentences else {}), **({"left": left} if left else {}),
                  **({} if good else {"said": said.splitlines()[-30:]}))
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if status == 0:
            shutil.rmtree(self.exp)
            self.job += 1
        elif not fault:  # before the next try
            until = time.monotonic() + 10.0
            while time.monotonic() < until:
                self.fill(time.monotonic())
                time.sleep(0.5)


def adopted() -> bool:
    """Wait for a process whose parent has ended before it; False where there is none."""
    with contextlib.suppress(ChildProcessError):
        return os.waitpid(-1, os.WNOHANG)[0] > 0
    return False


def digest(exp: Path) -> str:
    """A checksum of a finished run's model and history, without the times in it."""
    found = hashlib.sha256(container.load(exp / "final.pt")["params"].numpy().tobytes())
    for line in (exp / "history.jsonl").read_text(encoding="utf-8").splitlines():
        found.update(json.dumps({key: value for key, value in json.loads(line).items() if key != "seconds"}).encode())
    return found.hexdigest()


def slopes(hours: np.ndarray, values: np.ndarray, lives: np.ndarray | None = None) -> tuple[float, float, float] | None:
    """Theil-Sen's slope an hour, and its 95 % interval; with `lives`, the median over pairs of samples of one life, and their quartiles.

    None where there are no two samples to compare.
    """
    thin = max(1, -(-len(hours) // MOST))
    hours, values = hours[::thin], values[::thin]
    if lives is None:
        if len(hours) < 2:
            return None
        slope, _, low, high = theilslopes(values, hours, 0.95)
        return float(slope), float(low), float(high)
    lives = lives[::thin]
    first, second = np.triu_indices(len(hours), 1)
    pairs = (lives[first] == lives[second]) & (hours[second] > hours[first])
    first, second = first[pairs], second[pairs]
    if not len(first):
        return None
    found = (values[second] - values[first]) / (hours[second] - hours[first])
    low, slope, high = np.quantile(found, (0.25, 0.5, 0.75))
    return float(slope), float(low), float(high)


def read_samples(path: Path) -> dict[str, np.ndarray]:
    with open(path, encoding="utf-8") as stream:
        rows = [row for row in csv.DictReader(stream) if None not in row.values()]
    return {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}


def read_events(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def report(out: Path, settle: float) -> tuple[str, bool]:
    """The table and what happened, as Markdown; whether all held. Draws the samples."""
    samples = read_samples(out / "samples.csv")
    events = read_events(out / "events.jsonl")
    steady = (samples["age"] >= settle) & (samples["memory"] > 0)  # none: it is ending
    if steady.sum() < 2:
        return f"No process lived longer than {settle:g} s: nothing to fit.", False
    hours = samples["hours"]
    rows, held = [["what", "median", "smallest", "largest", "slope, % an hour (95 % interval)", "in a process (quartiles)"]], True
    for name, label in WHAT.items():
        where = np.ones_like(steady) if name in OVERALL else steady
        values, middle = samples[name][where], float(np.median(samples[name][where]))
        fits = [slopes(hours[where], values), None if name in OVERALL else slopes(hours[where], values, samples["life"][where])]
        rows.append([label, *(f"{v:,.4g}" for v in (middle, values.min(), values.max())),
                     *(described(fit, middle) for fit in fits)])
        held &= name == GROWS or all(fit is None or abs(fit[0]) <= LIMIT / 100 * max(middle, 1.0) for fit in fits)
    lasted, ends = float(hours[-1]), [event for event in events if event["what"] == "ended"]
    faults = Counter(re.sub(r" to .*", "", event["fault"]) or "none" for event in ends)
    finished = [event for event in ends if "model" in event]
    bad = [event for event in ends if not event["good"]]
    parts = 1 + sum(event["what"] == "goes on" for event in events)
    text = [f"{lasted:.2f} hours{f' in {parts} parts' * (parts > 1)}, {len(hours):,} samples; `pykaldist {events[0]['command']}`",
            markdown(rows),
            "Ends of the command by " + ", ".join(f"{what}: {count}" for what, count in faults.items()) + ". "
            f"Jobs finished: {len(finished)}, "
            f"of which {sum(event['model'] == 'as the first' for event in finished)} have the first one's model and history. Disk full: "
            f"{sum(event['what'] == 'the disk is full' for event in events)} times. Ends that were not as they should be: {len(bad)}.",
            *(f"- {json.dumps({name: value for name, value in event.items() if name != 'said'})}" for event in bad)]
    if lasted < JUDGED_HOURS:
        text.append(f"Shorter than {JUDGED_HOURS:g} hour: the slopes are not judged.")
        held = True
    else:
        text.append(f"The slopes{', but for that of the experiment, are' if held else ' are NOT all'} within {LIMIT:g} % an hour.")
    draw(samples, events, out / "soak.png")
    return "\n\n".join(text), held and not bad


def described(fit: tuple[float, float, float] | None, middle: float) -> str:
    if fit is None:
        return ""
    if middle == 0:
        return f"{fit[0]:.3g} an hour"
    slope, low, high = (100 * value / middle + 0.0 for value in fit)
    return f"{slope:.3f} ({low:.3f} to {high:.3f})"


def draw(samples: dict[str, np.ndarray], events: list[dict[str, Any]], path: Path) -> None:
    plt = pyplot(path)
    figure, axes = plt.subplots(len(WHAT), 1, figsize=(10, 2.1 * len(WHAT)), sharex=True)
    full = [event["hours"] for event in events if event["what"] in ("the disk is full", "the disk has room again", "end")]
    for axis, (name, label) in zip(axes, WHAT.items(), strict=True):
        for life in np.unique(samples["life"]):
            own = samples["life"] == life
            axis.plot(samples["hours"][own], samples[name][own], linewidth=0.8)
        for event in events:
            if event["what"] == "ended" and event["fault"]:
                axis.axvline(event["hours"], color="grey", linewidth=0.4, linestyle=":")
        for since, until in itertools.zip_longest(full[::2], full[1::2]):
            if until is not None:
                axis.axvspan(since, until, color="orange", alpha=0.2)
        axis.set_ylim(bottom=0)
        axis.set_ylabel(label)
    axes[0].set_title("a colour a process; dotted: kills and other ends; orange: the disk is full")
    axes[-1].set_xlabel("hours")
    save(plt, figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, required=True, help="of the run, with those that --out has; 0: only report on the folder")
    parser.add_argument("--out", type=Path, required=True, help="folder to write; a run that is there goes on")
    parser.add_argument("--workers", type=int, default=64, help="virtual workers (default: 64)")
    parser.add_argument("--processes", type=int, default=1, help="that host them, over MPI where there are several (default: 1)")
    parser.add_argument("--simulate", type=int, default=0, help="so many simulated asynchronous workers instead")
    parser.add_argument("--epochs", type=int, default=200, help="of a job (default: 200)")
    parser.add_argument("--minibatch-size", type=int, default=256)
    parser.add_argument("--options", default="", help="more options of `pykaldist train`")
    parser.add_argument("--kill-minutes", type=float, default=12.0, help="between kills, on average (default: 12)")
    parser.add_argument("--full-minutes", type=float, default=20.0, help="between full disks, on average (default: 20)")
    parser.add_argument("--checkpoint-minutes", type=float, default=0.5, help="(default: 0.5)")
    parser.add_argument("--disk-megabytes", type=int, default=512, help="size of the experiment's disk (default: 512)")
    parser.add_argument("--sample-seconds", type=float, default=5.0, help="(default: 5)")
    parser.add_argument("--settle", type=float, default=60.0, help="seconds of a process that are not fitted, more on a busy machine "
                        "(default: 60)")
    parser.add_argument("--seed", type=int, default=0, help="of the faults' times and kinds")
    args = parser.parse_args()
    enter(args.hours)
    if args.hours:
        def stop(signum: int, frame: FrameType | None) -> None:
            raise KeyboardInterrupt

        signal.signal(signal.SIGTERM, stop)  # a namespace's first process gets no signal that it does not handle
        args.out.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(KeyboardInterrupt):
            Soak(args).run()
    text, held = report(args.out.absolute(), args.settle)
    (args.out / "soak.md").write_text(text + "\n", encoding="utf-8")
    print(text)
    sys.exit(0 if held else 1)


if __name__ == "__main__":
    main()
