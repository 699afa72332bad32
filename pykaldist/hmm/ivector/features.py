"""The features of the UBM and of the i-vector extractor: normalised by what was heard so far, spliced, and transformed.

The UBM says with normalised features which Gaussians a frame belongs to; the extractor sees the features without normalisation, so that an
i-vector tells what a normalisation would have taken away (unless the directory has a file `online_cmvn_iextractor`). The files are those of
Kaldi's directories: `final.mat`, `splice_opts`, `global_cmvn.stats`, `online_cmvn.conf`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pykaldist.errors import MADE, UserError
from pykaldist.feats.cmvn import CmvnOptions, OnlineCmvnOptions, online_cmvn
from pykaldist.feats.deltas import DeltaOptions
from pykaldist.feats.pipeline import FeaturePipeline
from pykaldist.feats.splice import SpliceOptions, splice
from pykaldist.feats.transforms import apply_transform, read_matrix
from pykaldist.io.atomic import atomic_open, copy_file
from pykaldist.io.conf import read_conf
from pykaldist.io.datadir import DataDir
from pykaldist.io.kaldi import KaldiWriter

FILES = ("final.mat", "splice_opts", "global_cmvn.stats", "online_cmvn.conf")
STORED = FeaturePipeline(CmvnOptions(norm_means=False), DeltaOptions(0))  # features as they are, checked


@dataclass
class IvectorFeatures:
    """How stored features become those of the UBM and of the extractor; `matrix` None: spliced only."""

    cmvn: OnlineCmvnOptions
    global_stats: np.ndarray
    splice: SpliceOptions
    matrix: np.ndarray | None

    @classmethod
    def from_dir(cls, folder: str | os.PathLike[str], matrix: bool = True) -> IvectorFeatures:
        """Read the files of a directory; without `matrix` there is no final.mat yet."""
        path = Path(folder)
        for name in FILES if matrix else FILES[1:]:
            if not (path / name).is_file():
                raise UserError(f"{path / name} does not exist; {MADE}.")
        return cls(read_conf(OnlineCmvnOptions, path / "online_cmvn.conf"), read_matrix(path / "global_cmvn.stats").astype(np.float64),
                   read_conf(SpliceOptions, path / "splice_opts"), read_matrix(path / "final.mat") if matrix else None)

    def normalised(self, x: np.ndarray, where: str, speaker_stats: np.ndarray | None = None) -> np.ndarray:
        """The UBM's features (T, D') of stored ones (T, D), after the speaker's earlier utterances; `where` names them in errors."""
        try:
            return self.spliced(online_cmvn(x, self.global_stats, self.cmvn, speaker_stats), where)
        except UserError as error:
            raise error if where in str(error) else UserError(f"{where}: {error}") from error

    def spliced(self, x: np.ndarray, where: str) -> np.ndarray:
        """Stored features (T, D) with their neighbours, transformed (T, D')."""
        x = splice(x, self.splice.left_context, self.splice.right_context)
        return x if self.matrix is None else apply_transform(x, self.matrix, f"{where}, final.mat")


def stored_features(data: DataDir, utt: str) -> np.ndarray:
    """The features of an utterance as they are stored; raises UserError where they are missing or damaged."""
    return STORED.apply(data, utt)


def write_global_stats(path: Path, data: DataDir) -> None:
    """Write the sum of the CMVN statistics of all speakers of a data directory, as text."""
    shapes = {data.cmvn[speaker].shape for speaker in data.cmvn}
    if len(shapes) != 1:
        raise UserError(f"{data.path}/cmvn.scp has statistics of {len(shapes)} shapes; run steps/compute_cmvn_stats.sh again.")
    with atomic_open(path, "wb") as stream:
        KaldiWriter(stream, binary=False).matrix(np.array([data.cmvn[speaker] for speaker in data.cmvn], np.float64).sum(axis=0))


def copy_files(source: Path, target: Path, names: tuple[str, ...] = FILES) -> None:
    """Copy the files of the features into another directory, made where it does not exist."""
    target.mkdir(parents=True, exist_ok=True)
    for name in names:
        copy_file(source / name, target / name)
