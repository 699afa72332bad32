"""Shuffled minibatches of a stream of utterances, as nnet1's training programs make them.

Frames are put into a buffer until it holds `size` of them. Their order is drawn anew, and minibatches are taken from it; what is left
over stays for the next filling. The last minibatch has the rest, which Kaldi leaves out. So no more than a buffer and an utterance is in
memory. A frame store, which shuffles all of its frames, has a `Sampler` of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch

from pykaldist.errors import UserError
from pykaldist.frames.sampler import Minibatch

Frames = dict[str, np.ndarray]  # `inputs`, `targets` and other fields of a Minibatch by name, a row a frame


def minibatches(utts: Iterable[Frames], minibatch_size: int, size: int, rng: np.random.Generator, shuffle: bool = True,
                device: torch.device | str = "cpu") -> Iterator[Minibatch]:
    """Iterate over minibatches of utterances' frames.

    All utterances have the same fields; soft targets may differ in their width. `size`: frames of the buffer. Raises UserError where
    a buffer is smaller than a minibatch.
    """
    if not 0 < minibatch_size <= size:
        raise UserError(f"--minibatch-size={minibatch_size} --randomizer-size={size}: expected a minibatch of one frame or more, and no "
                        "more of them than the buffer has.")
    waiting: list[Frames] = []
    index = held = 0
    for utt in utts:
        waiting.append(utt)
        held += len(utt["inputs"])
        if held < size:
            continue
        buffer = _joined(waiting, rng if shuffle else None)
        whole = held - held % minibatch_size
        for minibatch in _cut(buffer, whole, minibatch_size, index, rng, device):
            yield minibatch
            index += 1
        waiting, held = [{name: array[whole:] for name, array in buffer.items()}], held - whole
    if held:
        yield from _cut(_joined(waiting, rng if shuffle else None), held, minibatch_size, index, rng, device)


def _joined(waiting: list[Frames], rng: np.random.Generator | None) -> Frames:
    """Join utterances to one, its frames in an order drawn from `rng`, or as they come."""
    buffer: Frames = {}
    for name in waiting[0]:
        parts = [utt[name] for utt in waiting]
        if parts[0].ndim == 2:
            width = max(part.shape[1] for part in parts)
            parts = [np.pad(part, ((0, 0), (0, width - part.shape[1]))) for part in parts]
        buffer[name] = np.concatenate(parts)
    if rng is None:
        return buffer
    order = rng.permutation(len(buffer["inputs"]))
    return {name: array[order] for name, array in buffer.items()}


def _cut(buffer: Frames, stop: int, size: int, index: int, rng: np.random.Generator,
         device: torch.device | str) -> Iterator[Minibatch]:
    for number, first in enumerate(range(0, stop, size)):
        part = slice(first, min(first + size, stop))
        tensors: dict[str, Any] = {name: torch.from_numpy(array[part]).to(device) for name, array in buffer.items()}
        yield Minibatch(**tensors, index=index + number, last=False, seed=int(rng.integers(1 << 63)))
