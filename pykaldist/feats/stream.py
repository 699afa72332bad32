"""Features of audio that still comes: each frame as soon as its last sample is there."""

from __future__ import annotations

import numpy as np

from pykaldist.errors import UserError
from pykaldist.feats.extract import Extractor


class FeatureStream:
    """One recording on its way through an extractor; its frames are those of the whole recording at once."""

    def __init__(self, extractor: Extractor) -> None:
        if extractor.options.dither > 0:
            raise UserError(f"--dither={extractor.options.dither:g}: a stream's noise differs from that of the recording; leave "
                            "it out.")
        self._extractor, self._options = extractor, extractor.options
        self._samples = np.zeros(0, np.float32)  # from the beginning of the next frame on

    def accept(self, samples: np.ndarray) -> np.ndarray:
        """Take the next samples, in 16-bit scale; returns the frames that are complete with them (frames, dimensions)."""
        self._samples = np.concatenate([self._samples, np.asarray(samples, np.float32)])
        frames = self._options.num_frames(len(self._samples))
        used = (frames - 1) * self._options.samples_per_shift + self._options.samples_per_frame if frames else 0
        feats = self._extractor.extract([("", self._samples[:used])])[0]
        self._samples = self._samples[frames * self._options.samples_per_shift:]
        return feats
