"""Whether two systems differ by more than chance, by the matched-pairs test on utterances.

Both systems recognise the same utterances. The difference of their errors in an utterance has, if neither is better, the mean 0; its mean
over n utterances, over the standard error of that mean, is then about normally distributed (Gillick & Cox, "Some statistical issues in the
comparison of speech recognition algorithms", ICASSP 1989). An utterance is a segment: errors of one do not depend on those of others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pykaldist.errors import UserError
from pykaldist.score.bootstrap import UtteranceCounts


@dataclass
class MatchedPairs:
    """The outcome of a test: `difference` is the WER of the second system less that of the first, in points; `p` is two-sided.

    `error` is the standard error of the difference, in points.
    """

    difference: float
    error: float
    z: float
    p: float


def matched_pairs(first: UtteranceCounts, second: UtteranceCounts) -> MatchedPairs:
    """Test whether `second` makes more or fewer errors than `first`; raises UserError where they were scored on different utterances."""
    errors = dict(zip(first.utts, first.errors.tolist(), strict=True))
    if errors.keys() != set(second.utts):
        raise UserError("two systems were scored on different utterances, so that they cannot be compared; score both on one test set "
                        "(steps/score_kaldi.sh).")
    return matched_differences(second.errors - np.array([errors[utt] for utt in second.utts]), int(second.words.sum()))


def matched_differences(differences: np.ndarray, words: int) -> MatchedPairs:
    """Test the differences of errors of each utterance, in a test set of so many words."""
    total, n = differences.sum().item(), len(differences)
    spread = float(differences.std(ddof=1)) * math.sqrt(n) if n > 1 else 0.0
    z = total / spread if spread else 0.0 if total == 0 else math.copysign(math.inf, total)
    points = 100 / max(words, 1)
    return MatchedPairs(points * total, points * spread, z, math.erfc(abs(z) / math.sqrt(2)))
