"""Processes of a job that are killed or stopped, in every phase; and networks that fail between them."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from faults import Bench, Trial
from stages import Case

PHASES = {  # phase -> class of the call in which it happens, in the files' names; without one: after some epochs
    "start": ("open", "store/train/"),
    "epoch or cross-validation": ("", ""),
    "checkpoint": ("rename", "/ckpt/"),
    "export": ("create", "/.final."),
}
LINK = ("delay", "slow and lossy", "cut for 3 s", "cut for good")


def trials(names: list[str], seed: int, count: int) -> list[Trial]:
    """Kills and stops: every job in every phase in turn, at moments that the seed draws."""
    rng, found = random.Random(seed), []
    combinations = [(name, phase, kind) for kind in ("kill", "kill", "stop") for phase in PHASES for name in names]
    rng.shuffle(combinations)
    for number in range(count):
        name, phase, kind = combinations[number % len(combinations)]
        where, match = PHASES[phase]
        most = {"start": 6, "checkpoint": 20, "export": 3}.get(phase, 4)
        found.append(Trial("kills", name, where, rng.randint(1, most), kind, bit=rng.randrange(1000), match=match, phase=phase))
    return found


def network_trials(names: list[str], seed: int, count: int) -> list[Trial]:
    rng = random.Random(seed)
    return [Trial("network", names[n % len(names)], "", rng.randint(0, 4), LINK[n // len(names) % len(LINK)], bit=rng.randrange(1000),
                  phase="epoch or cross-validation") for n in range(count)]


def in_the_midst(bench: Bench, case: Case, epochs: int, share: float, act: Callable[[dict[int, int]], None]) -> Callable[[], None]:
    """Something that waits until so many epochs of a job are done and a share of the next, and then acts on its pids by rank."""
    exp = bench.s5 / case.words[-1]

    def meanwhile() -> None:
        until = time.monotonic() + 120
        before = time.monotonic()
        while time.monotonic() < until:
            records = {}
            for path in (exp / ".ranks").glob("[0-9]*"):
                with contextlib.suppress(OSError, ValueError):
                    records[int(path.name)] = json.loads(path.read_text(encoding="utf-8"))["pid"]
            history = exp / "history.jsonl"
            done = history.read_bytes().count(b"\n") if history.is_file() else 0
            if len(records) == case.processes and done >= epochs:
                time.sleep(share * 0.1)
                act(records)
                bench.moment = f"epoch {done + 1}, {time.monotonic() - before:.1f} s"
                return
            time.sleep(0.005)

    return meanwhile


def kill(bench: Bench, trial: Trial) -> Trial:
    """One kill or stop."""
    if trial.where:
        return bench.inject(trial)
    case = bench.prepared[trial.case].case
    number = signal.SIGKILL if trial.kind == "kill" else signal.SIGSTOP

    def act(pids: dict[int, int]) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pids[trial.bit % case.processes], number)

    return bench.inject(trial, in_the_midst(bench, case, trial.k, trial.bit / 1000, act))


def without_networks() -> str:
    """Why no network can be made to fail here; empty where it can."""
    if not all(map(shutil.which, ("unshare", "nsenter", "ip"))):
        return "unshare, nsenter (util-linux) or ip (iproute2) is missing"
    done = subprocess.run(["unshare", "-n", "ip", "link", "set", "lo", "up"], capture_output=True, check=False)
    return "" if done.returncode == 0 else "network namespaces need root here (unshare -n)"


class Network:
    """A network namespace of its own, whose loopback can be slowed and cut."""

    def __enter__(self) -> Network:
        self.holder = subprocess.Popen(["unshare", "-n", "sleep", "100000"])
        self.path = Path(f"/proc/{self.holder.pid}/ns/net")
        here = os.readlink("/proc/self/ns/net")
        while os.readlink(self.path) == here:
            time.sleep(0.01)
        self.mend()
        return self

    def __exit__(self, *exc: object) -> None:
        self.holder.kill()
        self.holder.wait()

    def _do(self, *words: str) -> bool:
        done = subprocess.run(["nsenter", f"--net={self.path}", *words], capture_output=True, check=False)
        return done.returncode == 0

    def mend(self) -> None:
        self._do("tc", "qdisc", "del", "dev", "lo", "root")
        self._do("ip", "link", "set", "lo", "up")

    def fail(self, how: str) -> None:
        if how == "delay":  # netem where the kernel has it; else what a slow link with a queue does
            self._do("tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "20ms", "10ms") or \
                self._do("tc", "qdisc", "add", "dev", "lo", "root", "tbf", "rate", "4mbit", "burst", "16kb", "latency", "400ms")
        elif how == "slow and lossy":
            self._do("tc", "qdisc", "add", "dev", "lo", "root", "netem", "loss", "5%", "delay", "5ms") or \
                self._do("tc", "qdisc", "add", "dev", "lo", "root", "tbf", "rate", "2mbit", "burst", "66kb", "latency", "10ms")
        else:
            self._do("ip", "link", "set", "lo", "down")
            if how == "cut for 3 s":
                time.sleep(3)
                self._do("ip", "link", "set", "lo", "up")


def disturb(bench: Bench, network: Network, trial: Trial) -> Trial:
    """One fault of the network, which is mended before the job is run again."""
    case = bench.prepared[trial.case].case
    network.mend()
    env = {"FAULTS_NETWORK": str(network.path)}
    meanwhile = in_the_midst(bench, case, trial.k, trial.bit / 1000, lambda pids: network.fail(trial.kind))
    return bench.inject(trial, meanwhile, env)
