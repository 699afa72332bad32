"""Conversion of phones in time to transition_ids: the frames of each phone are shared equally among the states of its HMM.

That is what can be said where a source knows phones only: no acoustic evidence is used inside a phone, as in Kaldi's flat start. The
path goes through as many states as the phone has frames for, in the order of the topology, the earlier states getting the odd frames.
A phone with fewer frames than any path takes has the last of its states: such a label is not a path of the HMM, but says the right
phone, and a pdf of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pykaldist.hmm.lang.topology import Entry, read_topology
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.hmm.tree.tree import monophone_tree
from pykaldist.io.lang import LangDir


class PhoneStates:
    """A monophone system of `lang` (`tree`, `model`, as train_mono begins with), and `transition_ids` by equal division.

    `too_short` counts the phones so far that had fewer frames than their HMM takes.
    """

    def __init__(self, lang: LangDir) -> None:
        topology = read_topology(lang.file("topo"))
        self.tree = monophone_tree(lang.phone_sets, topology.num_pdf_classes)
        self.model = TransitionModel.from_tree(self.tree, topology)
        self.too_short = 0
        self._known: dict[tuple[int, int], np.ndarray] = {}

    def transition_ids(self, phones: Sequence[int], frames: Sequence[int]) -> np.ndarray:
        """The transition_ids (sum of `frames`,) int32 of phones that have so many frames each.

        They are in Kaldi's order: self-loops behind the transition out of the state.
        """
        parts = []
        for phone, count in zip(phones, frames, strict=True):
            self.too_short += 0 < count < self.model.topology.min_length(phone)
            if (phone, count) not in self._known:
                self._known[phone, count] = self._of_phone(phone, count)
            parts.append(self._known[phone, count])
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int32)

    def _of_phone(self, phone: int, frames: int) -> np.ndarray:
        path = state_path(self.model.topology.entry(phone), frames)
        shares = [frames // len(path) + (k < frames % len(path)) for k in range(len(path))] if path else []
        ways_out = [*path[1:], len(self.model.topology.entry(phone)) - 1]
        tids: list[int] = []
        for state, to, share in zip(path, ways_out, shares, strict=True):
            rows = np.flatnonzero((self.model.tid2phone == phone) & (self.model.tid2hmm_state == state))
            forward = rows[self.model.tid2destination[rows] == to]
            way_out = int(forward[0] if len(forward) else rows[-1])  # of a phone too short: the transition that goes furthest
            loop = int(self.model.state2self_loop[self.model.tid2state[way_out]])
            tids += [way_out] + [loop or way_out] * (share - 1)
        return np.array(tids, dtype=np.int32)


def state_path(entry: Entry, frames: int) -> list[int]:
    """The states of the longest path through `entry` in rising order that takes at most `frames` frames.

    If there is none, the last `frames` emitting states.
    """
    final = len(entry) - 1
    best: dict[int, list[list[int]]] = {0: [[0]]}  # state -> for each length, a path to it
    for state in range(1, final + 1):
        by_length: dict[int, list[int]] = {}
        for before in range(state):
            if any(to == state for to, _ in entry[before].transitions):
                for path in best.get(before, []):
                    by_length.setdefault(len(path) + 1, [*path, state])
        best[state] = list(by_length.values())
    fitting = [path[:-1] for path in best[final] if len(path) - 1 <= frames]
    return max(fitting, key=len) if fitting else list(range(final))[max(0, final - frames):]
