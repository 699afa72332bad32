"""The search for what makes a loss infinite or no number: an utterance of a store whose values are far beyond all others'."""

from __future__ import annotations

import itertools

import numpy as np

from pykaldist.frames.store import FrameStore

FACTOR = 1000.0  # how many times the median of the utterances' largest values is far beyond them


def outlier(store: FrameStore) -> str:
    """A description of the utterance with by far the largest values of features, target features or weights; empty where there is none."""
    for name, array in (("features", store.feats), ("target features", store.target_feats), ("frame weights", store.weights)):
        if array is None:
            continue
        largest = np.array([np.abs(array[first:end]).max(initial=0.0) for first, end in itertools.pairwise(store.offsets)], np.float64)
        worst, usual = int(largest.argmax()), float(np.median(largest))  # argmax takes a value that is no number for the largest
        if not largest[worst] <= FACTOR * usual:
            return f"{store.path}, {store.utts[worst]}: {name} up to {largest[worst]:.3g}, where those of others reach about {usual:.3g}"
    return ""
