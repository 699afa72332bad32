"""The features of a corpus as Kaldi's pipes give them: computed anew in each pass, so that no disk holds them.

What the pipeline makes of the stored features is much larger than these: MFCCs with deltas take 156 bytes a frame, 56 GB for 1,000 hours,
where the MFCCs take 19. A stage that goes over the data once or twice is as fast without them on disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from pykaldist.errors import FEATURES, UserError
from pykaldist.feats.pipeline import FeaturePipeline
from pykaldist.io.datadir import DataDir


class PipedFeatures:
    """The rows of all utterances of a data directory, float32, which are read through a pipeline when they are asked for.

    Utterance u has the rows `offsets[u]:offsets[u + 1]`. What is asked for are whole utterances.
    """

    def __init__(self, data: DataDir, pipeline: FeaturePipeline, utts: Sequence[str], offsets: np.ndarray) -> None:
        self.data, self.pipeline, self.utts, self.offsets = data, pipeline, utts, offsets
        self.shape = int(offsets[-1]), int(pipeline.apply(data, utts[0], again=True).shape[1])
        self._heard = 0  # utterances, of the first pass

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> np.ndarray:
        first, end = np.searchsorted(self.offsets, [rows.start, rows.stop])
        return self.part(int(first), int(end))

    def part(self, first: int, end: int) -> np.ndarray:
        """The rows of the utterances `first` to `end` - 1. Raises UserError where they are not as many as `offsets` say."""
        rows = np.empty((int(self.offsets[end] - self.offsets[first]), self.shape[1]), np.float32)
        fill(rows, self.data, self.pipeline, self.utts[first:end], self.offsets[first:end + 1] - self.offsets[first], first < self._heard)
        self._heard = max(self._heard, end)
        return rows

    def parts(self, blocks: Sequence[tuple[int, int]]) -> Iterator[np.ndarray]:
        """Iterate over the rows of blocks of utterances (first, end); the next block is read while one is worked on."""
        with ThreadPoolExecutor(1) as reader:
            ahead: Any = reader.submit(self.part, *blocks[0])
            for following in (*blocks[1:], None):
                rows = ahead.result()
                ahead = following and reader.submit(self.part, *following)
                yield rows

    def release(self) -> None:
        """Nothing to do: nothing is kept."""


def fill(rows: np.ndarray, data: DataDir, pipeline: FeaturePipeline, utts: Sequence[str], offsets: np.ndarray, again: bool = False) -> None:
    """Read the features of utterances, perhaps `again`, into the rows of a block.

    Raises UserError where frames or dimensions are not as many as it has.
    """
    for number, utt in enumerate(utts):
        found, expected = pipeline.apply(data, utt, again), (int(offsets[number + 1] - offsets[number]), rows.shape[1])
        if found.shape != expected:
            raise UserError(f"{data.path}, {utt}: expected features of {expected[0]} frames and {expected[1]} dimensions, found "
                            f"{found.shape}; make all with the same options ({FEATURES}), and utt2num_frames with them.")
        rows[offsets[number]:offsets[number + 1]] = found
