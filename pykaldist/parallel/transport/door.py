"""The door of an elastic job: how a process that replaces one which has died finds process 0, and is let in.

Process 0 writes `door` into the job's folder (<exp>/.ranks): its address, its public key, and what a process has to know before it takes
part. The replacement listens at an address of its own, and writes that and its public key to `waits-<rank>`. Process 0 looks there when a
round begins. It accepts the key, connects, and writes `enter-<rank>`; then the replacement connects, too. No key in these files is secret.
Who can write into the job's folder can come in, as they could change the job's checkpoints; nobody else can.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pykaldist.errors import ProcessLostError, UserError
from pykaldist.io.atomic import write_text
from pykaldist.io.schema import read_json, require
from pykaldist.parallel.fabric.processes import SingleProcess

DOOR, WAITS, ENTER = "door", "waits-", "enter-"


@dataclass
class Card:
    """What a process that waits tells of itself."""

    endpoint: str
    key: str
    pid: int

    def __post_init__(self) -> None:
        require(re.fullmatch(r"tcp://[\w.]+:\d+", self.endpoint) is not None, "endpoint", repr(self.endpoint), "an address of TCP")
        require(re.fullmatch(r"[!-~]{40}", self.key) is not None, "key", repr(self.key), "a public key of CurveZMQ")


class Guest(SingleProcess):
    """A process that is to replace process `rank` of `size`, before it takes part: what it collects is its own alone."""

    def __init__(self, rank: int, folder: Path) -> None:
        self.folder, self.rank = folder, rank
        self.facts: dict[str, Any] = json.loads((folder / DOOR).read_text(encoding="utf-8"))
        self.size = int(self.facts["size"])

    def knock(self, card: dict[str, Any]) -> None:
        """Say where this process listens, and by which key others know it."""
        write_text(self.folder / f"{WAITS}{self.rank}", json.dumps({name: card[name] for name in ("endpoint", "key", "pid")}))

    def let_in(self, card: dict[str, Any]) -> bool:
        """Whether process 0 has accepted this card. Raises ProcessLostError where the job has ended."""
        if not (self.folder / DOOR).exists():
            raise ProcessLostError("the job has ended before another round began")
        with contextlib.suppress(OSError, ValueError):
            return bool(json.loads((self.folder / f"{ENTER}{self.rank}").read_text(encoding="utf-8"))["key"] == card["key"])
        return False


class Door:
    """The door of a job, on process 0. `facts` are what a guest has to know: the card of process 0 and the job's `size`, among others."""

    def __init__(self, folder: Path, facts: dict[str, Any]) -> None:
        self.folder = folder
        self._cards: dict[int, dict[str, Any]] = {}
        write_text(folder / DOOR, json.dumps(facts))

    def waiting(self) -> list[int]:
        """The processes that wait. What is no card counts as nobody."""
        for path in self.folder.glob(f"{WAITS}[0-9]*"):
            with contextlib.suppress(OSError, ValueError, UserError):
                self._cards[int(path.name.removeprefix(WAITS))] = dataclasses.asdict(read_json(path, Card, "its process writes it again"))
            path.unlink(missing_ok=True)
        return sorted(self._cards)

    def admit(self, process: int, accept: Callable[[int, dict[str, Any]], object]) -> None:
        """Let in a process that waits; `accept` makes the transport take it in, by its card."""
        card = self._cards.pop(process)
        accept(process, card)
        write_text(self.folder / f"{ENTER}{process}", json.dumps({"key": card["key"]}))

    def close(self) -> None:
        """Let in nobody else."""
        with contextlib.suppress(OSError):
            os.unlink(self.folder / DOOR)
