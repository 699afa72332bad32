"""Networks that take i-vectors, or are recurrent: the directory of i-vectors, and the forward pass in chunks.

A network sees one i-vector for a chunk of frames: its descriptor is ReplaceIndex(ivector, t, 0). So an utterance goes through it in chunks
of `frames_per_chunk`, with the frames around them that the network needs, as in Kaldi's nnet3-latgen-faster
(src/nnet3/nnet-am-decodable-simple.cc). The first frame of a chunk and the middle between its first and last output choose the i-vector.
A recurrent network goes through some frames more before each chunk, and behind it where it runs backwards, as it was trained to.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
import torch

from pykaldist.decode.chunks import ChunkOptions
from pykaldist.devices import computing_on
from pykaldist.errors import IVECTORS, UserError
from pykaldist.io.tables import MatrixReader
from pykaldist.nnet.nnet3.run import Nnet3Forward

MOST_MISSING = 50  # frames at an utterance's end for which an i-vector may be missing, as in Kaldi


class OnlineIvectors:
    """The i-vectors of a data directory, one every `period` frames, as extract_ivectors_online.sh leaves them."""

    def __init__(self, folder: str | os.PathLike[str], dim: int) -> None:
        self._path, self._dim = Path(folder), dim
        for name in ("ivector_online.scp", "ivector_period"):
            if not (self._path / name).is_file():
                raise UserError(f"{self._path / name} does not exist; run steps/online/nnet2/extract_ivectors_online.sh.")
        text = (self._path / "ivector_period").read_text(encoding="utf-8", errors="replace").strip()
        if not (text.isdecimal() and 0 < int(text) < 10000):
            raise UserError(f"{self._path}/ivector_period: expected a number of frames, found {text[:40]!r}; extract the i-vectors again "
                            f"({IVECTORS}).")
        self.period = int(text)
        self._ivectors = MatrixReader(self._path / "ivector_online.scp")

    def check_extractor(self, model_dir: Path) -> None:
        """Raise UserError where the i-vectors are of another extractor than the model's, as far as both say (`final.ie.id`)."""
        ids = [path.read_text(encoding="utf-8", errors="replace").strip() for folder in (model_dir, self._path)
               if (path := folder / "final.ie.id").is_file()]
        if len(set(ids)) > 1:
            raise UserError(f"{self._path} has i-vectors of another extractor ({ids[1]}) than those that {model_dir} was trained with "
                            f"({ids[0]}); extract them with the model's extractor ({IVECTORS}).")

    def of_frames(self, utt: str, frames: int) -> np.ndarray:
        """The i-vector of each frame (frames, dimension) of an utterance.

        Raises UserError where there is none, or it is of another dimension, period or length.
        """
        where = f"{self._path}/ivector_online.scp, {utt}"
        if utt not in self._ivectors:
            raise UserError(f"{where}: there are no i-vectors; extract them for this data directory ({IVECTORS}).")
        found = self._ivectors[utt]
        if found.ndim != 2 or found.shape[1] != self._dim or not len(found):
            raise UserError(f"{where}: expected i-vectors of dimension {self._dim}, found {found.shape}; extract them with the extractor "
                            f"that the network was trained with ({IVECTORS}).")
        missing = frames - len(found) * self.period
        if not -MOST_MISSING - self.period < missing <= MOST_MISSING:
            raise UserError(f"{where}: found {len(found)} i-vectors for {frames} frames, expected {-(-frames // self.period)}, one every "
                            f"{self.period} frames; is ivector_period right, and are they of these features? Extract them again "
                            f"({IVECTORS}).")
        return found[np.minimum(np.arange(frames) // self.period, len(found) - 1)]


class ChunkedForward:
    """The forward pass of a network in chunks of about as many frames of input as its options say.

    Their number is a multiple of the frames that an output stands for, and of the network's modulus.
    """

    def __init__(self, forward: Nnet3Forward, options: ChunkOptions) -> None:
        self._forward, self._options = forward, options
        unit = math.lcm(forward.plan.modulus, forward.subsampling)
        self._chunk = -(-options.frames_per_chunk // unit) * unit

    def __call__(self, feats: np.ndarray, ivectors: np.ndarray | None = None) -> np.ndarray:
        """Compute the outputs (frames / subsampling, rounded up; dimension) of features, each of whose frames has its row of `ivectors`."""
        forward, outputs = self._forward, []
        forward.check_inputs({"input": feats, **({} if ivectors is None else {"ivector": ivectors})})
        for begin in range(0, len(feats), self._chunk):
            times = np.arange(begin, min(begin + self._chunk, len(feats)), forward.subsampling)
            middle, (before, behind) = (times[0] + times[-1]) // 2, self._options.around(begin == 0, begin + self._chunk >= len(feats))
            inputs = {"input": feats, **({} if ivectors is None else {"ivector": ivectors[middle:middle + 1]})}
            outputs.append(forward.outputs_at(times, inputs, int(times[0]) - forward.plan.left_context - before,
                                              int(times[-1]) + forward.plan.right_context + behind))
        with computing_on(forward.device):
            return torch.cat(outputs).cpu().numpy()
