"""The order in which trainings are done: what is begun is finished before anything else begins.

For each claim on each corpus, in the order of the claims: for one contrast after the other, the rates of its cells, then their first
seeds. Where these do not settle them, the cells of those that are open get more seeds, up to the claim's most, before another claim
gets its first. The cells that stand in no contrast come when every claim has had its turn.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from pykaldist.study.claims import Cell, Claim, Contrast
from pykaldist.study.rates import Search, rate_at, search
from pykaldist.study.results import TUNING_SEED, Result, Results, Trial
from pykaldist.study.statistics import Estimate, contrast_of_losses, contrast_of_wers, settled


def options_at(cell: Cell, rate: float) -> str:
    """The options of a cell's training with this learning rate, every option once, in the order of their names; a later one counts."""
    words = cell.options.replace("{rate}", f"{rate:g}").replace("{tenth}", f"{rate / 10:g}").split()
    pairs: dict[str, list[str]] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name = word
            pairs.pop(name, None)
            pairs[name] = []
        else:
            pairs[name].append(word)
    return " ".join(word for name, values in sorted(pairs.items()) for word in (name, *values))


def objective_of(cell: Cell) -> tuple[str, ...]:
    """What a cell's training minimises, as far as its options say: the objective, its boost, and how frames of silence count."""
    words = options_at(cell, cell.first_rate).split()
    return tuple(words[words.index(name) + 1] if name in words else "" for name in ("--objective", "--boost", "--one-silence-class"))


def tries(cell: Cell, corpus: str, results: Results) -> dict[float, Result]:
    """The trainings that were made to find a cell's rate, by the rate."""
    rates = [rate_at(cell.first_rate, step) for step in range(-cell.tries, cell.tries + 1)] if cell.tries else []
    found = {rate: results.get(Trial(corpus, options_at(cell, rate), TUNING_SEED)) for rate in rates}
    return {rate: result for rate, result in found.items() if result is not None}


def search_of(cell: Cell, corpus: str, results: Results) -> Search:
    """Where the search for a cell's learning rate stands."""
    return search(cell.first_rate, {rate: result.loss for rate, result in tries(cell, corpus, results).items()}, cell.tries)


@dataclass(frozen=True)
class Examined:
    """A claim on one corpus, with the results that there are."""

    claim: Claim
    corpus: str
    results: Results

    def seeds_of(self, name: str) -> dict[int, Result]:
        """The results of a cell at its rate, by seed; none before its rate is found."""
        cell = self.claim.cells[name]
        found = search_of(cell, self.corpus, self.results)
        if found.next is not None or found.best is None:
            return {}
        trials = [Trial(self.corpus, options_at(cell, found.best), seed) for seed in range(self.claim.most_seeds)]
        return {trial.seed: self.results[trial] for trial in trials if trial in self.results}

    def estimates(self, contrast: Contrast) -> tuple[Estimate | None, Estimate | None]:
        """A contrast's word error rate and held-out loss; None where a cell has no seed, and of losses where objectives differ."""
        cells = {name: self.seeds_of(name) for name in contrast.weights}
        alike = len({objective_of(self.claim.cells[name]) for name in cells}) == 1
        return contrast_of_wers(contrast.weights, cells), contrast_of_losses(contrast.weights, cells) if alike else None

    def open(self, contrast: Contrast) -> bool:
        """Whether more seeds could still tell something of a contrast's word error rate."""
        return not settled(self.estimates(contrast)[0], contrast.margin, self.claim.fewest_seeds)

    def lacking(self, name: str) -> int:
        """The number of trainings until a cell has its first seeds, if the search for its rate takes all its tries."""
        cell = self.claim.cells[name]
        if search_of(cell, self.corpus, self.results).next is None:
            return max(self.claim.fewest_seeds - len(self.seeds_of(name)), 0)
        return cell.tries - len(self.tries_of(name)) + self.claim.fewest_seeds

    def tries_of(self, name: str) -> list[Result]:
        """The trainings that were made to find a cell's rate."""
        return list(tries(self.claim.cells[name], self.corpus, self.results).values())

    @property
    def begun(self) -> bool:
        """Whether a decisive cell has a training."""
        return any(self.tries_of(name) or self.seeds_of(name) for name in self.claim.decisive)

    def missing(self, names: Iterable[str], seeds: int) -> Iterator[Trial]:
        """The trainings that cells lack until they have so many seeds: the tries for their rates, then seed by seed."""
        ready = []
        for name in names:
            cell = self.claim.cells[name]
            found = search_of(cell, self.corpus, self.results)
            if found.next is not None:
                yield Trial(self.corpus, options_at(cell, found.next), TUNING_SEED)
            elif found.best is not None:
                ready.append(options_at(cell, found.best))
        trials = (Trial(self.corpus, options, seed) for seed in range(seeds) for options in ready)
        yield from (trial for trial in trials if trial not in self.results)

    def more_seeds(self) -> Iterator[Trial]:
        """The next seed of the cells in contrasts that their first seeds have not settled."""
        names = dict.fromkeys(name for contrast in self.claim.contrasts if self.open(contrast) for name in contrast.weights)
        if names:
            fewest = min(len(self.seeds_of(name)) for name in names)
            yield from self.missing(names, min(fewest + 1, self.claim.most_seeds))


def in_order(claims: Sequence[Claim], corpora: Collection[str], results: Results) -> Iterator[Trial]:
    """The trainings that are missing, the most urgent one first; those of corpora that are not here are left out."""
    examined = [Examined(claim, corpus, results) for claim in claims for corpus in claim.corpora if corpus in corpora]
    for one in sorted(examined, key=lambda one: not one.begun):  # stable: in the order of the claims else
        first = dict.fromkeys(trial for contrast in one.claim.contrasts for trial in one.missing(contrast.weights, one.claim.fewest_seeds))
        yield from first or one.more_seeds()
    for one in examined:
        yield from one.missing((name for name in one.claim.cells if name not in one.claim.decisive), one.claim.fewest_seeds)
