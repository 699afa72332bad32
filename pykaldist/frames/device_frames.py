"""The frames of a store on a device: one copy a process, shared by all of its samplers, with no more frames than the process needs.

On a CPU a store stays where it is, memory-mapped: all processes of a machine share its pages. To a GPU go the frames that the process's
workers train on, with those around them that splicing needs. Where they do not fit, they come in pieces: those of a worker's next
minibatches, as its turn comes. So do frames of which nobody said before that they are needed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from pykaldist.frames.runs import Runs
from pykaldist.frames.store import FrameStore
from pykaldist.io.scratch import PagesRead, prefetch, release

CHUNK_BYTES = 1 << 22  # of a store that are copied at a time: a page of a file that is read brings those around it, up to 2 MB
READ_TOGETHER = 1 << 15  # bytes of a run of frames that are worth a request of their own
ALIGNED = 16  # bytes to a multiple of which arrays are padded that are sent together
PIECE = 64  # minibatches of a piece of frames that nobody said were needed
EXTRAS = ("targets", "weights", "posterior_pdfs", "posterior_probs", "target_feats")


def sendable(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor of the host in memory from which it can be copied to a device without waiting: pinned, for a GPU."""
    return tensor.pin_memory() if device.type == "cuda" else tensor


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor of the host on a device. Nothing waits for a copy to a GPU: it goes from pinned memory, in the order of the GPU's work."""
    return sendable(tensor, device).to(device, non_blocking=True)


def together(arrays: Sequence[np.ndarray], device: torch.device) -> list[Tensor]:
    """Arrays of the host, of one dimension, on a device. They go to a GPU in one copy, as `to_device` has it."""
    if device.type == "cpu":
        return [torch.from_numpy(array) for array in arrays]
    bounds = list(itertools.accumulate((-(-array.nbytes // ALIGNED) * ALIGNED for array in arrays), initial=0))
    packed = torch.empty(bounds[-1], dtype=torch.uint8, pin_memory=device.type == "cuda")
    for first, array in zip(bounds, arrays, strict=False):
        packed.numpy()[first : first + array.nbytes] = array.view(np.uint8)
    sent = packed.to(device, non_blocking=True)
    return [sent[first : first + array.nbytes].view(torch.from_numpy(array).dtype) for first, array in zip(bounds, arrays, strict=False)]


def stored_arrays(store: FrameStore) -> dict[str, np.ndarray]:
    """What a store has of each frame beside its features, by name."""
    return {name: array for name in EXTRAS if (array := getattr(store, name)) is not None}


def frame_bytes(store: FrameStore) -> int:
    """The bytes that a frame takes on a device."""
    scales = 0 if store.scales is None else -(-4 * 4 * store.manifest.dim * store.manifest.num_utts // len(store))
    return sum(a.itemsize * int(np.prod(a.shape[1:])) for a in (store.feats, *stored_arrays(store).values())) + scales


class DeviceFrames:
    """Frames of a store as rows of tensors on a device: those of `kept`, runs whose rows are packed, or all.

    `feats` (rows, dim), and `stored`, what the store has beside them, by name. `starts` (utterances,): the first row of each utterance,
    ascending. `edges` (1 + utterances, 2): a row of zeros, then the first and last row of each. So where n of `starts` are not above a row,
    its utterance has `edges[n]`; that holds where `kept` has all frames that splicing reaches from it. `scales`: of features in 8 bits, in
    row `scale_rows[n]`.

    `copied`: the arrays are copied, also on a CPU, where they would stay memory-mapped.
    """

    def __init__(self, store: FrameStore, device: torch.device, kept: Runs | None = None, copied: bool = False) -> None:
        self._device, self._store = device, store
        mapped = device.type == "cpu" and kept is None and not copied and not store.remote
        self._runs = store.runs if mapped else Runs.whole(len(store)) if kept is None else kept
        put = torch.from_numpy if mapped else self._put
        self.feats = put(store.feats)
        self.stored = {name: put(array) for name, array in stored_arrays(store).items()}
        parts = self._runs.split(store.offsets).ordered()
        edges = np.stack([parts.row, parts.row + parts.end - parts.first - 1], 1)
        self.starts, self.edges = (to_device(torch.from_numpy(array), device)
                                   for array in (parts.row, np.concatenate([np.zeros((1, 2), np.int64), edges])))
        self.scales = self.scale_rows = None
        if store.scales is not None:
            rows = store.scale_rows[np.searchsorted(store.offsets, parts.first, side="right") - 1]
            scales = store.scales
            if not mapped:
                own, rows = np.unique(rows, return_inverse=True)
                scales = scales[own]
            self.scales, self.scale_rows = (to_device(torch.from_numpy(array), device) for array in (scales, np.append(0, rows)))

    def __len__(self) -> int:
        return len(self.feats)

    def rows(self, frames: np.ndarray) -> np.ndarray:
        """The rows of frames, by their numbers in the store."""
        return self._runs.rows(frames)

    def numbers(self, frames: np.ndarray) -> Tensor:
        """The same on the device; on a GPU in the type in which they are used there."""
        rows = torch.from_numpy(self.rows(frames))
        return rows if self._device.type == "cpu" else to_device(rows.long(), self._device)

    def _put(self, array: np.ndarray) -> Tensor:
        """The rows of an array of the store on the device. They go there a piece at a time, so that the host has no second copy.

        Nor does memory keep what was read of a mapped store.
        """
        rows = len(self._runs)
        placed = torch.from_numpy(array[:0]).new_empty((rows, *array.shape[1:]), device=self._device)
        if placed.is_meta:
            return placed
        step = max(1, CHUNK_BYTES // max(1, array.itemsize * int(np.prod(array.shape[1:]))))
        for first in range(0, rows, step):
            piece = placed[first : first + step]
            host = piece if self._device.type == "cpu" else torch.empty_like(piece, device="cpu")
            target, slices = host.numpy(), list(self._runs.of_rows(first, first + len(piece)).slices(self._store.runs))
            long = [array[here] for _, here in slices if (here.stop - here.start) * array[:1].nbytes >= READ_TOGETHER] \
                if isinstance(array, np.ndarray) else []
            for part in long:
                prefetch(part)  # all of them are asked for at once: page by page, a disk would wait for the next request
            for there, here in slices:
                target[there.start - first : there.stop - first] = array[here]
            for part in long:
                release(part)  # the page cache keeps what it has room for, and this process does not grow by the store
            if host is not piece:
                piece.copy_(sendable(host, self._device), non_blocking=True)
        return placed


class SharedFrames:
    """The frames of one store on the device of a process, for all of its samplers, whose splice reaches `reach` frames to either side.

    `hold` loads what the process needs; `pieces` cuts a run of minibatches so that the frames of each piece are there, or can be; `of`
    gives a piece's frames. `room`: bytes that they may take on a GPU; None: no limit. `readers`: workers that read pieces by turns.
    `group`: frames of the groups in which they come (frames/block_sampler.py), so that none are held; 0: they do not.
    """

    def __init__(self, store: FrameStore, device: torch.device, reach: tuple[int, int], room: int | None = None, readers: int = 1,
                 copied: bool = False, group: int = 0) -> None:
        self.store, self.device, self.reach, self.room, self.readers, self.copied = store, device, reach, room, readers, copied
        self.group = group
        self._in_place = device.type == "cpu" and not copied and not store.remote
        self._pages = PagesRead([store.feats, *stored_arrays(store).values()], len(store.feats)) if self._in_place else None
        self._held: DeviceFrames | None = None
        self._needed: np.ndarray | None = None  # of each frame whether it is held with all that splicing needs; None: all are

    @property
    def streamed(self) -> bool:
        """Whether frames come in pieces, as they do not fit."""
        return self._held is None

    def hold(self, parts: Sequence[np.ndarray] | None = None) -> None:
        """Load frames by their numbers, in place of those that were held; all where no parts are given.

        Too many are left to come in pieces. Nothing is loaded again where all of them are there.
        """
        if self.group:
            return
        needed = None if parts is None or self._in_place else self._marked(parts)
        if self._held is not None and (self._needed is None or (needed is not None and not (needed & ~self._needed).any())):
            return
        self._held = self._needed = None  # freed first: there is never a second copy
        kept = None if needed is None else Runs.marked(self._around(needed))
        if kept is not None and len(kept) == len(self.store):
            kept = needed = None
        if self._in_place or self.room is None or self.bytes(len(self.store) if kept is None else len(kept)) <= self.room:
            self._held, self._needed = DeviceFrames(self.store, self.device, kept, self.copied), needed

    def group_bytes(self) -> int:
        """What the groups take that are there at once: of each reader one, and the one that is loaded meanwhile."""
        return 2 * self.readers * self.bytes(min(self.group, len(self.store)))

    def bytes(self, rows: int) -> int:
        """What so many frames take."""
        return rows * frame_bytes(self.store)

    def with_context(self, parts: Sequence[np.ndarray] | None) -> int:
        """The number of frames that `hold` would load."""
        return len(self.store) if parts is None else int(self._around(self._marked(parts)).sum())

    def of(self, frames: np.ndarray) -> DeviceFrames:
        """A store's frames, of which these may be asked for: those that are held, or a piece of them."""
        if self._holds(frames):
            assert self._held is not None
            return self._held
        return self.loaded(frames)

    def note(self, rows: np.ndarray) -> None:
        """Note that rows of a mapped store are going to be read, so that not all that were read before stay in memory."""
        if self._pages is not None:
            self._pages.note(rows)

    def passed(self, frames: np.ndarray) -> None:
        """Let go of the memory of ascending frames of a mapped store that were read, and of those between them."""
        if self._pages is not None and len(frames):
            self._pages.passed(slice(int(frames[0]), int(frames[-1]) + 1))

    def loaded(self, frames: np.ndarray) -> DeviceFrames:
        """These of a store's frames, with those around them, copied."""
        return DeviceFrames(self.store, self.device, Runs.around(frames, self.reach, len(self.store)), self.copied)

    def pieces(self, frames: np.ndarray, size: int) -> Iterator[slice]:
        """Cut the frames of a run of minibatches, `size` in each, into pieces: one, where they are held or fit together."""
        if self._holds(frames):
            yield slice(0, len(frames))
            return
        count = PIECE * size
        if self.room is not None and self.streamed:
            limit = self.room // (self.readers + 1) // frame_bytes(self.store)  # one piece is loaded while each reader has its own
            together = len(Runs.around(frames, self.reach, len(self.store))) <= limit
            count = max(1, len(frames)) if together else max(1, limit // (size * (sum(self.reach) + 1))) * size
        for first in range(0, len(frames), count):
            yield slice(first, first + count)

    def _holds(self, frames: np.ndarray) -> bool:
        return self._held is not None and (self._needed is None or bool(self._needed[frames].all()))

    def _marked(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        """Of each frame of the store whether it is in one of the parts."""
        marked = np.zeros(len(self.store), bool)
        for part in parts:
            marked[part] = True
        return marked

    def _around(self, marked: np.ndarray) -> np.ndarray:
        """The marks of the marked frames and of those around them. Where that crosses an utterance's edge, a few are too many."""
        wide = marked.copy()
        for step in range(1, self.reach[0] + 1):
            wide[:-step] |= marked[step:]
        for step in range(1, self.reach[1] + 1):
            wide[step:] |= marked[:-step]
        return wide
