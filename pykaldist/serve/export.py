"""A trained model in the formats of other programs: ONNX, Kaldi's nnet1 and nnet3, Vosk.

What was written is read again and run: on random features its outputs have to be those of the model here. Only then does it get its name,
beside a model card (`model_card.py`).
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pykaldist.decode.acoustic import read_subsampling
from pykaldist.decode.decoder import DecoderOptions
from pykaldist.decode.lookahead import read_decoder
from pykaldist.decode.unnormalised import mean_of
from pykaldist.decode.vosk import FOLDERS, export_vosk
from pykaldist.errors import UserError
from pykaldist.feats.extract import Extractor, MfccOptions
from pykaldist.io.atomic import copy_file, write_text
from pykaldist.io.conf import read_conf
from pykaldist.io.datadir import DataDir
from pykaldist.nnet.convert import to_nnet1
from pykaldist.nnet.network import Network
from pykaldist.nnet.nnet1 import Nnet1
from pykaldist.nnet.nnet1_run import Nnet1Forward
from pykaldist.nnet.nnet3.model import Nnet3Model, is_nnet3_model
from pykaldist.nnet.nnet3.run import Nnet3Forward
from pykaldist.nnet.priors import write_counts
from pykaldist.serve.options import KaldiOptions, OnnxOptions, VoskDirOptions
from pykaldist.serve.recipe import graph_of

CARD = "README.md"
FRAMES = 200  # of random features, on which a model is tried
SPREAD = 8.0  # of random MFCCs
TOLERANCE = 1e-3  # of an output, a log-likelihood
INT8_TOLERANCE = 0.1  # mean difference of an output with 8-bit integers, over the mean of its size
SYSTEM_FILES = ("final.mdl", "tree", "phones.txt", "cmvn_opts", "delta_opts", "frame_subsampling_factor", "ali_train_pdf.counts",
                "online_cmvn", "global_cmvn.stats")


@dataclass
class Written:
    """What was written: how it was tried, and how it is used."""

    tried: str
    usage: str


@dataclass
class Format:
    """A format: the names that an export may have, and what writes it."""

    names: tuple[str, ...]
    write: Callable[[Path, Path, Any], Written]


def export(exp: Path, target: Path, to: str, options: Any, card: Callable[[Written], str]) -> Written:
    """Write the model of an experiment's folder as the folder `target`; `card` makes the model card's text.

    What an earlier export left there is replaced. Raises UserError where the folder has other files, the model cannot be written in the
    format, or does something else after it was written.
    """
    form = FORMATS[to]
    if not exp.is_dir():
        raise UserError(f"{exp} is no folder; name an experiment, such as exp/dnn.")
    others = sorted(path.name for path in target.iterdir() if path.name not in (*form.names, CARD)) if target.is_dir() else []
    if others:
        raise UserError(f"{target} has {others[0]}, which is no part of an export to {to}; give a folder that is empty or not there.")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as work:
        made = Path(work) / "export"
        made.mkdir()
        written = form.write(exp, made, options)
        write_text(made / CARD, card(written))
        if target.is_dir():
            shutil.rmtree(target)
        os.replace(made, target)
    return written


def _compared(found: np.ndarray, expected: np.ndarray, what: str) -> str:
    """Check that outputs are those of the model here; returns how near they are, in words."""
    difference = float(np.abs(found - expected).max()) if found.shape == expected.shape else np.inf
    if not difference <= TOLERANCE:
        raise UserError(f"{what} was written, and gives other outputs than the model here (difference {difference:g}, at most "
                        f"{TOLERANCE:g} expected); nothing is left. This is a fault of pykaldist: report it with the model's config.json.")
    return f"{what}, read again and run on {FRAMES} frames of random features: no output differs by more than {difference:.1e}"


def _network(exp: Path, to: str) -> Network:
    if not (exp / "final.pt").is_file():
        raise UserError(f"{exp} has no final.pt, which --to {to} needs; name an experiment whose training has ended.")
    return Network.load(exp / "final.pt")


def _features_for(network: Network) -> np.ndarray:
    """Random features spread as the network's training data were."""
    transform = network.transform
    dim = network.model.input_dim // len(transform.splice)
    noise = np.random.default_rng(0).standard_normal((FRAMES, dim)).astype(np.float32)
    return noise / transform.scale[:dim].numpy() + transform.shift[:dim].numpy()


def _nnet3(exp: Path, to: str) -> Nnet3Model:
    if not (exp / "final.mdl").is_file() or not is_nnet3_model(exp / "final.mdl"):
        raise UserError(f"{exp} has no final.mdl with an nnet3 network, which --to {to} needs; name a chain model's folder, or export this "
                        "model --to onnx or --to nnet1.")
    return Nnet3Model.read(exp / "final.mdl")


def _inputs_for(model: Nnet3Model) -> dict[str, np.ndarray]:
    """Random features, and an i-vector where a network takes one."""
    generator = np.random.default_rng(0)
    inputs = {"feats": (SPREAD * generator.standard_normal((FRAMES, model.nnet.dim("input")))).astype(np.float32)}
    if "ivector" in model.nnet.nodes:
        inputs["ivector"] = generator.standard_normal((1, model.nnet.dim("ivector"))).astype(np.float32)
    return inputs


def _copy_system(exp: Path, target: Path, leave_out: tuple[str, ...] = ()) -> None:
    for name in SYSTEM_FILES:
        if (exp / name).is_file() and name not in leave_out:
            copy_file(exp / name, target / name)


def _to_onnx(exp: Path, target: Path, options: OnnxOptions) -> Written:
    import onnxruntime

    from pykaldist.nnet.nnet3.onnx_export import export_nnet3_onnx, quantised
    from pykaldist.nnet.onnx_export import export_onnx

    path = target / "model.onnx"
    subsampling = read_subsampling(exp)
    if (exp / "final.pt").is_file():
        if options.int8:
            raise UserError(f"--int8 true is for nnet3 networks, and {exp}/final.pt is none; decode it with --dtype int8.")
        network = _network(exp, "onnx")
        inputs = {"feats": _features_for(network)}
        expected = network.loglikes(inputs["feats"])
        export_onnx(network, path)
    else:
        model = _nnet3(exp, "onnx")
        inputs = _inputs_for(model)
        expected = Nnet3Forward(model.nnet, subsampling=subsampling)(**inputs)
        expected = expected - np.log(model.priors) if len(model.priors) else expected
        export_nnet3_onnx(model.nnet, path, subsampling, model.priors, quantised if options.int8 else None)
    _copy_system(exp, target, ("final.mdl",))
    found = np.asarray(onnxruntime.InferenceSession(str(path)).run(None, inputs)[0])
    tried = _near(found, expected) if options.int8 else _compared(found, expected, "model.onnx")
    shape = f"frames / {subsampling}" if subsampling > 1 else "frames"
    asked = "".join(f", {name} {tuple(one.shape)}" for name, one in inputs.items() if name != "feats")
    return Written(tried, f"""import onnxruntime

session = onnxruntime.InferenceSession("model.onnx")
loglikes, = session.run(None, {{"feats": feats{"".join(f', "{name}": {name}' for name in inputs if name != "feats")}}})
# float32: feats (frames, {inputs["feats"].shape[1]}){asked}, after CMVN as cmvn_opts says
# loglikes ({shape}, {found.shape[1]}), priors subtracted
""")


def _near(found: np.ndarray, expected: np.ndarray) -> str:
    """Check outputs with 8-bit integers; returns how near they are, in words."""
    relative = float(np.abs(found - expected).mean() / np.abs(expected).mean()) if found.shape == expected.shape else np.inf
    if not relative <= INT8_TOLERANCE:
        raise UserError(f"with 8-bit integers the outputs differ by {100 * relative:.0f} % of their size ({100 * INT8_TOLERANCE:.0f} % at "
                        "most expected); export without --int8.")
    return f"model.onnx with 8-bit integers, run on {FRAMES} random frames: mean difference {100 * relative:.1f} % of the outputs"


def _to_nnet1(exp: Path, target: Path, options: KaldiOptions) -> Written:
    network = _network(exp, "nnet1")
    nnet, transform = to_nnet1(network)
    nnet.write(target / "final.nnet")
    transform.write(target / "final.feature_transform")
    _copy_system(exp, target)
    if network.counts is not None:
        write_counts(target / "ali_train_pdf.counts", network.counts.numpy())
    read = [Nnet1.read(target / name).components for name in ("final.feature_transform", "final.nnet")]
    feats = _features_for(network)
    outputs = Nnet1Forward(Nnet1([*read[0], *read[1]]))(feats)
    tried = _compared(np.log(np.maximum(outputs, 1e-30)), np.maximum(network.log_posteriors(feats), np.log(1e-30)), "final.nnet")
    return Written(tried, """nnet-forward --feature-transform=final.feature_transform --class-frame-counts=ali_train_pdf.counts \\
  --no-softmax=false --apply-log=true final.nnet "ark:apply-cmvn ... |" ark:-
""")


def _to_nnet3(exp: Path, target: Path, options: KaldiOptions) -> Written:
    model, subsampling = _nnet3(exp, "nnet3"), read_subsampling(exp)
    _copy_system(exp, target, ("final.mdl",))
    model.write(target / "final.mdl")
    inputs = _inputs_for(model)
    again = Nnet3Forward(Nnet3Model.read(target / "final.mdl").nnet, subsampling=subsampling)
    tried = _compared(again(**inputs), Nnet3Forward(model.nnet, subsampling=subsampling)(**inputs), "final.mdl")
    return Written(tried, f"""nnet3-latgen-faster --frame-subsampling-factor={subsampling} --acoustic-scale=1.0 \\
  --word-symbol-table=words.txt final.mdl HCLG.fst scp:feats.scp ark:lat.ark
""")


def _to_vosk(exp: Path, target: Path, options: VoskDirOptions) -> Written:
    model = _nnet3(exp, "vosk")
    graph = graph_of(exp, options.graph_dir)
    mean_data = Path(options.mean_of) if options.mean_of else None
    export_vosk(exp, graph, target, Path(options.extractor) if options.extractor else None, mean_data, options)
    subsampling, inputs = read_subsampling(exp), _inputs_for(model)
    read = Nnet3Model.read(target / "am/final.mdl")
    forward = Nnet3Forward(read.nnet, subsampling=subsampling)
    mean = mean_of(DataDir(mean_data)) if mean_data is not None else np.float32(0)
    expected = Nnet3Forward(model.nnet, subsampling=subsampling)(**{**inputs, "feats": (inputs["feats"] - mean).astype(np.float32)})
    tried = _compared(forward(**inputs), expected, "am/final.mdl")
    extractor = Extractor(read_conf(MfccOptions, target / "conf/mfcc.conf"))
    rate = int(extractor.options.sample_frequency)
    noise = (100 * np.random.default_rng(0).standard_normal(2 * rate)).astype(np.float32)
    feats = extractor.extract([("noise", noise)])[0]
    search = DecoderOptions(options.beam, options.lattice_beam, options.max_active, options.min_active, options.acwt)
    decoder = read_decoder(target / "graph", read.transition_model.tid2pdf, search)
    if decoder.decode(forward(**{**inputs, "feats": feats})) is None:
        raise UserError(f"{target.name}: nothing is recognised in noise with the graph of {graph}; decode a test set with it first "
                        "(steps/nnet3/decode.sh).")
    tried += "; two seconds of noise go through its features, network and graph"
    return Written(tried, """import vosk

recogniser = vosk.KaldiRecognizer(vosk.Model("."), 16000)   # the sampling rate of the audio
recogniser.AcceptWaveform(samples)                          # 16-bit samples, as bytes
print(recogniser.FinalResult())
""")


FORMATS: dict[str, Format] = {
    "onnx": Format(("model.onnx", *SYSTEM_FILES), _to_onnx),
    "nnet1": Format(("final.nnet", "final.feature_transform", *SYSTEM_FILES), _to_nnet1),
    "nnet3": Format(SYSTEM_FILES, _to_nnet3),
    "vosk": Format(FOLDERS, _to_vosk),
}
