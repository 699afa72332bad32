"""Word error rate with the semantics, ties and formats of Kaldi's compute-wer.

The number of errors is the Levenshtein distance. Where several alignments reach it, how they split into insertions, deletions and
substitutions is a matter of preference: compute-wer takes a substitution (or match) only where it is strictly better than both others,
and a deletion only where strictly better than an insertion; align-text (alignment.py) has another preference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pykaldist.errors import UserError
from pykaldist.kernels import kernel, python_of


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
def _edit_counts(ref: Any, hyp: Any, row: Any) -> tuple[int, int, int]:
    """Count (insertions, deletions, substitutions) as Kaldi's LevenshteinEditDistance does.

    `row` is memory: for each prefix of `ref` its total, insertions, deletions and substitutions; an array, or lists where Python runs this.
    """
    n = len(ref)
    for i in range(n + 1):
        row[i][0] = row[i][2] = i
    for h in hyp:
        diagonal = row[0].copy()
        row[0][0] += 1
        row[0][1] += 1
        for i in range(1, n + 1):
            above = row[i].copy()
            insertion, deletion = above[0] + 1, row[i - 1][0] + 1
            substitution = diagonal[0] + (ref[i - 1] != h)
            if substitution < insertion and substitution < deletion:
                row[i][:] = diagonal
                row[i][3] += ref[i - 1] != h
                row[i][0] = substitution
            elif deletion < insertion:
                row[i][:] = row[i - 1]
                row[i][2] += 1
                row[i][0] = deletion
            else:
                row[i][1] += 1
                row[i][0] = insertion
            diagonal = above
    return row[n][1], row[n][2], row[n][3]


def edit_counts(ref: Sequence[str], hyp: Sequence[str]) -> tuple[int, int, int]:
    """Count (insertions, deletions, substitutions) that turn `ref` into `hyp`, as compute-wer counts."""
    python = python_of(_edit_counts, False)
    if python is not None:
        return python(ref, hyp, [[0, 0, 0, 0] for _ in range(len(ref) + 1)])
    import numpy as np  # here and not above: a program that scores a few sentences starts faster without it

    from pykaldist.score.alignment import numbers

    first, second = numbers(ref, hyp)
    ins, dels, subs = _edit_counts(first, second, np.zeros((len(ref) + 1, 4), np.int64))
    return int(ins), int(dels), int(subs)


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
