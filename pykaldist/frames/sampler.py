"""The sampler: which frames a worker sees, and in what order. A partition into blocks x splits, then shuffled minibatches.

The partition is N splits (one a worker) x M blocks. Its assignment and every order come from (seed, epoch) alone, through numpy's
counter-based Philox generator, so that they are the same for any process layout and a run resumes at any minibatch without
replaying the ones before. Every frame is in exactly one part: no frame is lost.

Chen & Huo (2016) partition at frame level; Su et al. (2015) at utterance level, longest first to the least loaded worker.
"""

from __future__ import annotations

import copy
import functools
import heapq
import math
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from pykaldist.errors import UserError
from pykaldist.frames.chunk_store import Chunks
from pykaldist.frames.compressed import expand
from pykaldist.frames.device_frames import PIECE, DeviceFrames, SharedFrames, stored_arrays, to_device
from pykaldist.frames.packed import Sequences
from pykaldist.frames.runs import Runs
from pykaldist.frames.store import FrameStore
from pykaldist.pieces import pieces

Gather = Callable[[torch.Tensor, DeviceFrames], dict[str, Any]]  # makes tensors, by name, from rows of a source
# Streams of random numbers of one seed, kept apart by the last word of Philox's key.
Make = Callable[[], dict[str, Any]]  # what makes a minibatch's tensors, by name
_PARTITION, _BLOCK_ORDER, _FRAME_ORDER, _MINIBATCH, LENGTH_ORDER, CUTS, GROUP_ORDER = range(7)


def generator_of(seed: int, *stream: int) -> np.random.Generator:
    """The generator of one stream of random numbers of a seed."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, *stream])))


def _mixed(*words: int) -> int:
    """Mix several numbers into a 63-bit seed."""
    return int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0] >> np.uint64(1))


class Partition:
    """The division of a store's frames into N splits x M blocks, at `level` frame or utterance.

    `part(split, block)` is an array of frame indices in ascending order: int32, or int64 where the store has too many frames for that. The
    parts are disjoint and cover the store. `run`: frames are dealt out in runs of so many consecutive ones, which are read together.
    """

    def __init__(self, store: FrameStore, splits: int = 1, blocks: int = 1, level: str = "frame", seed: int = 0, run: int = 1) -> None:
        if level not in ("frame", "utterance"):
            raise ValueError(f"level is frame or utterance, found {level!r}")
        units = -(-len(store) // run) if level == "frame" else store.manifest.num_utts
        if units < splits * blocks:
            what = f"{level}s" if run == 1 else f"blocks of {run} frames"
            raise UserError(f"{store.path} has {units} {what}, too few for {splits} splits x {blocks} blocks; use fewer workers or "
                            f"blocks{', or smaller ones' * (run > 1)}.")
        self.splits, self.blocks, self.level, self.store, self.run = splits, blocks, level, store, run
        self.dtype = np.int32 if len(store.feats) <= np.iinfo(np.int32).max else np.int64
        if level == "frame":
            self._order: np.ndarray | None = None
            if splits * blocks > 1:
                self._order = np.arange(units, dtype=self.dtype)
                generator_of(seed, _PARTITION).shuffle(self._order)
        else:
            self._utts = _least_loaded(np.diff(store.offsets), splits * blocks, generator_of(seed, _PARTITION))

    def utts(self, split: int, block: int) -> np.ndarray:
        """The numbers of the utterances of a part, ascending; only at the level utterance."""
        return np.array(self._utts[block * self.splits + split], np.int64)

    def part(self, split: int, block: int) -> np.ndarray:
        if self.level == "frame" and self.run == 1 and self._order is not None:
            return np.sort(self._order[self._span(split, block)])
        runs = self.runs(split, block)
        return runs.frames(0, len(runs), self.dtype)

    def runs(self, split: int, block: int) -> Runs:
        """The runs of a part's frames, with packed rows."""
        if self.level == "utterance":
            utts = self.utts(split, block)
            return Runs.packed(self.store.offsets[utts], self.store.offsets[utts + 1])
        if self._order is None:
            return Runs.whole(len(self.store))
        first = np.sort(self._order[self._span(split, block)]).astype(np.int64) * self.run
        return Runs.packed(first, np.minimum(first + self.run, len(self.store)))

    def parts(self, splits: Iterable[int]) -> list[np.ndarray] | None:
        """The parts of several splits; None for all splits."""
        chosen = set(splits)
        return None if len(chosen) == self.splits else [self.part(split, block) for split in chosen for block in range(self.blocks)]

    def size(self, split: int, block: int) -> int:
        """The number of frames of a part."""
        if self.level == "utterance":
            utts = self.utts(split, block)
            return int((self.store.offsets[utts + 1] - self.store.offsets[utts]).sum())
        if self.run > 1:
            return len(self.runs(split, block))
        span = self._span(split, block)
        return int(span.stop - span.start)

    def _span(self, split: int, block: int) -> slice:
        """Where a part of frames, or of runs of them, stands in their order."""
        units = -(-len(self.store) // self.run)
        number, bounds = block * self.splits + split, np.linspace(0, units, self.splits * self.blocks + 1).astype(np.int64)
        return slice(bounds[number], bounds[number + 1])


def _least_loaded(lengths: np.ndarray, parts: int, generator: np.random.Generator) -> list[list[int]]:
    """Assign utterances, longest first (ties at random), each to the part that has the fewest frames."""
    shuffled = generator.permutation(len(lengths))
    order = shuffled[np.argsort(-lengths[shuffled], kind="stable")]
    heap = [(0, p) for p in range(parts)]
    assigned: list[list[int]] = [[] for _ in range(parts)]
    for utt in order:
        load, p = heapq.heappop(heap)
        assigned[p].append(int(utt))
        heapq.heappush(heap, (load + int(lengths[utt]), p))
    return [sorted(a) for a in assigned]


@dataclass
class Minibatch:
    """A minibatch on the worker's device: `inputs` (n, splice x dim), `targets` (n,) and the rest; valid until the next one is made.

    Where the store has them: frame `weights` (n,); soft targets `posterior_pdfs` and `posterior_probs` (n, num_posteriors);
    `target_feats` (n, target_dim). A minibatch of sequences says how its rows follow each other; those that are context only have weight
    0, and are not counted in its length.
    """

    inputs: torch.Tensor
    targets: torch.Tensor
    index: int  # within the epoch, from 0
    last: bool  # the epoch's last
    epochs_done: float = 0.0  # epochs of the run before it, with fractions
    seed: int = 0  # of its own random numbers (dropout, Gibbs sampling): the same whenever the minibatch is asked for
    weights: torch.Tensor | None = None
    posterior_pdfs: torch.Tensor | None = None
    posterior_probs: torch.Tensor | None = None
    target_feats: torch.Tensor | None = None
    sequences: Sequences | None = None
    labels: torch.Tensor | None = None  # of whole utterances, in the order of `sequences`, one behind the other, on the host
    label_lengths: torch.Tensor | None = None  # of each, on the host
    utts: list[str] | None = None  # of whole utterances, in the order of `sequences`
    chunks: Chunks | None = None  # of a chain objective: numerators and what else its sequences have

    def __len__(self) -> int:
        if self.chunks is not None:
            return self.chunks.frames
        return len(self.inputs) if self.sequences is None else self.sequences.frames

    def addresses(self) -> tuple[int, ...]:
        """The minibatch's size and the addresses of its tensors, on which a recorded CUDA graph depends."""
        tensors = (self.inputs, self.targets, self.weights, self.posterior_pdfs, self.posterior_probs, self.target_feats)
        return len(self.inputs), *(0 if t is None else t.data_ptr() for t in tensors)


class Sampler:
    """Makes the shuffled minibatches of one split, spliced and normalised by a gather on `device`.

    A minibatch's row for frame t of an utterance is the frames t + offset, offset in `splice`, those beyond the utterance replaced by its
    first or last one, minus `shift`, times `scale` (both (len(splice) x dim,)).

    `frames`: the store's frames on the device, which samplers share; without it they are this one's own, all of them.
    `sizes` and `counts`: frames and minibatches of each block of the split.
    """

    def __init__(self, store: FrameStore, partition: Partition, split: int, minibatch_size: int, splice: list[int],
                 shift: torch.Tensor, scale: torch.Tensor, seed: int, device: torch.device, frames: SharedFrames | None = None) -> None:
        self.partition, self.minibatch_size, self.seed, self.device = partition, minibatch_size, seed, device
        if frames is None:
            frames = SharedFrames(store, device, reach(splice))
            frames.hold()
        self.shared = frames
        self.gather: Gather = SpliceGather(store, splice, shift, scale, self.capacity, device)
        self.fraction = 1.0
        self._take(split)

    def _take(self, split: int) -> None:
        self.split = split
        self.sizes = [self.partition.size(split, b) for b in range(self.partition.blocks)]
        self.counts = [-(-n // self.minibatch_size) for n in self.sizes]

    @property
    def capacity(self) -> int:
        """The largest number of rows of a minibatch."""
        return self.minibatch_size

    @property
    def training_capacity(self) -> int:
        """The largest number of rows of a minibatch of `epoch`."""
        return self.capacity

    def of_fraction(self, fraction: float) -> Sampler:
        """The sampler whose epochs end after this fraction of their minibatches."""
        other = copy.copy(self)
        other.fraction = fraction
        return other

    def of_split(self, split: int) -> Sampler:
        """The sampler of another split, which shares this one's buffers: a minibatch is valid until either makes its next."""
        other = copy.copy(self)
        other._take(split)
        return other

    @property
    def minibatches(self) -> int:
        """The number of minibatches in an epoch; the last one of a block may be smaller than the rest."""
        return math.ceil(self.fraction * sum(self.counts))

    @property
    def frames(self) -> int:
        """The number of frames in an epoch, at most."""
        return min(sum(self.sizes), self.minibatches * self.minibatch_size)

    def frames_between(self, epoch: int, start: int, stop: int) -> int:
        """The number of frames in the minibatches of an epoch from number `start` to `stop` - 1."""
        found = index = 0
        for block in self._block_order(epoch):
            first, last = (min(max(number - index, 0), self.counts[block]) for number in (start, stop))
            found += self._frames_before(block, last) - self._frames_before(block, first)
            index += self.counts[block]
        return found

    def _frames_before(self, block: int, number: int) -> int:
        """The frames of the first minibatches of a block."""
        return min(number * self.minibatch_size, self.sizes[block])

    def epoch(self, epoch: int, start: int = 0) -> Generator[Minibatch, int, None]:
        """Iterate over the minibatches of an epoch from number `start` on; they are the same whenever they are asked for.

        `send(n)` goes on with number n, at the price of nothing that is passed over.
        """
        index, total = 0, self.minibatches
        for block in self._block_order(epoch):
            if index + self.counts[block] <= start:
                index += self.counts[block]
                continue
            skipped = max(start - index, 0)
            index += skipped
            for make in self._minibatches(block, epoch, skipped):
                if index == total:
                    return
                if index >= start:
                    seed = _mixed(self.seed, _MINIBATCH, epoch, self.split, index)
                    minibatch = Minibatch(**make(), index=index, last=index == total - 1, epochs_done=epoch + index / total, seed=seed)
                    self._place(minibatch, epoch)
                    start = (yield minibatch) or start
                index += 1

    def _generator(self, epoch: int, block: int) -> np.random.Generator:
        return generator_of(self.seed, _FRAME_ORDER, epoch, block, self.split)

    def _block_order(self, epoch: int) -> list[int]:
        return generator_of(self.seed, _BLOCK_ORDER, epoch).permutation(self.partition.blocks).tolist()

    def _place(self, minibatch: Minibatch, epoch: int) -> None:
        """Note in a minibatch its place in the epoch, where a later one depends on that."""

    def _minibatches(self, block: int, epoch: int | None, start: int, step: int = 1) -> Iterator[Make]:
        """Iterate over functions that make a block's minibatches, every `step`-th one from number `start` on.

        Their order is drawn for the epoch, or, without one, is the store's, and memory lets go of what was read.
        """
        frames = self.partition.part(self.split, block)
        if epoch is not None:
            self._generator(epoch, block).shuffle(frames)
        frames = self._every(step, frames[start * self.minibatch_size :])
        for piece in self.shared.pieces(frames, self.minibatch_size):
            chosen = frames[piece]
            source = self.shared.of(chosen)
            step = self.minibatch_size if self.device.type == "cpu" else max(len(chosen), 1)  # a GPU gets all numbers at once
            for number, begin in enumerate(range(0, len(chosen), step), 1):
                rows = source.numbers(chosen[begin : begin + step])
                for first in range(0, len(rows), self.minibatch_size):
                    yield functools.partial(self.gather, rows[first : first + self.minibatch_size], source)
                if epoch is None and number % PIECE == 0:
                    self.shared.passed(chosen[begin + step - PIECE * step : begin + step])

    def _of_frames(self, frames: np.ndarray) -> dict[str, Any]:
        """The tensors of frames by their numbers in the store, which lie in runs."""
        source = self.shared.of(frames)
        rows = source.rows(frames)
        self.shared.note(rows)
        return self.gather(to_device(torch.from_numpy(rows), self.device), source)

    def _every(self, step: int, frames: np.ndarray) -> np.ndarray:
        """The frames of every `step`-th minibatch of a run of them, from the first on; none but the last is smaller than the rest."""
        size = self.minibatch_size
        if step == 1:
            return frames
        return np.concatenate([frames[:0], *(frames[first : first + size] for first in range(0, len(frames), step * size))])

    def held_out(self, part: int, parts: int) -> list[np.ndarray] | None:
        """The frames that `in_order` reads; None for all."""
        if parts == 1:
            return None
        found, index = [], 0
        for block in range(self.partition.blocks):
            start = (part - index) % parts * self.minibatch_size
            found.append(self._every(parts, self.partition.part(self.split, block)[start:]))
            index += self.counts[block]
        return found

    def largest(self) -> Minibatch:
        """A minibatch that takes as much memory as any of an epoch."""
        return next(self.in_order())

    def block_ends(self, epoch: int) -> list[int]:
        """The number of minibatches that are done at the end of each block of an epoch."""
        return np.cumsum([self.counts[block] for block in self._block_order(epoch)]).tolist()

    def in_order(self, part: int = 0, parts: int = 1) -> Iterator[Minibatch]:
        """Iterate over every frame of the split once, in the store's order: for cross-validation.

        Of these minibatches, it gives the `parts`-th ones from number `part` on.
        """
        index, total = 0, sum(self.counts)
        for block in range(self.partition.blocks):
            start = (part - index) % parts
            for k, make in enumerate(self._minibatches(block, None, start, parts)):
                number = index + start + k * parts
                yield Minibatch(**make(), index=number, last=number == total - 1)
            index += self.counts[block]


def reach(splice: list[int]) -> tuple[int, int]:
    """How many frames a splice reaches back, and forward."""
    return max(0, -min(splice)), max(0, max(splice))


class SpliceGather:
    """Makes a minibatch's tensors, by name, from chosen rows of a source: `gather(rows, source)`.

    Its buffers, of `capacity` rows, are reused.
    """

    def __init__(self, store: FrameStore, splice: list[int], shift: torch.Tensor, scale: torch.Tensor, capacity: int,
                 device: torch.device) -> None:
        dim, width = store.manifest.dim, len(splice)
        if shift.shape != (width * dim,) or scale.shape != (width * dim,):
            raise ValueError(f"shift and scale have {tuple(shift.shape)}, expected ({width * dim},)")
        dtypes = {name: torch.from_numpy(array[:0]) for name, array in stored_arrays(store).items()}
        self._chosen = {name: like.new_empty(capacity, *like.shape[1:], device=device) for name, like in dtypes.items()}
        self._splice = to_device(torch.tensor(splice, dtype=torch.int16), device)
        self._shift, self._scale, self.capacity = shift.to(device), scale.to(device), capacity
        self._rows = torch.from_numpy(store.feats[:0]).new_empty(capacity * width, dim, device=device)
        self._inputs = self._rows.view(capacity, width * dim) if self._rows.dtype == torch.float32 else \
            torch.empty(capacity, width * dim, device=device)

    def of_capacity(self, capacity: int) -> SpliceGather:
        """The same with buffers of its own, for so many rows."""
        other = copy.copy(self)
        other.capacity = capacity
        other._chosen = {name: buffer.new_empty(capacity, *buffer.shape[1:]) for name, buffer in self._chosen.items()}
        other._rows = self._rows.new_empty(capacity * len(self._splice), self._rows.shape[1])
        other._inputs = other._rows.view(capacity, -1) if self._rows.dtype == torch.float32 else \
            self._inputs.new_empty(capacity, self._inputs.shape[1])
        return other

    def places(self, count: int, first: int = 0) -> dict[str, Any]:
        """The tensors of a minibatch of `count` rows, by name, from row `first` of the buffers on: whatever lies there."""
        return {name: buffer[first : first + count] for name, buffer in (("inputs", self._inputs), *self._chosen.items())}

    def __call__(self, rows: torch.Tensor, source: DeviceFrames, first: int = 0) -> dict[str, Any]:
        n, width, made = len(rows), len(self._splice), self.places(len(rows), first)
        assert first + n <= self.capacity, f"{first + n} rows in buffers for {self.capacity}"
        rows = rows.long()
        utt = torch.searchsorted(source.starts, rows, right=True)
        edges = source.edges[utt]
        spliced = torch.clamp(rows[:, None] + self._splice, edges[:, :1], edges[:, 1:])
        gathered = self._rows[first * width : (first + n) * width]
        torch.index_select(source.feats, 0, spliced.view(-1), out=gathered)
        inputs = made["inputs"]
        if source.scales is not None and source.scale_rows is not None:
            expand(gathered.view(n, width, -1), source.scales, source.scale_rows[utt], inputs.view(n, width, -1))
        elif self._rows.dtype != torch.float32:
            inputs.copy_(gathered.view(n, -1))
        for (part,) in pieces(inputs):
            part.sub_(self._shift).mul_(self._scale)
        for name, array in source.stored.items():
            torch.index_select(array, 0, rows, out=made[name])
        return made


def splice_statistics(store: FrameStore, splice: list[int], floor: float = 1e-10) -> tuple[torch.Tensor, torch.Tensor]:
    """The global mean and 1 / standard deviation of the spliced features, float32 (len(splice) x dim,) each.

    As nnet1's feature transform: over every frame with its edges repeated; variance floored at `floor`.
    """
    return store.statistics(max(map(abs, splice))).mean_and_scale(splice, len(store), floor)
