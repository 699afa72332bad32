"""The sampler of chunks of one length with a target in each frame, for recurrent networks that are trained by cross-entropy.

An utterance is cut into chunks of F frames. The last one ends with the utterance, and frames that the one before it has, too, have weight
0 there, as have those that are missing where an utterance is shorter than F. So each frame is trained on once an epoch. A chunk that begins
at frame s takes the frames s - left to s + F - 1 + right, those beyond the utterance replaced by its first or last one.

Which chunks come together, and the order of minibatches, is drawn anew for each epoch, from (seed, epoch, block, split) alone, as in
`frames/sampler.py`. Rows are frame by frame: all sequences of frame 0, all of frame 1, and so on; so are the targets.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from pykaldist.frames.device_frames import SharedFrames, to_device
from pykaldist.frames.packed import Sequences
from pykaldist.frames.sampler import Make, Partition, Sampler
from pykaldist.frames.store import FrameStore


class EvenChunkSampler(Sampler):
    """Makes minibatches of `sequences` chunks of `width` frames, of one split of a partition at the level utterance.

    `context`: the frames that come before a chunk, and behind it.
    """

    def __init__(self, store: FrameStore, partition: Partition, split: int, width: int, sequences: int, context: tuple[int, int], seed: int,
                 device: torch.device, frames: SharedFrames | None = None) -> None:
        self.width, self.sequences, self.context, self._offsets = width, sequences, context, store.offsets
        lengths = np.diff(store.offsets)
        mean = len(store) / max(int((-(-lengths // width)).sum()), 1)
        plain = torch.zeros(store.manifest.dim), torch.ones(store.manifest.dim)
        super().__init__(store, partition, split, max(round(sequences * mean), 1), [0], *plain, seed, device, frames)

    @property
    def capacity(self) -> int:
        return self.sequences * (self.width + sum(self.context))

    def _take(self, split: int) -> None:
        self.split = split
        self._own = [self._chunks(self.partition.utts(split, block)) for block in range(self.partition.blocks)]
        self.sizes = [int((chunks[:, 2] - chunks[:, 1]).sum()) for chunks in self._own]
        self.counts = [-(-len(chunks) // self.sequences) for chunks in self._own]

    def _chunks(self, utts: np.ndarray) -> np.ndarray:
        """A row for each chunk: its utterance, and its first and last frame that are trained on, the last one exclusive."""
        lengths = self._offsets[utts + 1] - self._offsets[utts]
        counts = -(-lengths // self.width)
        number = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)  # of a chunk in its utterance
        first = self.width * number
        return np.stack([np.repeat(utts, counts), first, np.minimum(first + self.width, np.repeat(lengths, counts))], 1)

    def _frames_before(self, block: int, number: int) -> int:
        return round(self.sizes[block] * number / max(self.counts[block], 1))  # about: the last chunk of an utterance has fewer

    def _minibatches(self, block: int, epoch: int | None, start: int, step: int = 1) -> Iterator[Make]:
        chunks = self._own[block]
        if epoch is not None:
            chunks = self._generator(epoch, block).permutation(chunks)
        for first in range(start * self.sequences, len(chunks), step * self.sequences):
            yield functools.partial(self._gathered, chunks[first:first + self.sequences])

    def _gathered(self, chunks: np.ndarray) -> dict[str, Any]:
        """The tensors of a minibatch of chunks."""
        utts, first, end = chunks.T
        begins, ends = self._offsets[utts], self._offsets[utts + 1]
        place = np.maximum(end - self.width, 0)
        relative = np.arange(-self.context[0], self.width + self.context[1])[:, None]
        frames = np.clip(begins + place + relative, begins, ends - 1)
        tensors = self._of_frames(frames.ravel())
        own = slice(self.context[0] * len(chunks), (self.context[0] + self.width) * len(chunks))
        tensors = {name: value if name == "inputs" else value[own] for name, value in tensors.items()}
        at = place + np.arange(self.width)[:, None]
        trained = (at >= first) & (at < end)
        weights = to_device(torch.from_numpy(trained.astype(np.float32).ravel()), self.device)
        tensors["weights"] = weights.mul_(tensors["weights"]) if "weights" in tensors else weights
        tensors["sequences"] = Sequences([len(chunks)] * self.width, int(trained.sum()))
        return tensors

    def held_out(self, part: int, parts: int) -> None:
        """The frames that `in_order` reads: all, as chunks reach over those of others."""
