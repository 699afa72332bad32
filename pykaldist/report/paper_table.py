"""The tables of a paper beside those that a recipe has obtained: the runs that a table needs, and the table.

Two tables of the recipe say what the paper has (columns with tabs between, # before a comment). `runs.tsv`: run, workers, RBMs (true,
false), options of the schedule, other options of training. `tables.tsv`: table, row, column, run, test set, part of it (- for all), and the
published value, - where there is none. The value of a test set is the word error rate (%) in <exp>/<run>/decode_<set>[/<part>]/best_wer.
In its place may stand `speedup`, how many times as fast an epoch is as one of the run that stands in place of the part; `minutes` of an
epoch, `hours` of the whole training, or `cv_loss`, the loss on the held-out data after the last epoch.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pykaldist.errors import UserError
from pykaldist.io.corpora.rules import read_columns
from pykaldist.report.text import markdown
from pykaldist.train.history import read_history

SPEEDUP = "speedup"
NONE = "-"
OF_TRAINING: dict[str, Callable[[list[dict[str, Any]]], float]] = {
    "minutes": lambda history: sum(line["seconds"]["total"] for line in history) / len(history) / 60,
    "hours": lambda history: sum(line["seconds"]["total"] for line in history) / 3600,
    "cv_loss": lambda history: float(history[-1]["cv_loss"])}


@dataclass(frozen=True)
class Run:
    """One training of a paper."""

    name: str
    ngpu: int
    rbm: bool
    schedule_opts: str
    train_opts: str


@dataclass(frozen=True)
class Cell:
    """One value of a paper's table."""

    row: str
    column: str
    run: str
    test_set: str
    part: str
    published: str


def read_runs(path: str | os.PathLike[str]) -> dict[str, Run]:
    """The runs of `runs.tsv`, by their names. Raises UserError for a line that is damaged, and two runs of one name."""
    runs: dict[str, Run] = {}
    for number, (name, ngpu, rbm, schedule_opts, train_opts) in read_columns(path, 5):
        if name in runs or not re.fullmatch(r"[\w.-]+", name) or not re.fullmatch("[1-9][0-9]*", ngpu) or rbm not in ("true", "false"):
            raise UserError(f"{path}, line {number}: expected a new name, a number of workers and true or false, found {name}, {ngpu}, "
                            f"{rbm}.")
        runs[name] = Run(name, int(ngpu), rbm == "true", schedule_opts, train_opts)
    return runs


def read_table(folder: str | os.PathLike[str], table: str) -> tuple[list[Cell], dict[str, Run]]:
    """The cells of a table, and the runs that it needs, in their order. Raises UserError where there is no such table or run."""
    folder = Path(folder)
    known, rows = read_runs(folder / "runs.tsv"), read_columns(folder / "tables.tsv", 7)
    cells = [Cell(*columns[1:]) for _, columns in rows if columns[0] == table]
    if not cells:
        raise UserError(f"{folder}/tables.tsv has no table {table}; choose among {', '.join(sorted({columns[0] for _, columns in rows}))}.")
    needed = dict.fromkeys(name for cell in cells for name in (cell.run, cell.part if cell.test_set == SPEEDUP else cell.run))
    unknown = [name for name in needed if name not in known]
    if unknown:
        raise UserError(f"{folder}/runs.tsv has no run {unknown[0]}, which table {table} needs.")
    return cells, {name: known[name] for name in sorted(needed, key=lambda name: known[name].ngpu)}


def obtained(cell: Cell, exp: Path) -> str:
    """The value of a cell by the recipe; - where that has not been run."""
    if cell.test_set == SPEEDUP:
        own, alone = (_epoch_seconds(exp / name) for name in (cell.run, cell.part))
        return f"{alone / own:.2f}" if own and alone else NONE
    if cell.test_set in OF_TRAINING:
        history = read_history(exp / cell.run)
        return f"{OF_TRAINING[cell.test_set](history):.2f}" if history else NONE
    best = exp / cell.run / f"decode_{cell.test_set}" / ("" if cell.part == NONE else cell.part) / "best_wer"
    found = re.search(r"%WER ([\d.]+)", best.read_text()) if best.is_file() else None
    return f"{float(found[1]):.1f}" if found else NONE


def _epoch_seconds(exp: Path) -> float:
    history = read_history(exp)
    return sum(line["seconds"]["total"] for line in history) / len(history) if history else 0.0


def as_rows(cells: list[Cell], exp: Path) -> list[dict[str, Any]]:
    """The cells of a table for JSON: the numbers as text, None where there is none."""
    def number(text: str) -> str | None:
        return None if text == NONE else text

    return [{**dataclasses.asdict(cell), "published": number(cell.published), "obtained": number(obtained(cell, exp))} for cell in cells]


def render(cells: list[Cell], exp: Path) -> str:
    """A table with two columns for each of the paper's: published, and obtained here."""
    rows, columns = (list(dict.fromkeys(getattr(cell, name) for cell in cells)) for name in ("row", "column"))
    at = {(cell.row, cell.column): cell for cell in cells}
    lines = [["", *(f"{column}: {who}" for column in columns for who in ("paper", "here"))]]
    for row in rows:
        values = []
        for column in columns:
            cell = at.get((row, column))
            values += [cell.published, obtained(cell, exp)] if cell else ["", ""]
        lines.append([row, *values])
    return markdown(lines)
