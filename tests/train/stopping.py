"""Runs that a test stops when a checkpoint has been written, and starts again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pykaldist.train.checkpoints import Checkpoints


class Interrupted(BaseException):
    """The stop of a run."""


def stop_at(monkeypatch: pytest.MonkeyPatch, chosen: Callable[[int], bool]) -> None:
    """Stop at the chosen checkpoints, which are counted from 1 on over all runs."""
    save, count = Checkpoints.save, 0

    def save_and_stop(self, *state):
        nonlocal count
        save(self, *state)
        count += 1
        if chosen(count):
            self.wait()
            raise Interrupted

    monkeypatch.setattr(Checkpoints, "save", save_and_stop)
