"""Checkpoints of a job: one file for the trainer and one for each worker, whole or not there, the last k kept.

    <updates>-<epochs>.ckpt         the trainer: epoch, schedule, history, accepted model, number of workers
    <updates>-<epochs>.<rank>.ckpt  worker number `rank`
with the updates and the epochs that were done.

Each process writes its workers' files by a thread, from a copy, while training goes on; nobody waits for anybody. A checkpoint counts
when all of its files are there and undamaged.
"""

from __future__ import annotations

import re
import sys
import threading
from pathlib import Path
from typing import Any

import torch

from pykaldist.errors import UserError
from pykaldist.io import container

TRAINER = -1  # the part that is no worker's
Moment = tuple[int, int]  # updates and epochs done


def copied(state: Any) -> Any:
    """A state with tensors of its own."""
    if isinstance(state, torch.Tensor):
        return state.clone()
    if isinstance(state, dict):
        return {key: copied(value) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return [copied(value) for value in state]
    return state


class Checkpoints:
    """The checkpoints in a folder, of which the newest `keep` stay. Part `TRAINER` is the trainer's, part k worker k's."""

    def __init__(self, path: Path, keep: int = 2) -> None:
        self.path, self.keep = path, keep
        self._thread: threading.Thread | None = None
        self._error: OSError | None = None
        self._workers: dict[Moment, int] = {}  # that lived at the checkpoints of this process's time

    def file(self, moment: Moment, part: int) -> Path:
        return self.path / (f"{moment[0]:09d}-{moment[1]:03d}" + ("" if part == TRAINER else f".{part}") + ".ckpt")

    def files(self) -> dict[Moment, dict[int, Path]]:
        """Moment -> part -> file, oldest first."""
        found: dict[Moment, dict[int, Path]] = {}
        for path in self.path.glob("*.ckpt"):
            match = re.fullmatch(r"(\d+)-(\d+)(?:\.(\d+))?\.ckpt", path.name)
            if match:
                found.setdefault((int(match[1]), int(match[2])), {})[TRAINER if match[3] is None else int(match[3])] = path
        return {moment: found[moment] for moment in sorted(found)}

    def save(self, moment: Moment, parts: dict[int, dict[str, Any]], workers: int) -> None:
        """Begin to write some parts of a checkpoint of a job in which `workers` workers live.

        Raises the OSError of the one before, if it failed.
        """
        self.wait()
        self._workers[moment] = workers
        parts = copied(parts)
        self._thread = threading.Thread(target=self._write, args=(moment, parts, workers), name="checkpoint")
        self._thread.start()

    def wait(self) -> None:
        """Until what was begun is written; raises the OSError with which that failed."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _write(self, moment: Moment, parts: dict[int, dict[str, Any]], workers: int) -> None:
        try:
            for part, state in parts.items():
                container.save(self.file(moment, part), state)
            if TRAINER in parts:
                self._prune(workers)
        except OSError as error:
            self._error = error

    def _prune(self, workers: int) -> None:
        """Remove what is older than the newest `keep` checkpoints that have all of their files."""
        files = self.files()
        whole = [moment for moment, parts in files.items() if TRAINER in parts and len(parts) > self._workers.get(moment, workers)]
        for moment in files:
            if len(whole) >= self.keep and moment < whole[-self.keep]:
                for path in files[moment].values():
                    path.unlink(missing_ok=True)

    def forget_after(self, moment: Moment) -> None:
        """Remove what is newer, and what is half-written: the remains of a job that ended meanwhile."""
        for path in self.path.glob(".*.tmp"):
            path.unlink()
        for other, parts in self.files().items():
            if other > moment:
                for path in parts.values():
                    path.unlink()

    def load(self, moment: Moment, part: int) -> dict[str, Any] | None:
        """A part, or None with a warning where it is damaged or missing."""
        try:
            return container.load(self.file(moment, part))
        except UserError as error:
            print(f"WARNING: {error} Going back to the checkpoint before.", file=sys.stderr)
            return None
