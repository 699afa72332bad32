"""Which utterances are held out from training for cross-validation."""

from __future__ import annotations

import random

from pykaldist.errors import UserError
from pykaldist.io.datadir import DataDir

MIN_SPEAKERS = 10  # with fewer, whole speakers are too coarse a unit


def hold_out(data: DataDir, percent: float, seed: int) -> set[str]:
    """About `percent` % of the utterances: whole speakers where there are ten or more, else single utterances.

    Raises UserError where one of the two sets would be empty.
    """
    groups = list(data.spk2utt.values()) if len(data.spk2utt) >= MIN_SPEAKERS else [[utt] for utt in data.utterances()]
    random.Random(seed).shuffle(groups)
    wanted = percent / 100 * len(data.utt2spk)
    held: set[str] = set()
    for group in groups:
        if len(held) + len(group) / 2 > wanted and held:
            break
        held.update(group)
    if percent <= 0 or len(held) == len(data.utt2spk):
        raise UserError(f"{data.path}: holding out {percent:g} % of {len(data.utt2spk)} utterances leaves a set empty; "
                        "use --cv-percent between 1 and 50, or more data.")
    return held
