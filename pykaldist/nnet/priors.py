"""Pdf priors from class counts, as nnet1's PdfPrior: log relative frequencies; a pdf below `PRIOR_FLOOR` is disabled."""

from __future__ import annotations

import os

import numpy as np

from pykaldist.errors import UserError
from pykaldist.io.atomic import write_text
from pykaldist.io.kaldi import KaldiReader

PRIOR_FLOOR = 1e-10
DISABLED = 1e10  # log prior of a disabled pdf: its score becomes too low to be decoded


def log_priors(counts: np.ndarray, floor: float = PRIOR_FLOOR) -> np.ndarray:
    """Compute log priors (num_pdfs,) float32 from counts; raises UserError where no count is positive."""
    total = counts.sum(dtype=np.float64)
    if not total > 0 or (counts < 0).any():
        raise UserError("the class counts have no positive sum; is ali_train_pdf.counts of the training alignment?")
    frequency = counts / total
    return np.where(frequency < floor, DISABLED, np.log(np.maximum(frequency, PRIOR_FLOOR))).astype(np.float32)


def read_counts(path: str | os.PathLike[str], num_pdfs: int, of: str | os.PathLike[str]) -> np.ndarray:
    """Read a Kaldi vector, text or binary (`ali_train_pdf.counts`), as float64 (num_pdfs,).

    Raises UserError where it has another length; `of` is what has so many outputs, for the message.
    """
    counts = KaldiReader.only_vector(path).astype(np.float64)
    if len(counts) != num_pdfs:
        raise UserError(f"{path} has {len(counts)} counts, {of} {num_pdfs} outputs; take those of the network's training alignment.")
    return counts


def write_counts(path: str | os.PathLike[str], counts: np.ndarray) -> None:
    """Write counts as a Kaldi text vector."""
    write_text(path, " [ " + " ".join(f"{c:.10g}" for c in counts) + " ]\n")
