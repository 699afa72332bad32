"""The division of utterances into chunks of a few fixed lengths, so that the sequences of a minibatch have one length.

Of the lengths `widths`, the first is the *primary* one. A *split* is a list of lengths: any number of primary ones, and at most two others.
For an utterance of T frames a split whose chunks have D frames together costs

    D - T where D > T (chunks overlap),    2 (T - D) else (frames are left out, which is worse),

and a split with a chunk longer than the utterance cannot be taken. One is drawn at random among those that cost less than 2 above the
cheapest, and its chunks stand in ascending or, as likely, descending order. Of an utterance longer than two of the longest chunks and a
primary one, primary chunks are taken off first.

Frames that are left out are dealt out evenly before, between and behind the chunks; overlaps are proportional to the shorter one of two
neighbours. Chunks begin at multiples of the frame subsampling factor. A frame that is in n chunks has the weight 1 / n in each.

As Kaldi's nnet3/nnet-example-utils.cc divides utterances, so that the chunks of a corpus have Kaldi's lengths and places, but for chance.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass

import numpy as np

from pykaldist.errors import UserError

_NEAR = 1.9999  # what a split may cost above the cheapest one


def parse_widths(text: str, factor: int = 1) -> list[int]:
    """Read the lengths of chunks, in frames, from text such as `150,110,100`; each is rounded up to a multiple of `factor`."""
    parts = text.split(",")
    if not all(part.strip().isdecimal() and int(part) for part in parts):
        raise UserError(f"chunk widths {text!r}: expected numbers of frames with commas between them, as 150,110,100.")
    return [-(-int(part) // factor) * factor for part in parts]


@dataclass(frozen=True)
class ChunkSpan:
    """The place of a chunk in its utterance, in frames; `weights` has one value for each output frame."""

    first: int
    frames: int
    weights: np.ndarray


class UtteranceSplitter:
    """Divides utterances into chunks of `widths` frames, multiples of `factor`, the frame subsampling factor."""

    def __init__(self, widths: list[int], factor: int = 1) -> None:
        if any(width % factor for width in widths):
            raise ValueError(f"widths {widths} are to be multiples of {factor}")
        self.widths, self.factor, self.primary = widths, factor, widths[0]
        self.tabulated = 2 * max(widths) + self.primary  # frames of the longest utterance for which splits are compared
        self._splits = self._all_splits()

    def _all_splits(self) -> list[tuple[int, ...]]:
        """All splits that can be the cheapest for an utterance of up to `tabulated` frames."""
        found = set()
        for others in itertools.product([0, *self.widths[1:]], repeat=2):
            split = [width for width in others if width]
            while sum(split) <= self.tabulated + self.primary:
                if split:
                    found.add(tuple(sorted(split)))
                split.append(self.primary)
        return sorted(found)

    @functools.cache  # noqa: B019  # of a few hundred lengths, as long as the splitter lives
    def splits(self, frames: int) -> list[tuple[int, ...]]:
        """The splits among which is drawn for an utterance of up to `tabulated` frames; none where it is shorter than all widths."""
        costs = {split: float(sum(split) - frames if sum(split) > frames else 2 * (frames - sum(split)))
                 for split in self._splits if max(split) <= frames}
        return [split for split, cost in costs.items() if cost < min(costs.values()) + _NEAR]

    def chunks(self, frames: int, generator: np.random.Generator) -> list[ChunkSpan]:
        """Divide an utterance of so many frames; empty where it is shorter than the shortest width."""
        repeats = max(0, -(-(frames - self.tabulated) // self.primary))
        splits = self.splits(frames - repeats * self.primary)
        if not splits:
            return []
        sizes = np.sort([*splits[generator.integers(len(splits))], *[self.primary] * repeats])
        if generator.integers(2) == 0:
            sizes = sizes[::-1]
        outputs = -(-frames // self.factor)
        sizes = sizes // self.factor
        firsts = np.cumsum(_gaps(outputs, sizes, generator)) + np.cumsum(sizes) - sizes
        covered = np.zeros(outputs)
        for first, size in zip(firsts, sizes, strict=True):
            covered[first:first + size] += 1
        return [ChunkSpan(int(first) * self.factor, int(size) * self.factor, (1.0 / covered[first:first + size]).astype(np.float32))
                for first, size in zip(firsts, sizes, strict=True)]


def _gaps(total: int, sizes: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """The frames left out before each chunk; negative where it overlaps with the one before."""
    left_out = total - int(sizes.sum())
    if left_out >= 0:
        gaps = np.full(len(sizes) + 1, left_out // (len(sizes) + 1))
        gaps[:left_out % len(gaps)] += 1
        return generator.permutation(gaps)[:-1]
    shorter = np.minimum(sizes[:-1], sizes[1:])
    overlaps = -left_out * shorter // shorter.sum()
    overlaps[:-left_out - overlaps.sum()] += 1  # what rounding has left
    return -np.concatenate([[0], overlaps])
