"""The choice of the utterances that are held out from training for cross-validation."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Iterable, Iterator

from pykaldist.errors import UserError
from pykaldist.io.datadir import DataDir

HELD_OUT, HELD_OUT_PERCENT = 300, 2.5  # utterances, at most, and the share of them in a small corpus
MIN_SPEAKERS = 10  # with fewer, whole speakers are too coarse a unit


def held_out_percent(data: DataDir, number: int = 0) -> float:
    """The share of a data directory's utterances that makes about `number`; without one, `HELD_OUT_PERCENT`, and no more than `HELD_OUT`.

    It is that of Kaldi's nnet3 scripts, which hold out 300 utterances. Perturbed copies do not count.
    """
    originals = max(1, sum(not data.is_copy(utt) for utt in data.utt2spk))
    return 100 * number / originals if number else min(HELD_OUT_PERCENT, 100 * HELD_OUT / originals)


def hold_out(data: DataDir, percent: float, seed: int) -> set[str]:
    """Choose about `percent` % of the utterances: whole speakers where there are ten or more, else single utterances.

    Perturbed copies (`DataDir.is_copy`) are never held out, nor counted. Raises UserError where one of the two sets would be empty.
    """
    def originals() -> Iterator[list[str]]:
        """Each speaker's utterances that are no copies."""
        return filter(None, ([utt for utt in utts if not data.is_copy(utt)] for _, utts in data.speakers()[1]))

    sizes = array("q", map(len, originals()))
    total, by_speaker = sum(sizes), len(sizes) >= MIN_SPEAKERS
    if not by_speaker:
        sizes = array("q", [1]) * total
    order = array("q", range(len(sizes)))
    random.Random(seed).shuffle(order)
    chosen, held = set[int](), 0
    for group in order:
        if held + sizes[group] / 2 > percent / 100 * total and held:
            break
        chosen.add(group)
        held += sizes[group]
    if percent <= 0 or held == total:
        raise UserError(f"{data.path}: holding out {percent:g} % of {total} utterances leaves a set empty; "
                        "use --cv-percent between 1 and 50, or more data.")
    groups = originals() if by_speaker else ([utt] for utts in originals() for utt in utts)
    return {utt for number, group in enumerate(groups) if number in chosen for utt in group}


def versions(data: DataDir, held: Iterable[str]) -> Callable[[str], bool]:
    """A test for the utterances of `held` and all others of the same original."""
    originals = {data.original(utt) for utt in held}
    return lambda utt: data.original(utt) in originals
