"""The feature pipeline: from stored features to a model's input, as the files in the model's directory say.

A model's directory keeps the options in Kaldi's own files, so that training, alignment and decoding see the same features:
`cmvn_opts` (absent or empty: per-speaker means) and `delta_opts` (empty: order 2, window 2; `--delta-order=0`: none). Where
Kaldi itself wrote no `delta_opts` it means deltas in a GMM's directory (`final.mdl`, no `final.nnet`), and none elsewhere; where it wrote
no `cmvn_opts` beside a `final.nnet`, or an nnet3 network's `final.mdl`, there is no CMVN either.
A directory with `final.mat` has LDA (+MLLT) in place of deltas: frames spliced as `splice_opts` says (absent or empty: 4 on each
side), then multiplied by that matrix. fMLLR transforms, a matrix a speaker, are applied last; they belong to data as much as to a
model, so that they are named (`transform_dir`), not found.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from pykaldist.errors import UserError
from pykaldist.feats.cmvn import CmvnOptions, apply_cmvn, sliding_cmvn
from pykaldist.feats.deltas import DeltaOptions, add_deltas
from pykaldist.feats.splice import SpliceOptions, splice
from pykaldist.feats.transforms import apply_transform, read_matrix, read_speaker_transforms
from pykaldist.io.atomic import atomic_open, write_text
from pykaldist.io.conf import format_conf, parse_conf, read_conf
from pykaldist.io.datadir import DataDir
from pykaldist.io.kaldi import KaldiWriter
from pykaldist.usage import heard


@dataclass
class FeaturePipeline:
    """The steps from stored features to a model's input.

    They are CMVN; then deltas, or splicing and the matrix `lda`; then the matrix of the speaker in `fmllr` (speaker -> matrix).
    """

    cmvn: CmvnOptions = field(default_factory=CmvnOptions)
    deltas: DeltaOptions = field(default_factory=DeltaOptions)
    splice: SpliceOptions = field(default_factory=SpliceOptions)
    lda: np.ndarray | None = field(default=None, compare=False)
    fmllr: Mapping[str, np.ndarray] | None = field(default=None, compare=False)

    @classmethod
    def from_options(cls, cmvn_opts: str = "", delta_opts: str = "") -> FeaturePipeline:
        """Make the pipeline from the strings of `--cmvn-opts` and `--delta-opts` (`--delta-order=0` for no deltas)."""
        return cls(parse_conf(CmvnOptions, cmvn_opts, "--cmvn-opts"), parse_conf(DeltaOptions, delta_opts, "--delta-opts"))

    @classmethod
    def from_dir(cls, exp_dir: str | os.PathLike[str], transform_dir: str | os.PathLike[str] | None = None,
                 nnet3: bool = False) -> FeaturePipeline:
        """Make the pipeline of the model in `exp_dir`, with the fMLLR transforms of `transform_dir`; `nnet3`: its final.mdl is a network.

        Raises UserError for an unknown option in its files, and where there are no such transforms.
        """
        path = Path(exp_dir)
        if not path.is_dir():
            raise UserError(f"{exp_dir} does not exist; train that model first.")
        cmvn, deltas, splicing = path / "cmvn_opts", path / "delta_opts", path / "splice_opts"
        kaldi_gmm = (path / "final.mdl").is_file() and not (path / "final.nnet").is_file() and not nnet3
        kaldi_nnet = nnet3 or ((path / "final.nnet").is_file() and not (path / "final.pt").is_file())
        for online in ("online_cmvn_opts", "online_cmvn"):  # nnet1's and nnet3's
            if kaldi_nnet and (path / online).is_file():
                raise UserError(f"{path}/{online}: CMVN of what was heard so far is not made here; take a network without.")
        return cls(read_conf(CmvnOptions, cmvn) if cmvn.is_file() else CmvnOptions(norm_means=not kaldi_nnet),
                   read_conf(DeltaOptions, deltas) if deltas.is_file() else DeltaOptions(2 if kaldi_gmm else 0),
                   read_conf(SpliceOptions, splicing) if splicing.is_file() else SpliceOptions(),
                   read_matrix(path / "final.mat") if (path / "final.mat").is_file() else None,
                   read_speaker_transforms(transform_dir) if transform_dir is not None else None)

    def save(self, exp_dir: str | os.PathLike[str], of_network: bool = False) -> None:
        """Write the files that `from_dir` reads, without the fMLLR transforms.

        Where they are of a network, none is left empty: Kaldi's scripts for networks would take that for no CMVN and no deltas.
        """
        path = Path(exp_dir)
        write_text(path / "cmvn_opts", (format_conf(self.cmvn) or "--norm-means=true" * of_network) + "\n")
        write_text(path / "delta_opts", (format_conf(self.deltas) or f"--delta-order={self.deltas.delta_order}" * of_network) + "\n")
        if self.lda is None:
            (path / "final.mat").unlink(missing_ok=True)
        else:
            write_text(path / "splice_opts", format_conf(self.splice) + "\n")
            with atomic_open(path / "final.mat", "wb") as stream:
                KaldiWriter(stream).matrix(self.lda)

    def apply(self, data: DataDir, utt: str) -> np.ndarray:
        """The model's input for one utterance, float32 T x D; raises UserError where features or statistics are missing or damaged."""
        if utt not in data.feats:
            raise UserError(f"{data.path}/feats.scp has no features of {utt}; run steps/make_mfcc.sh and utils/fix_data_dir.sh.")
        x = np.asarray(data.feats[utt], dtype=np.float32)
        if x.ndim != 2 or len(x) == 0:
            raise UserError(f"{data.path}/feats.scp, {utt}: expected frames x dimensions, found shape {x.shape}; "
                            "make the features again.")
        if not np.isfinite(x).all():
            raise UserError(f"{data.path}, {utt}: features are not finite; look at its audio, and make features and CMVN again.")
        heard(len(x))
        x = self._normalise(x, data, utt)
        if self.lda is not None:
            x = apply_transform(splice(x, self.splice.left_context, self.splice.right_context), self.lda, f"{data.path}, {utt}, final.mat")
        elif self.deltas.delta_order > 0:
            x = add_deltas(x, self.deltas.delta_order, self.deltas.delta_window)
        x = x if self.fmllr is None else self._adapt(x, self.fmllr, data.utt2spk[utt], f"{data.path}, {utt}")
        if not np.isfinite(x).all():
            raise UserError(f"{data.path}, {utt}: its features are not finite after final.mat or the speaker's fMLLR transform; make "
                            "these again.")
        return x

    @staticmethod
    def _adapt(x: np.ndarray, fmllr: Mapping[str, np.ndarray], speaker: str, where: str) -> np.ndarray:
        if speaker not in fmllr:
            raise UserError(f"{where}: there is no fMLLR transform of speaker {speaker}; use the transforms that were made for this data.")
        return apply_transform(x, fmllr[speaker], f"{where}, fMLLR transform of {speaker}")

    def _normalise(self, x: np.ndarray, data: DataDir, utt: str) -> np.ndarray:
        options = self.cmvn
        if options.sliding:
            return sliding_cmvn(x, options.cmn_window, options.min_cmn_window, options.center, options.norm_vars)
        if not options.norm_means:
            return x
        speaker = data.utt2spk[utt]
        if speaker not in data.cmvn:
            raise UserError(f"{data.path}/cmvn.scp has no statistics of speaker {speaker}; "
                            "run steps/compute_cmvn_stats.sh again.")
        try:
            return apply_cmvn(x, data.cmvn[speaker], options.norm_vars)
        except UserError as error:
            raise UserError(f"{data.path}, {utt}: {error}") from error

    def dim(self, data: DataDir) -> int:
        """Dimension of the model's input on `data`: that of its first utterance."""
        for utt in data.feats:
            return int(self.apply(data, utt).shape[1])
        raise UserError(f"{data.path}/feats.scp is empty; run steps/make_mfcc.sh first.")


def check_dim(dim: int, feats: np.ndarray, where: str = "", model: str | os.PathLike[str] = "") -> None:
    """Check that features (T, D) have the `dim` dimensions of a model.

    Raises UserError where they have not; it names `where` they are from, and the model.
    """
    if feats.shape[1] != dim:
        raise UserError(f"{where and f'{where}: '}the model{model and f' {model}'} expects features of dimension {dim}, found "
                        f"{feats.shape[1]}; make them as those that it was trained on were made (steps/make_*.sh, the same config), and "
                        "leave its delta_opts, splice_opts and final.mat as they are.")
