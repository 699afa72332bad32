"""The features of a corpus as Kaldi's pipes give them: computed anew in each pass, so that no disk holds them.

What the pipeline makes of the stored features is much larger than these: MFCCs with deltas take 156 bytes a frame, 56 GB for 1,000 hours,
where the MFCCs take 19. A stage that goes over the data once or twice is as fast without them on disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from pykaldist.errors import FEATURES, UserError
from pykaldist.feats.pipeline import FeaturePipeline
from pykaldist.io.datadir import DataDir


class PipedFeatures:
    """The features of a data directory, float32, which are read through a pipeline each time that they are asked for.

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
        """The rows of the utterances `first` to `end` - 1. Raises UserError as `read_features`."""
        offsets = self.offsets[first:end + 1] - self.offsets[first]
        rows = read_features(self.data, self.pipeline, self.utts[first:end], offsets, self.shape[1], again=first < self._heard)
        self._heard = max(self._heard, end)
        return rows

    def parts(self, blocks: Sequence[tuple[int, int]]) -> Iterator[np.ndarray]:
        """Iterate over the rows of blocks of utterances (first, end); the next block is read while one is worked on."""
        with ThreadPoolExecutor(1) as reader:
            ahead = reader.submit(self.part, *blocks[0])
            for following in blocks[1:]:
                rows, ahead = ahead.result(), reader.submit(self.part, *following)
                yield rows
            yield ahead.result()

    def release(self) -> None:
        """Nothing to do: nothing is kept."""


def read_features(data: DataDir, pipeline: FeaturePipeline, utts: Sequence[str], offsets: np.ndarray, dim: int,
                  again: bool = False) -> np.ndarray:
    """The features of utterances, one below the other (`offsets[-1]`, `dim`) float32; `again`: the stage has heard them already.

    Raises UserError where an utterance has not the frames that `offsets` say, or another dimension.
    """
    rows = np.empty((int(offsets[-1]), dim), np.float32)
    for number, utt in enumerate(utts):
        found, expected = pipeline.apply(data, utt, again), (int(offsets[number + 1] - offsets[number]), dim)
        if found.shape != expected:
            raise UserError(f"{data.path}, {utt}: expected features of {expected[0]} frames and {expected[1]} dimensions, found "
                            f"{found.shape}; make all with the same options ({FEATURES}), and utt2num_frames with them.")
        rows[offsets[number]:offsets[number + 1]] = found
    return rows
