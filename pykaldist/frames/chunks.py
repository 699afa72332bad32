"""The sampler of chunks, for chain objectives: minibatches of sequences of one length, cut from the frame store with their context.

A chunk of F output frames that begins at frame s of its utterance takes the frames s - left to s + factor (F - 1) + right, those beyond the
utterance replaced by its first or last one. In each epoch its frames are shifted by another one of -1, 0, 1 (for a frame subsampling factor
of 3) while its outputs stay, so that the network sees all frames; the first shift of a chunk is drawn. An epoch of Kaldi's has all shifts:
it is `factor` epochs here. Held-out chunks have no shifts.

Minibatches have chunks of one length, as many as `minibatch_rule.py` says at most. Which come together, and their order, is drawn anew for
each epoch, from (seed, epoch, block, split) alone, as in `frames/sampler.py`. What does not fill a minibatch makes a smaller one: no chunk
is left out.

Rows of inputs are frame by frame: all sequences of frame 0, all of frame 1, and so on; so are the outputs.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from pykaldist.errors import UserError
from pykaldist.frames.chunk_store import Chunks, ChunkStore
from pykaldist.frames.device_frames import SharedFrames, to_device
from pykaldist.frames.minibatch_rule import MinibatchRule
from pykaldist.frames.sampler import CUTS, Make, Minibatch, Partition, Sampler, generator_of
from pykaldist.frames.store import FrameStore


class ChunkSampler(Sampler):
    """Makes minibatches of chunks of one split of a partition at the level utterance; otherwise like its base class.

    `context`: the frames that the network needs before an output's frame, and after it; `edges`: those before an utterance's first chunk,
    and after its last one, where they are others, which a recurrent network may be given. Such chunks make minibatches of their own.
    """

    def __init__(self, store: FrameStore, chunks: ChunkStore, partition: Partition, split: int, rule: MinibatchRule,
                 context: tuple[int, int], seed: int, device: torch.device, frames: SharedFrames | None = None,
                 edges: tuple[int, int] | None = None) -> None:
        self.chunks, self.rule, self.context, self._edges = chunks, rule, context, edges or context
        last = np.append(chunks.utt[1:] != chunks.utt[:-1], True)
        # of each chunk: 1 where it has another context before it, 2 behind it, 3 on both sides
        self._kind = (chunks.first == 0) * (self._edges[0] != context[0]) + 2 * last * (self._edges[1] != context[1])
        self.factor, self._offsets = chunks.manifest.frame_subsampling_factor, store.offsets
        self._first_shifts = generator_of(seed, CUTS).integers(self.factor, size=len(chunks))
        mean = float(chunks.frames.mean())
        plain = torch.zeros(store.manifest.dim), torch.ones(store.manifest.dim)
        super().__init__(store, partition, split, max(round(rule.chunks(round(mean)) * mean), 1), [0], *plain, seed, device, frames)

    @property
    def capacity(self) -> int:
        around = sum(self.context) - self.factor + 1
        return max(self.rule.chunks(length) * (length + around) for length in np.unique(self.chunks.frames).tolist())

    def _take(self, split: int) -> None:
        self.split = split
        self._own = [np.flatnonzero(np.isin(self.chunks.utt, self.partition.utts(split, block))) for block in range(self.partition.blocks)]
        self.sizes = [int(self.chunks.frames[own].sum()) for own in self._own]
        self.counts = [len(self._groups(own)) for own in self._own]
        if not sum(self.counts):
            raise UserError(f"{self.chunks.path} has no chunk for worker {split} of {self.partition.splits}; use fewer workers.")

    def _frames_before(self, block: int, number: int) -> int:
        return round(self.sizes[block] * number / max(self.counts[block], 1))  # about: chunks are of different lengths

    def _minibatches(self, block: int, epoch: int | None, start: int, step: int = 1) -> Iterator[Make]:
        own, shifts = self._own[block], np.zeros(len(self.chunks), np.int64)
        if epoch is None:
            groups = self._groups(own)
        else:
            generator = self._generator(epoch, block)
            groups = self._groups(generator.permutation(own))
            groups = [groups[i] for i in generator.permutation(len(groups))]
            shifts = (self._first_shifts + epoch) % self.factor - (self.factor - 1) // 2
        for group in groups[start::step]:
            yield functools.partial(self._gathered, group, shifts[group])

    def _groups(self, order: np.ndarray) -> list[np.ndarray]:
        """The chunks of minibatches: those of each length, and of each kind of context, in this order."""
        kinds = 4 * self.chunks.frames[order] + self._kind[order]
        return [own[first:first + size] for kind in np.unique(kinds).tolist() for size in [self.rule.chunks(kind // 4)]
                for own in [order[kinds == kind]] for first in range(0, len(own), size)]

    def _gathered(self, group: np.ndarray, shifts: np.ndarray) -> dict[str, Any]:
        """The tensors of a minibatch."""
        begins, ends = self._offsets[self.chunks.utt[group]], self._offsets[self.chunks.utt[group] + 1]
        length, kind = int(self.chunks.frames[group[0]]), int(self._kind[group[0]])
        before, behind = (self._edges if kind & bit else self.context for bit in (1, 2))
        context = before[0], behind[1]
        relative = np.arange(-context[0], length - self.factor + 1 + context[1])[:, None]
        frames = np.clip(begins + self.chunks.first[group] + shifts + relative, begins, ends - 1).ravel()
        tensors = self._of_frames(frames)
        weights, ivectors = self.chunks.weights(group), self.chunks.ivectors(group)
        tensors["chunks"] = Chunks(
            len(group), length // self.factor, length * len(group), self.chunks.numerators(group),
            to_device(torch.from_numpy(np.ascontiguousarray(weights.T).ravel()), self.device), context,
            None if ivectors is None else to_device(torch.from_numpy(ivectors), self.device))
        return tensors

    def largest(self) -> Minibatch:
        groups = [group for own in self._own for group in self._groups(own)]
        group = max(groups, key=lambda group: len(group) * (int(self.chunks.frames[group[0]]) + sum(self.context)))
        return Minibatch(**self._gathered(group, np.zeros(len(group), np.int64)), index=0, last=False)

    def shapes(self) -> set[tuple[int, int]]:
        """The shapes of the minibatches: output frames of a chunk, and number of chunks."""
        return {(int(self.chunks.frames[group[0]]) // self.factor, len(group)) for own in self._own for group in self._groups(own)}

    def held_out(self, part: int, parts: int) -> None:
        """The frames that `in_order` reads: all, as which chunks come together depends on their lengths."""
