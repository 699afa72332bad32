"""Experiments as a table: every folder below others that holds a model, or a training that has begun; with filters.

A condition is a column's or an option's name, an operator and a value, as `wer<12`, `strategy=bmuf` or `name~tri`. An experiment that has
no such value does not meet it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from pykaldist.errors import UserError
from pykaldist.io import provenance
from pykaldist.report.models import model_facts
from pykaldist.report.runs import Run, named_folders, named_systems, runs
from pykaldist.report.table import System
from pykaldist.report.text import markdown, without_empty_columns

MODELS = ("final.pt", "final.mdl", "dbn.pt")
CONDITION = re.compile(r"\s*([\w-]+)\s*(<=|>=|!=|=|<|>|~)\s*(.*?)\s*")
OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: a == b, "!=": lambda a, b: a != b, "<": lambda a, b: a < b, "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b, ">=": lambda a, b: a >= b, "~": lambda a, b: str(b).lower() in str(a).lower()}
HEADS = {"name": "experiment", "state": "state", "model": "model", "objective": "objective", "strategy": "strategy",
         "workers": "workers", "epochs": "epochs", "frame_accuracy": "frame acc. %", "seconds": "training s", "wer": "WER %",
         "decoded": "of", "changed": "changed"}


@dataclass
class Experiment:
    """An experiment's folder; `wer` in % is the best of those in its decode directories, `decoded` says which one's."""

    name: str
    path: Path
    state: str
    model: str
    changed: str
    objective: str | None = None
    strategy: str | None = None
    workers: int | None = None
    epochs: int | None = None
    frame_accuracy: float | None = None
    seconds: float | None = None
    wer: float | None = None
    decoded: str | None = None
    options: dict[str, Any] = field(default_factory=dict)


def experiments(roots: Sequence[Path]) -> list[Experiment]:
    """Find the experiments below folders, in order of names. Alignments and frame stores, which hold copies of their models, are none."""
    trained = {run.path: run for run in runs(roots)}
    scored: dict[Path, list[System]] = {}
    for system in named_systems(roots):
        scored.setdefault(system.decode_dir.parent, []).append(system)
    models = {path.parent for root in roots for name in MODELS for path in root.glob(f"**/{name}")}
    folders = sorted(path for path in {*models, *trained, *scored} if path in trained or path in scored or not _is_copy(path))
    return [_experiment(name, path, trained.get(path), scored.get(path, [])) for name, path in named_folders(roots, folders).items()]


def _is_copy(folder: Path) -> bool:
    """Whether a folder with a model is an alignment, or a frame store, which has those of its parts."""
    record = provenance.read(folder)
    aligned = "align" in record.made_by if record is not None else folder.name.endswith("_ali")
    return aligned or (folder / "train/manifest.json").is_file()


def _experiment(name: str, path: Path, run: Run | None, systems: Sequence[System]) -> Experiment:
    facts = model_facts(path)
    newest = max(file.stat().st_mtime for file in path.iterdir() if file.is_file()) if any(path.iterdir()) else path.stat().st_mtime
    found = Experiment(name, path, _state(path, run), str(facts) if facts else "RBMs" if (path / "dbn.pt").is_file() else "",
                       datetime.fromtimestamp(newest).strftime("%Y-%m-%d %H:%M"))
    if run is not None:
        accepted = [line for line in run.history if line["accepted"]]
        found.objective, found.strategy, found.workers = run.objective, run.option("strategy"), run.workers
        found.epochs, found.seconds = len(run.history), round(run.seconds, 1)
        found.frame_accuracy = round(100 * accepted[-1]["cv_acc"], 2) if accepted and "cv_acc" in accepted[-1] else None
        found.options = dict(run.config.options) if run.config else {}
    if systems:
        best = min(systems, key=lambda system: system.wer)
        found.wer, found.decoded = best.wer, best.decode_dir.name
    return found


def _state(path: Path, run: Run | None) -> str:
    """Whether a training has ended, or how far it has come."""
    if any((path / name).is_file() for name in MODELS):
        return "done"
    return f"begun, {len(run.history)} epochs" if run is not None else "no model"


def chosen(found: Sequence[Experiment], conditions: Iterable[str], sort: str = "") -> list[Experiment]:
    """The experiments that meet all conditions, in order of a column or option (`-wer`: the largest first).

    Raises UserError for a condition that is none, or a name that no experiment has.
    """
    kept = list(found)
    for condition in conditions:
        match = CONDITION.fullmatch(condition)
        if match is None:
            raise UserError(f"--where {condition!r}: expected a name, one of {' '.join(OPERATORS)}, and a value, such as wer<12.")
        name, operator, text = _known(found, match[1]), OPERATORS[match[2]], match[3]
        kept = [one for one in kept if _meets(value_of(one, name), operator, text)]
    if sort:
        name = _known(found, sort.removeprefix("-"))
        there = [one for one in kept if value_of(one, name) is not None]
        kept = sorted(there, key=lambda one: _sortable(value_of(one, name)), reverse=sort.startswith("-")) + [
            one for one in kept if value_of(one, name) is None]
    return kept


def value_of(one: Experiment, name: str) -> Any:
    """The value of a column, or of an option of the training; None where there is none."""
    return getattr(one, name) if name in HEADS else one.options.get(name)


def _known(found: Sequence[Experiment], name: str) -> str:
    name = name.replace("-", "_")
    known = {*HEADS, *(option for one in found for option in one.options)}
    if found and name not in known:
        near = difflib.get_close_matches(name, sorted(known), 1)
        raise UserError(f"there is no column or option {name!r}" + (f"; do you mean {near[0]}?" if near
                                                                     else f"; the columns are {', '.join(HEADS)}."))
    return name


def _meets(value: Any, operator: Callable[[Any, Any], bool], text: str) -> bool:
    if value is None:
        return False
    if isinstance(value, bool):
        return operator(str(value).lower(), text.lower())
    if isinstance(value, (int, float)) and operator is not OPERATORS["~"]:
        try:
            return operator(float(value), float(text))
        except ValueError:
            raise UserError(f"--where: expected a number to compare with {value}, found {text!r}.") from None
    return operator(str(value), text)


def _sortable(value: Any) -> tuple[bool, Any]:
    number = isinstance(value, (int, float))
    return not number, value if number else str(value)


def render(found: Sequence[Experiment]) -> str:
    """Write experiments as a table."""
    rows = [[_cell(name, value_of(one, name)) for name in HEADS] for one in found]
    return markdown(without_empty_columns([list(HEADS.values()), *rows])) if rows else "No experiment meets the conditions."


def _cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.0f}" if name == "seconds" else f"{value:.2f}" if isinstance(value, float) else str(value)
