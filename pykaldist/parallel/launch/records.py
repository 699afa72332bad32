"""The records of a job's processes: what each writes of itself, about once a second, to <exp>/.ranks/<process> (`watch.py` says when)."""

from __future__ import annotations

import contextlib
import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pykaldist.errors import UserError
from pykaldist.io.schema import read_json

WAITING = "waiting for an exchange"  # what a process does in an exchange, as its record says it


@dataclass
class Training:
    """How far the workers of a process are in an epoch.

    `first` is the number of its first worker, `epoch` counts from 1, `epochs` are all that there may be. Of each worker, in order:
    `minibatches` that are done in this epoch, `of` how many, and the `losses` a frame of the epoch so far, as they were last read.
    `frames` are those of all of them. `seconds` of the epoch so far, of all of them: compute, exchange, wait and load; `elapsed` by the
    clock, or in a simulation by the simulated one, which `time` says; `at` is when this was told, in seconds of a clock of the process.
    """

    first: int
    epoch: int
    epochs: int
    minibatches: list[int]
    of: list[int]
    losses: list[float | None]
    frames: int
    seconds: dict[str, float]
    elapsed: float
    time: str
    at: float


@dataclass
class Record:
    """What a process writes of itself.

    The job's number, where it runs, how often it wrote, its progress, what it does, and how far its workers are while they train.
    """

    job: int
    host: str
    pid: int
    beat: int
    progress: int
    state: str
    training: Training | None = None


def read_records(folder: Path) -> dict[int, dict[str, Any]]:
    """The records in <exp>/.ranks, by process. Records that cannot be read, or do not fit, are left out."""
    found = {}
    for path in folder.glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, UserError):
            found[int(path.name)] = dataclasses.asdict(read_json(path, Record, "its process writes it again"))
    return found
