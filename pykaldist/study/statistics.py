"""What results say: means with intervals, contrasts of cells, and whether an effect is resolved.

Seeds. A seed gives the same initial weights and order of frames to every cell. So a contrast (a weighted sum of cells) is computed within
each seed. With n seeds of mean m and standard deviation s, the effect lies with 95 % confidence in  m +- t s / sqrt(n),  t the quantile of
Student's distribution with n - 1 degrees of freedom (a paired test over seeds, where the contrast is a difference).

Utterances. More seeds do not make the test set larger. The contrast of an utterance's errors, the mean over seeds, has a standard error
over utterances, u (Gillick & Cox, 1989; `score.significance`). What another test set and other seeds would give lies in
m +- t sqrt(s^2/n + u^2).  Both errors are estimates: t has the degrees of freedom of Welch and Satterthwaite, with U utterances
(s^2/n + u^2)^2 / ((s^2/n)^2 / (n - 1) + u^4 / (U - 1)),  which lie between n - 1, where seeds make the error, and n + U - 2.

Looks. Seeds are added until an effect is resolved, from three to eight of them, so that there are up to six tests of one effect. It is
resolved where p < 0.0142: then all six together find an effect that is not there in 5 of 100 studies (Pocock, "Group sequential methods
in the design and analysis of clinical trials", Biometrika 1977). Otherwise it is smaller than the farther end of the 95 % interval. The
smallest effect that such data resolve in four of five studies is  (t + t') sqrt(s^2/n + u^2),  t the quantile for 0.0142, t' that of 0.8.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from pykaldist.score.significance import matched_differences
from pykaldist.study.results import Result

LEVEL, POWER = 0.95, 0.8
RESOLVED = 0.0142  # p below which an effect is resolved


@dataclass(frozen=True)
class Estimate:
    """A mean over n seeds, its standard error over seeds, and that over so many utterances (0: not of utterances)."""

    mean: float
    n: int
    seeds_error: float
    utterances_error: float = 0.0
    utterances: int = 0

    @property
    def error(self) -> float:
        """The standard error, of seeds and utterances together."""
        return math.hypot(self.seeds_error, self.utterances_error)

    @property
    def freedom(self) -> float:
        """The degrees of freedom of the standard error."""
        if not self.error or self.utterances < 2:
            return self.n - 1
        seeds, utterances = (self.seeds_error / self.error) ** 2, (self.utterances_error / self.error) ** 2
        return 1 / (seeds**2 / (self.n - 1) + utterances**2 / (self.utterances - 1))

    def quantile(self, probability: float) -> float:
        """The quantile of Student's distribution for this error."""
        return float(stats.t.ppf(probability, self.freedom))

    @property
    def half(self) -> float:
        """Half of the 95 % interval; infinite with fewer than two seeds."""
        return self.quantile((1 + LEVEL) / 2) * self.error if self.n > 1 else math.inf

    @property
    def p(self) -> float:
        """The probability, if there is no effect, of a mean as far from zero, either way."""
        if self.n < 2:
            return 1.0
        if not self.error:
            return float(self.mean == 0)
        return float(2 * stats.t.sf(abs(self.mean) / self.error, self.freedom))

    @property
    def resolved(self) -> bool:
        """Whether there is an effect, whatever the number of looks at it."""
        return self.p < RESOLVED

    @property
    def bound(self) -> float:
        """What the effect is smaller than, either way, with 95 % confidence."""
        return abs(self.mean) + self.half

    @property
    def smallest(self) -> float:
        """The smallest effect that such data resolve in four of five studies."""
        return (self.quantile(1 - RESOLVED / 2) + self.quantile(POWER)) * self.error if self.n > 1 else math.inf


def over_seeds(values: Sequence[float], utterances_error: float = 0.0, utterances: int = 0) -> Estimate:
    """The mean of one value a seed. Raises ValueError for no value."""
    found = np.array(values, dtype=np.float64)
    if not len(found):
        raise ValueError("no value")
    return Estimate(float(found.mean()), len(found), float(found.std(ddof=1)) / math.sqrt(len(found)) if len(found) > 1 else 0.0,
                    utterances_error, utterances)


def common_seeds(weights: Mapping[str, float], cells: Mapping[str, Mapping[int, Result]]) -> list[int]:
    """The seeds with which every cell of a contrast was trained to an end."""
    return sorted(set.intersection(*({seed for seed, one in cells[name].items() if not one.diverged} for name in weights)))


def contrast_of_wers(weights: Mapping[str, float], cells: Mapping[str, Mapping[int, Result]]) -> Estimate | None:
    """A contrast of word error rates, in points; `cells` has the results of each cell by seed. None where no seed is common to all."""
    seeds = common_seeds(weights, cells)
    if not seeds:
        return None
    counts = np.array([sum(weight * cells[name][seed].error_counts for name, weight in weights.items()) for seed in seeds])
    words = cells[next(iter(weights))][seeds[0]].words
    return over_seeds(100 * counts.sum(axis=1) / words, matched_differences(counts.mean(axis=0), words).error, counts.shape[1])


def contrast_of_losses(weights: Mapping[str, float], cells: Mapping[str, Mapping[int, Result]]) -> Estimate | None:
    """A contrast of held-out losses. None where no seed is common to all."""
    seeds = common_seeds(weights, cells)
    return over_seeds([sum(weight * cells[name][seed].loss for name, weight in weights.items()) for seed in seeds]) if seeds else None


def written(estimate: Estimate, digits: int, sign: str = "") -> str:
    """A mean ± half of its interval, which one seed has not."""
    half = f" ± {estimate.half:.{digits}f}" if math.isfinite(estimate.half) else ""
    return f"{estimate.mean:{sign}.{digits}f}{half}"


def verdict(estimate: Estimate, expected: str, fewest: int, unit: str, digits: int = 2) -> str:
    """What an estimate says of a claim which expects `more`, `less` or `alike`, in words."""
    if estimate.n < fewest:
        return f"{estimate.n} of {fewest} seeds"
    if not estimate.resolved:
        return f"not resolved, smaller than {estimate.bound:.{digits}f}{unit}"
    sign = "more" if estimate.mean > 0 else "less"
    holds = "as claimed" if sign == expected else "they differ" if expected == "alike" else "the opposite"
    return f"resolved, {holds}: {estimate.mean:+.{digits}f}{unit}"


def settled(estimate: Estimate | None, margin: float, fewest: int) -> bool:
    """Whether more seeds are not worth their time: the effect is resolved, or smaller than a margin of interest, or utterances limit it.

    The last is so where seeds would narrow the interval by less than a tenth, if they were without end.
    """
    if estimate is None or estimate.n < fewest:
        return False
    return estimate.resolved or estimate.bound < margin or estimate.utterances_error > 0.9 * estimate.error > 0
