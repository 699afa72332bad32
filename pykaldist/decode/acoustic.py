"""Acoustic models for the decoder: from an utterance of a data directory to log-likelihoods of pdfs.

What a model directory holds says what it is: `NETWORKS` maps a file to the function that loads such a network, the first match wins. A
directory with none of them has a final.mdl, whose content says whether it is a GMM's, a subspace model's or an nnet3 network's.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from pykaldist.decode.chunks import Nnet3Options
from pykaldist.decode.sgmm import GSELECT, SgmmModel
from pykaldist.devices import parse_device, take_device
from pykaldist.errors import UserError
from pykaldist.feats.pipeline import FeaturePipeline, check_dim
from pykaldist.hmm.gmm.fmpe import Fmpe
from pykaldist.hmm.gmm.model_files import read_model, read_transition_model
from pykaldist.hmm.sgmm.model import is_sgmm
from pykaldist.io.datadir import DataDir
from pykaldist.nnet.forwarding import ForwardOptions

if TYPE_CHECKING:
    from pykaldist.decode.ivectors import OnlineIvectors


class AcousticModel(Protocol):
    """An acoustic model, which scores frames against pdfs; `tid2pdf` maps transition-ids to pdfs (index 0 unused)."""

    tid2pdf: np.ndarray

    def features(self, data: DataDir, utt: str) -> np.ndarray:
        """The model's input for one utterance, float32 [frames, dimensions]."""
        ...

    def loglikes(self, feats: np.ndarray) -> np.ndarray:
        """Log-likelihoods, up to a constant a frame, float32 [frames, pdfs]."""
        ...


class GmmModel:
    """A GMM system: its model file, and the features that the model directory asks for.

    The file is `model_dir/final.mdl` unless named. Features are adapted by the fMLLR transforms of `transform_dir`, and have the offsets of
    the fMPE transform in the file `fmpe`.
    """

    def __init__(self, model_dir: Path, model: Path | None = None, transform_dir: Path | None = None, fmpe: Path | None = None,
                 ngselect: int = 2) -> None:
        self._path = model or model_dir / "final.mdl"
        transition_model, self._gmm = read_model(self._path)
        self.tid2pdf = transition_model.tid2pdf
        self._pipeline = FeaturePipeline.from_dir(model_dir, transform_dir)
        self._fmpe = Fmpe.read(fmpe, ngselect) if fmpe is not None else None

    def features(self, data: DataDir, utt: str) -> np.ndarray:
        feats = self._pipeline.apply(data, utt)
        check_dim(self._gmm.dim, feats, f"{data.path}, {utt}", self._path)
        return feats if self._fmpe is None else self._fmpe.transformed(feats, np.array([0, len(feats)]))

    def loglikes(self, feats: np.ndarray, pdfs: np.ndarray | None = None) -> np.ndarray:
        """Log-likelihoods of all pdfs, or of those listed, in that order."""
        return self._gmm.loglikes(feats, pdfs)

    def utterance_loglikes(self, data: DataDir, utt: str, feats: np.ndarray, pdfs: np.ndarray) -> np.ndarray:
        """Log-likelihoods of the pdfs listed, in that order."""
        return self.loglikes(feats, pdfs)


@dataclass
class NetworkFiles:
    """Files of a network that stand elsewhere than in its directory, or have other names there; None: those of the directory.

    `nnet` is a final.pt or an nnet1 network; `model` has the transition model.
    """

    nnet: Path | None = None
    feature_transform: Path | None = None
    class_frame_counts: Path | None = None
    model: Path | None = None

    def transition_model(self, model_dir: Path) -> np.ndarray:
        """The pdf of each transition-id."""
        return read_transition_model(self.model or model_dir / "final.mdl").tid2pdf


class NeuralModel:
    """A network in `final.pt`: its posteriors over priors; the transition model and the features are those of the model directory."""

    def __init__(self, model_dir: Path, forwarding: ForwardOptions, device: str, files: NetworkFiles) -> None:
        import torch  # two seconds that a GMM does not need

        from pykaldist.nnet.network import Network

        torch.set_num_threads(1)  # jobs are processes
        self._path = files.nnet or model_dir / "final.pt"
        self._network = Network.load(self._path, device)
        self._network.forwarding = forwarding
        if (model_dir / "tokens.txt").is_file():  # trained with CTC: the graph's labels are the outputs, counted from 1
            self.tid2pdf = np.maximum(np.arange(-1, self._network.model.output_dim), 0).astype(np.int32)
        else:
            self.tid2pdf = files.transition_model(model_dir)
        self._pipeline = FeaturePipeline.from_dir(model_dir)

    def features(self, data: DataDir, utt: str) -> np.ndarray:
        feats = self._pipeline.apply(data, utt)
        check_dim(self._network.model.input_dim // len(self._network.transform.splice), feats, f"{data.path}, {utt}", self._path)
        return feats

    def loglikes(self, feats: np.ndarray) -> np.ndarray:
        return self._network.loglikes(feats)


class Nnet1Model:
    """A network in a Kaldi nnet1 directory: `final.nnet`, `final.feature_transform`, `ali_train_pdf.counts`, `final.mdl`.

    Counts in `prior_counts` go before those of the alignment.
    """

    def __init__(self, model_dir: Path, device: str, files: NetworkFiles) -> None:
        import torch

        from pykaldist.nnet.nnet1 import Nnet1
        from pykaldist.nnet.nnet1_run import Nnet1Forward
        from pykaldist.nnet.priors import log_priors, read_counts

        torch.set_num_threads(1)
        self._path = files.nnet or model_dir / "final.nnet"
        own = next(model_dir / name for name in ("prior_counts", "ali_train_pdf.counts")
                   if (model_dir / name).is_file() or name == "ali_train_pdf.counts")
        counts = files.class_frame_counts or own
        transform = files.feature_transform or model_dir / "final.feature_transform"
        components = Nnet1.read(self._path).components
        if components[-1].marker == "Softmax":
            components = components[:-1]
        self._nnet = Nnet1(Nnet1.read(transform).components + components)
        self._priors = log_priors(read_counts(counts, self._nnet.output_dim, self._path))
        self._forward = Nnet1Forward(self._nnet, device)
        self.tid2pdf = files.transition_model(model_dir)
        self._pipeline = FeaturePipeline.from_dir(model_dir)

    def features(self, data: DataDir, utt: str) -> np.ndarray:
        feats = self._pipeline.apply(data, utt)
        check_dim(self._nnet.input_dim, feats, f"{data.path}, {utt}", self._path)
        return feats

    def loglikes(self, feats: np.ndarray) -> np.ndarray:
        return self._forward(feats) - self._priors


class Nnet3Scorer:
    """An nnet3 network in a Kaldi directory: `final.mdl`, or the file `path`, and `frame_subsampling_factor` where there is one.

    Its outputs, less log priors where the file has priors, are the log-likelihoods: a frame of them for so many of the features. The input
    of a network that takes i-vectors has in each row that of the frame behind the features. With `looped`, utterances go through the
    network as if they still came, in chunks of the options' frames; through one that runs backwards as a whole.
    """

    def __init__(self, model_dir: Path, path: Path, device: str, options: Nnet3Options, looped: bool = False) -> None:
        import torch

        from pykaldist.decode.ivectors import ChunkedForward, OnlineIvectors
        from pykaldist.nnet.nnet3.model import Nnet3Model
        from pykaldist.nnet.nnet3.run import Nnet3Forward
        from pykaldist.nnet.nnet3.stream import runs_backwards

        torch.set_num_threads(1)
        model = Nnet3Model.read(path)
        self._path, self.subsampling = path, read_subsampling(model_dir)
        self._frames_per_chunk = options.chunks.frames_per_chunk
        self._forward = Nnet3Forward(model.nnet, device, subsampling=self.subsampling)
        if not {"input"} <= set(self._forward.inputs) <= {"input", "ivector"}:
            raise UserError(f"{path} takes {' and '.join(self._forward.inputs)}; networks with other inputs than features and i-vectors "
                            "are not decoded here.")
        self._ivectors: OnlineIvectors | None = None
        if "ivector" in self._forward.inputs:
            if options.online_ivector_dir is None:
                raise UserError(f"{path} takes i-vectors; extract them with steps/online/nnet2/extract_ivectors_online.sh, and give "
                                "--online-ivector-dir.")
            self._ivectors = OnlineIvectors(options.online_ivector_dir, self._forward.inputs["ivector"])
            self._ivectors.check_extractor(model_dir)
        elif options.online_ivector_dir is not None:
            raise UserError(f"{path} takes no i-vectors; leave --online-ivector-dir out.")
        self._chunked = ChunkedForward(self._forward, options.chunks)
        self._anew = bool(self._forward.plan.loops) and not looped  # a recurrent network begins anew with each chunk
        self._streamed = looped and not runs_backwards(self._forward.plan)
        if looped and not self._streamed and self._ivectors is not None:
            raise UserError(f"{path} runs backwards and takes i-vectors, which change on its way; decode with steps/nnet3/decode.sh.")
        self._log_priors = np.log(model.priors) if len(model.priors) else np.float32(0)
        self.tid2pdf = model.transition_model.tid2pdf
        self._pipeline = FeaturePipeline.from_dir(model_dir, nnet3=True)

    def features(self, data: DataDir, utt: str) -> np.ndarray:
        feats = self._pipeline.apply(data, utt)
        check_dim(self._forward.inputs["input"], feats, f"{data.path}, {utt}", self._path)
        return feats if self._ivectors is None else np.hstack([feats, self._ivectors.of_frames(utt, len(feats))])

    def loglikes(self, feats: np.ndarray) -> np.ndarray:
        if self._streamed:
            return self._stream(feats) - self._log_priors
        if self._ivectors is None:
            return (self._chunked if self._anew else self._forward)(feats) - self._log_priors
        return self._chunked(*np.split(feats, [self._forward.inputs["input"]], axis=1)) - self._log_priors

    def _stream(self, feats: np.ndarray) -> np.ndarray:
        """The outputs in chunks, each with the i-vector of its last frame."""
        from pykaldist.nnet.nnet3.stream import Nnet3Stream

        stream, chunk, outputs = Nnet3Stream(self._forward), self._frames_per_chunk, []
        x, ivectors = np.split(feats, [self._forward.inputs["input"]], axis=1)
        for begin in range(0, len(feats), chunk):
            last = min(begin + chunk, len(feats)) - 1
            others = {} if self._ivectors is None else {"ivector": ivectors[last:last + 1]}
            outputs.append(stream.accept(x[begin:last + 1], **others))
        return np.concatenate([*outputs, stream.finish()])


def read_subsampling(model_dir: Path) -> int:
    """The number of feature frames for each output frame of a directory's model: its `frame_subsampling_factor`, or 1."""
    path = model_dir / "frame_subsampling_factor"
    if not path.is_file():
        return 1
    text = path.read_text(encoding="utf-8", errors="replace").strip()
    if not (text.isdecimal() and 0 < int(text) < 1000):
        raise UserError(f"{path}: expected a number of frames, found {text[:40]!r}; write the factor that the network was trained with.")
    return int(text)


NETWORKS: dict[str, Callable[[Path, ForwardOptions, str, NetworkFiles], AcousticModel]] = {
    "final.pt": NeuralModel, "final.nnet": lambda path, _, device, files: Nnet1Model(path, device, files)}
GMM = "final.mdl"  # of a network's directory, it is what the network's pdfs are of


def _is_nnet3(path: Path) -> bool:
    from pykaldist.nnet.nnet3.model import is_nnet3_model

    return is_nnet3_model(path)


def load_acoustic_model(model_dir: str | os.PathLike[str], model: Path | None = None, transform_dir: Path | None = None,
                        forwarding: ForwardOptions | None = None, job: int = 1, files: NetworkFiles | None = None,
                        fmpe: Path | None = None, ngselect: int = 2, nnet3: Nnet3Options | None = None,
                        gselect: int = GSELECT) -> AcousticModel:
    """Read the acoustic model of a directory, for job number `job`; raises UserError where it holds none.

    The file `model` can be taken instead of final.mdl, and for a GMM the fMLLR transforms of `transform_dir`, and the offsets of `fmpe`,
    applied.
    A subspace model has `gselect` Gaussians a frame.
    `forwarding`: where a network computes (jobs take a machine's GPUs in turn), and how utterances go through it. `files`: those that
    are not the directory's. `nnet3`: an nnet3 network's i-vectors and chunks.
    """
    files = files or NetworkFiles()
    named = files != NetworkFiles()
    mdl = model or Path(model_dir) / GMM
    chain = mdl.is_file() and _is_nnet3(mdl)  # which is what training by the chain objective writes last
    if not files.nnet and (Path(model_dir) / "config.json").is_file() and not (Path(model_dir) / "final.pt").is_file() and not chain:
        raise UserError(f"{model_dir} has a network whose training has not ended; run steps/nnet/train.sh again, which goes on with it.")
    folder, options = Path(model_dir), forwarding or ForwardOptions()
    network = next((name for name in NETWORKS if (folder / name).is_file()), GMM)
    if network == GMM and not files.nnet and chain:
        if named or transform_dir is not None or options.dtype != "float32":
            raise UserError(f"{mdl} is an nnet3 network, for which --nnet, --feature-transform, --class-frame-counts, --transform-dir and "
                            "--dtype say nothing; leave them out.")
        if options.forward not in ("whole", "looped"):
            raise UserError(f"--forward {options.forward}: {mdl} is an nnet3 network, for which it is whole or looped.")
        return Nnet3Scorer(folder, mdl, take_device(options.device, job - 1), nnet3 or Nnet3Options(), options.forward == "looped")
    if options.forward == "looped":
        raise UserError(f"--forward looped is for nnet3 networks, and {folder} has none; leave it out.")
    if nnet3 is not None and nnet3.online_ivector_dir is not None:
        raise UserError(f"--online-ivector-dir {nnet3.online_ivector_dir}: only nnet3 networks take i-vectors, and "
                        f"{model_dir} has none.")
    if files.nnet:
        from pykaldist.io.magic import is_container

        network = "final.pt" if is_container(files.nnet) else "final.nnet"
    if network == "final.pt" and (files.feature_transform or files.class_frame_counts):
        if files.nnet or not (folder / "final.nnet").is_file():
            raise UserError(f"{files.nnet or folder / network} has its own feature transform and counts; leave out --feature-transform and "
                            "--class-frame-counts.")
        network = "final.nnet"
    if network == GMM and named:
        raise UserError(f"{model_dir} has no network ({' or '.join(NETWORKS)}); --srcdir names the directory that has one.")
    if options.dtype != "float32" and network != "final.pt":
        raise UserError(f"--dtype {options.dtype} is for networks in a final.pt, and {model_dir} has {network}; leave it out.")
    for name, load in NETWORKS.items():
        if name == network:
            if transform_dir is not None:
                raise UserError(f"{model_dir} has a network ({name}), and --transform-dir is for GMMs; make adapted features with "
                                "steps/nnet/make_fmllr_feats.sh.")
            if fmpe is not None:
                raise UserError(f"{model_dir} has a network ({name}), and --fmpe is for GMMs; leave it out.")
            return load(folder, options, take_device(options.device, job - 1), dataclasses.replace(files, model=model))
    if (folder / GMM).is_file():
        if parse_device(options.device)[0] == "cuda":
            raise UserError(f"--device {options.device}: {model_dir} has a GMM, which is decoded on the CPU; leave the option out.")
        if is_sgmm(mdl):
            if fmpe is not None:
                raise UserError(f"{mdl} is a subspace model, and --fmpe is for GMMs; leave it out.")
            return SgmmModel(folder, model, transform_dir, gselect)
        return GmmModel(folder, model, transform_dir, fmpe, ngselect)
    raise UserError(f"{model_dir} has no model ({' or '.join([*NETWORKS, GMM])}); train one (a recipe's ./run.sh), or give a decode "
                    "directory inside a model's.")
