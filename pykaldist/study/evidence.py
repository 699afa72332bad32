"""Whether trainings still come out as the results of a study say: some of its cells, trained again, beside tolerance bands.

A new training of a cell of n seeds with mean m lies in  m +- t s sqrt(1 + 1/n).  s is the spread of seeds around their cell's mean, pooled
over all cells of the corpus, so that few seeds a cell suffice; t is the quantile of Student's distribution with as many degrees of freedom
as the spread has, for 999 of 1,000. Bands are of the held-out loss and of the word error rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import stats

from pykaldist.errors import UserError
from pykaldist.report.text import markdown
from pykaldist.study.corpora import Prepared
from pykaldist.study.results import MEASURES, Result, Results, Trial

LEVEL = 0.999
FEWEST = 3  # seeds of a cell that has a band
SEED = 0


@dataclass(frozen=True)
class Band:
    """The bounds of a value, and what was found."""

    lower: float
    upper: float
    found: float

    @property
    def holds(self) -> bool:
        return self.lower <= self.found <= self.upper


def by_options(results: Results, corpus: str) -> dict[str, list[Result]]:
    """The decoded results of a corpus by their options; those that diverged are left out."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        if result.corpus == corpus and not result.diverged and result.words:
            groups.setdefault(result.options, []).append(result)
    return groups


def half_width(groups: Mapping[str, Sequence[Result]], value: Callable[[Result], float], n: int) -> float:
    """Half of a band's width, for a cell of n seeds."""
    several = [np.array([value(result) for result in group]) for group in groups.values() if len(group) > 1]
    freedom = sum(len(values) - 1 for values in several)
    spread = math.sqrt(sum(float(((values - values.mean()) ** 2).sum()) for values in several) / freedom)
    return float(stats.t.ppf((1 + LEVEL) / 2, freedom)) * spread * math.sqrt(1 + 1 / n)


def chosen(groups: Mapping[str, Sequence[Result]], most: int, most_seconds: float) -> list[str]:
    """The options of the cells to train again: as many kinds of strategies and numbers of workers as there are, the cheap ones first."""
    ready = sorted((options for options, group in groups.items() if len(group) >= FEWEST), key=lambda options: _cost(groups[options]))
    kinds: dict[str, int] = {}
    order = []
    for options in ready:
        words = options.split()
        kind = " ".join(words[words.index(name) + 1] for name in ("--strategy", "--ngpu") if name in words)
        order.append((kinds.setdefault(kind, 0), options))
        kinds[kind] += 1
    found: list[str] = []
    seconds = 0.0
    for _, options in sorted(order, key=lambda pair: pair[0]):
        seconds += _cost(groups[options])
        if len(found) < most and seconds <= most_seconds:
            found.append(options)
    return found


def _cost(group: Sequence[Result]) -> float:
    return float(np.mean([result.cpu_seconds for result in group]))


def check(corpus: str, prepared: Prepared, results: Results, exp: Path, carry_out: Callable[[Trial, Prepared, Path], Result],
          most: int = 10, most_seconds: float = 900.0) -> tuple[str, bool]:
    """Train cells of a corpus again: a table of what was found beside its bands, and whether all hold.

    Raises UserError where no cell has seeds enough for a band.
    """
    groups = by_options(results, corpus)
    cells_again = chosen(groups, most, most_seconds)
    if not cells_again:
        raise UserError(f"{results.folder}/{corpus}.jsonl has no cell of {FEWEST} seeds yet; run egs/study/run.sh first.")
    rows, holds = [["cell", *MEASURES, "holds"]], True
    for options in cells_again:
        found = carry_out(Trial(corpus, options, SEED), prepared, exp)
        cells = []
        for value in MEASURES.values():
            mean = float(np.mean([value(result) for result in groups[options]]))
            half = half_width(groups, value, len(groups[options]))
            cells.append(Band(mean - half, mean + half, value(found)))
        rows.append([options, *(f"{band.found:.4g} ({band.lower:.4g} to {band.upper:.4g})" for band in cells),
                     "yes" if all(band.holds for band in cells) else "NO"])
        holds &= all(band.holds for band in cells)
    return markdown(rows), holds
