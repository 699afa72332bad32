"""Word error rate with the semantics, ties and formats of Kaldi's compute-wer, align-text and wer_per_*_details.pl.

The number of errors is the Levenshtein distance. Where several alignments reach it, how they split into insertions, deletions and
substitutions is a matter of preference: compute-wer takes a substitution (or match) only where it is strictly better than both others,
and a deletion only where strictly better than an insertion; align-text prefers a match or substitution, then a deletion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pykaldist.errors import UserError
from pykaldist.kernels import kernel

GAP = "***"


@dataclass
class WerStats:
    """The counts of WER over sentences; `absent` ones have a reference and no hypothesis, and are not scored."""

    words: int = 0
    insertions: int = 0
    deletions: int = 0
    substitutions: int = 0
    sentences: int = 0
    wrong_sentences: int = 0
    absent: int = 0

    @property
    def errors(self) -> int:
        return self.insertions + self.deletions + self.substitutions

    @property
    def wer(self) -> float:
        """Word error rate in percent."""
        return 100 * self.errors / self.words

    def wer_line(self) -> str:
        partial = " [PARTIAL]" if self.absent else ""
        return (f"%WER {self.wer:.2f} [ {self.errors} / {self.words}, {self.insertions} ins, {self.deletions} del, "
                f"{self.substitutions} sub ]{partial}")

    def __str__(self) -> str:
        """The three lines that compute-wer prints."""
        return (f"{self.wer_line()}\n%SER {100 * self.wrong_sentences / self.sentences:.2f} [ {self.wrong_sentences} / {self.sentences} ]\n"
                f"Scored {self.sentences} sentences, {self.absent} not present in hyp.\n")


@kernel
def _edit_counts(ref: np.ndarray, hyp: np.ndarray) -> tuple[int, int, int]:
    """Count (insertions, deletions, substitutions) as Kaldi's LevenshteinEditDistance does."""
    n = len(ref)
    row = np.zeros((n + 1, 4), np.int64)  # total, insertions, deletions, substitutions for each prefix of ref
    for i in range(n + 1):
        row[i, 0] = row[i, 2] = i
    for h in hyp:
        diagonal = row[0].copy()
        row[0, 0] += 1
        row[0, 1] += 1
        for i in range(1, n + 1):
            above = row[i].copy()
            insertion, deletion = above[0] + 1, row[i - 1, 0] + 1
            substitution = diagonal[0] + (ref[i - 1] != h)
            if substitution < insertion and substitution < deletion:
                row[i] = diagonal
                row[i, 3] += ref[i - 1] != h
                row[i, 0] = substitution
            elif deletion < insertion:
                row[i] = row[i - 1]
                row[i, 2] += 1
                row[i, 0] = deletion
            else:
                row[i, 1] += 1
                row[i, 0] = insertion
            diagonal = above
    return row[n, 1], row[n, 2], row[n, 3]


@kernel
def _alignment(ref: np.ndarray, hyp: np.ndarray) -> np.ndarray:
    """Align as Kaldi's LevenshteinAlignment: positions in ref and hyp of each aligned pair, -1 for a gap; int64 [length, 2]."""
    m, n = len(ref), len(hyp)
    cost = np.zeros((m + 1, n + 1), np.int64)
    for i in range(m + 1):
        cost[i, 0] = i
    for j in range(n + 1):
        cost[0, j] = j
    for i in range(1, m + 1):
        for j in range(1, n + 1):
            cost[i, j] = min(cost[i - 1, j - 1] + (ref[i - 1] != hyp[j - 1]), cost[i - 1, j] + 1, cost[i, j - 1] + 1)
    pairs = np.full((m + n, 2), -1, np.int64)
    k, i, j = m + n, m, n
    while i > 0 or j > 0:
        k -= 1
        if i > 0 and j > 0 and cost[i - 1, j - 1] + (ref[i - 1] != hyp[j - 1]) <= min(cost[i - 1, j], cost[i, j - 1]) + 1:
            i, j = i - 1, j - 1
            pairs[k, 0], pairs[k, 1] = i, j
        elif j == 0 or (i > 0 and cost[i - 1, j] <= cost[i, j - 1]):
            i -= 1
            pairs[k, 0] = i
        else:
            j -= 1
            pairs[k, 1] = j
    return pairs[k:]


def _numbers(*sentences: Sequence[str]) -> list[np.ndarray]:
    ids: dict[str, int] = {}
    return [np.array([ids.setdefault(word, len(ids)) for word in words], np.int64) for words in sentences]


def edit_counts(ref: Sequence[str], hyp: Sequence[str]) -> tuple[int, int, int]:
    """Count (insertions, deletions, substitutions) that turn `ref` into `hyp`, as compute-wer counts."""
    ins, dels, subs = _edit_counts(*_numbers(ref, hyp))
    return int(ins), int(dels), int(subs)


def align(ref: Sequence[str], hyp: Sequence[str]) -> list[tuple[str, str]]:
    """Align words as align-text does: pairs, with `***` in a gap."""
    pairs = align_places(ref, hyp)
    return [(ref[i] if i >= 0 else GAP, hyp[j] if j >= 0 else GAP) for i, j in pairs]


def align_places(ref: Sequence[str], hyp: Sequence[str]) -> list[tuple[int, int]]:
    """Align words as `align` does: pairs of places in `ref` and in `hyp`, -1 in a gap."""
    return [(i, j) for i, j in _alignment(*_numbers(ref, hyp)).tolist()]


def compute_wer(refs: Mapping[str, Sequence[str]], hyps: Mapping[str, Sequence[str]], mode: str = "present") -> WerStats:
    """Score hypotheses against references (utterance -> words).

    A reference without hypothesis is left out (`present`), counts as deleted (`all`), or is an error (`strict`). Raises UserError for that,
    where a hypothesis has no reference, where nothing can be scored, and where the references hold no word.
    """
    if not hyps:
        raise UserError("there is no hypothesis to score; did decoding produce lattices?")
    strangers = [utt for utt in hyps if utt not in refs]
    if strangers:
        raise UserError(f"{len(strangers)} utterances, such as {strangers[0]}, have a hypothesis and no reference; "
                        "score against the text of the data directory that was decoded.")
    stats = WerStats()
    for utt, ref in refs.items():
        if utt not in hyps:
            stats.absent += 1
            if mode == "strict":
                raise UserError(f"utterance {utt} has a reference and no hypothesis; --mode=present leaves such ones out.")
            if mode == "present":
                continue
        hyp = hyps.get(utt, ())
        ins, dels, subs = edit_counts(ref, hyp)
        stats.words += len(ref)
        stats.insertions += ins
        stats.deletions += dels
        stats.substitutions += subs
        stats.sentences += 1
        stats.wrong_sentences += list(ref) != list(hyp)
    if stats.words == 0:
        raise UserError("the references of the scored utterances hold no word, so there is no error rate.")
    return stats
