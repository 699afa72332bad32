"""The table of every system of a recipe: word error rate with its interval, frame accuracy, training time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pykaldist.errors import UserError
from pykaldist.score.bootstrap import UtteranceCounts, probability_of_improvement, read_counts, wer_interval
from pykaldist.score.score_dir import DEV_CHOSEN
from pykaldist.train.history import read_history

SEED = 0  # of the bootstrap
_WER = re.compile(r"%WER +(?P<wer>[\d.]+) +\[ (?P<errors>\d+) / (?P<words>\d+), .*\].*wer_(?P<lmwt>\d+)_(?P<wip>[\d.]+)")


@dataclass
class System:
    """One decoded system and its word error rate: `wer` in %, over `words` reference words, at `lmwt` and `wip`.

    These two were best on a development set, whose WER is `dev_wer`, else best here.
    """

    name: str
    wer: float
    errors: int
    words: int
    lmwt: int
    wip: float
    dev_wer: float | None = None
    counts: UtteranceCounts | None = None  # of the utterances, where there are details
    epochs: int | None = None
    cv_acc: float | None = None  # frame accuracy in [0, 1] of the last accepted epoch
    train_seconds: float | None = None
    time: str = "measured"  # or simulated


def systems(exp: Path) -> list[System]:
    """Find every scored decode directory below `exp`, GMMs and then networks, in order of folders.

    A development set's is not one of them, it stands with the system whose LMWT and penalty it has chosen (`decode_dev` with `decode`).
    Raises UserError where there is none or one can not be read.
    """
    found = []
    for best in sorted(exp.glob("**/decode*/best_wer")):
        chosen = best.parent / DEV_CHOSEN
        if best.parent.name.endswith("_dev"):
            continue
        name, match = str(best.parent.relative_to(exp)), _wer_line(chosen if chosen.is_file() else best)
        system = System(name, float(match["wer"]), int(match["errors"]), int(match["words"]), int(match["lmwt"]), float(match["wip"]))
        dev = best.parent.with_name(f"{best.parent.name}_dev") / "best_wer"
        if chosen.is_file() and dev.is_file():
            system.dev_wer = float(_wer_line(dev)["wer"])
        details = best.parent / "scoring_kaldi/wer_details/per_utt"
        if details.is_file():
            system.counts = read_counts(details)
        _add_training(system, best.parent.parent)
        found.append(system)
    if not found:
        raise UserError(f"{exp} holds no scored system (no decode*/best_wer); run the decoding and scoring stages first.")
    return sorted(found, key=lambda system: system.epochs is not None)


def _wer_line(path: Path) -> re.Match[str]:
    line = path.read_text(encoding="utf-8").splitlines()[0] if path.stat().st_size else ""
    match = _WER.search(line)
    if not match:
        raise UserError(f"{path} has no %WER line; score again (steps/score_kaldi.sh).")
    return match


def _add_training(system: System, exp: Path) -> None:
    history = read_history(exp)
    if not history:
        return
    accepted = [line for line in history if line["accepted"]]
    system.epochs = len(history)
    system.train_seconds = sum(line["seconds"]["total"] for line in history)
    system.time = "simulated" if any(line["time"] == "simulated" for line in history) else "measured"
    system.cv_acc = accepted[-1].get("cv_acc") if accepted else None


def render(found: list[System]) -> str:
    """Write the table as text (and valid Markdown), and below it what its columns mean."""
    rows = [["system", "WER %", "95 % interval", "better", "errors / words", "utts", "LMWT", "WIP", "dev WER %", "frame acc. %", "epochs",
             "training s"]]
    for s, above in zip(found, [None, *found], strict=False):
        interval = "" if s.counts is None else "{:.2f} to {:.2f}".format(*wer_interval(s.counts, np.random.default_rng(SEED)))
        rows.append([s.name, f"{s.wer:.2f}", interval, _improvement(above, s), f"{s.errors} / {s.words}",
                     "" if s.counts is None else str(len(s.counts.utts)), str(s.lmwt), f"{s.wip:.1f}",
                     "" if s.dev_wer is None else f"{s.dev_wer:.2f}", "" if s.cv_acc is None else f"{100 * s.cv_acc:.2f}",
                     "" if s.epochs is None else str(s.epochs),
                     "" if s.train_seconds is None else f"{s.train_seconds:.0f}" + " simulated" * (s.time == "simulated")])
    return "\n".join([table(rows), "", *_notes(found)])


def table(rows: list[list[str]]) -> str:
    """Write rows, the first of them the head, as a table without the columns that are empty."""
    kept = [i for i in range(len(rows[0])) if any(row[i] for row in rows[1:])]
    rows = [[row[i] for i in kept] for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    rows.insert(1, ["-" * w for w in widths])
    return "\n".join("| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |" for row in rows)


def render_spread(runs: list[list[System]]) -> str:
    """Write the table of systems that were run several times, with other seeds: mean WER, its standard deviation and its range."""
    by_name: dict[str, list[System]] = {}
    for run in runs:
        for system in run:
            by_name.setdefault(system.name, []).append(system)
    rows = [["system", "mean WER %", "sd", "min to max", "runs", "words"]]
    for name, found in by_name.items():
        wers = np.array([system.wer for system in found])
        sd = f"{wers.std(ddof=1):.2f}" if len(wers) > 1 else ""
        rows.append([name, f"{wers.mean():.2f}", sd, f"{wers.min():.2f} to {wers.max():.2f}", str(len(wers)), str(found[0].words)])
    return table(rows)


def _improvement(above: System | None, system: System) -> str:
    """The percentage of the drawn test sets in which a system makes fewer errors than the one above it."""
    if above is None or above.counts is None or system.counts is None or set(above.counts.utts) != set(system.counts.utts):
        return ""
    return f"{100 * probability_of_improvement(above.counts, system.counts, np.random.default_rng(SEED)):.1f} %"


def _notes(found: list[System]) -> list[str]:
    notes = []
    if any(s.dev_wer is not None for s in found):
        notes.append("LMWT and WIP (insertion penalty) are those that were best on the development set, whose WER stands in its column.")
    if any(s.dev_wer is None for s in found):
        notes.append("Without a development set's WER, LMWT and WIP (insertion penalty) are those that were best on the test set itself.")
    if any(s.counts is not None for s in found):
        notes.append("95 % interval: bootstrap over utterances. Better: in how many of the drawn test sets than the system above.")
    return notes
