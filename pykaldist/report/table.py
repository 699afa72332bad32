"""The table of every system of a recipe: word error rate, frame accuracy, training time."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from pykaldist.errors import UserError

_WER = re.compile(r"%WER +(?P<wer>[\d.]+) +\[ (?P<errors>\d+) / (?P<words>\d+), .*\].*wer_(?P<lmwt>\d+)_(?P<wip>[\d.]+)")


@dataclass
class System:
    """One decoded system: `wer` in %, over `words` reference words, best of the sweep at `lmwt` and `wip`."""

    name: str
    wer: float
    errors: int
    words: int
    lmwt: int
    wip: float
    epochs: int | None = None
    cv_acc: float | None = None  # frame accuracy in [0, 1] of the last accepted epoch
    train_seconds: float | None = None
    time: str = "measured"  # or simulated


def systems(exp: Path) -> list[System]:
    """Every `best_wer` below `exp`, in order of folders; raises UserError where there is none or one can not be read."""
    found = []
    for path in sorted(exp.glob("**/decode*/best_wer")):
        line = path.read_text(encoding="utf-8").splitlines()[0] if path.stat().st_size else ""
        match = _WER.search(line)
        if not match:
            raise UserError(f"{path} has no %WER line; run utils/score.sh again.")
        system = System(str(path.parent.relative_to(exp)), float(match["wer"]), int(match["errors"]), int(match["words"]),
                        int(match["lmwt"]), float(match["wip"]))
        _add_training(system, path.parent.parent / "history.jsonl")
        found.append(system)
    if not found:
        raise UserError(f"{exp} holds no scored system (no decode*/best_wer); run the decoding and scoring stages first.")
    return found


def _add_training(system: System, path: Path) -> None:
    if not path.is_file():
        return
    history = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    accepted = [line for line in history if line["accepted"]]
    system.epochs = len(history)
    system.train_seconds = sum(line["seconds"]["total"] for line in history)
    system.time = "simulated" if any(line["time"] == "simulated" for line in history) else "measured"
    system.cv_acc = accepted[-1].get("cv_acc") if accepted else None


def render(found: list[System]) -> str:
    """The table as text (and valid Markdown)."""
    rows = [["system", "WER %", "errors / words", "LMWT", "WIP", "frame acc. %", "epochs", "training s"]]
    for s in found:
        rows.append([s.name, f"{s.wer:.2f}", f"{s.errors} / {s.words}", str(s.lmwt), f"{s.wip:.1f}",
                     "" if s.cv_acc is None else f"{100 * s.cv_acc:.2f}", "" if s.epochs is None else str(s.epochs),
                     "" if s.train_seconds is None else f"{s.train_seconds:.0f}" + " simulated" * (s.time == "simulated")])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    rows.insert(1, ["-" * w for w in widths])
    return "\n".join("| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |" for row in rows)
