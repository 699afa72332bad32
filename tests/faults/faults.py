"""One fault at the k-th call of a class, in every stage of the default recipe and in training by several processes; and what came of it.

For each case the undisturbed command is run twice, which gives the result, what of it is never the same, and how many calls of each class
there are. Then for every k, or a sample of them, the state before is put back, the command is run with a fault at that call, and again
without.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import random
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from stages import STATE, Case, cases, scrap, tree, write_corpus, write_recipe
from zoo import Done, Fault, Place

# What may happen to a call of each class: kind, and the error that it returns.
ERRORS = {
    "open": [("error", errno.EIO), ("error", errno.EMFILE), ("kill", 0)],
    "create": [("error", errno.ENOSPC), ("error", errno.EDQUOT), ("error", errno.EMFILE), ("kill", 0)],
    "write": [("error", errno.ENOSPC), ("error", errno.EDQUOT), ("error", errno.EIO), ("short", 0), ("kill", 0), ("torn", 0)],
    "fsync": [("error", errno.EIO), ("error", errno.ENOSPC), ("kill", 0)],
    "rename": [("error", errno.EIO), ("error", errno.ENOSPC), ("error", errno.EDQUOT), ("kill", 0)],
    "mmap": [("error", errno.ENOMEM), ("error", errno.EIO), ("flip", 0)],
    "read": [("error", errno.EIO), ("short", 0), ("flip", 0), ("kill", 0)],
    "send": [("error", errno.ECONNRESET), ("delay", 0), ("kill", 0)],
    "receive": [("error", errno.ECONNRESET), ("delay", 0), ("kill", 0)],
}
SAMPLED_ABOVE, OF_MANY = 200, 50  # of a class with more calls in a case, so many are drawn
LEFT_S = 5.0  # that processes have to end after the command has
UNDISTURBED = 3  # times that a command is tried undisturbed: on a busy machine a job may not start within its --timeout
SAID = re.compile(r"ERROR:|no space left|input/output error|i/o error|too many open files|quota|cannot allocate|connection reset|"
                  r"terminated; |killed", re.IGNORECASE)
TRACE = "Traceback (most recent call last)"
OUTCOMES = ("sentence", "survived", "silent", "hang", "traceback", "mute", "not reached")


@dataclass
class Prepared:
    """A case, and its undisturbed run."""

    case: Case
    number: int
    before: dict[str, str]
    after: dict[str, str]
    unstable: set[str]
    counts: dict[str, int]
    seconds: float


@dataclass
class Trial:
    """What is to be tried, and what came of it."""

    group: str
    case: str
    where: str = ""
    k: int = 0
    kind: str = ""
    error: int = 0
    bit: int = 0
    match: str = ""
    phase: str = ""
    outcome: str = ""
    status: int = 0
    seconds: float = 0.0
    file: str = ""
    function: str = ""
    half: list[str] = field(default_factory=list)  # half-written under their final names
    scrap: int = 0  # files left behind by the disturbed run and by that after it, under temporary names
    left: int = 0  # processes left behind
    rerun: str = ""  # same, differs, or fails
    said: str = ""

    @property
    def key(self) -> str:
        return f"{self.group}/{self.case}/{self.where}/{self.k}/{self.kind}/{self.error}/{self.bit}/{self.match}"

    @property
    def what(self) -> str:
        return errno.errorcode[self.error] if self.error else self.kind


class Bench:
    """The recipe on the corpus of tones, before and after each of its stages."""

    def __init__(self, base: Path, say: Callable[[str], None] = lambda line: None) -> None:
        self.place, self.say = Place(base), say
        self.s5 = self.place.root / "s5"
        self.prepared: dict[str, Prepared] = {}
        self.moment = self.traced = ""

    def prepare(self, wanted: Callable[[Case], bool] = lambda case: True, listed: list[Case] | None = None) -> None:
        """Run the stages, up to the last that is wanted."""
        write_corpus(self.place.root / "corpus")
        write_recipe(self.s5)
        self.place.start()
        listed = listed or cases()
        chosen = [case for case in listed if case.tried and wanted(case)]
        if any(case.words[0] == "./run.sh" for case in chosen):
            self.place.run(["pykaldist", "compile"], self.s5, timeout=600)  # which a recipe does beside its stages, once a checkout
        for number, case in enumerate(listed[: listed.index(chosen[-1]) + 1]):
            if case.processes > 1 and case not in chosen:
                continue
            snapshot = self._snapshot(number)
            shutil.rmtree(snapshot, ignore_errors=True)
            self._copy(self.s5, snapshot)
            before = tree(self.s5)
            first = self._undisturbed(case, snapshot, warm=case.processes == 1)
            if case not in chosen:
                continue
            self._copy(snapshot, self.s5)
            after, done = self._undisturbed(case, snapshot), self.last
            counts = self.place.control.seen().counts
            unstable = {name for name in {*first, *after} if first.get(name) != after.get(name)} if case.exact else set()
            self.prepared[case.name] = Prepared(case, number, before, after, unstable, counts, done.seconds)
            self.say(f"{case.name}: {done.seconds:.1f} s, calls " + ", ".join(f"{n} {name}" for name, n in counts.items() if n)
                     + (f"; never the same: {' '.join(sorted(unstable))}" if unstable else ""))

    def _undisturbed(self, case: Case, snapshot: Path, warm: bool = False) -> dict[str, str]:
        for left in reversed(range(UNDISTURBED)):
            self.last = self.place.run(case.words, self.s5, warm=warm, timeout=600)
            if not self.last.status:
                break
            if not left:
                raise RuntimeError(f"{case.name} fails undisturbed: {self.last.out}{self.last.err}")
            self.say(f"{case.name} failed undisturbed, once more: {_said(self.last)}")
            self.place.sweep()
            self._copy(snapshot, self.s5)
        return tree(self.s5)

    def _snapshot(self, number: int) -> Path:
        return self.place.base / "snapshots" / str(number)

    def _copy(self, source: Path, target: Path) -> None:
        for part in STATE:
            shutil.rmtree(target / part, ignore_errors=True)
            if (source / part).exists():
                shutil.copytree(source / part, target / part, symlinks=True)

    def trials(self, seed: int, sample: int = OF_MANY) -> list[Trial]:
        """Each k of each class of each case, or `sample` of more than 200, with a fault that the seed draws; in an order that it draws.

        Counts differ a little from run to run: what is drawn for one class does not depend on those of others.
        """
        found = []
        for name, prepared in self.prepared.items():
            for where, count in prepared.counts.items():
                if where in ("send", "receive") and prepared.case.processes == 1:
                    continue
                few = random.Random(f"{seed} {name} {where}").sample(range(1, count + 1), sample) if count > SAMPLED_ABOVE else []
                for k in sorted(few) or range(1, count + 1):
                    rng = random.Random(f"{seed} {name} {where} {k}")
                    kind, error = rng.choice(ERRORS[where])
                    found.append(Trial("faults", name, where, k, kind, error, rng.randrange(1 << 20)))
        random.Random(seed).shuffle(found)
        return found

    def restore(self, case: str) -> None:
        self._copy(self._snapshot(self.prepared[case].number), self.s5)

    def inject(self, trial: Trial, meanwhile: Callable[[], None] | None = None, more: dict[str, str] | None = None) -> Trial:
        """Do it; or, where it is no call that fails, `meanwhile`, which says in `moment` when it did it."""
        prepared = self.prepared[trial.case]
        case = prepared.case
        self.restore(trial.case)
        self.place.sweep()  # a recipe's background job of the run before
        limit = 60.0 + 10 * prepared.seconds + 2 * case.timeout
        fault = Fault() if meanwhile else Fault(trial.kind, trial.where, trial.k, trial.error, trial.bit, delay_ms=1500, match=trial.match)
        self.moment = ""
        done = self.place.run(case.words, self.s5, fault, limit, meanwhile=meanwhile, more=more)
        seen = self.place.control.seen()
        seen.fired = seen.fired or bool(self.moment)
        trial.status, trial.seconds, trial.function = done.status, round(done.seconds, 2), seen.function or self.moment
        trial.file = seen.file.removeprefix(f"{self.s5}/")
        until = time.monotonic() + LEFT_S
        while self.place.left() and time.monotonic() < until:
            time.sleep(0.05)
        trial.left = len(self.place.sweep())
        found = tree(self.s5)
        trial.outcome = "not reached" if not seen.fired and not done.status else self.judged(prepared, done, found)
        trial.said = _said(done) + f" | {self.traced}" * (trial.outcome == "traceback") + f" | left: {self.place.swept}" * (trial.left > 0)
        if trial.kind != "flip" and case.exact:
            trial.half = [name for name, digest in found.items() if name in prepared.after and name not in prepared.unstable
                          and digest not in (prepared.after[name], prepared.before.get(name)) and not self._grows(name)]
        if trial.outcome != "survived" and not (trial.outcome == "silent" and trial.kind == "flip"):
            again = self.place.run(case.words, self.s5, timeout=limit)
            trial.rerun = "fails" if again.status else "same" if self.same(prepared, tree(self.s5)) else "differs"
            if trial.rerun != "same":
                trial.said += f" | again: {again.status} {_said(again)} {self.differing(prepared, tree(self.s5))}"
        if trial.outcome == "silent":
            trial.said += f" | {self.differing(prepared, found)}"
        trial.scrap = len(scrap(self.s5))
        return trial

    def _grows(self, name: str) -> bool:
        """Lines are added to it, or it is written anew after each epoch: the beginning of the whole is no half."""
        return name.endswith("history.jsonl")

    def judged(self, prepared: Prepared, done: Done, found: dict[str, str]) -> str:
        if done.hung:
            return "hang"
        texts = [done.out, done.err, *(path.read_text(errors="replace") for path in self.s5.glob("exp/**/*.log") if path.is_file())]
        if traced := next((text for text in texts if TRACE in text), ""):
            self.traced = " / ".join(line.strip() for line in traced.partition(TRACE)[2].splitlines()[-12:])
            return "traceback"
        if done.status == -signal.SIGKILL:
            return "sentence"  # the script itself was killed: whoever called it says so
        if not done.status:
            return "survived" if self.same(prepared, found) else "silent"
        return "sentence" if SAID.search(done.err) else "mute"

    def same(self, prepared: Prepared, found: dict[str, str]) -> bool:
        return not self.differing(prepared, found)

    def differing(self, prepared: Prepared, found: dict[str, str]) -> list[str]:
        """Results that are not those of the undisturbed run; of asynchronous training only that they are there, and can be read."""
        if prepared.case.exact:
            older = superseded({*found, *prepared.after})
            return sorted(name for name in {*found, *prepared.after} - older
                          if found.get(name) != prepared.after.get(name) and name not in prepared.unstable)
        lacking = [name for name in prepared.after if name not in found and "/ckpt/" not in name]
        from pykaldist.errors import UserError
        from pykaldist.io import container

        for name in found:
            if name.endswith("final.pt"):
                try:
                    container.load(self.s5 / name)
                except UserError:
                    lacking.append(name)
        return sorted(lacking)


def superseded(names: Iterable[str]) -> set[str]:
    """Those that are checkpoints, and not the last: how many of them are still there depends on which process wrote first."""
    moments: dict[str, dict[str, set[str]]] = {}  # folder -> updates and epochs -> files
    for name in names:
        folder, _, file = name.rpartition("/ckpt/")
        if folder:
            moments.setdefault(folder, {}).setdefault(file.partition(".")[0], set()).add(name)
    return {name for files in moments.values() for moment in files if moment != max(files) for name in files[moment]}


def _said(done: Done) -> str:
    lines = [line.strip() for line in done.err.splitlines() if line.strip()]
    chosen = [line for line in lines if "ERROR" in line] or lines
    return " / ".join(chosen[:2])[:400]


def append(path: Path, trial: Trial) -> None:
    with open(path, "a", encoding="utf-8") as stream:
        stream.write(json.dumps(dataclasses.asdict(trial), ensure_ascii=False) + "\n")


def read(path: Path) -> list[Trial]:
    if not path.is_file():
        return []
    with open(path, encoding="utf-8", newline="\n") as lines:  # what was said may have other line ends in it
        return [Trial(**json.loads(line)) for line in lines]


def wrong(trial: Trial) -> bool:
    """What the campaign is to find."""
    return (trial.outcome in ("silent", "hang", "traceback", "mute") or bool(trial.half) or trial.rerun in ("differs", "fails")
            or trial.left > 0)


