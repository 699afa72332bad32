"""i-vectors of features that still come, from memory that does not grow: those of `online.py`, at the frames where they are asked for."""

from __future__ import annotations

import numpy as np

from pykaldist.feats.cmvn import cmvn_stats
from pykaldist.hmm.ivector.online import OnlineExtractor, SpeakerState
from pykaldist.hmm.ivector.posteriors import frame_posteriors


class IvectorStream:
    """One utterance on its way through an extractor. A frame counts when its neighbours of the splicing have come."""

    def __init__(self, extract: OnlineExtractor, speaker: SpeakerState, where: str = "features") -> None:
        self._extract, self._speaker, self._where = extract, speaker, where
        self._left, self._right = extract.features.splice.left_context, extract.features.splice.right_context
        self._most = extract.features.cmvn.cmn_window + self._left
        self._tail: np.ndarray | None = None  # the frames that normalisation and splicing of the next one need
        self._waiting = 0  # the last of them, which do not count yet
        self._cmvn: np.ndarray | None = None
        self._latest = np.zeros((1, extract.extractor.dim), np.float32)

    def accept(self, feats: np.ndarray) -> np.ndarray:
        """Take the next frames (T, D); returns the i-vector (1, K) of what was heard so far, float32."""
        if not len(feats):
            return self._latest
        own = cmvn_stats([feats])
        self._cmvn = own if self._cmvn is None else self._cmvn + own
        self._tail = feats if self._tail is None else np.concatenate([self._tail, feats])
        self._waiting += len(feats)
        self._count(self._waiting - self._right)
        return self._latest

    def finish(self) -> None:
        """End the utterance; what it leaves for the speaker's next one goes into the speaker's state."""
        self._count(self._waiting)
        if self._cmvn is not None:
            self._extract.remember(self._speaker, self._cmvn)

    def _count(self, frames: int) -> None:
        """Add so many of the waiting frames to the statistics, and estimate the i-vector."""
        if frames <= 0 or self._tail is None:
            return
        begin = len(self._tail) - self._waiting
        rows = slice(begin, begin + frames)
        normalised = self._extract.features.normalised(self._tail, self._where, self._speaker.cmvn)[rows]
        feats = normalised if self._extract.normalised_input else self._extract.features.spliced(self._tail, self._where)[rows]
        posteriors = frame_posteriors(self._extract.ubm, normalised, self._extract.posteriors)
        self._latest = self._extract.after(feats, posteriors, self._speaker.stats)
        self._waiting -= frames
        self._tail = self._tail[max(0, len(self._tail) - self._waiting - self._most):]
