"""Features made by a network: what comes out where its last components are taken away, as of a bottleneck (Grezl et al., 2007)."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from pykaldist.errors import UserError
from pykaldist.feats.pipeline import FeaturePipeline, check_dim
from pykaldist.io.datadir import DataDir
from pykaldist.nnet.nnet1 import Nnet1
from pykaldist.nnet.nnet1_run import Nnet1Forward


class BottleneckPipeline:
    """The steps from stored features to the outputs of the network in a directory without its last components.

    Raises UserError where there is no final.nnet, or fewer components.
    """

    def __init__(self, nnet_dir: str | os.PathLike[str], remove_last_components: int, device: str = "cpu") -> None:
        self._path = Path(nnet_dir) / "final.nnet"
        components = Nnet1.read(self._path).components
        if not 0 <= remove_last_components < len(components):
            raise UserError(f"--remove-last-components {remove_last_components}: {self._path} has {len(components)} components, of which "
                            "one or more are to stay.")
        kept = components[: len(components) - remove_last_components]
        self._nnet = Nnet1(Nnet1.read(Path(nnet_dir) / "final.feature_transform").components + kept)
        self._forward = Nnet1Forward(self._nnet, device)
        self._pipeline = FeaturePipeline.from_dir(nnet_dir)

    def apply(self, data: DataDir, utt: str) -> np.ndarray:
        """The features of one utterance, float32 (T, output_dim)."""
        feats = self._pipeline.apply(data, utt)
        check_dim(self._nnet.input_dim, feats, f"{data.path}, {utt}", self._path)
        made = self._forward(feats)
        if not np.isfinite(made).all():
            raise UserError(f"{data.path}, {utt}: the outputs of {self._path} are not finite; look at its features, and at the network.")
        return made
