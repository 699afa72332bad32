"""What a way to train by many workers costs in accuracy, as far as the study knows: its nearest tested cells.

A tested cell is compared with one worker of the same corpus and options, within seeds. Cells of one strategy are as far apart as the
logarithms (base 2) of their numbers of workers, periods and minibatches say; another optimiser counts as a factor of two.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

from pykaldist.parallel.strategies.base.registry import strategy_options
from pykaldist.report.text import markdown, without_empty_columns
from pykaldist.study.evidence import by_options
from pykaldist.study.results import Result, Results
from pykaldist.study.statistics import Estimate, contrast_of_losses, contrast_of_wers, written

OF_JOBS = {"--ngpu", "--strategy", "--cluster", "--simulation-seed", "--lr-scale"}
OF_RATES = {"--learn-rate", "--final-learn-rate", "--learn-rates"}
MINIBATCH = 256  # frames, where --minibatch-size is not given
DEFAULT_OPTIMIZER = "sgd"


@dataclass(frozen=True)
class Tested:
    """A tested cell: how it was trained, and what it costs over one worker."""

    corpus: str
    strategy: str
    ngpu: int
    period: int | None
    minibatch: int
    optimizer: str
    wer: Estimate
    loss: Estimate

    def distance(self, ngpu: int, period: int | None, minibatch: int, optimizer: str) -> float:
        """How far another way to train by the same strategy is from it."""
        apart = [math.log2(self.ngpu / ngpu), math.log2(self.minibatch / minibatch), float(self.optimizer != optimizer)]
        if self.period and period:
            apart.append(math.log2(self.period / period))
        return math.hypot(*apart)


def pairs(options: str) -> dict[str, str]:
    """Options and their values."""
    words = options.split()
    return dict(zip(words[::2], words[1::2], strict=True))


def alone(options: dict[str, str]) -> dict[str, str]:
    """What is left of a cell's options for one worker: those of its strategy and its rate do not count."""
    strategy = options.get("--strategy", "local")
    own = {f"--{field.name.replace('_', '-')}" for field in dataclasses.fields(strategy_options(strategy))}
    return {name: value for name, value in options.items() if name not in OF_JOBS | OF_RATES | own}


def known_cells(results: Results, corpora: Sequence[str]) -> list[Tested]:
    """Every cell with several workers that has one of a single worker beside it."""
    found = []
    for corpus in corpora:
        groups = {options: {result.seed: result for result in group} for options, group in by_options(results, corpus).items()}
        single: dict[frozenset[tuple[str, str]], dict[int, Result]] = {}
        for options, group in sorted(groups.items(), key=lambda pair: len(pair[1])):  # of several rates that with most seeds
            if "--ngpu" not in options:
                single[frozenset(alone(pairs(options)).items())] = group
        for options, group in groups.items():
            given = pairs(options)
            beside = single.get(frozenset(alone(given).items()))
            if "--ngpu" in given and beside:
                cells, weights = {"several": group, "one": beside}, {"several": 1.0, "one": -1.0}
                wer, loss = contrast_of_wers(weights, cells), contrast_of_losses(weights, cells)
                period, minibatch = given.get("--average-period"), int(given.get("--minibatch-size", MINIBATCH))
                if wer and loss:
                    found.append(Tested(corpus, given["--strategy"], int(given["--ngpu"]), int(period) if period else None, minibatch,
                                        given.get("--optimizer", DEFAULT_OPTIMIZER), wer, loss))
    return found


def outside(cells: Sequence[Tested], ngpu: int, period: int | None, minibatch: int) -> str:
    """In what a way to train leaves the region of a strategy's tested cells; empty where it does not."""
    values = {"workers": (ngpu, [cell.ngpu for cell in cells]), "minibatch": (minibatch, [cell.minibatch for cell in cells]),
              "period": (period, [cell.period for cell in cells if cell.period])}
    parts = [f"{name} {min(known)} to {max(known)}" for name, (value, known) in values.items()
             if value and known and not min(known) <= value <= max(known)]
    return f"outside what was tested: {', '.join(parts)}" if parts else ""


@dataclass(frozen=True)
class Risk:
    """What is known of a way to train: its nearest tested cell (None where its strategy was not tested), and what to be warned of."""

    strategy: str
    ngpu: int
    period: int | None
    nearest: Tested | None
    warning: str


def risks(cells: Sequence[Tested], asked: Sequence[tuple[str, int, int | None]], minibatch: int, optimizer: str) -> list[Risk]:
    """The risk of each strategy, number of workers and period that is asked for."""
    found = []
    for strategy, ngpu, period in asked:
        own = [cell for cell in cells if cell.strategy == strategy]
        near = min(own, key=lambda cell: cell.distance(ngpu, period, minibatch, optimizer), default=None)
        found.append(Risk(strategy, ngpu, period, near, outside(own, ngpu, period, minibatch) if own else "this strategy was not tested"))
    return found


HEADS = ["strategy", "workers", "period", "nearest tested", "WER over one worker's, points", "held-out loss", "seeds", "warning"]


def render(found: Sequence[Risk]) -> str:
    """Write risks as a table."""
    return markdown(without_empty_columns([HEADS, *map(_row, found)]))


def _row(risk: Risk) -> list[str]:
    head, near = [risk.strategy, str(risk.ngpu), str(risk.period or "")], risk.nearest
    if near is None:
        return [*head, "none", "", "", "", risk.warning]
    period = f", period {near.period}" if near.period else ""
    return [*head, f"{near.corpus}, {near.ngpu} workers{period}, minibatch {near.minibatch}, {near.optimizer}", written(near.wer, 2, "+"),
            written(near.loss, 4, "+"), str(near.wer.n), risk.warning]
