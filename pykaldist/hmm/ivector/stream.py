"""i-vectors of features that still come, from memory that does not grow: those of `online.py`, at the frames where they are asked for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pykaldist.feats.cmvn import cmvn_stats
from pykaldist.hmm.ivector.online import OnlineExtractor, SpeakerState
from pykaldist.hmm.ivector.posteriors import frame_posteriors

Changes = Callable[[int], tuple[np.ndarray, np.ndarray]]


class IvectorStream:
    """One utterance on its way through an extractor. A frame counts when its neighbours of the splicing have come.

    `remembered`: frames that stay in memory after they have counted, because their weights may change. `changes` says, for the number of
    frames that can count, those whose weights change and by how much; without it each frame counts once.
    """

    def __init__(self, extract: OnlineExtractor, speaker: SpeakerState, where: str = "features", remembered: int = 0) -> None:
        self._extract, self._speaker, self._where, self._remembered = extract, speaker, where, remembered
        self._left, self._right = extract.features.splice.left_context, extract.features.splice.right_context
        self._most = extract.features.cmvn.cmn_window + self._left
        self._tail: np.ndarray | None = None  # the frames that normalisation and splicing of the next one need
        self._waiting = 0  # the last of them, which do not count yet
        self._counted = 0
        self._normalised = self._feats = np.zeros((0, 0), np.float32)  # of the last frames that have counted
        self._cmvn: np.ndarray | None = None
        self._latest = np.zeros((1, extract.extractor.dim), np.float32)

    def accept(self, feats: np.ndarray, changes: Changes | None = None) -> np.ndarray:
        """Take the next frames (T, D); returns the i-vector (1, K) of what was heard so far, float32."""
        if not len(feats):
            return self._latest
        own = cmvn_stats([feats])
        self._cmvn = own if self._cmvn is None else self._cmvn + own
        self._tail = feats if self._tail is None else np.concatenate([self._tail, feats])
        self._waiting += len(feats)
        self._count(self._waiting - self._right, changes)
        return self._latest

    def finish(self, changes: Changes | None = None) -> np.ndarray:
        """End the utterance; returns its i-vector. What it leaves for the speaker's next one goes into the speaker's state."""
        self._count(self._waiting, changes)
        if self._cmvn is not None:
            self._extract.remember(self._speaker, self._cmvn)
        return self._latest

    def _count(self, frames: int, changes: Changes | None) -> None:
        """Add so many of the waiting frames to the statistics, and what changes of those before; estimate the i-vector."""
        if frames <= 0 or self._tail is None:
            return
        begin = len(self._tail) - self._waiting
        rows = slice(begin, begin + frames)
        normalised = self._extract.features.normalised(self._tail, self._where, self._speaker.cmvn)[rows]
        feats = normalised if self._extract.normalised_input else self._extract.features.spliced(self._tail, self._where)[rows]
        self._counted += frames
        self._waiting -= frames
        self._tail = self._tail[max(0, len(self._tail) - self._waiting - self._most):]
        weights = None
        if changes is not None:
            self._normalised, self._feats = (new if not len(kept) else np.concatenate([kept[-self._remembered:], new])
                                             for kept, new in ((self._normalised, normalised), (self._feats, feats)))
            changed, weights = changes(self._counted)
            if not len(changed):
                return
            places = changed - (self._counted - len(self._feats))
            normalised, feats = self._normalised[places], self._feats[places]
        posteriors = frame_posteriors(self._extract.ubm, normalised, self._extract.posteriors, weights)
        self._latest = self._extract.after(feats, posteriors, self._speaker.stats, self._latest)
