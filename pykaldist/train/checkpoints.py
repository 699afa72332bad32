"""Checkpoints of a job: one file for the trainer and one for each worker. The last `keep` checkpoints are kept.

    <updates>-<epochs>.ckpt         the trainer: epoch, schedule, history, accepted model, number of workers
    <updates>-<epochs>.<rank>.ckpt  worker number `rank`
with the numbers of updates and epochs that are done.

A file is there completely or not at all. Each process writes its workers' files by a thread, from a copy, while training goes on. Nobody
waits. A checkpoint is valid when all of its files are there and undamaged.
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
from pykaldist.io.schema import Misfit, same_form
from pykaldist.train.divergence import Detector

TRAINER = -1  # number of the trainer's part
Moment = tuple[int, int]  # updates and epochs done
TRAINER_FORM: dict[str, Any] = {"workers": 0, "living": [], "epoch": 0, "history": "", "accepted": torch.empty(0), "seconds": 0.0,
                                "schedule": {}, "host": {}, "divergence": Detector().state_dict(), "best": {}, "last": {},
                                "average": torch.empty(0)}
WORKER_FORM: dict[str, Any] = {"worker": {}, "strategy": {}, "detector": {"frames": 0, "totals": [], "found": []},
                               "average": torch.empty(0)}


def copied(state: Any) -> Any:
    """A state whose tensors are copies in the host's memory."""
    if isinstance(state, torch.Tensor):
        return state.to("cpu", copy=True)
    if isinstance(state, dict):
        return {key: copied(value) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return [copied(value) for value in state]
    return state


class Checkpoints:
    """The checkpoints in a folder; the newest `keep` are kept. Part `TRAINER` is the trainer's, part k is worker k's."""

    def __init__(self, path: Path, keep: int = 2) -> None:
        self.path, self.keep = path, keep
        self._thread: threading.Thread | None = None
        self._error: OSError | None = None
        self._workers: dict[Moment, int] = {}  # checkpoint that this process has written -> workers that lived then

    def file(self, moment: Moment, part: int) -> Path:
        """The path of one part of a checkpoint."""
        return self.path / (f"{moment[0]:09d}-{moment[1]:03d}" + ("" if part == TRAINER else f".{part}") + ".ckpt")

    def files(self) -> dict[Moment, dict[int, Path]]:
        """All checkpoints, oldest first: moment -> part -> file."""
        found: dict[Moment, dict[int, Path]] = {}
        for path in self.path.glob("*.ckpt"):
            match = re.fullmatch(r"(\d+)-(\d+)(?:\.(\d+))?\.ckpt", path.name)
            if match:
                found.setdefault((int(match[1]), int(match[2])), {})[TRAINER if match[3] is None else int(match[3])] = path
        return {moment: found[moment] for moment in sorted(found)}

    def save(self, moment: Moment, parts: dict[int, dict[str, Any]], workers: int) -> None:
        """Begin to write some parts of a checkpoint, of a job in which `workers` workers live.

        Raises the OSError of the checkpoint before, if that failed.
        """
        self.wait()
        self._workers[moment] = workers
        parts = copied(parts)
        self._thread = threading.Thread(target=self._write, args=(moment, parts, workers), name="checkpoint")
        self._thread.start()

    def wait(self) -> None:
        """Wait until what was begun is written. Raises the OSError with which it failed."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _write(self, moment: Moment, parts: dict[int, dict[str, Any]], workers: int) -> None:
        """Write the parts, in the thread."""
        try:
            for part, state in parts.items():
                container.save(self.file(moment, part), state)
            if TRAINER in parts:
                self._prune(workers)
        except OSError as error:
            self._error = error

    def _prune(self, workers: int) -> None:
        """Remove checkpoints older than the newest `keep` complete ones."""
        files = self.files()
        whole = [moment for moment, parts in files.items() if TRAINER in parts and len(parts) > self._workers.get(moment, workers)]
        for moment in files:
            if len(whole) >= self.keep and moment < whole[-self.keep]:
                for path in files[moment].values():
                    path.unlink(missing_ok=True)

    def forget_after(self, moment: Moment) -> None:
        """Remove checkpoints that are newer, and files that are half written: a job that ended meanwhile has left them."""
        for path in self.path.glob(".*.tmp"):
            path.unlink()
        for other, parts in self.files().items():
            if other > moment:
                for path in parts.values():
                    path.unlink()

    def load(self, moment: Moment, part: int) -> dict[str, Any] | None:
        """Load a part. Returns None, with a warning, where it is damaged or missing, or lacks what this version needs."""
        path = self.file(moment, part)
        try:
            state = container.load(path)
            try:
                same_form(state, TRAINER_FORM if part == TRAINER else WORKER_FORM, "the checkpoint")
            except Misfit as error:
                raise UserError(f"{path} is of another version: {error}.") from error
            return state
        except UserError as error:
            print(f"WARNING: {error} Going back to the checkpoint before.", file=sys.stderr)
            return None
