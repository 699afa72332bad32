"""Fuzzing of the readers, guided by coverage: a damage that takes the code where nothing had taken it before is damaged again.

The seeds are the samples of tests/test_damage.py that are binary, CTM and TextGrid. What counts as new is a step from one line of
pykaldist to another (compiled kernels, and libraries, are not seen). A reader runs in a fork, as in `inputs`, which judges what came of it
too. Inputs that are not read as they should be are kept as files, to become tests of tests/test_damage.py.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import test_damage
from faults import Trial
from inputs import content_of, samples, tried

import pykaldist

PACKAGE = os.path.dirname(os.path.abspath(pykaldist.__file__)) + os.sep
KINDS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 11)  # of test_damage.damaged, without those that leave nothing
SPLICED = 0.2  # of the damages: a piece of another input in one's place
LONGEST = 4  # times the seed
GZIP = b"\x1f\x8b"
WRONG = ("hang", "traceback", "mute")


class Reached:
    """The steps between lines of pykaldist that were taken while this was entered; `new` where the last time brought one."""

    def __init__(self) -> None:
        self.steps: set[tuple[int, int, int]] = set()
        self.new = False

    def __enter__(self) -> None:
        self.new = False
        sys.settrace(self._call)

    def __exit__(self, *exc: object) -> None:
        sys.settrace(None)

    def _call(self, frame: FrameType, event: str, arg: object) -> Any:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        code, last = id(frame.f_code), 0

        def step(frame: FrameType, event: str, arg: object) -> Any:
            nonlocal last
            one = code, last, frame.f_lineno
            if one not in self.steps:
                self.steps.add(one)
                self.new = True
            last = frame.f_lineno
            return step

        return step


def mutated(known: list[bytes], rng: np.random.Generator) -> bytes:
    """One of the known inputs, more often one of the later, damaged one to three times."""
    found = known[int(rng.integers(len(known), size=2).max())]
    if rng.random() < SPLICED:
        other = known[int(rng.integers(len(known)))]
        at, start = int(rng.integers(len(found))), int(rng.integers(len(other)))
        found = found[:at] + other[start : start + int(rng.integers(1, 200))] + found[at:]
    for kind in rng.choice(KINDS, size=int(rng.integers(1, 4))):
        found = test_damage.damaged(found, rng, int(kind)) or found
    return found[: LONGEST * len(known[0])]


def explored(name: str, sample: test_damage.Sample, corpus: Path, sound: tuple[str, str], seed: int, until: float) -> Iterator[Trial]:
    """Damages of one sample, until the time is over; those that are to be damaged again are kept in the folder `corpus`."""
    known = [path.read_bytes() for path in sorted(corpus.iterdir())]
    zipped = sample.path.read_bytes()[:2] == GZIP
    rng, reached, number = np.random.default_rng([seed, len(known)]), Reached(), 0
    while number < len(known) or time.monotonic() < until:
        one = known[number] if number < len(known) else mutated(known, rng)
        number += 1
        with reached:
            trial = tried(name, sample, gzip.compress(one, mtime=0) if zipped else one, sound)
        if reached.new and number > len(known):
            (corpus / f"{len(known):06d}").write_bytes(one)
            known.append(one)
            number += 1
        trial.k, trial.bit = number, len(reached.steps)
        yield trial


def campaign(seed: int, seconds: float, cases: Path, folder: str | None = None) -> Iterator[Trial]:
    """Each binary format for its share of the time. What is not read as it should be goes to the folder `cases`."""
    with tempfile.TemporaryDirectory(dir=folder) as base:
        made = samples(Path(base))
        chosen = {name: sample for name, sample in made.items()
                  if b"\0" in sample.path.read_bytes() or sample.path.suffix in (".gz", ".ctm", ".TextGrid")}
        for name, sample in chosen.items():
            content, sound = sample.path.read_bytes(), content_of(sample.read())
            corpus = Path(base) / "corpus" / re.sub(r"\W", "_", name)
            corpus.mkdir(parents=True)
            (corpus / "000000").write_bytes(gzip.decompress(content) if content[:2] == GZIP else content)
            until, round = time.monotonic() + seconds / len(chosen), 0
            while round == 0 or time.monotonic() < until:
                for trial in _in_a_fork(name, sample, corpus, sound, zlib.crc32(f"{seed} {name} {round}".encode()), until):
                    if trial.outcome in WRONG:
                        damage = sample.path.read_bytes()
                        cases.mkdir(parents=True, exist_ok=True)
                        trial.file = f"{corpus.name}-{hashlib.blake2b(damage, digest_size=5).hexdigest()}"
                        (cases / trial.file).write_bytes(damage)
                    trial.group, trial.where, trial.error = "fuzz", sample.path.name, round
                    yield trial
                sample.path.write_bytes(content)
                round += 1


def _in_a_fork(name: str, sample: test_damage.Sample, corpus: Path, sound: tuple[str, str], seed: int, until: float) -> Iterator[Trial]:
    """Ends with the first trial that is wrong, whose damage is then in the sample's place."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.close(reader)
            with open(writer, "w", encoding="utf-8") as stream, open(os.devnull, "w", encoding="utf-8") as nothing:
                os.dup2(nothing.fileno(), 2)  # warnings of skipped utterances
                for trial in explored(name, sample, corpus, sound, seed, until):
                    stream.write(json.dumps(vars(trial)) + "\n")
                    stream.flush()
                    if trial.outcome in WRONG:
                        break
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, encoding="utf-8") as stream:
        for line in stream:
            yield Trial(**json.loads(line))
    _, status = os.waitpid(pid, 0)
    if status:
        yield Trial("fuzz", name, outcome="traceback", status=status, said=f"the process ended ({status})")
