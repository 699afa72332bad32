"""The search for what makes a loss infinite or no number: an utterance of a store whose values are far beyond all others'."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pykaldist.frames.store import FrameStore

FACTOR = 1000.0  # how many times the median of the utterances' largest values is far beyond them


def outlier(store: FrameStore) -> str:
    """A description of the utterance with by far the largest values of features, target features or weights; empty where there is none."""
    def beside(array: np.ndarray) -> Callable[[int], np.ndarray]:
        return lambda utt: array[store.starts[utt] : store.starts[utt] + store.offsets[utt + 1] - store.offsets[utt]]

    found = {"features": store.features, **{name: beside(array) for name, array in (("target features", store.target_feats),
                                                                                    ("frame weights", store.weights)) if array is not None}}
    for name, values in found.items():
        largest = np.array([np.abs(values(utt)).max(initial=0.0) for utt in range(len(store.utts))], np.float64)
        worst, usual = int(largest.argmax()), float(np.median(largest))  # argmax takes a value that is no number for the largest
        if not largest[worst] <= FACTOR * usual:
            return f"{store.path}, {store.utts[worst]}: {name} up to {largest[worst]:.3g}, where those of others reach about {usual:.3g}"
    return ""
