"""The table of every system of a recipe: word error rate with its interval, frame accuracy, training time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pykaldist.errors import UserError
from pykaldist.report.text import markdown, without_empty_columns
from pykaldist.score.bootstrap import UtteranceCounts, probability_of_improvement, read_counts, wer_interval
from pykaldist.score.score_dir import DEV_CHOSEN
from pykaldist.train.history import read_history

SEED = 0  # of the bootstrap
_WER = re.compile(r"%WER +(?P<wer>[\d.]+) +\[ (?P<errors>\d+) / (?P<words>\d+), (?P<ins>\d+) ins, (?P<dels>\d+) del, (?P<subs>\d+) sub \]"
                  r".*wer_(?P<lmwt>\d+)_(?P<wip>-?[\d.]+)")


@dataclass
class System:
    """One decoded system and its word error rate: `wer` in %, over `words` reference words, at `lmwt` and `wip`.

    `edits` are the numbers of substitutions, insertions and deletions.

    These two were best on a development set, whose WER is `dev_wer`, else best here.
    """

    name: str
    decode_dir: Path
    wer: float
    errors: int
    words: int
    edits: tuple[int, int, int]
    lmwt: int
    wip: float
    dev_wer: float | None = None
    counts: UtteranceCounts | None = None  # of the utterances, where there are details
    epochs: int | None = None
    cv_acc: float | None = None  # frame accuracy in [0, 1] of the last accepted epoch
    train_seconds: float | None = None
    time: str = "measured"  # or simulated

    @property
    def per_utt(self) -> Path:
        """The file with what was recognised in each utterance."""
        return self.decode_dir / "scoring_kaldi/wer_details/per_utt"


def systems(exp: Path) -> list[System]:
    """Find every scored decode directory below `exp`; raises UserError where there is none or one can not be read."""
    found = scored(exp)
    if not found:
        raise UserError(f"{exp} holds no scored system (no decode*/best_wer); run a recipe's ./run.sh first.")
    return found


def scored(exp: Path) -> list[System]:
    """The scored decode directories below `exp`, GMMs and then networks, in order of folders; none where there is none.

    A development set's is not one of them, it stands with the system whose LMWT and penalty it has chosen (`decode_dev` with `decode`).
    Raises UserError where one can not be read.
    """
    found = []
    for best in sorted(exp.glob("**/decode*/best_wer")):
        chosen = best.parent / DEV_CHOSEN
        if best.parent.name.endswith("_dev"):
            continue
        name, match = str(best.parent.relative_to(exp)), _wer_line(chosen if chosen.is_file() else best)
        edits = int(match["subs"]), int(match["ins"]), int(match["dels"])
        system = System(name, best.parent, float(match["wer"]), int(match["errors"]), int(match["words"]), edits, int(match["lmwt"]),
                        float(match["wip"]))
        dev = best.parent.with_name(f"{best.parent.name}_dev") / "best_wer"
        if chosen.is_file() and dev.is_file():
            system.dev_wer = float(_wer_line(dev)["wer"])
        if (details := system.per_utt).is_file():
            system.counts = read_counts(details)
        _add_training(system, best.parent.parent)
        found.append(system)
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
    return "\n".join([markdown(without_empty_columns(rows)), "", *_notes(found)])


def as_rows(found: list[System]) -> list[dict[str, Any]]:
    """Systems for JSON: what `render` shows; `better` is the share of drawn test sets, in [0, 1]."""
    rows = []
    for s, above in zip(found, [None, *found], strict=False):
        interval = None if s.counts is None else wer_interval(s.counts, np.random.default_rng(SEED))
        rows.append({
            "system": s.name, "wer": s.wer, "interval": interval, "better": _better(above, s), "errors": s.errors, "words": s.words,
            "utterances": None if s.counts is None else len(s.counts.utts), "lmwt": s.lmwt, "penalty": s.wip, "dev_wer": s.dev_wer,
            "frame_accuracy": s.cv_acc, "epochs": s.epochs, "train_seconds": s.train_seconds, "time": s.time})
    return rows


def spread(runs: list[list[System]]) -> list[dict[str, Any]]:
    """The word error rates of systems that were run several times, with other seeds: mean, standard deviation and range."""
    by_name: dict[str, list[System]] = {}
    for run in runs:
        for system in run:
            by_name.setdefault(system.name, []).append(system)
    rows = []
    for name, found in by_name.items():
        wers = np.array([system.wer for system in found])
        rows.append({"system": name, "mean": wers.mean(), "sd": wers.std(ddof=1) if len(wers) > 1 else None, "least": wers.min(),
                     "most": wers.max(), "runs": len(wers), "words": found[0].words})
    return rows


def render_spread(runs: list[list[System]]) -> str:
    """Write the table of systems that were run several times, with other seeds."""
    rows = [["system", "mean WER %", "sd", "min to max", "runs", "words"]]
    rows += [[one["system"], f"{one['mean']:.2f}", "" if one["sd"] is None else f"{one['sd']:.2f}",
              f"{one['least']:.2f} to {one['most']:.2f}", str(one["runs"]), str(one["words"])] for one in spread(runs)]
    return markdown(without_empty_columns(rows))


def _better(above: System | None, system: System) -> float | None:
    """The share of the drawn test sets in which a system makes fewer errors than the one above it."""
    if above is None or above.counts is None or system.counts is None or set(above.counts.utts) != set(system.counts.utts):
        return None
    return probability_of_improvement(above.counts, system.counts, np.random.default_rng(SEED))


def _improvement(above: System | None, system: System) -> str:
    share = _better(above, system)
    return "" if share is None else f"{100 * share:.1f} %"


def _notes(found: list[System]) -> list[str]:
    notes = []
    if any(s.dev_wer is not None for s in found):
        notes.append("LMWT and WIP (insertion penalty) are those that were best on the development set, whose WER stands in its column.")
    if any(s.dev_wer is None for s in found):
        notes.append("Without a development set's WER, LMWT and WIP (insertion penalty) are those that were best on the test set itself.")
    if any(s.counts is not None for s in found):
        notes.append("95 % interval: bootstrap over utterances. Better: in how many of the drawn test sets than the system above.")
    return notes
