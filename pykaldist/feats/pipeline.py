"""The feature pipeline: from stored features to a model's input, as the files in the model's directory say.

A model's directory keeps the options in Kaldi's own files, so that training, alignment and decoding see the same features:
`cmvn_opts` (absent or empty: per-speaker means) and `delta_opts` (empty: order 2, window 2; `--delta-order=0`: none). Where
Kaldi itself wrote no `delta_opts` it means deltas in a GMM's directory (`final.mdl`, no `final.nnet`), and none elsewhere; where it wrote
no `cmvn_opts` beside a `final.nnet`, or an nnet3 network's `final.mdl`, there is no CMVN either.
A directory with `final.mat` has LDA (+MLLT) in place of deltas: frames spliced as `splice_opts` says (absent or empty: 4 on each
side), then multiplied by that matrix. fMLLR transforms, a matrix a speaker, are applied last; they belong to data as much as to a
model, so that they are named (`transform_dir`), not found.
An nnet3 network's directory with a file `online_cmvn` has online CMVN: by what was heard of the speaker until each frame, in this and in
earlier utterances, filled up by `global_cmvn.stats`; its `cmvn_opts` are those of Kaldi's apply-cmvn-online, or name a file of them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from pykaldist.errors import FEATURES, MADE, UserError
from pykaldist.feats.cmvn import CmvnOptions, OnlineCmvnOptions, apply_cmvn, cmvn_stats, online_cmvn, sliding_cmvn
from pykaldist.feats.deltas import DeltaOptions, add_deltas
from pykaldist.feats.splice import SpliceOptions, splice
from pykaldist.feats.transforms import SpeakerTransforms, apply_transform, read_matrix
from pykaldist.io.atomic import atomic_open, write_text
from pykaldist.io.conf import format_conf, parse_conf, read_conf
from pykaldist.io.datadir import DataDir
from pykaldist.io.kaldi import KaldiWriter
from pykaldist.usage import heard

ONLINE_CMVN, GLOBAL_STATS = "online_cmvn", "global_cmvn.stats"


def named_conf(cmvn_opts: str) -> str:
    """The file of options that options of online CMVN name ("": none)."""
    words = cmvn_opts.replace("--config ", "--config=").split()
    return next((word.partition("=")[2] for word in words if word.startswith("--config=")), "")


class OnlineCmvn:
    """CMVN by what was heard until each frame, over the utterances of a speaker in the order of spk2utt.

    The statistics of earlier utterances are kept, so that each is read once more at most.
    """

    def __init__(self, options: OnlineCmvnOptions, global_stats: np.ndarray) -> None:
        self._options, self._global_stats = options, global_stats
        self._heard: dict[tuple[Path, str], np.ndarray] = {}

    @classmethod
    def from_dir(cls, path: Path) -> OnlineCmvn:
        """Read `cmvn_opts` and `global_cmvn.stats` of a network's directory."""
        conf, stats = path / "cmvn_opts", path / GLOBAL_STATS
        if not stats.is_file():
            raise UserError(f"{stats} does not exist, which online CMVN needs; copy it from where the network was trained (cp "
                            f"MODEL/{stats.name} {path}).")
        text = conf.read_text(encoding="utf-8") if conf.is_file() else ""
        named = named_conf(text)
        options = read_conf(OnlineCmvnOptions, named) if named else parse_conf(OnlineCmvnOptions, text, str(conf))
        return cls(options, read_matrix(stats).astype(np.float64))

    @classmethod
    def from_files(cls, conf: Path, stats: Path) -> OnlineCmvn:
        """Read a file of options and one of global statistics."""
        for path in (conf, stats):
            if not path.is_file():
                raise UserError(f"{path} does not exist; {MADE}.")
        return cls(read_conf(OnlineCmvnOptions, conf), read_matrix(stats).astype(np.float64))

    def stream(self, speaker: np.ndarray | None = None) -> OnlineCmvnStream:
        """Begin an utterance that still comes; `speaker` are the statistics of the speaker's earlier ones."""
        return OnlineCmvnStream(self._options, self._global_stats, speaker)

    def apply(self, x: np.ndarray, data: DataDir, utt: str) -> np.ndarray:
        """Normalise the stored features `x` of an utterance."""
        utts = data.spk2utt[data.utt2spk[utt]]
        earlier = [other for other in utts[:utts.index(utt)] if other in data.feats]
        try:
            return online_cmvn(x, self._global_stats, self._options, self._until(data, earlier))
        except UserError as error:
            raise UserError(f"{data.path}, {utt}: {error}") from error

    def _until(self, data: DataDir, utts: list[str]) -> np.ndarray | None:
        """The statistics of a speaker's first utterances, None for none of them."""
        total = None
        for utt in utts:
            key = data.path, utt
            if key not in self._heard:
                own = cmvn_stats([data.feats[utt]])
                self._heard[key] = own if total is None else total + own
            total = self._heard[key]
        return total


class OnlineCmvnStream:
    """An utterance that is normalised as it comes. `heard` are the speaker's statistics with what came of it (None: nothing yet)."""

    def __init__(self, options: OnlineCmvnOptions, global_stats: np.ndarray, speaker: np.ndarray | None) -> None:
        self._options, self._global_stats, self._speaker, self.heard = options, global_stats, speaker, speaker
        self._window: np.ndarray | None = None  # the last frames, as many as the window of the next one may have

    def accept(self, x: np.ndarray) -> np.ndarray:
        """Normalise the next frames (T x D)."""
        if not len(x):
            return x
        own = cmvn_stats([x])
        self.heard = own if self.heard is None else self.heard + own
        before = 0 if self._window is None else len(self._window)
        seen = x if self._window is None else np.concatenate([self._window, x])
        self._window = seen[-self._options.cmn_window :]  # from where it is full on, a frame's place in the utterance has no effect
        return online_cmvn(seen, self._global_stats, self._options, self._speaker)[before:]


def stats_of_all(data: DataDir) -> np.ndarray:
    """The sum of the CMVN statistics of a data directory's speakers; raises UserError where one has none."""
    cmvn = data.cmvn if data.has("cmvn.scp") else {}
    missing = [speaker for speaker in data.spk2utt if speaker not in cmvn]
    if missing or not data.spk2utt:
        raise UserError(f"{data.path}/cmvn.scp has no statistics of {missing[0] if missing else 'any speaker'}; run "
                        f"steps/compute_cmvn_stats.sh {data.path} again.")
    return np.stack([cmvn[speaker] for speaker in data.spk2utt]).sum(0, dtype=np.float64)


@dataclass
class FeaturePipeline:
    """The steps from stored features to a model's input.

    They are CMVN, `online` in place of `cmvn` where it is given;
    then deltas, or splicing and the matrix `lda`; then the matrix of the speaker in `fmllr` (speaker -> matrix).
    """

    cmvn: CmvnOptions = field(default_factory=CmvnOptions)
    deltas: DeltaOptions = field(default_factory=DeltaOptions)
    splice: SpliceOptions = field(default_factory=SpliceOptions)
    lda: np.ndarray | None = field(default=None, compare=False)
    fmllr: Mapping[str, np.ndarray] | None = field(default=None, compare=False)
    online: OnlineCmvn | None = field(default=None, compare=False)

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
            raise UserError(f"{exp_dir} does not exist; {MADE}.")
        cmvn, deltas, splicing = path / "cmvn_opts", path / "delta_opts", path / "splice_opts"
        kaldi_gmm = (path / "final.mdl").is_file() and not (path / "final.nnet").is_file() and not nnet3
        kaldi_nnet = nnet3 or ((path / "final.nnet").is_file() and not (path / "final.pt").is_file())
        if kaldi_nnet and (path / "online_cmvn_opts").is_file():  # nnet1's
            raise UserError(f"{path}/online_cmvn_opts: CMVN of what was heard so far is not made for nnet1; take a network without.")
        online = OnlineCmvn.from_dir(path) if nnet3 and (path / ONLINE_CMVN).is_file() else None
        of_speakers = CmvnOptions(norm_means=not kaldi_nnet)
        return cls(read_conf(CmvnOptions, cmvn) if cmvn.is_file() and online is None else of_speakers,
                   read_conf(DeltaOptions, deltas) if deltas.is_file() else DeltaOptions(2 if kaldi_gmm else 0),
                   read_conf(SpliceOptions, splicing) if splicing.is_file() else SpliceOptions(),
                   read_matrix(path / "final.mat") if (path / "final.mat").is_file() else None,
                   SpeakerTransforms.read(transform_dir) if transform_dir is not None else None, online)

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

    def apply(self, data: DataDir, utt: str, again: bool = False) -> np.ndarray:
        """The model's input for one utterance, float32 T x D; raises UserError where features or statistics are missing or damaged.

        With `again` the stage has heard it already, and counts no more speech.
        """
        if utt not in data.feats:
            raise UserError(f"{data.path}/feats.scp has no features of {utt}; run steps/make_mfcc.sh and utils/fix_data_dir.sh.")
        x = np.asarray(data.feats[utt], dtype=np.float32)
        if x.ndim != 2 or len(x) == 0:
            raise UserError(f"{data.path}/feats.scp, {utt}: expected frames x dimensions, found shape {x.shape}; make the features again "
                            f"({FEATURES}).")
        if not np.isfinite(x).all():
            raise UserError(f"{data.path}, {utt}: features are not finite; look at its audio, and make features and CMVN again "
                            f"({FEATURES}, steps/compute_cmvn_stats.sh).")
        if not again:
            heard(len(x))
        x = self._normalise(x, data, utt)
        if self.lda is not None:
            x = apply_transform(splice(x, self.splice.left_context, self.splice.right_context), self.lda, f"{data.path}, {utt}, final.mat")
        elif self.deltas.delta_order > 0:
            x = add_deltas(x, self.deltas.delta_order, self.deltas.delta_window)
        x = x if self.fmllr is None else self._adapt(x, self.fmllr, data.utt2spk[utt], f"{data.path}, {utt}")
        if not np.isfinite(x).all():
            raise UserError(f"{data.path}, {utt}: its features are not finite after final.mat or the speaker's fMLLR transform; make these "
                            "again (steps/align_fmllr.sh, steps/decode_fmllr.sh).")
        return x

    @staticmethod
    def _adapt(x: np.ndarray, fmllr: Mapping[str, np.ndarray], speaker: str, where: str) -> np.ndarray:
        if speaker not in fmllr:
            raise UserError(f"{where}: there is no fMLLR transform of speaker {speaker}; use the transforms that were made for this data.")
        return apply_transform(x, fmllr[speaker], f"{where}, fMLLR transform of {speaker}")

    def _normalise(self, x: np.ndarray, data: DataDir, utt: str) -> np.ndarray:
        if self.online is not None:
            return self.online.apply(x, data, utt)
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
                        f"{feats.shape[1]}; make them as those that it was trained on were made ({FEATURES}, the same config), and leave "
                        "its delta_opts, splice_opts and final.mat as they are.")
