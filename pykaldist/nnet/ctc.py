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

from collections import deque
from dataclasses import dataclass

import numpy as np
import torch
from kaldialign import edit_distance
from torch import Tensor

from pykaldist.errors import UserError
from pykaldist.frames.device_frames import to_device
from pykaldist.frames.sampler import Minibatch
from pykaldist.frames.store import FrameStore
from pykaldist.nnet.ctc_forward_backward import BLANK, Layout, Paths, Recursion, TensorPaths
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
        self._recursion = Recursion()

    def __call__(self, outputs: Tensor, minibatch: Minibatch, totals: Tensor) -> Tensor:
        paths, rows = self._paths(outputs, minibatch, totals)
        return outputs.copy_(paths.derivative()) if rows is None else outputs.zero_().index_copy_(0, rows, paths.derivative())

    def score(self, outputs: Tensor, minibatch: Minibatch, totals: Tensor) -> None:
        self._paths(outputs, minibatch, totals)

    def settle(self) -> None:
        while self.under_way:
            self.under_way.popleft().count()

    def _paths(self, outputs: Tensor, minibatch: Minibatch, totals: Tensor) -> tuple[Paths | TensorPaths, Tensor | None]:
        """The paths of a minibatch, whose loss, frames and labels are added to the totals, and whose wrong labels will be.

        And where it is padded, the rows that are frames.
        """
        labels, lengths = minibatch.labels, minibatch.label_lengths
        assert minibatch.sequences is not None and labels is not None and lengths is not None
        layout, rows = Layout(minibatch.sequences), None
        best, arrived = outputs.argmax(1), None
        if best.is_cuda:
            best = torch.empty_like(best, device="cpu", pin_memory=True).copy_(best, non_blocking=True)
            arrived = torch.cuda.Event()
            arrived.record()
        own = [part.tolist() for part in labels.split(lengths.tolist())]
        if not best.is_meta:  # a step that is rehearsed for a forecast of memory has no paths
            self.under_way.append(BestPath(best, arrived, layout.offsets, layout.lengths.tolist(), own, totals))
        while self.under_way and (arrived is None or len(self.under_way) > DELAY):
            self.under_way.popleft().count()
        if minibatch.sequences.real is not None:
            rows = to_device(torch.from_numpy(layout.row), outputs.device)
            outputs = outputs.index_select(0, rows)
        paths = Paths(outputs, layout, labels, lengths) if outputs.device.type == "cpu" else \
            TensorPaths(outputs, layout, labels, lengths, self._recursion)
        totals[0] += paths.loss
        totals[1] += len(outputs)
        totals[3] += len(labels)
        return paths, rows

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
