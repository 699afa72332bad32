"""The sampler of sequences, for recurrent networks: whole utterances, chunks with context, or streams with carried state.

whole     whole utterances of similar length, `num_streams` in a minibatch (epoch-wise BPTT). Workers' minibatches of the same number have
          utterances of about the same length: the order of lengths is drawn once for all splits, so that nobody waits for the longest.
chunks    context-sensitive chunks (Chen & Huo, 2015/2016): an utterance is cut into chunks of C frames, each with up to L frames before
          and R after it as context. The loss is on the chunk only. `--chunk 21-64+21` is L = 21, C = 64, R = 21.
streams   truncated BPTT: the utterances, one behind the other in an order drawn anew each epoch, are cut into `num_streams` streams of
          equal length, which are read side by side, `chunk` frames at a time. A minibatch begins with the state that the one before has
          left; the state is zero where an utterance begins, and for the second part of the few that a stream's edge divides. As nnet1's
          multi-stream training, but that no frame is padding and every epoch has equally many minibatches.

On a GPU minibatches of training are padded (`frames/packed.py`), so that few shapes occur, each of which is recorded once as a CUDA graph:
chunks to the longest chunk with its context, streams to whole chunks, whole utterances to one of `SHAPES` lengths, those that cost the
fewest rows. Minibatches of cross-validation stay packed.

Each frame is trained on once an epoch in all three. Order and cuts come from (seed, epoch, block, split) alone, as in `frames/sampler.py`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from pykaldist.errors import UserError
from pykaldist.frames.device_frames import SharedFrames, sendable, to_device
from pykaldist.frames.packed import Sequences, packed_grid
from pykaldist.frames.sampler import LENGTH_ORDER, Make, Minibatch, Partition, Sampler, generator_of
from pykaldist.frames.store import FrameStore
from pykaldist.options import option

BUCKET = 0.1  # whole utterances whose lengths differ by no more than this share come together
SHAPES = 8  # lengths to which whole utterances are padded on a GPU
LENGTHS = 256  # lengths among which these are chosen


@dataclass(frozen=True)
class Chunk:
    """The size of a chunk: `size` frames, with up to `left` before and `right` after them as context."""

    left: int
    size: int
    right: int

    @classmethod
    def parse(cls, text: str) -> Chunk:
        """Read a chunk's size from text such as `21-64+21`, or `20`: no context."""
        match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?:\+(\d+))?", text)
        if not match or not int(match[2]):
            raise UserError(f"a chunk {text!r}: expected its frames, as 20, or with those before and after it, as 21-64+21.")
        return cls(int(match[1] or 0), int(match[2]), int(match[3] or 0))


@dataclass
class SequenceOptions:
    """The options that say how utterances are cut into sequences."""

    sequences: str = option("streams", "whole utterances, chunks with context, or streams with carried state",
                            ("whole", "chunks", "streams"))
    num_streams: int = option(16, "sequences in a minibatch")
    chunk: str | None = option(None, "frames of a sequence (20 in streams); for chunks with those before and after it (21-64+21)")

    def __post_init__(self) -> None:
        if self.num_streams < 1:
            raise UserError(f"--num-streams {self.num_streams} is not positive.")
        if self.sequences == "whole" and self.chunk is not None:
            raise UserError(f"--chunk {self.chunk} is of --sequences chunks or streams; whole utterances are not cut.")
        if self.sequences == "streams" and self.parts().left + self.parts().right:
            raise UserError(f"--chunk {self.chunk}: streams carry their state and take no context; give the frames alone, or --sequences "
                            "chunks.")

    def cut(self) -> str:
        """A description of a minibatch, in words."""
        chunk = self.parts()
        plural = "s" * (self.num_streams > 1)
        context = f" and up to {chunk.left} before, {chunk.right} after them" * bool(chunk.left + chunk.right)
        return {"whole": f"{self.num_streams} whole utterance{plural}",
                "chunks": f"{self.num_streams} chunks of {chunk.size} frames{context}",
                "streams": f"{self.num_streams} streams, {chunk.size} frames of each"}[self.sequences] + " in a minibatch"

    def parts(self) -> Chunk:
        """The chunk, given or by default."""
        return Chunk.parse(self.chunk or ("20" if self.sequences == "streams" else "21-64+21"))


class SequenceSampler(Sampler):
    """Makes minibatches of sequences, of one split of a partition at the level utterance; otherwise like its base class.

    `padded`: minibatches of training are padded; without it they are where the device is not the CPU.
    """

    def __init__(self, store: FrameStore, partition: Partition, split: int, options: SequenceOptions, splice: list[int],
                 shift: torch.Tensor, scale: torch.Tensor, seed: int, device: torch.device, frames: SharedFrames | None = None,
                 padded: bool | None = None) -> None:
        self.options, self.chunk, self._offsets = options, options.parts(), store.offsets
        self._utts = store.utts
        self._weighted, self._labels, self._label_offsets = store.weights is not None, store.labels, store.label_offsets
        lengths = np.sort(np.diff(store.offsets))
        self._longest, self._most = int(lengths[-1]), int(lengths[-options.num_streams :].sum())
        whole = options.sequences == "whole"
        self.padded = device.type != "cpu" if padded is None else padded
        chunk = self.chunk.size if options.sequences == "streams" else min(sum(dataclasses.astuple(self.chunk)), self._longest)
        self._shapes = cheapest_shapes(lengths, SHAPES) if whole else [chunk]  # steps of padded minibatches
        mean = len(store) / store.manifest.num_utts
        size = options.num_streams * (mean if options.sequences == "whole" else self.chunk.size)
        super().__init__(store, partition, split, max(round(size), 1), splice, shift, scale, seed, device, frames)
        self._marks = torch.empty(3 * self.training_capacity * self.padded, device=device)

    @property
    def capacity(self) -> int:
        if self.padded and self.options.sequences != "streams":
            return self.options.num_streams * self._shapes[-1]
        whole = self.chunk.left + self.chunk.size + self.chunk.right
        if self.options.sequences == "chunks":  # several may be cut from one utterance, with the same context
            return self.options.num_streams * min(whole, self._longest)
        # Of whole utterances, the longest may come together; so they do in cross-validation where training goes by streams.
        return self._most if self.options.sequences == "whole" else max(self._most, self.options.num_streams * whole)

    @property
    def training_capacity(self) -> int:
        return self.options.num_streams * self.chunk.size if self.options.sequences == "streams" else self.capacity

    def _take(self, split: int) -> None:
        self.split, streams = split, self.options.num_streams
        self.sizes, self.counts = [], []
        for block in range(self.partition.blocks):
            lengths = self._lengths(self.partition.utts(split, block))
            frames = int(lengths.sum())
            self.sizes.append(frames)
            if self.options.sequences == "streams":
                steps = -(-frames // streams)
                self.counts.append(-(-steps // self.chunk.size))
            elif self.options.sequences == "chunks":
                self.counts.append(-(-int((-(-lengths // self.chunk.size)).sum()) // streams))
            else:
                self.counts.append(self._count(self.partition.utts(split, block)))

    def _frames_before(self, block: int, number: int) -> int:
        return round(self.sizes[block] * number / self.counts[block])  # about: how many each has depends on the utterances in it

    def _lengths(self, utts: np.ndarray) -> np.ndarray:
        return self._offsets[utts + 1] - self._offsets[utts]

    def _place(self, minibatch: Minibatch, epoch: int) -> None:
        assert minibatch.sequences is not None
        minibatch.sequences.place = (epoch, self.split, minibatch.index)

    def _minibatches(self, block: int, epoch: int | None, start: int, step: int = 1) -> Iterator[Make]:
        generator = None if epoch is None else self._generator(epoch, block)
        utts = self.partition.utts(self.split, block)
        utts = utts[self._lengths(utts) > 0]
        if generator is not None and self.options.sequences == "streams":
            yield from self._streams(generator.permutation(utts), start, step)
            return
        spans = _cut(self._offsets[utts], self._offsets[utts + 1], self.chunk if self.options.sequences == "chunks" else None)
        order, size = np.arange(len(spans)), self.options.num_streams
        if generator is not None and self.options.sequences == "chunks":
            order = generator.permutation(order)
        elif generator is not None:
            order = generator.permutation(order)
            bucket = np.floor(np.log(spans[order, 3] - spans[order, 0]) / math.log1p(BUCKET))
            order = order[np.argsort(-bucket, kind="stable")]
        groups = [order[first : first + size] for first in range(0, len(order), size)]
        if epoch is not None and self.options.sequences == "whole":
            groups = [groups[i] for i in self._order_of_lengths(block, epoch, len(groups))]
        gathered = self._padded if self.padded and generator is not None else self._gathered
        for group in groups[start::step]:
            yield functools.partial(gathered, spans[group])

    def _order_of_lengths(self, block: int, epoch: int, count: int) -> np.ndarray:
        """The order in an epoch of a block's minibatches of whole utterances, which are numbered from the longest to the shortest.

        It is the same for all splits; where these have not equally many, the last ones are the shortest of those that have more.
        """
        fewest = min(self._count(self.partition.utts(split, block)) for split in range(self.partition.splits))
        shared = generator_of(self.seed, LENGTH_ORDER, epoch, block)
        return np.append(shared.permutation(fewest), np.arange(fewest, count))

    def _count(self, utts: np.ndarray) -> int:
        """How many minibatches of whole utterances there are."""
        return -(-int((self._lengths(utts) > 0).sum()) // self.options.num_streams)

    def _padded(self, spans: np.ndarray) -> dict[str, Any]:
        """The tensors of the rows of spans (S, 4), as `_gathered` has them, padded."""
        spans = spans[np.argsort(spans[:, 0] - spans[:, 3], kind="stable")]
        missing = np.full((self.options.num_streams - len(spans), 4), spans[0, 0])  # sequences of no frames
        first, begin, end, last = np.concatenate([spans, missing]).T
        steps = next(shape for shape in self._shapes if shape >= last[0] - first[0])
        frames = first + np.arange(steps)[:, None]
        trained = (frames >= begin) & (frames < end)
        tensors = self._in_place(np.minimum(frames, np.maximum(last - 1, first)), frames < last, trained, np.ones_like(trained))
        tensors["sequences"].lengths = spans[:, 3] - spans[:, 0]
        return {**tensors, **self._of_utts(spans)}

    def _in_place(self, frames: np.ndarray, real: np.ndarray, trained: np.ndarray, kept: np.ndarray, continues: bool = False,
                  leaves: int = -1) -> dict[str, Any]:
        """The tensors of a padded minibatch, in buffers that stay in place.

        For each step and each sequence (T, S): the frame, whether it is none of the padding, whether it is trained on, whether the state
        before it is kept. `continues` and `leaves` as in `Sequences`; without the latter all states are kept.
        """
        (steps, size), tensors = frames.shape, self._of_frames(frames.ravel())
        marks = torch.from_numpy(np.stack([trained, real, kept]).reshape(3, -1).astype(np.float32))
        weights, is_real, keeps = self._marks[: marks.numel()].view(3, -1).copy_(sendable(marks, self.device), non_blocking=True)
        tensors["weights"] = weights.mul_(tensors["weights"]) if self._weighted else weights
        by_step = dict(enumerate(keeps[:, None].split(size))) if leaves >= 0 else {}
        return {**tensors, "sequences": Sequences([size] * steps, int(trained.sum()), by_step, continues, leaves, real=is_real[:, None],
                                                  padding=int((~real).sum()))}

    def _gathered(self, spans: np.ndarray) -> dict[str, Any]:
        """The tensors of the rows of spans (S, 4).

        A span is the first frame of the context before, of the chunk, of the context after, and its end.
        """
        spans = spans[np.argsort(spans[:, 0] - spans[:, 3], kind="stable")]
        first, begin, end, last = torch.from_numpy(spans).unbind(1)
        steps, sequence, sizes = packed_grid(last - first)
        frames = first[sequence] + steps
        trained = (frames >= begin[sequence]) & (frames < end[sequence])
        tensors = self._of_frames(frames.numpy())
        count = int(trained.sum())
        if count < len(frames):
            weights = to_device(trained.float(), self.device)
            tensors["weights"] = weights.mul_(tensors["weights"]) if self._weighted else weights
        return {**tensors, "sequences": Sequences(sizes, count), **self._of_utts(spans)}

    def _of_utts(self, spans: np.ndarray) -> dict[str, Any]:
        """The names and labels of whole utterances."""
        if self.options.sequences != "whole":
            return {}
        utts = np.searchsorted(self._offsets, spans[:, 0], side="right") - 1
        found: dict[str, Any] = {"utts": [self._utts[u] for u in utts]}
        if self._labels is not None and self._label_offsets is not None:
            own = [self._labels[self._label_offsets[u] : self._label_offsets[u + 1]] for u in utts]
            found["labels"] = torch.from_numpy(np.concatenate(own).astype(np.int64))
            found["label_lengths"] = torch.tensor([len(labels) for labels in own])
        return found

    def largest(self) -> Minibatch:
        """A minibatch of training that takes as much memory as any, of whichever split."""
        utts = np.flatnonzero(np.diff(self._offsets))
        if self.options.sequences == "streams":
            return Minibatch(**next(self._streams(utts, 0, 1))(), index=0, last=False)
        spans = _cut(self._offsets[utts], self._offsets[utts + 1], self.chunk if self.options.sequences == "chunks" else None)
        longest = spans[np.argsort(spans[:, 0] - spans[:, 3], kind="stable")[: self.options.num_streams]]
        return Minibatch(**(self._padded if self.padded else self._gathered)(longest), index=0, last=False)

    def held_out(self, part: int, parts: int) -> None:
        """The frames that `in_order` reads: all, as which sequences come together depends on their lengths."""

    def _streams(self, utts: np.ndarray, start: int, step: int) -> Iterator[Make]:
        lengths = self._lengths(utts)
        ends = np.cumsum(lengths)
        tape = np.repeat(self._offsets[utts] - (ends - lengths), lengths) + np.arange(ends[-1])  # frames, utterance behind utterance
        begins = np.zeros(len(tape), bool)
        begins[ends - lengths] = True
        streams = min(self.options.num_streams, len(tape))
        each, longer = divmod(len(tape), streams)  # the first `longer` streams have one frame more
        bounds = np.arange(streams) * each + np.minimum(np.arange(streams), longer)
        begins[bounds] = True
        steps = each + bool(longer)

        def padded(first: int) -> dict[str, Any]:
            t = np.arange(first, first + self.chunk.size)[:, None]
            own = np.zeros((2, self.options.num_streams), np.int64)  # where each stream begins, and its frames
            own[:, :streams] = bounds, np.diff(bounds, append=len(tape))
            real = t < own[1]
            rows = np.where(real, own[0] + t, 0)
            return self._in_place(tape[rows], real, real, ~begins[rows] | ~real, first > 0, self.chunk.size - 1)

        def gathered(first: int) -> dict[str, Any]:
            span = range(first, min(first + self.chunk.size, steps))
            sizes = [streams if t < each else longer for t in span]
            rows = np.concatenate([bounds[:size] + t for t, size in zip(span, sizes, strict=True)])
            starts = begins[rows]
            firsts = np.cumsum([0, *sizes])
            steps_kept = [t for t, size in enumerate(sizes) if starts[firsts[t] : firsts[t] + size].any() and (t or first)]
            kept = {}
            if steps_kept:
                flags = to_device(torch.from_numpy(~starts[:, None]).float(), self.device)  # one copy for all steps
                kept = {t: flags[firsts[t] : firsts[t] + sizes[t]] for t in steps_kept}
            whole = sizes[-1] == streams
            return {**self._of_frames(tape[rows]),
                    "sequences": Sequences(sizes, len(rows), kept, first > 0, len(sizes) - 1 if whole else -1)}

        for first in range(start * self.chunk.size, steps, step * self.chunk.size):
            yield functools.partial(padded if self.padded else gathered, first)


def cheapest_shapes(lengths: np.ndarray, count: int) -> list[int]:
    """Up to `count` lengths, ascending, such that sequences padded to the next of them have the fewest rows.

    They are multiples of the longest one's `LENGTHS`-th part, rounded up.
    """
    part = -(-int(lengths.max()) // LENGTHS)
    shapes, numbers = np.unique(-(-lengths // part) * part, return_counts=True)
    until = np.concatenate([[0], np.cumsum(numbers)])
    # cost[i, j]: rows of all sequences longer than shapes[i - 1], and no longer than shapes[j], which they are padded to
    cost = np.where(np.arange(len(shapes))[:, None] <= np.arange(len(shapes)), (until[None, 1:] - until[:-1, None]) * shapes, np.inf)
    least, chosen = cost[0], [np.zeros(len(shapes), np.int64)]  # with one shape more each time, of which shapes[j] is the longest
    for _ in range(1, min(count, len(shapes))):
        least_before = np.concatenate([[np.inf], least[:-1]])[:, None] + cost
        chosen.append(least_before.argmin(0))
        least = least_before.min(0)
    found, last = [], len(shapes) - 1
    for first in reversed(chosen):
        found.append(int(shapes[last]))
        last = first[last] - 1
    return found[::-1]


def _cut(begins: np.ndarray, ends: np.ndarray, chunk: Chunk | None) -> np.ndarray:
    """Cut utterances that reach from `begins` to `ends` into chunks; returns spans (count, 4). Without `chunk` each is one chunk.

    A span is the first frame of the context before, of the chunk, of the context after, and the end.
    """
    if chunk is None:
        return np.stack([begins, begins, ends, ends], 1)
    counts = -(-(ends - begins) // chunk.size)
    number = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    low, high = np.repeat(begins, counts), np.repeat(ends, counts)
    begin = low + number * chunk.size
    end = np.minimum(begin + chunk.size, high)
    return np.stack([np.maximum(begin - chunk.left, low), begin, end, np.minimum(end + chunk.right, high)], 1)


def windows(frames: int, chunk: Chunk, overlap: int) -> tuple[torch.Tensor, torch.Tensor, Sequences]:
    """Cut an utterance of so many frames into one minibatch of chunks, each `overlap` frames into the one before.

    (frame of each row, whether it is in the chunk itself, the sequences).
    """
    begin = np.arange(0, max(frames - overlap, 1), chunk.size - overlap)
    end = np.minimum(begin + chunk.size, frames)
    spans = np.stack([np.maximum(begin - chunk.left, 0), begin, end, np.minimum(end + chunk.right, frames)], 1)
    spans = spans[np.argsort(spans[:, 0] - spans[:, 3], kind="stable")]
    first, begins, ends, last = torch.from_numpy(spans).unbind(1)
    steps, sequence, sizes = packed_grid(last - first)
    rows = first[sequence] + steps
    return rows, (rows >= begins[sequence]) & (rows < ends[sequence]), Sequences(sizes, frames)

