"""Directories of online i-vectors, as Kaldi makes them.

    ivector_online.scp   a matrix an utterance, with a row every `ivector_period` frames
    ivector_period       that number
    final.ie.id          a checksum of the extractor

Training takes one row a chunk, at a frame of the chunk that is drawn. It leaves out utterances without i-vectors, as Kaldi does
(nnet3-chain-get-egs, nnet3-get-egs), and takes the last row where features are longer by a period than those that were heard.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from pykaldist.errors import IVECTORS, UserError
from pykaldist.io.tables import MatrixReader

EXTRACTOR_ID = "final.ie.id"


class IvectorDir:
    """Online i-vectors of a data directory. `dim` is their dimension, `period` the frames from one row to the next.

    Raises UserError where the directory has none, or no period.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        for name in ("ivector_online.scp", "ivector_period"):
            if not (self.path / name).is_file():
                raise UserError(f"{self.path / name} does not exist; run steps/online/nnet2/extract_ivectors_online.sh.")
        text = (self.path / "ivector_period").read_text(encoding="utf-8").strip()
        if not text.isdecimal() or not int(text):
            raise UserError(f"{self.path / 'ivector_period'}: expected the frames from one i-vector to the next, found {text[:40]!r}.")
        self.period, self._table = int(text), MatrixReader(self.path / "ivector_online.scp")
        self.dim = self[next(iter(self._table))].shape[1] if len(self._table) else 0

    def __contains__(self, utt: object) -> bool:
        return utt in self._table

    def __getitem__(self, utt: str) -> np.ndarray:
        """The i-vectors of an utterance, (rows, dim)."""
        if utt not in self._table:
            raise UserError(f"{self.path / 'ivector_online.scp'} has no i-vectors of {utt}; extract those of this data directory "
                            f"({IVECTORS}).")
        return self._table[utt]

    def archives(self) -> list[str]:
        """The archives that the i-vectors are in, each once."""
        return self._table.archives()

    def at(self, utt: str, frame: int, frames: int) -> np.ndarray:
        """The i-vector at a frame of an utterance that has so many; raises UserError where the rows are of another period or dimension."""
        rows = self._checked(utt, frames)
        return rows[min(frame // self.period, len(rows) - 1)]

    def at_each(self, utt: str, frames: int) -> np.ndarray:
        """The i-vectors at all frames of an utterance that has so many, (frames, dim); raises UserError like `at`."""
        rows = self._checked(utt, frames)
        return rows[np.minimum(np.arange(frames) // self.period, len(rows) - 1)]

    def _checked(self, utt: str, frames: int) -> np.ndarray:
        """The i-vectors of an utterance of so many frames, which may be a row more or less than these have, but not none."""
        rows = self[utt]
        if rows.shape[1] != self.dim or abs(len(rows) - -(-frames // self.period)) > 1 or not len(rows):
            raise UserError(f"{self.path / 'ivector_online.scp'}, {utt}: {len(rows)} i-vectors of dimension {rows.shape[1]}, expected "
                            f"{-(-frames // self.period)} of {self.dim}, one every {self.period} of {frames} frames; they were extracted "
                            "with another period or extractor, or of other features.")
        return rows
