"""`history.jsonl`: what happened in each epoch of a training, a JSON object a line, for programs that come after it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pykaldist.io.atomic import write_text
from pykaldist.io.schema import read_json_lines

FILE = "history.jsonl"


@dataclass
class Seconds:
    """The seconds of an epoch; parts of `total` stand beside it."""

    total: float


@dataclass
class Epoch:
    """What every line has; the objective's metrics (`train_acc`, `cv_acc`) and the strategy's notes stand beside it."""

    epoch: int
    updates: int
    frames: int
    learn_rate: float
    train_loss: float
    cv_loss: float
    accepted: bool
    seconds: Seconds
    time: str
    disagreement: float


def write_history(exp: Path, lines: Iterable[dict[str, Any]]) -> None:
    """Write the history of the training in folder `exp`."""
    write_text(exp / FILE, "".join(json.dumps(line) + "\n" for line in lines))


def read_history(exp: Path) -> list[dict[str, Any]]:
    """Read the history of the training in folder `exp`; none where it has no such file.

    A last line that is cut is left out, with a warning. Raises UserError for other damage.
    """
    path = exp / FILE
    return read_json_lines(path, Epoch, "restore it, or remove it: a report then lacks these epochs") if path.is_file() else []
