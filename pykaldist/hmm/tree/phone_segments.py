"""Division of an alignment into phones: where each one begins, and how long it is (Kaldi's hmm/hmm-utils.cc, SplitToPhones).

In Kaldi's order the self-loops of a state stand behind its way out, so that a phone ends with the last self-loop behind a transition that
leaves it; in the order of time it ends with that transition. An alignment says itself in which order it is.
"""

from __future__ import annotations

import numpy as np

from pykaldist.errors import UserError
from pykaldist.hmm.tree.transition_model import TransitionModel


def is_reordered(tids: np.ndarray, model: TransitionModel) -> bool:
    """True if self-loops stand behind the transition out of their state (Kaldi's order)."""
    loops = model.tid_is_self_loop[tids]
    changes = np.flatnonzero(model.tid2state[tids[1:]] != model.tid2state[tids[:-1]])
    telling = changes[loops[changes] | loops[changes + 1]]
    if len(telling):
        return bool(loops[telling[0]])
    return bool(len(tids) and not loops[0] and loops[-1])


def phone_segments(tids: np.ndarray, model: TransitionModel) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(phones, first frames, lengths in frames), each int32, of the phones of an alignment (T,).

    A phone that does not come to its end (at the end of the alignment, or where another one begins) counts as one too. Raises UserError
    for transition-ids that the model has not.
    """
    if len(tids) == 0:
        return (np.zeros(0, dtype=np.int32),) * 3
    tids = np.asarray(tids)
    if tids.min() < 1 or tids.max() > model.num_transition_ids:
        raise UserError(f"the alignment has transition-ids from {tids.min()} to {tids.max()} where the model has 1 to "
                        f"{model.num_transition_ids}; use the model that made it.")
    phones, states = model.tid2phone[tids], model.tid2state[tids]
    ends = model.tid_is_final[tids]
    if is_reordered(tids, model):
        loops = model.tid_is_self_loop[tids]
        way_out = np.maximum.accumulate(np.where(loops, -1, np.arange(len(tids))))
        closed = (way_out >= 0) & ends[way_out] & (states[way_out] == states)
        goes_on = np.concatenate([loops[1:] & (states[1:] == states[:-1]), [False]])
        ends = closed & ~goes_on
    ends = ends | np.concatenate([phones[1:] != phones[:-1], [True]])
    starts = np.concatenate([[0], np.flatnonzero(ends)[:-1] + 1]).astype(np.int32)
    return phones[starts], starts, np.diff(np.concatenate([starts, [len(tids)]])).astype(np.int32)
