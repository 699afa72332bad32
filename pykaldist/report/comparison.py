"""Experiments beside the first of them: options that differ, trainings, and the word error rates of what they recognised alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pykaldist.errors import UserError
from pykaldist.report.listing import Experiment, experiments
from pykaldist.report.listing import render as render_experiments
from pykaldist.report.runs import differing_options, named_systems, runs
from pykaldist.report.table import SEED, System
from pykaldist.report.text import markdown, without_empty_columns
from pykaldist.score.bootstrap import wer_interval
from pykaldist.score.significance import MatchedPairs, matched_pairs


@dataclass
class Decoded:
    """A scored system beside the first one that was scored on the same utterances: `against` and `test` are None for that one."""

    name: str
    wer: float
    errors: int
    words: int
    interval: tuple[float, float] | None
    against: str | None
    test: MatchedPairs | None


@dataclass
class Comparison:
    """Experiments beside each other; `options` are those that differ, (name, value in each training)."""

    experiments: list[Experiment]
    trainings: list[str]
    options: list[tuple[str, list[Any]]]
    systems: list[Decoded]


def compare(folders: Sequence[Path]) -> Comparison:
    """Compare experiments; raises UserError where a folder holds none."""
    found = experiments(folders)
    for folder in folders:
        if not any(one.path == folder or folder in one.path.parents for one in found):
            raise UserError(f"{folder} holds no experiment (no model, no training); `pykaldist ls {folder.parent}` lists those there are.")
    trained = [run for run in runs(folders) if run.config]
    order = {str(folder): number for number, folder in enumerate(folders)}
    systems = sorted(named_systems(folders), key=lambda system: next((order[str(above)] for above in system.decode_dir.parents
                                                                      if str(above) in order), 0))
    return Comparison(found, [run.name for run in trained], differing_options(trained) if len(trained) > 1 else [],
                      [_decoded(system, systems[:place]) for place, system in enumerate(systems)])


def _decoded(system: System, before: Sequence[System]) -> Decoded:
    """A system beside the first of those before it that was scored on the same utterances."""
    counts = system.counts
    if counts is None:
        return Decoded(system.name, system.wer, system.errors, system.words, None, None, None)
    interval = wer_interval(counts, np.random.default_rng(SEED))
    for other in before:
        if other.counts is not None and set(other.counts.utts) == set(counts.utts):
            return Decoded(system.name, system.wer, system.errors, system.words, interval, other.name, matched_pairs(other.counts, counts))
    return Decoded(system.name, system.wer, system.errors, system.words, interval, None, None)


def _written(value: Any) -> str:
    """An option's value as a command line has it."""
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def render(comparison: Comparison) -> str:
    """Write a comparison as tables."""
    parts = [render_experiments(comparison.experiments)]
    if comparison.options:
        rows = [[f"--{name.replace('_', '-')}", *map(_written, values)] for name, values in comparison.options]
        parts += ["Options in which they differ", markdown([["option", *comparison.trainings], *rows])]
    if comparison.systems:
        rows = [["system", "WER %", "95 % interval", "difference", "p", "against"]]
        for one in comparison.systems:
            rows.append([one.name, f"{one.wer:.2f}", "{:.2f} to {:.2f}".format(*one.interval) if one.interval else "",
                         f"{one.test.difference:+.2f}" if one.test else "",
                         ("< 0.001" if one.test.p < 0.001 else f"{one.test.p:.3f}") if one.test else "", one.against or ""])
        parts += ["Word error rates; p: matched-pairs test on the utterances' errors, two-sided", markdown(without_empty_columns(rows))]
    return "\n\n".join(parts)
