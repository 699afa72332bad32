"""Connectionist temporal classification: sequences of labels as targets, without an alignment.

Graves, Fernandez, Gomez & Schmidhuber (2006). Of K outputs a frame, output 0 is blank and 1 .. K - 1 are labels. A path (an output for each
frame) stands for the labels that are left when repeated outputs are merged and blanks taken out. With p = softmax(z) and all paths pi of an
utterance that stand for its labels l,
    loss = -log sum over pi of prod over t of p_t(pi_t),     d loss / d z_tk = p_tk - gamma_tk,
gamma_tk the share of those paths' probability that goes through k at time t, by the forward-backward algorithm (torch's). Utterances that
have fewer frames than their labels need count nothing.

Totals: summed loss, frames, wrong labels (edit distance of the best path's labels), labels. Counting these reads outputs back to the host.
"""

from __future__ import annotations

import numpy as np
import torch
from kaldialign import edit_distance
from torch import Tensor

from pykaldist.errors import UserError
from pykaldist.frames.sampler import Minibatch
from pykaldist.frames.store import FrameStore
from pykaldist.nnet.objective import Objective

BLANK = 0


def collapsed(path: np.ndarray) -> np.ndarray:
    """The labels that a path (T,) stands for."""
    changed = np.concatenate([[True], path[1:] != path[:-1]]) if len(path) else np.zeros(0, bool)
    labels = path[changed]
    return labels[labels != BLANK]


class Ctc(Objective):
    """The CTC objective, of minibatches of whole utterances; its totals are as above."""

    name = "ctc"
    num_totals = 4
    pdfs = False

    def __call__(self, outputs: Tensor, minibatch: Minibatch, totals: Tensor) -> Tensor:
        sequences, labels, label_lengths = minibatch.sequences, minibatch.labels, minibatch.label_lengths
        assert sequences is not None and labels is not None and label_lengths is not None
        sizes = torch.tensor(sequences.sizes)
        inside = torch.arange(int(sizes[0]))[None, :] < sizes[:, None]  # steps, sequences; rows are packed in its order
        lengths, here = inside.sum(0), inside.to(outputs.device)
        with torch.enable_grad():
            padded = outputs.new_zeros(*inside.shape, outputs.shape[1])
            padded[here] = outputs
            padded.requires_grad_(True)
            loss = torch.nn.functional.ctc_loss(padded.log_softmax(2), labels, lengths, label_lengths, BLANK, "sum", zero_infinity=True)
            (derivative,) = torch.autograd.grad(loss, padded)
        totals[0] += loss.detach()
        totals[1] += len(outputs)
        best = padded.detach().argmax(2).cpu().numpy()
        wanted = labels.cpu().split(label_lengths.tolist())
        wrong = [edit_distance(collapsed(best[:length, s]).tolist(), own.tolist())["total"]
                 for s, (length, own) in enumerate(zip(lengths.tolist(), wanted, strict=True))]
        totals[2] += sum(wrong)
        totals[3] += len(labels)
        return outputs.copy_(derivative[here])

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
