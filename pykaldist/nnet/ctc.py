"""Connectionist temporal classification: sequences of labels as targets, without an alignment.

Graves, Fernandez, Gomez & Schmidhuber (2006). Of K outputs a frame, output 0 is blank and 1 .. K - 1 are labels. A path (an output for each
frame) stands for the labels that are left when repeated outputs are merged and blanks taken out. With p = softmax(z) and all paths pi of an
utterance that stand for its labels l,
    loss = -log sum over pi of prod over t of p_t(pi_t),     d loss / d z_tk = p_tk - gamma_tk,
gamma_tk the share of those paths' probability that goes through k at time t, by the forward-backward algorithm (torch's). Utterances that
have fewer frames than their labels need count nothing.

Totals: summed loss, frames, wrong labels (edit distance of the best path's labels), labels. Wrong labels are counted on the host. A GPU
does not wait for that: best paths travel while it goes on, and are counted some minibatches later, or when totals are read.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
import torch
from kaldialign import edit_distance
from torch import Tensor

from pykaldist.errors import UserError
from pykaldist.frames.device_frames import to_device
from pykaldist.frames.packed import Sequences
from pykaldist.frames.sampler import Minibatch
from pykaldist.frames.store import FrameStore
from pykaldist.nnet.objective import Objective, ObjectiveOptions

BLANK = 0
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


class _Layout:
    """Where the rows of packed sequences lie in a tensor (steps, sequences): `places` (rows,); and each sequence's length, on the host."""

    def __init__(self, sequences: Sequences, device: torch.device) -> None:
        sizes = np.array(sequences.sizes)
        self.offsets = np.cumsum(sizes) - sizes
        step = np.repeat(np.arange(len(sizes)), sizes)
        self.steps, self.sequences = len(sizes), int(sizes[0])
        self.places = to_device(torch.from_numpy(step * sizes[0] + np.arange(len(step)) - self.offsets[step]), device)
        self.lengths = torch.from_numpy((np.arange(sizes[0])[:, None] < sizes).sum(1))

    def padded(self, rows: Tensor) -> Tensor:
        """Rows (n, K) as (steps, sequences, K), zero where a sequence is over."""
        return rows.new_zeros(self.steps * self.sequences, rows.shape[1]).index_copy_(0, self.places, rows).view(
            self.steps, self.sequences, -1)

    def packed(self, padded: Tensor, out: Tensor) -> Tensor:
        """The rows again, in `out`."""
        return torch.index_select(padded.reshape(-1, padded.shape[2]), 0, self.places, out=out)


class Ctc(Objective):
    """The CTC objective, of minibatches of whole utterances; its totals are as above.

    `under_way`: best paths that are still to be counted.
    """

    name = "ctc"
    num_totals = 4
    pdfs = False
    whole_utterances = True

    def __init__(self, options: ObjectiveOptions | None = None) -> None:
        super().__init__(options)
        self.under_way: deque[BestPath] = deque()

    def __call__(self, outputs: Tensor, minibatch: Minibatch, totals: Tensor) -> Tensor:
        layout = self._count(outputs, minibatch, totals)
        with torch.enable_grad():
            padded = layout.padded(outputs).requires_grad_(True)
            loss = self._loss(padded, layout, minibatch)
            (derivative,) = torch.autograd.grad(loss, padded)
        totals[0] += loss.detach()
        return layout.packed(derivative, outputs)

    def score(self, outputs: Tensor, minibatch: Minibatch, totals: Tensor) -> None:
        layout = self._count(outputs, minibatch, totals)
        totals[0] += self._loss(layout.padded(outputs), layout, minibatch)

    def settle(self) -> None:
        while self.under_way:
            self.under_way.popleft().count()

    @staticmethod
    def _loss(padded: Tensor, layout: _Layout, minibatch: Minibatch) -> Tensor:
        assert minibatch.labels is not None and minibatch.label_lengths is not None
        labels = to_device(minibatch.labels, padded.device)
        return torch.nn.functional.ctc_loss(padded.log_softmax(2), labels, layout.lengths, minibatch.label_lengths, BLANK, "sum",
                                            zero_infinity=True)

    def _count(self, outputs: Tensor, minibatch: Minibatch, totals: Tensor) -> _Layout:
        """Count frames and labels, and have the wrong ones counted; returns where the rows lie."""
        assert minibatch.sequences is not None and minibatch.labels is not None and minibatch.label_lengths is not None
        layout = _Layout(minibatch.sequences, outputs.device)
        totals[1] += len(outputs)
        totals[3] += len(minibatch.labels)
        best, arrived = outputs.argmax(1), None
        if best.is_cuda:
            best = torch.empty_like(best, device="cpu", pin_memory=True).copy_(best, non_blocking=True)
            arrived = torch.cuda.Event()
            arrived.record()
        labels = [own.tolist() for own in minibatch.labels.split(minibatch.label_lengths.tolist())]
        self.under_way.append(BestPath(best, arrived, layout.offsets, layout.lengths.tolist(), labels, totals))
        while self.under_way and (arrived is None or len(self.under_way) > DELAY):
            self.under_way.popleft().count()
        return layout

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
