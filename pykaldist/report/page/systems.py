"""The word error rates of the page: of every scored system, over its sweep, by group of utterances, and beside the other systems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pykaldist.errors import UserError
from pykaldist.report.table import SEED, System
from pykaldist.score.bootstrap import probability_of_improvement, wer_interval
from pykaldist.score.significance import matched_pairs
from pykaldist.score.wer import GAP

CONFUSIONS = 200  # pairs of words that are shown
Pairs = list[tuple[str, str]]
"""Aligned words of an utterance: (of the reference, recognised), `***` in a gap."""


def read_alignments(per_utt: Path) -> dict[str, Pairs]:
    """Read the aligned words of each utterance from `scoring_kaldi/wer_details/per_utt`; raises UserError where its rows do not fit."""
    rows: dict[str, dict[str, list[str]]] = {}
    for line in per_utt.read_text(encoding="utf-8").splitlines():
        fields = line.split()
        if len(fields) >= 2 and fields[1] in ("ref", "hyp"):
            rows.setdefault(fields[0], {})[fields[1]] = fields[2:]
    for utt, row in rows.items():
        if len(row.get("ref", ())) != len(row.get("hyp", ())):
            raise UserError(f"{per_utt}, {utt}: expected as many words behind ref as behind hyp; score again (steps/score_kaldi.sh).")
    return {utt: list(zip(row["ref"], row["hyp"], strict=True)) for utt, row in rows.items() if "ref" in row}


def counted(pairs: Pairs) -> tuple[int, int, int, int]:
    """The numbers of words of the reference, substitutions, insertions and deletions of an utterance."""
    insertions = sum(ref == GAP for ref, _ in pairs)
    deletions = sum(hyp == GAP for _, hyp in pairs)
    wrong = sum(ref != hyp for ref, hyp in pairs)
    return len(pairs) - insertions, wrong - insertions - deletions, insertions, deletions


@dataclass
class Sweep:
    """The WER in % at each penalty (rows) and language model weight (columns); None where a point has none."""

    lmwts: list[int]
    penalties: list[str]
    wers: list[list[float | None]]


def read_sweep(decode_dir: Path) -> Sweep:
    """Read the sweep of a scored decode directory from its files `wer_<lmwt>_<penalty>`."""
    wers: dict[tuple[int, str], float] = {}
    for path in decode_dir.glob("wer_*_*"):
        _, lmwt, penalty = path.name.split("_", 2)
        fields = path.read_text(encoding="utf-8").split()
        if lmwt.isdigit() and fields[:1] == ["%WER"]:
            wers[int(lmwt), penalty] = float(fields[1])
    lmwts = sorted({lmwt for lmwt, _ in wers})
    penalties = sorted({penalty for _, penalty in wers}, key=float)
    return Sweep(lmwts, penalties, [[wers.get((lmwt, penalty)) for lmwt in lmwts] for penalty in penalties])


def confusions(alignments: Mapping[str, Pairs]) -> list[tuple[str, str, int]]:
    """How often a word was taken for another one, put in or left out: (reference, recognised, count), the most frequent first."""
    counts = Counter(pair for pairs in alignments.values() for pair in pairs if pair[0] != pair[1])
    ordered = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    return [(ref, hyp, count) for (ref, hyp), count in ordered[:CONFUSIONS]]


def by_group(alignments: Mapping[str, Pairs], groups: Mapping[str, str]) -> list[list[Any]]:
    """[group, utterances, words, substitutions, insertions, deletions] of each group of utterances, in order of names."""
    sums: dict[str, np.ndarray] = {}
    for utt, pairs in alignments.items():
        if utt in groups:
            sums[groups[utt]] = sums.get(groups[utt], np.zeros(5, np.int64)) + np.array([1, *counted(pairs)])
    return [[name, *row.tolist()] for name, row in sorted(sums.items())]


def by_length(alignments: Mapping[str, Pairs]) -> list[list[Any]]:
    """As `by_group`, of utterances with as many words in the reference."""
    lengths = {utt: counted(pairs)[0] for utt, pairs in alignments.items()}
    digits = len(str(max(lengths.values(), default=0)))
    rows = by_group(alignments, {utt: f"{words:0{digits}d}" for utt, words in lengths.items()})
    return [[str(int(row[0])), *row[1:]] for row in rows]


def interval(system: System) -> list[float] | None:
    """The bounds of a system's WER in %, None without details."""
    return None if system.counts is None else list(wer_interval(system.counts, np.random.default_rng(SEED)))


def beside_others(found: Sequence[System]) -> list[list[dict[str, float] | None]]:
    """How each system (columns) does beside each one (rows) on the same utterances: difference of WER, p, share of drawn test sets."""
    return [[_beside(first, second) for second in found] for first in found]


def _beside(first: System, second: System) -> dict[str, float] | None:
    if first is second or first.counts is None or second.counts is None or set(first.counts.utts) != set(second.counts.utts):
        return None
    test = matched_pairs(first.counts, second.counts)
    better = probability_of_improvement(first.counts, second.counts, np.random.default_rng(SEED))
    return {"difference": test.difference, "p": test.p, "better": better}
