"""The sampler of stores larger than memory: shuffling in two levels, with reads of whole blocks, and the next ones read beforehand.

The frames of a worker's part are cut into blocks of consecutive frames. In each epoch the blocks are put into a new order, and taken in
groups of as many as have about `randomizer_size` frames. The frames of a group are read, block by block, and shuffled among themselves. So
memory holds two groups: the one that is trained on, and the next, which a thread reads meanwhile. Where a group ends within a minibatch,
the first frames of the next one fill it up.

Orders come from (seed, epoch, block, split, group) alone. A run that is resumed draws the orders of the groups that it still needs, and no
others.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from pykaldist.errors import UserError
from pykaldist.frames.ahead import ahead
from pykaldist.frames.device_frames import DeviceFrames
from pykaldist.frames.sampler import GROUP_ORDER, Make, Sampler, generator_of
from pykaldist.host_memory import give_back
from pykaldist.options import option

BLOCK = 4096  # frames


@dataclass
class RandomizerOptions:
    """The order in which a training takes the frames of a store."""

    randomizer_seed: int = option(777, "seed of the order of frames")
    randomizer_size: int = option(0, "frames that are shuffled together, for stores larger than memory: blocks come in a new order each "
                                  "epoch, and are shuffled in groups of so many frames; 0: all frames")
    randomizer_block: int | None = option(None, f"frames of such a block, which are read together ({BLOCK})")

    def __post_init__(self) -> None:
        if self.randomizer_size < 0:
            raise UserError(f"--randomizer-size {self.randomizer_size} is negative.")
        if self.randomizer_block is not None and (self.randomizer_block < 1 or not self.randomizer_size):
            raise UserError(f"--randomizer-block {self.randomizer_block}: expected a positive number of frames, and --randomizer-size.")

    @property
    def block(self) -> int:
        """The frames of a block, given or by default."""
        return self.randomizer_block or BLOCK

    @property
    def run_frames(self) -> int:
        """The consecutive frames that are dealt out to workers together."""
        return self.block if self.randomizer_size else 1

    def sampler(self, *arguments: Any) -> Sampler:
        """Make the sampler of training data in this order, of the arguments of a Sampler."""
        if not self.randomizer_size:
            return Sampler(*arguments)
        return BlockSampler(*arguments, randomizer_size=self.randomizer_size, block=self.block)

    def contract(self) -> list[tuple[str, str]]:
        """The line about the order in the table at the start of a training; none where all frames are shuffled."""
        said = f"blocks of {self.block} frames, of which about {self.randomizer_size} frames are shuffled together"
        return [("order", said)] if self.randomizer_size else []

    def check_room(self, room: int | None, memory: str) -> None:
        """Raise UserError where there is but so much room for frames on a GPU that they do not fit, though they come in groups."""
        if room is not None and self.randomizer_size:
            raise UserError(f"{memory}: groups of --randomizer-size {self.randomizer_size} frames do not fit; lower it.")


class BlockSampler(Sampler):
    """Makes the minibatches of one split, shuffled in two levels; otherwise like its base class.

    `randomizer_size`: frames that are shuffled together, about; `block`: frames that are read together.
    """

    def __init__(self, *arguments: Any, randomizer_size: int, block: int = BLOCK) -> None:
        super().__init__(*arguments)
        if not self.minibatch_size <= randomizer_size or not 0 < block <= randomizer_size:
            raise UserError(f"--randomizer-size {randomizer_size}: expected 0, or as many frames as a minibatch ({self.minibatch_size}) "
                            f"and a block (--randomizer-block {block}) have, or more.")
        self.block, self.group = block, max(1, randomizer_size // block)

    def _minibatches(self, block: int, epoch: int | None, start: int, step: int = 1) -> Iterator[Make]:
        if epoch is None:
            yield from super()._minibatches(block, epoch, start, step)
            return
        part = self.partition.runs(self.split, block)
        count = -(-len(part) // self.block)
        order = self._generator(epoch, block).permutation(count)
        groups = [order[first : first + self.group] for first in range(0, count, self.group)]
        lengths = [sum(min(self.block, len(part) - b * self.block) for b in group.tolist()) for group in groups]
        edges = np.minimum(-(-np.cumsum([0, *lengths]) // self.minibatch_size) * self.minibatch_size, len(part))  # at minibatches' ends

        def shuffled(number: int) -> np.ndarray:
            """The frames of a group in their order."""
            frames = np.concatenate([part.frames(b * self.block, (b + 1) * self.block, self.partition.dtype) for b in groups[number]])
            generator_of(self.seed, GROUP_ORDER, epoch, block, self.split, number).shuffle(frames)
            return frames

        def load(number: int) -> tuple[torch.Tensor, DeviceFrames]:
            """The rows of a group's minibatches, those that were asked for, and where they lie."""
            give_back()  # what the group before last has left
            begin, first = sum(lengths[:number]), max(int(edges[number]), start * self.minibatch_size)
            frames, end, until = [shuffled(number)[first - begin :]], begin + lengths[number], int(edges[number + 1])
            while end < until:
                number += 1
                frames.append(shuffled(number)[: until - end])
                end += len(frames[-1])
            chosen = np.concatenate(frames)
            del frames
            source = self.shared.loaded(chosen)
            rows = source.numbers(chosen)
            del chosen
            give_back()
            return rows, source

        asked = [number for number in range(len(groups)) if edges[number + 1] > max(edges[number], start * self.minibatch_size)]
        for rows, source in ahead(functools.partial(load, number) for number in asked):
            for first in range(0, len(rows), self.minibatch_size):
                yield functools.partial(self.gather, rows[first : first + self.minibatch_size], source)
