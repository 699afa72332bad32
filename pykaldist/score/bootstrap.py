"""Confidence intervals of word error rates, by the bootstrap over utterances.

Test sets are drawn from the test set, as many utterances as it has, with replacement; the interval holds the middle 95 % of their WERs
(Bisani & Ney, "Bootstrap estimates for confidence intervals in ASR performance evaluation", ICASSP 2004).

Words of an utterance are recognised together, so utterances are drawn, not words. The utterances of a test set with few speakers are not
independent either: the interval says what other prompts by the same speakers might have given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pykaldist.errors import UserError
from pykaldist.score.wer import edit_counts

REPLICATIONS = 10000
LEVEL = 0.95
BATCH = 100  # replications at once, which bounds the memory


@dataclass
class UtteranceCounts:
    """The numbers of words and errors of each utterance, in one order."""

    utts: list[str]
    words: np.ndarray
    errors: np.ndarray


def read_counts(per_utt: Path) -> UtteranceCounts:
    """Read the counts of `scoring_kaldi/wer_details/per_utt`, from its lines `<utt> #csid <correct> <sub> <ins> <del>`."""
    utts, rows = [], []
    for line in per_utt.read_text(encoding="utf-8").splitlines():
        fields = line.split()
        if len(fields) == 6 and fields[1] == "#csid":
            utts.append(fields[0])
            rows.append([int(n) for n in fields[2:]])
    if not rows:
        raise UserError(f"{per_utt} has no line with #csid; score again (steps/score_kaldi.sh).")
    correct, sub, ins, dels = np.array(rows).T
    return UtteranceCounts(utts, correct + sub + dels, sub + ins + dels)


def resample(counts: Sequence[np.ndarray], generator: np.random.Generator, replications: int = REPLICATIONS) -> np.ndarray:
    """Sums of each of `counts` (a value an utterance) over the same drawn utterances: [replications, len(counts)]."""
    stacked = np.stack(counts, axis=1).astype(np.float64)
    n, sums = len(stacked), []
    for start in range(0, replications, BATCH):
        drawn = generator.integers(n, size=(min(BATCH, replications - start), n))
        sums.append(stacked[drawn].sum(axis=1))
    return np.concatenate(sums)


def wer_interval(counts: UtteranceCounts, generator: np.random.Generator, level: float = LEVEL,
                 replications: int = REPLICATIONS) -> tuple[float, float]:
    """The lower and upper bound of the WER in percent."""
    errors, words = resample([counts.errors, counts.words], generator, replications).T
    lower, upper = np.quantile(100 * errors / np.maximum(words, 1), [(1 - level) / 2, (1 + level) / 2])
    return float(lower), float(upper)


def probability_of_improvement(old: UtteranceCounts, new: UtteranceCounts, generator: np.random.Generator) -> float:
    """The share of the drawn test sets in which `new` has fewer errors than `old`, which is scored on the same utterances.

    Ties count half.
    """
    errors = dict(zip(old.utts, old.errors, strict=True))
    if errors.keys() != set(new.utts):
        raise UserError("two systems were scored on different utterances, so that they cannot be compared; score both on one test set "
                        "(steps/score_kaldi.sh).")
    difference, = resample([np.array([errors[utt] for utt in new.utts]) - new.errors], generator).T
    return float(np.mean(difference > 0) + 0.5 * np.mean(difference == 0))


def bootstrap_lines(counts: Sequence[UtteranceCounts], generator: np.random.Generator, replications: int = REPLICATIONS) -> str:
    """What compute-wer-bootci prints: mean and 95 % interval of the WER, as of a normal distribution; of two systems, which is better."""
    columns = [column for one in counts for column in (one.errors, one.words)]
    sums = resample(columns, generator, replications)
    lines = []
    for i in range(len(counts)):
        wer = 100 * sums[:, 2 * i] / np.maximum(sums[:, 2 * i + 1], 1)
        mean, half = wer.mean(), 1.96 * wer.std()
        lines.append(f"Set{i + 1}: %WER {mean:.2f} 95% Conf Interval [ {mean - half:.2f}, {mean + half:.2f} ]\n")
    if len(counts) == 2:
        lines.append(f"Probability of Set2 improving Set1: {100 * np.mean(sums[:, 0] > sums[:, 2]):.2f}\n")
    return "".join(lines)


def count_errors(refs: Mapping[str, Sequence[str]], hyps: Mapping[str, Sequence[str]]) -> UtteranceCounts:
    """The numbers of words and errors of the utterances that have a reference and a hypothesis."""
    utts = [utt for utt in refs if utt in hyps]
    errors = [sum(edit_counts(refs[utt], hyps[utt])) for utt in utts]
    return UtteranceCounts(utts, np.array([len(refs[utt]) for utt in utts]), np.array(errors))
