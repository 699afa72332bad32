"""Voice activity detection by energy: which frames are speech.

A frame counts as loud where its log energy is above
    threshold + scale * mean log energy of the utterance
and as voiced where at least a given proportion of the frames within `context` of it is loud. Log energy is the first dimension of features
that were made with `--use-energy=true`; C0 does as well. The formulas and defaults are Kaldi's (compute-vad).
"""

from __future__ import annotations

import numpy as np

from pykaldist.errors import UserError


def voiced_frames(log_energy: np.ndarray, threshold: float = 5.0, mean_scale: float = 0.5, context: int = 0,
                  proportion: float = 0.6) -> np.ndarray:
    """Decide which frames are voiced: booleans (T,) for log energies (T,).

    Raises UserError for a negative context, and a proportion that is not between 0 and 1.
    """
    if context < 0:
        raise UserError(f"--vad-frames-context={context} is negative.")
    if not 0.0 < proportion < 1.0:
        raise UserError(f"--vad-proportion-threshold={proportion:g}: expected a number between 0 and 1.")
    if not len(log_energy):
        return np.zeros(0, bool)
    energy = np.asarray(log_energy, np.float32)
    loud = energy > np.float32(threshold + mean_scale * float(energy.sum(dtype=np.float64)) / len(energy))
    before = np.concatenate([[0], np.cumsum(loud)])
    frames = np.arange(len(energy))
    first, stop = np.maximum(frames - context, 0), np.minimum(frames + context + 1, len(energy))
    return before[stop] - before[first] >= (stop - first) * proportion
