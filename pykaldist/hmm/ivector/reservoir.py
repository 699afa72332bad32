"""A sample of frames that come one after the other, of whatever number: each of them is in it with the same probability.

The first n frames fill it. Frame number t, counted from 1, then takes a random place of t, and stays where this is one of the n: with
probability n / t. A frame that was in it before is still there with probability n / (t - 1) (1 - 1 / t) = n / t as well. Source: Vitter,
"Random sampling with a reservoir", ACM Trans. Math. Softw. 11 (1985), algorithm R, as in Kaldi's gmm-global-init-from-feats.
"""

from __future__ import annotations

import numpy as np


class Reservoir:
    """At most `size` frames, chosen at random by `rng` of those that are added."""

    def __init__(self, size: int, rng: np.random.Generator) -> None:
        self._size, self._rng, self._seen = size, rng, 0
        self._rows = np.zeros((0, 0), np.float32)

    def add(self, frames: np.ndarray) -> None:
        """Choose among these frames (T, D), and those before."""
        if not self._seen:
            self._rows = np.empty((self._size, frames.shape[1]), frames.dtype)
        free = min(max(0, self._size - self._seen), len(frames))
        self._rows[self._seen:self._seen + free] = frames[:free]
        rest = frames[free:]
        self._seen += len(frames)
        if len(rest):
            places = self._rng.integers(0, np.arange(self._seen - len(rest), self._seen) + 1)
            stay = np.flatnonzero(places < self._size)
            self._rows[places[stay]] = rest[stay]  # of two that take one place the later one stays

    @property
    def rows(self) -> np.ndarray:
        """The chosen frames; all of them, in their order, where there are not more than `size`."""
        return self._rows[:self._seen]
