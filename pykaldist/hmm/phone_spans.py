"""The phones of an alignment and how long each lasts.

In Kaldi's order ("reordered") the self-loops of an HMM state stand behind the transition out of it, so a phone ends behind the self-loops
that follow its transition to the end of the HMM. Source: Kaldi's hmm/hmm-utils.cc, SplitToPhones.
"""

from __future__ import annotations

import numpy as np

from pykaldist.errors import UserError
from pykaldist.hmm.transition_model import TransitionModel


def phone_spans(model: TransitionModel, transition_ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(phone, frames) of each phone of an alignment, int32; raises UserError for transition-ids that the model has not."""
    tids = np.asarray(transition_ids, np.int64)
    if len(tids) == 0:
        return np.zeros(0, np.int32), np.zeros(0, np.int32)
    if tids.min() < 1 or tids.max() > model.num_transition_ids:
        raise UserError(f"the alignment has transition-ids from {tids.min()} to {tids.max()} where the model has 1 to "
                        f"{model.num_transition_ids}; use the model that made it.")
    forward = np.flatnonzero(~model.tid_is_self_loop[tids])
    starts = forward[1:][model.tid_is_final[tids[forward[:-1]]]]
    starts = np.concatenate([[0], starts]).astype(np.int64)
    return model.tid2phone[tids[starts]].astype(np.int32), np.diff(starts, append=len(tids)).astype(np.int32)
