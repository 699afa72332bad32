"""The choice of the utterances that are held out from training for cross-validation."""

from __future__ import annotations

import random

from pykaldist.errors import UserError
from pykaldist.io.datadir import DataDir

HELD_OUT, HELD_OUT_PERCENT = 300, 2.5  # utterances, at most, and the share of them in a small corpus
MIN_SPEAKERS = 10  # with fewer, whole speakers are too coarse a unit


def held_out_percent(data: DataDir, number: int = 0) -> float:
    """The share of a data directory's utterances that makes about `number`; without one, `HELD_OUT_PERCENT`, and no more than `HELD_OUT`.

    It is that of Kaldi's nnet3 scripts, which hold out 300 utterances. Perturbed copies do not count.
    """
    originals = sum(utt == uniq for utt, uniq in data.utt2uniq.items())
    return 100 * number / originals if number else min(HELD_OUT_PERCENT, 100 * HELD_OUT / originals)


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
