"""The learning rate of each cell, found by the same search with the same number of tries, by the held-out loss of one seed alone.

The search begins with two rates, a factor of two apart, and goes on in that direction in which the loss falls, until a rate has a worse one
on both sides, or the tries are used up. A training that diverged has an infinite loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

TRIES = 5
FACTOR = 2.0


@dataclass(frozen=True)
class Search:
    """Where a search stands: the best rate so far (None before the first), the next to try (None: it has ended).

    `bracketed`: whether the best rate has a worse one on both sides.
    """

    best: float | None
    next: float | None
    bracketed: bool


def rate_at(first: float, step: int) -> float:
    """The rate so many steps above the first one, rounded so that it is written the same everywhere."""
    return float(f"{first * FACTOR**step:.6g}")


def search(first: float, losses: Mapping[float, float], tries: int = TRIES) -> Search:
    """The state of a search from `first`, given the held-out loss of each rate that was tried; without tries, `first` is the rate."""
    if tries == 0:
        return Search(rate_at(first, 0), None, True)
    tried = {step: losses[rate] for step in range(-tries, tries + 1) if (rate := rate_at(first, step)) in losses}
    if 0 not in tried:
        return Search(None, rate_at(first, 0), False)
    best = min(tried, key=lambda step: (tried[step], step))
    around = [step for step in (best + 1, best - 1) if step not in tried]
    if not around or len(tried) >= tries:
        return Search(rate_at(first, best), None, not around)
    return Search(rate_at(first, best), rate_at(first, around[0]), False)
