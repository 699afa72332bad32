"""Who speaks an utterance, and the split of speakers among the sets for training, development and testing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

import numpy as np

from pykaldist.errors import UserError

FROM = ("auto", "column", "folder", "recording")
SETS = ("train", "dev", "test")
NO_SPEAKERS = {"audio", "clips", "data", "dev", "eval", "flac", "mp3", "ogg", "recordings", "sph", "test", "train", "val", "valid",
               "validation", "wav", "wave", "wavs"}  # names of folders that are no speaker's


def of_folders(keys: Sequence[str]) -> list[str] | None:
    """The speaker of each file: the first folder on its way in which the files differ; None where they do not."""
    ways = [[part for part in PurePosixPath(key).parts[:-1] if part.lower() not in NO_SPEAKERS] for key in keys]
    for depth in range(max(map(len, ways), default=0)):
        names = [way[depth] if depth < len(way) else "" for way in ways]
        if "" in names:
            return None
        if len(set(names)) > 1:
            return names
    return None


def chosen_shares(text: str) -> tuple[float, float, float]:
    """The option --shares: the parts of the speech for training, development and testing; raises UserError for others."""
    try:
        shares = [float(word) for word in text.split()]
    except ValueError:
        shares = []
    if len(shares) != 3 or min(shares) <= 0 or not np.isfinite(shares).all() or shares[0] < max(shares[1:]):
        raise UserError(f"--shares: expected three numbers above 0 for training, development and testing, the first the largest, such as "
                        f"'80 10 10', found {text!r}.")
    total = sum(shares)
    return shares[0] / total, shares[1] / total, shares[2] / total


def split(seconds: Mapping[str, float], shares: tuple[float, float, float], rng: np.random.Generator) -> dict[str, str]:
    """Divide speakers (or recordings), with the seconds of each, among SETS: name -> set.

    Test and development get speakers in random order as long as each brings their sum nearer to their share of all seconds, and one at
    least: the sum misses the share by no more than half of the longest speaker, or a set has one speaker. The others are for training.

    Raises UserError for fewer than three.
    """
    if len(seconds) < len(SETS):
        raise UserError(f"three sets need three speakers or recordings at least, found {len(seconds)}; give more audio.")
    names = sorted(seconds)
    order = [names[i] for i in rng.permutation(len(names))]
    parts = dict.fromkeys(names, "train")
    total = sum(seconds.values())
    for kept, (name, share) in enumerate((("test", shares[2]), ("dev", shares[1]))):
        free = [one for one in order if parts[one] == "train"]
        goal, found = share * total, 0.0
        taken: list[str] = []
        for one in free:
            if abs(found + seconds[one] - goal) < abs(found - goal) and len(free) - len(taken) > 2 - kept:
                taken.append(one)
                found += seconds[one]
        for one in taken or [min(free, key=lambda one: abs(seconds[one] - goal))]:
            parts[one] = name
    return parts
