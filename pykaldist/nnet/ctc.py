"""Connectionist temporal classification: sequences of labels as targets, without an alignment.

Graves, Fernandez, Gomez & Schmidhuber (2006). Of K outputs a frame, output 0 is blank and 1 .. K - 1 are labels. A path (an output for each
frame) stands for the labels that are left when repeated outputs are merged and blanks taken out. With p = softmax(z) and all paths pi of an
utterance that stand for its labels l,
    loss = -log sum over pi of prod over t of p_t(pi_t),     d loss / d z_tk = p_tk - gamma_tk,
gamma_tk the share of those paths' probability that goes through k at time t, by the forward-backward algorithm (`ctc_forward_backward.py`).
Utterances that have fewer frames than their labels need count nothing.

Totals: summed loss, frames, wrong labels (edit distance of the best path's labels), labels. Wrong labels are counted on the host. A GPU
does not wait for that: best paths travel while it goes on, and are counted some minibatches later, or when totals are read.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from kaldialign import edit_distance
from torch import Tensor

from pykaldist.errors import UserError
from pykaldist.frames.device_frames import sendable, to_device
from pykaldist.frames.packed import Sequences
from pykaldist.frames.sampler import Minibatch
from pykaldist.frames.store import FrameStore
from pykaldist.nnet.ctc_forward_backward import BLANK, Paths, TensorPaths, state_table
from pykaldist.nnet.objective import Objective, ObjectiveOptions

DELAY = 4  # minibatches whose best paths may be on their way from a GPU


def collapsed(path: np.ndarray) -> np.ndarray:
    """The labels that a path (T,) stands for."""
    changed = np.concatenate([[True], path[1:] != path[:-1]]) if len(path) else np.zeros(0, bool)
    labels = path[changed]
    return labels[labels != BLANK]


@dataclass
class BestPath:
    """The outputs that are the likeliest of each row of a minibatch, on the host when `arrived`, and what they are compared with."""

    outputs: Tensor
    arrived: torch.cuda.Event | None
    offsets: np.ndarray  # the first row of each step
    lengths: list[int]
    labels: list[list[int]]
    totals: Tensor

    def count(self) -> None:
        """Add the wrong labels to the totals."""
        if self.arrived is not None:
            self.arrived.synchronize()
        path = self.outputs.numpy()
        self.totals[2] += sum(edit_distance(collapsed(path[self.offsets[:length] + s]).tolist(), own)["total"]
                              for s, (length, own) in enumerate(zip(self.lengths, self.labels, strict=True)))


def by_step(outputs: Tensor, sequences: Sequences) -> tuple[Tensor, Tensor | None]:
    """Outputs (rows, K) as (steps, sequences, K), and the place there of each row; None where all steps have all sequences.

    Others are copied, and rows that are missing are 0.
    """
    steps, utts = len(sequences.sizes), sequences.sizes[0]
    if len(outputs) == steps * utts:
        return outputs.view(steps, utts, -1), None
    places = to_device(torch.from_numpy(np.flatnonzero(np.arange(utts) < np.array(sequences.sizes)[:, None])), outputs.device)
    return outputs.new_zeros(steps * utts, outputs.shape[1]).index_copy_(0, places, outputs).view(steps, utts, -1), places


@dataclass
class Utterances:
    """The utterances of a minibatch, of which `paths` makes the sums: their outputs and places as of `by_step`.

    `memory`: the table of states and the loss, on a GPU; on the CPU the loss alone. `kind`: what sums depend on beside these.
    """

    outputs: Tensor
    places: Tensor | None
    paths: Callable[[], Paths | TensorPaths]
    memory: tuple[Tensor, ...]
    kind: tuple[int, ...]


class Ctc(Objective):
    """The CTC objective, of minibatches of whole utterances; its totals are as above.

    `under_way`: best paths that are still to be counted.
    """

    name = "ctc"
    num_totals = 4
    pdfs = False
    whole_utterances = True
    recordable = False

    def __init__(self, options: ObjectiveOptions | None = None) -> None:
        super().__init__(options)
        self.under_way: deque[BestPath] = deque()

    def __call__(self, outputs: Tensor, minibatch: Minibatch, totals: Tensor) -> Tensor:
        utts = self._utterances(outputs, minibatch, totals)
        self._add_loss(utts, totals, derivative=True)
        return outputs if utts.places is None else outputs.copy_(utts.outputs.flatten(0, 1).index_select(0, utts.places))

    def score(self, outputs: Tensor, minibatch: Minibatch, totals: Tensor) -> None:
        self._add_loss(self._utterances(outputs, minibatch, totals), totals, derivative=False)

    def _add_loss(self, utts: Utterances, totals: Tensor, derivative: bool) -> None:
        """Add the loss of utterances to the totals, and with `derivative` put that in the place of their outputs."""
        loss = utts.memory[-1]

        def work() -> None:
            paths = utts.paths()
            loss.copy_(paths.loss)
            if derivative:
                utts.outputs.copy_(paths.derivative())

        if utts.places is None:
            self.graphs.run(utts.memory, work, len(utts.outputs), (*utts.kind, derivative))
        else:
            work()
        totals[0] += loss

    def settle(self) -> None:
        while self.under_way:
            self.under_way.popleft().count()

    def _utterances(self, outputs: Tensor, minibatch: Minibatch, totals: Tensor) -> Utterances:
        """The utterances of a minibatch. Their frames and labels are added to the totals, and their wrong labels will be."""
        sequences, labels, label_lengths = minibatch.sequences, minibatch.labels, minibatch.label_lengths
        assert sequences is not None and labels is not None and label_lengths is not None
        lengths = sequences.real_lengths()
        own = [part.tolist() for part in labels.split(label_lengths.tolist())]
        self._count_later(outputs.argmax(1), np.array(sequences.offsets()), lengths.tolist(), own, totals)
        totals[1] += int(lengths.sum())
        totals[3] += len(labels)
        given, places = by_step(outputs, sequences)
        if given.is_cpu:
            loss = torch.zeros((), dtype=torch.float64)
            return Utterances(given, places, functools.partial(Paths, given, lengths, labels, label_lengths), (loss,), ())
        values = torch.from_numpy(state_table(lengths, labels.numpy(), label_lengths.numpy(), given.shape[1]))
        memory = self.graphs.memory((given.device, *values.shape), lambda: (
            torch.empty_like(values, device=given.device), torch.zeros((), dtype=torch.float64, device=given.device)))
        memory[0].copy_(sendable(values, given.device), non_blocking=True)
        kind = (given.data_ptr(), *given.shape, *given.stride())
        return Utterances(given, places, functools.partial(TensorPaths, given, memory[0]), memory, kind)

    def _count_later(self, best: Tensor, offsets: np.ndarray, lengths: list[int], labels: list[list[int]], totals: Tensor) -> None:
        """Keep the likeliest output of each row, whose wrong labels are counted when the host has it; other arguments as of `BestPath`."""
        arrived = None
        if best.is_cuda:
            best = torch.empty_like(best, device="cpu", pin_memory=True).copy_(best, non_blocking=True)
            arrived = torch.cuda.Event()
            arrived.record()
        if not best.is_meta:  # a step that is rehearsed for a forecast of memory has no paths
            self.under_way.append(BestPath(best, arrived, offsets, lengths, labels, totals))
        while self.under_way and (arrived is None or len(self.under_way) > DELAY):
            self.under_way.popleft().count()

    def metrics(self, totals: list[float]) -> dict[str, float]:
        loss, frames, wrong, labels = totals
        return {"loss": loss / frames if frames else 0.0, "label_error": wrong / labels if labels else 0.0}

    def output_dim(self, store: FrameStore) -> int:
        if store.labels is None:
            raise UserError(f"--objective ctc: {store.path} has no label sequences; pack it with --ctc phones or --ctc chars.")
        return store.manifest.num_tokens

    def prior_outputs(self, store: FrameStore) -> np.ndarray:
        """The logarithms of the shares of frames: each label has one frame to itself, and blank has all others."""
        assert store.labels is not None  # output_dim has looked
        counts = np.bincount(store.labels, minlength=store.manifest.num_tokens).astype(np.float64)
        counts[BLANK] = len(store) - counts.sum()
        counts = np.maximum(counts, 1.0)
        return np.log(counts / counts.sum())

    def targets(self, store: FrameStore) -> str:
        return f"sequences of {store.manifest.num_tokens - 1} labels and blank"

    def counts(self, store: FrameStore) -> np.ndarray:
        """Equal counts, so that paths are scored by posteriors, without priors."""
        return np.ones(store.manifest.num_tokens, np.int64)
