"""The ranks of the workers that live: a list in ascending order in which a rank is found in logarithmic time."""

from __future__ import annotations

import bisect
import sys
from typing import SupportsIndex


class Ranks(list[int]):
    """Ranks in ascending order. Whoever changes them keeps the order (`bisect.insort`, `remove`)."""

    def __contains__(self, rank: object) -> bool:
        return isinstance(rank, int) and self._place(rank) is not None

    def index(self, rank: int, start: SupportsIndex = 0, stop: SupportsIndex = sys.maxsize) -> int:
        place = self._place(rank)
        if place is None or place not in range(*slice(start, stop).indices(len(self))):
            raise ValueError(f"{rank} is not among the ranks")
        return place

    def _place(self, rank: int) -> int | None:
        place = bisect.bisect_left(self, rank)
        return place if place < len(self) and self[place] == rank else None
