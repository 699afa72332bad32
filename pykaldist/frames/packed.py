"""The order of the rows of a minibatch of sequences: packed, without padding, or padded to a shape that many minibatches have.

The layout is time-major: the rows of step 0 first, then those of step 1, and so on. Sequences stand longest first, so that the number of
rows of a step, `sizes[t]`, never grows, and row k of step t follows row k of step t - 1. No row is padding: whatever sums over rows
(gradients, NG-SGD's Fisher matrices) sums over frames.

    sequences of 3, 2, 2 frames:   a0 b0 c0   a1 b1 c1   a2        sizes 3 3 1

On a GPU the rows of training are padded, so that a recorded step (`optim/optimizer.py`) fits minibatches whose sequences have other
lengths. The padding stands behind each sequence's frames, and a mask on the device (`Sequences.real`) tells the two apart. The derivatives
of padding are 0, and NG-SGD's Fisher matrices do not see it: what is trained is the same as without padding.

    padded:   a0 b0 c0   a1 b1 c1   a2 -  -        sizes 3 3 3
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch


@dataclass(eq=False)
class Sequences:
    """How the rows of a minibatch follow each other in time.

    `sizes`: rows of each step. `frames`: rows that are trained on; the others are context.

    `kept`: for a step at which one of the streams begins another utterance, (sizes[t], 1) of 0 there and 1 elsewhere: what the state
    before it is multiplied by. `continues`: the state before step 0 is the one that the minibatch before has left (else zero); `leaves`:
    the step after which the state is left for the next minibatch, -1 for none; `place`: (epoch, split, index) of a minibatch that does
    either.

    `real`: (rows, 1) of 1 where a row is a frame and 0 where it is padding; None where none is padding and rows are packed. `padding`: how
    many are. `lengths`: of whole utterances that are padded, the frames of each sequence that has some, on the host.
    """

    sizes: list[int]
    frames: int
    kept: dict[int, torch.Tensor] = field(default_factory=dict)
    continues: bool = False
    leaves: int = -1
    place: tuple[int, int, int] = (0, 0, 0)
    real: torch.Tensor | None = None
    padding: int = 0
    lengths: np.ndarray | None = None

    def real_lengths(self) -> np.ndarray:
        """The frames of each sequence, the longest first, on the host."""
        if self.lengths is not None:
            return self.lengths
        assert self.real is None, "padded sequences that are no whole utterances"
        sizes = np.array(self.sizes)
        return (np.arange(sizes[0])[:, None] < sizes).sum(1)

    def offsets(self) -> list[int]:
        """The first row of each step."""
        offsets, total = [], 0
        for size in self.sizes:
            offsets.append(total)
            total += size
        return offsets


def packed_grid(lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, list[int]]:
    """Lay out sequences of so many rows (S,), longest first: (step of each row, sequence of each row, sizes)."""
    steps = torch.arange(int(lengths[0]))
    inside = steps[:, None] < lengths[None, :]
    step, sequence = inside.nonzero(as_tuple=True)
    return step, sequence, inside.sum(1).tolist()
