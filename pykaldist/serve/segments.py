"""Where a long recording is cut into utterances: in its pauses, which are found by their energy.

With q(p) the quantiles of the log energies of all frames (25 ms, one every 10 ms), a frame is loud where its own is above

    q(0.1) + max(MARGIN, SHARE (q(0.95) - q(0.1))),

so that neither the level of the recording nor that of its noise is asked for. (While a recording still comes, the level of noise that was
heard before stands in place of q(0.1) where it is the lower one.) Loud frames that are less than PAUSE apart are one utterance, those of
less than SHORTEST none; an utterance has PAD of what is around it on each side. One that is longer than allowed is cut where it is
quietest, in the second half of what is allowed.
"""

from __future__ import annotations

import numpy as np

UNITS, HALF_SHIFT = 5, 0.005  # a frame is 5 units of 5 ms, as whole samples; the next one begins 2 units later
MARGIN, SHARE = 2.0, 0.25  # 2 is a factor of 7.4 in energy
PAUSE, SHORTEST, PAD = 0.6, 0.1, 0.2  # seconds
SMOOTHED = 21  # frames over which the quietest place is looked for
FLOOR = 1.0  # of the energy of a frame, in 16-bit scale


def log_energies(samples: np.ndarray, rate: int) -> tuple[np.ndarray, float]:
    """The log energy of each frame, its mean subtracted, none where there is not one whole frame; and the seconds from frame to frame."""
    unit = round(HALF_SHIFT * rate)
    parts = samples[:len(samples) // unit * unit].reshape(-1, unit)
    if len(parts) < UNITS:
        return np.zeros(0), 2 * unit / rate
    sums, squares = parts.sum(1, dtype=np.float64), np.einsum("ij,ij->i", parts, parts, dtype=np.float64)
    of_frames = [np.lib.stride_tricks.sliding_window_view(x, UNITS)[::2].sum(1) for x in (sums, squares)]
    return np.log(np.maximum(of_frames[1] - of_frames[0] ** 2 / (UNITS * unit), FLOOR)), 2 * unit / rate


def noise_of(energies: np.ndarray) -> float:
    """The level of the noise in frames: q(0.1)."""
    return float(np.quantile(energies, 0.1)) if len(energies) else np.inf


def loud_frames(energies: np.ndarray, noise: float = np.inf) -> np.ndarray:
    """Which frames are loud; `noise` is a level that was heard before."""
    if not len(energies):
        return np.zeros(0, bool)
    low, high = min(noise, noise_of(energies)), float(np.quantile(energies, 0.95))
    return energies > low + max(MARGIN, SHARE * (high - low))


def utterances_of(samples: np.ndarray, rate: int, longest: float, noise: float = np.inf) -> list[tuple[float, float]]:
    """Begin and end, in seconds, of the utterances of a recording, none of them longer than `longest` seconds."""
    energies, shift = log_energies(samples, rate)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], loud_frames(energies, noise), [False]]).astype(np.int8)))
    begins, ends = edges[::2], edges[1::2]
    if not len(begins):
        return []
    apart = (begins[1:] - ends[:-1]) * shift >= PAUSE
    first, last = begins[np.append(True, apart)], ends[np.append(apart, True)]
    found: list[tuple[float, float]] = []
    for begin, end in zip((shift * first).tolist(), (shift * (last - 1) + UNITS * HALF_SHIFT).tolist(), strict=True):
        if end - begin >= SHORTEST:
            found += _cut(max(0.0, begin - PAD), min(len(samples) / rate, end + PAD), energies, shift, longest)
    return found


def _cut(begin: float, end: float, energies: np.ndarray, shift: float, longest: float) -> list[tuple[float, float]]:
    """An utterance in parts that are not longer than allowed."""
    found = []
    while end - begin > longest:
        first, last = round((begin + longest / 2) / shift), min(round((begin + longest) / shift), len(energies))
        level = np.convolve(energies[first:last], np.ones(SMOOTHED), "valid")
        place = (first + SMOOTHED // 2 + int(np.argmin(level))) * shift
        found.append((begin, place))
        begin = place
    return [*found, (begin, end)]
