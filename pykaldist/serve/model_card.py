"""The model card that goes with an exported model: what it is, on what it was trained, how well it does, how it is used."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pykaldist
from pykaldist.report.models import model_facts
from pykaldist.report.page.write import data_facts
from pykaldist.report.runs import Option, Run, runs
from pykaldist.report.table import as_rows, scored
from pykaldist.report.text import markdown

UNKNOWN_LICENCE = "not on record; ask who has the training data before you pass this model on (`--licence` writes it here)"


def model_card(exp: Path, to: str, tried: str, usage: str, licence: str) -> str:
    """The card's text, in Markdown, of the model of an experiment's folder."""
    facts, run = model_facts(exp), next((run for run in runs([exp]) if run.path == exp), None)
    about = [("model", str(facts) if facts else ""), ("format", to), ("trained in", str(exp)),
             *([("began", run.config.started), ("commit", run.config.commit or "not on record")] if run and run.config else []),
             ("exported", f"{time.strftime('%Y-%m-%d')}, pykaldist {pykaldist.__version__}"),
             *(data_facts(run) if run else []), ("licence of the data", licence or UNKNOWN_LICENCE)]
    parts = [f"# {exp.resolve().name}", markdown([["", ""], *([name, value] for name, value in about if value)]),
             "## Word error rates", _rates(exp), "## Use", f"```\n{usage}```", "## Tried", f"{tried}."]
    if run and run.options:
        parts += ["## Options that differ from their defaults", _options([one for one in run.options if one.changed], run)]
    return "\n\n".join(parts) + "\n"


def _rates(exp: Path) -> str:
    """The word error rates of what the model has recognised."""
    found = scored(exp)
    if not found:
        return "Nothing that it recognised was scored."
    rows = [["recognised", "WER %", "95 % interval", "words", "LMWT", "penalty"]]
    for one in as_rows(found):
        interval = "{:.2f} to {:.2f}".format(*one["interval"]) if one["interval"] else ""
        rows.append([one["system"], f"{one['wer']:.2f}", interval, str(one["words"]), str(one["lmwt"]), str(one["penalty"])])
    return markdown(rows)


def _options(changed: Sequence[Option], run: Run) -> str:
    rows = [["--ngpu", str(run.workers)], *([f"--{one.name.replace('_', '-')}", str(one.value)] for one in changed)]
    return markdown([["option", "value"], *rows])
