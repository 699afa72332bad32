"""The features of a corpus as Kaldi's pipes give them: computed anew in each pass, so that no disk holds them.

What the pipeline makes of the stored features is much larger than these: MFCCs with deltas take 156 bytes a frame, 56 GB for 1,000 hours,
where the MFCCs take 19. A stage that goes over the data once or twice is as fast without them on disk.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np

from pykaldist.errors import FEATURES, UserError
from pykaldist.feats.pipeline import FeaturePipeline
from pykaldist.feats.splice import SpliceOptions, splice
from pykaldist.feats.transforms import apply_transform
from pykaldist.hmm.adaptation.fmllr import speaker_rows, transformed
from pykaldist.io.datadir import DataDir
from pykaldist.io.scratch import block_array

P = TypeVar("P", bound="PipedFeatures")


@dataclass(frozen=True)
class Projection:
    """What a training makes of the features that it reads: spliced, and multiplied by `matrix` (D, spliced), then by `turn` (D, D)."""

    splicing: SpliceOptions
    matrix: np.ndarray
    turn: np.ndarray | None = None

    def of(self, feats: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """The projected frames (N, D) float32 of a block; utterance u has the rows `offsets[u]:offsets[u + 1]`."""
        result = block_array((len(feats), len(self.matrix)), np.float32)
        self.into(result, feats, offsets)
        if self.turn is None:
            return result
        return np.matmul(result, self.turn.T.astype(np.float32), out=block_array((len(feats), len(self.turn)), np.float32))

    def into(self, result: np.ndarray, feats: np.ndarray, offsets: np.ndarray) -> None:
        """Write the frames of a block, before they are turned, to `result` (N, D) float32."""
        for first, end in pairwise(offsets.tolist()):
            spliced = splice(feats[first:end], self.splicing.left_context, self.splicing.right_context)
            result[first:end] = apply_transform(spliced, self.matrix, "LDA")


class PipedFeatures:
    """The features of a data directory, float32, which are read through a pipeline each time that they are asked for.

    Utterance u has the rows `offsets[u]:offsets[u + 1]`. What is asked for are whole utterances, projected where there is a projection, and
    adapted where there are speakers' transforms; both are made by copies, which know together what was heard.
    """

    projection: Projection | None = None
    transforms: Mapping[str, np.ndarray] | None = None

    def __init__(self, data: DataDir, pipeline: FeaturePipeline, utts: Sequence[str], offsets: np.ndarray) -> None:
        self.data, self.pipeline, self.utts, self.offsets = data, pipeline, utts, offsets
        self.dim = int(pipeline.apply(data, utts[0], again=True).shape[1])  # as they are read
        self.shape = int(offsets[-1]), self.dim
        self._heard = [0]  # utterances, of the first pass

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> np.ndarray:
        first, end = np.searchsorted(self.offsets, [rows.start, rows.stop])
        return self.part(int(first), int(end))

    def projected(self: P, projection: Projection) -> P:
        """The same features through a projection."""
        other = copy.copy(self)
        other.projection, other.shape = projection, (len(self), len(projection.matrix))
        return other

    def adapted(self: P, transforms: Mapping[str, np.ndarray]) -> P:
        """The same features, each frame through the fMLLR transform of its speaker."""
        other = copy.copy(self)
        other.transforms = transforms
        return other

    def part(self, first: int, end: int) -> np.ndarray:
        """The rows of the utterances `first` to `end` - 1. Raises UserError as `read_features`."""
        offsets = self.offsets[first:end + 1] - self.offsets[first]
        utts, heard = self.utts[first:end], first < self._heard[0]
        self._heard[0] = max(self._heard[0], end)
        return made_features(self.data, self.pipeline, utts, offsets, self.dim, self.projection, self.transforms, heard)

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


def made_features(data: DataDir, pipeline: FeaturePipeline, utts: Sequence[str], offsets: np.ndarray, dim: int,
                  projection: Projection | None, transforms: Mapping[str, np.ndarray] | None, again: bool = False) -> np.ndarray:
    """What `read_features` reads, projected and adapted where there is something to do so by."""
    rows = read_features(data, pipeline, utts, offsets, dim, again)
    if projection is not None:
        rows = projection.of(rows, offsets)
    return rows if transforms is None else transformed(rows, speaker_rows(utts, offsets, data.utt2spk), transforms)


def read_features(data: DataDir, pipeline: FeaturePipeline, utts: Sequence[str], offsets: np.ndarray, dim: int,
                  again: bool = False) -> np.ndarray:
    """The features of utterances, one below the other (`offsets[-1]`, `dim`) float32; `again`: the stage has heard them already.

    Raises UserError where an utterance has not the frames that `offsets` say, or another dimension.
    """
    rows = block_array((int(offsets[-1]), dim), np.float32)
    for number, utt in enumerate(utts):
        found, expected = pipeline.apply(data, utt, again), (int(offsets[number + 1] - offsets[number]), dim)
        if found.shape != expected:
            raise UserError(f"{data.path}, {utt}: expected features of {expected[0]} frames and {expected[1]} dimensions, found "
                            f"{found.shape}; make all with the same options ({FEATURES}), and utt2num_frames with them.")
        rows[offsets[number]:offsets[number + 1]] = found
    return rows
