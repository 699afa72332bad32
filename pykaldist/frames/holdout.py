"""The choice of the utterances that are held out from training for cross-validation."""

from __future__ import annotations

import random

from pykaldist.errors import UserError
from pykaldist.io.datadir import DataDir

MIN_SPEAKERS = 10  # with fewer, whole speakers are too coarse a unit


def hold_out(data: DataDir, percent: float, seed: int) -> set[str]:
    """Choose about `percent` % of the utterances: whole speakers where there are ten or more, else single utterances.

    Perturbed copies (utt2uniq) are never held out, nor counted. Raises UserError where one of the two sets would be empty.
    """
    originals = {utt for utt, uniq in data.utt2uniq.items() if utt == uniq}
    speakers = [kept for utts in data.spk2utt.values() if (kept := [utt for utt in utts if utt in originals])]
    groups = speakers if len(speakers) >= MIN_SPEAKERS else [[utt] for utts in speakers for utt in utts]
    random.Random(seed).shuffle(groups)
    wanted = percent / 100 * len(originals)
    held: set[str] = set()
    for group in groups:
        if len(held) + len(group) / 2 > wanted and held:
            break
        held.update(group)
    if percent <= 0 or len(held) == len(originals):
        raise UserError(f"{data.path}: holding out {percent:g} % of {len(originals)} utterances leaves a set empty; "
                        "use --cv-percent between 1 and 50, or more data.")
    return held
