"""Rescoring of lattices: acoustic costs of another model, or of other features, replace those there; graph costs stay.

On a lattice of states, as the decoder leaves it, every alignment of a word sequence is there to be weighed again; on a determinised one
only that which was the best (Kaldi's gmm-rescore-lattice).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from pykaldist.decode.determinize import determinize
from pykaldist.decode.lattice import Lattice, read_lattices
from pykaldist.errors import DECODING, UserError
from pykaldist.io.datadir import DataDir


class Rescorer(Protocol):
    """A model that scores the frames of an utterance; `tid2pdf` maps transition-ids to pdfs."""

    tid2pdf: np.ndarray

    def features(self, data: DataDir, utt: str) -> np.ndarray:
        """The model's input for one utterance, float32 [frames, dimensions]."""
        ...

    def utterance_loglikes(self, data: DataDir, utt: str, feats: np.ndarray, pdfs: np.ndarray) -> np.ndarray:
        """The log-likelihoods of the pdfs listed, in that order, float32 [frames, pdfs]."""
        ...


def rescored(lattice: Lattice, loglikes: np.ndarray, tid2column: np.ndarray) -> Lattice:
    """The lattice with acoustic costs from `loglikes` (frames, columns); `tid2column` maps its transition-ids to columns."""
    first = lattice.frame[np.concatenate([lattice.source, np.arange(lattice.num_states)])]  # frame in which a string begins
    length = np.diff(lattice.string)
    owner = np.repeat(np.arange(len(length)), length)
    frame = np.arange(len(owner)) + (first - lattice.string[:-1])[owner]
    costs = np.bincount(owner, -loglikes[frame, tid2column[lattice.transition_ids]].astype(np.float64), minlength=len(length))
    acoustic, final = costs[:lattice.num_arcs], costs[lattice.num_arcs:]
    return replace(lattice, acoustic=acoustic.astype(np.float32),
                   final_acoustic=np.where(lattice.final < np.inf, final, np.inf).astype(np.float32))


def rescore_all(data: DataDir, utts: Sequence[str], model: Rescorer, lattices: str | os.PathLike[str], acwt: float,
                beam: float) -> Iterator[tuple[str, Lattice]]:
    """Iterate over (utterance, lattice) of the archive `lattices`, with the costs of `model`, determinised within `beam`; 0: they are not.

    The archive is of these utterances.

    Raises UserError for a lattice of another length than its features, of another model, or of none of `utts`.
    """
    for utt, lattice in read_lattices(lattices):
        check_utterance(utt, utts, lattices)
        feats = model.features(data, utt)
        check_lattice(lattice, len(feats), len(model.tid2pdf) - 1, f"{lattices}, {utt}")
        found = rescored_by(model, data, utt, feats, lattice)
        yield utt, determinize(found, acwt, beam) if beam else found


def rescored_by(model: Rescorer, data: DataDir, utt: str, feats: np.ndarray, lattice: Lattice) -> Lattice:
    """The lattice of an utterance with acoustic costs of `model`, which scores the pdfs in it."""
    pdfs, column = np.unique(model.tid2pdf[lattice.transition_ids], return_inverse=True)
    tid2column = np.zeros(len(model.tid2pdf), dtype=np.int64)
    tid2column[lattice.transition_ids] = column
    return rescored(lattice, model.utterance_loglikes(data, utt, feats, pdfs), tid2column)


def check_utterance(utt: str, utts: Sequence[str], lattices: str | os.PathLike[str]) -> None:
    """Check a lattice's utterance; raises UserError where it is another job's."""
    if utt not in utts:
        raise UserError(f"{lattices} has a lattice of {utt}, which is not of this job; decode with as many jobs (--nj).")


def check_lattice(lattice: Lattice, frames: int, num_transition_ids: int, where: str) -> None:
    """Check that a lattice fits features of so many frames and a model of so many transition-ids; raises UserError where not."""
    highest = int(lattice.transition_ids.max(initial=0))
    if lattice.num_frames != frames or highest > num_transition_ids:
        raise UserError(f"{where}: the lattice has {lattice.num_frames} frames and transition-ids up to {highest}, the features {frames} "
                        f"and the model {num_transition_ids}; decode again ({DECODING}).")
