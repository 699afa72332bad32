"""Where a long recording is cut into utterances: in its pauses, which are found by their energy.

With q(p) the quantiles of the log energies of all frames (25 ms, one every 10 ms), a frame is loud where its own is above

    q(0.1) + max(MARGIN, SHARE (q(0.95) - q(0.1))),

so that neither the level of the recording nor that of its noise is asked for. Loud frames that are less than PAUSE apart are one
utterance, shorter than SHORTEST none; an utterance has PAD of what is around it on each side. One that is longer than allowed is cut where
it is quietest, in the second half of what is allowed.
"""

from __future__ import annotations

import numpy as np

SHIFT, WINDOW = 0.01, 0.025  # seconds
MARGIN, SHARE = 2.0, 0.25  # 2 is a factor of 7.4 in energy
PAUSE, SHORTEST, PAD = 0.6, 0.1, 0.2  # seconds
SMOOTHED = 21  # frames over which the quietest place is looked for
FLOOR = 1.0  # of the energy of a frame, in 16-bit scale


def log_energies(samples: np.ndarray, rate: int) -> np.ndarray:
    """The log energy of each frame, its mean subtracted; none where there is not one whole frame."""
    shift, window = round(SHIFT * rate), round(WINDOW * rate)
    if len(samples) < window:
        return np.zeros(0)
    sums, squares = (np.concatenate([[0.0], np.cumsum(x)]) for x in (samples.astype(np.float64), samples.astype(np.float64) ** 2))
    begin = np.arange(0, len(samples) - window + 1, shift)
    energy = squares[begin + window] - squares[begin] - (sums[begin + window] - sums[begin]) ** 2 / window
    return np.log(np.maximum(energy, FLOOR))


def loud_frames(energies: np.ndarray) -> np.ndarray:
    """Which frames are loud."""
    if not len(energies):
        return np.zeros(0, bool)
    low, high = np.quantile(energies, [0.1, 0.95])
    return energies > low + max(MARGIN, SHARE * (high - low))


def utterances_of(samples: np.ndarray, rate: int, longest: float) -> list[tuple[float, float]]:
    """Begin and end, in seconds, of the utterances of a recording, none of them longer than `longest` seconds."""
    energies, seconds = log_energies(samples, rate), len(samples) / rate
    edges = np.flatnonzero(np.diff(np.concatenate([[False], loud_frames(energies), [False]]).astype(np.int8)))
    begins, ends = edges[::2], edges[1::2]
    if not len(begins):
        return []
    apart = (begins[1:] - ends[:-1]) * SHIFT >= PAUSE
    first, last = begins[np.append(True, apart)], ends[np.append(apart, True)]
    found: list[tuple[float, float]] = []
    for begin, end in zip(first.tolist(), last.tolist(), strict=True):
        if (end - begin) * SHIFT >= SHORTEST:
            found += _cut(max(0.0, begin * SHIFT - PAD), min(seconds, end * SHIFT + WINDOW - SHIFT + PAD), energies, longest)
    return found


def _cut(begin: float, end: float, energies: np.ndarray, longest: float) -> list[tuple[float, float]]:
    """An utterance in parts that are not longer than allowed."""
    found = []
    while end - begin > longest:
        first, last = round((begin + longest / 2) / SHIFT), min(round((begin + longest) / SHIFT), len(energies))
        smooth = np.convolve(energies[first:last], np.ones(SMOOTHED), "same") if last - first > SMOOTHED else energies[first:last]
        inner = smooth[SMOOTHED // 2: -(SMOOTHED // 2)] if len(smooth) > 2 * SMOOTHED else smooth
        place = (first + (len(smooth) - len(inner)) // 2 + int(np.argmin(inner))) * SHIFT
        found.append((begin, place))
        begin = place
    return [*found, (begin, end)]
