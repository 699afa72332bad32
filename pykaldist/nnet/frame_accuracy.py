"""The accuracy of a transition-id in a frame against the reference alignment, for sMBR and MPE, and the errors of boosted MMI.

With the phone of a transition-id and that of the reference in the frame, and likewise their pdfs:

    smbr    1 where the pdfs are equal, else 0          (state-level minimum Bayes risk)
    mpe     1 where the phones are equal, else 0        (minimum phone error by frames, Kaldi's "mpfe")

Silence phones: with `one_silence_class` any of them stands for any other, and counts 1; without it they count 0 even where they are right.
Boosting (Povey et al., "Boosted MMI for model and feature-space discriminative training", 2008) lowers the cost of an arc by b in each
frame in which its phone is wrong; a silence phone that is wrong counts `max_silence_error` in place of 1 (Kaldi's lattice-boost-ali).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from pykaldist.errors import UserError

CRITERIA = ("smbr", "mpe")


@dataclass
class Phones:
    """What transition-ids stand for: `tid2pdf`, `tid2phone` (int32, index 0 unused), and which phones are silence, `silence` (bool)."""

    tid2pdf: np.ndarray
    tid2phone: np.ndarray
    silence: np.ndarray

    @classmethod
    def of(cls, tid2pdf: np.ndarray, tid2phone: np.ndarray, silence_phones: Iterable[int]) -> Phones:
        """Make it with a list of silence phones; raises UserError for a phone that is not positive."""
        phones = [int(phone) for phone in silence_phones]
        if min(phones, default=1) < 1:
            raise UserError(f"silence phone {min(phones)}: phones are numbered from 1; see phones/silence.csl of the language directory.")
        silence = np.zeros(max(int(tid2phone.max()), *phones, 0) + 1, bool)
        silence[phones] = True
        return cls(tid2pdf, tid2phone, silence)

    def accuracy(self, criterion: str, transition_ids: np.ndarray, reference: np.ndarray, one_silence_class: bool) -> np.ndarray:
        """The accuracy of transition-ids beside those of the reference in the same frames, float64; `criterion` is smbr or mpe."""
        phone, ref_phone = self.tid2phone[transition_ids], self.tid2phone[reference]
        if criterion not in CRITERIA:
            raise ValueError(f"criterion is smbr or mpe, found {criterion!r}")
        equal = phone == ref_phone if criterion == "mpe" else self.tid2pdf[transition_ids] == self.tid2pdf[reference]
        silent = self.silence[phone]
        return (equal | (silent & self.silence[ref_phone]) if one_silence_class else equal & ~silent).astype(np.float64)

    def error(self, transition_ids: np.ndarray, reference: np.ndarray, max_silence_error: float = 0.0) -> np.ndarray:
        """The errors of transition-ids that are boosted, float64."""
        phone = self.tid2phone[transition_ids]
        return np.where(phone == self.tid2phone[reference], 0.0, np.where(self.silence[phone], max_silence_error, 1.0))
