"""Transcription of recordings that are no part of a corpus, by a finished model.

It makes features and CMVN statistics, adapts where the model wants it, and searches once.

The recordings become a small data directory, which goes the way of any test set. A speaker is a recording, or all of them together. A
system trained on fMLLR features (SAT, or a network on such features) is given transforms made as steps/decode_fmllr.sh makes them: a
decoding without adaptation, transforms from its lattices, a decoding with these, transforms from the new lattices.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from pykaldist.decode.acoustic import AcousticModel, GmmModel, load_acoustic_model
from pykaldist.decode.adapt import transforms_from_lattices
from pykaldist.decode.decoder import DecoderOptions, LatticeDecoder
from pykaldist.decode.lattice import Lattice, write_lattices
from pykaldist.decode.lookahead import read_decoder
from pykaldist.decode.pairs import check_graph
from pykaldist.decode.paths import best_path
from pykaldist.decode.streaming import Heard, Recogniser, recognise
from pykaldist.errors import UserError
from pykaldist.feats.make import collect_parts, extract_part, speaker_cmvn, transform_part
from pykaldist.feats.pipeline import FeaturePipeline
from pykaldist.feats.transforms import write_speaker_transforms
from pykaldist.hmm.adaptation.fmllr import FmllrOptions
from pykaldist.io.audio import AudioError, read_audio
from pykaldist.io.conf import read_conf
from pykaldist.io.datadir import DataDir, write_datadir
from pykaldist.io.lang import LangDir, SymbolTable
from pykaldist.io.schema import read_json
from pykaldist.nnet.forwarding import ForwardOptions
from pykaldist.options import option
from pykaldist.progress import progress

if TYPE_CHECKING:
    from pykaldist.feats.extract import FbankOptions, MfccOptions, PlpOptions

# Of decode_fmllr.sh: the decoding without adaptation, the weight of silence, and the beams in which the lattices of the first and the
# second decoding are determinised for the transforms.
FIRST_BEAM, FIRST_MAX_ACTIVE, SILENCE_WEIGHT = 10.0, 2000, 0.01
LATTICE_BEAM, SECOND_LATTICE_BEAM = 6.0, 4.0
MIN_COUNT = 100.0  # frames of speech for a transform, where decode_fmllr.sh wants 500: a recording is often short, and adapts all the same


@dataclass
class TranscribeOptions:
    """The options of how recordings become features, and whose they are."""

    kind: str = option("mfcc", "features that the model was trained on", choices=("mfcc", "plp", "fbank"))
    feats_config: str | None = option(None, "their options, one --option=value a line, as in training (default: conf/KIND.conf)")
    channel: int = option(-1, "channel to read, from 0; -1 expects mono")
    one_speaker: bool = option(False, "all recordings are of one speaker, for CMVN and adaptation; false: each of its own")
    adapt_model: str | None = option(None, "speaker-adapted GMM system whose fMLLR features a network takes; none: as the "
                                           "network's frame store says")
    device: str = option("auto", "where a network computes: cpu, cuda, cuda:N, or auto: cuda where there is one")


def transcribe(paths: Sequence[str], graph_dir: Path, model_dir: Path, work: Path, options: TranscribeOptions,
               decoding: DecoderOptions) -> Iterator[tuple[str, list[str] | None]]:
    """Transcribe recordings: (path, words) of each, in order; None where no path survives the beam.

    `work` is an empty folder for what is made on the way. Raises UserError for a recording that cannot be read, or has a lower sampling
    rate than the model's, and for a model that is not there.
    """
    adapting = adapting_gmm(model_dir, Path(options.adapt_model) if options.adapt_model else None)
    data = make_features(paths, work, options)
    check_graph(graph_dir, model_dir / "final.mdl")
    words = SymbolTable.read(graph_dir / "words.txt")
    model: AcousticModel
    if adapting is None:
        model = load_acoustic_model(model_dir, forwarding=ForwardOptions(device=options.device))
    else:
        transforms = adapt(data, graph_dir, adapting, work, decoding)
        if adapting == model_dir:
            model = GmmModel(model_dir, None, transforms)
        else:
            model = load_acoustic_model(model_dir, forwarding=ForwardOptions(device=options.device))
            adapted = write_datadir(work / "adapted", data.wav_scp, None, data.utt2spk)
            transform_part(data, adapted, FeaturePipeline.from_dir(adapting, transforms), work / "fmllr", 1, 1)
            collect_parts(adapted, work / "fmllr", "fmllr", 1)
            data = DataDir(adapted.path)
    decoder = read_decoder(graph_dir, model.tid2pdf, decoding)
    for path, utt in progress(list(zip(paths, data.utterances(), strict=True)), "transcribing", unit="recording"):
        try:
            lattice = decoder.decode(model.loglikes(model.features(data, utt)))
        except UserError as error:
            raise UserError(f"{path}: {error}") from error
        yield path, None if lattice is None else [words.symbol(word) for word in best_path(lattice, decoding.acwt).words]


@dataclass
class Trained:
    """What is needed of a network's config.json."""

    store: str


@dataclass
class Alignment:
    """What is needed of a frame store's provenance."""

    ali: str


@dataclass
class Packed:
    """What is needed of a frame store's manifest."""

    provenance: Alignment


def adapting_gmm(model_dir: Path, chosen: Path | None) -> Path | None:
    """Find the speaker-adapted GMM system whose transforms the model's features need; None where they are not adapted."""
    if not model_dir.is_dir():
        raise UserError(f"{model_dir} does not exist; give the directory of a trained model, such as exp/dnn.")
    if chosen is None and (model_dir / "final.alimdl").is_file():
        return model_dir
    network = model_dir / "config.json"
    if chosen is None and network.is_file() and not FeaturePipeline.from_dir(model_dir).cmvn.norm_means:
        cure = "name the GMM system that adapts with --adapt-model"
        manifest = Path(read_json(network, Trained, cure, extra=True).store) / "train" / "manifest.json"
        if manifest.is_file():
            chosen = Path(read_json(manifest, Packed, cure, extra=True).provenance.ali.removesuffix("_ali"))
        if chosen is None or not (chosen / "final.mdl").is_file():
            raise UserError(f"{model_dir} was trained on adapted features, and {manifest} does not lead to the GMM system that adapts; "
                            "name it with --adapt-model.")
    return chosen


def make_features(paths: Sequence[str], work: Path, options: TranscribeOptions) -> DataDir:
    """Make a data directory of the recordings, with features and CMVN statistics.

    Recordings of a higher sampling rate are resampled.
    """
    import soundfile

    config, feature_options = features_of(options)
    rate = int(feature_options.sample_frequency)
    (work / "audio").mkdir()
    wav: dict[str, str] = {}
    for number, path in enumerate(paths):
        samples = samples_of(path, options.channel, rate)
        utt = f"recording-{number:06d}"
        wav[utt] = str(work / "audio" / f"{utt}.wav")
        soundfile.write(wav[utt], samples / 32768, rate, subtype="FLOAT")
    data = write_datadir(work / "data", wav, None, {utt: "speaker" if options.one_speaker else utt for utt in wav})
    extract_part(data, work / "feats", config, options.kind, 1, 1)
    collect_parts(data, work / "feats", options.kind, 1)
    speaker_cmvn(data, work / "feats")
    return DataDir(data.path)


def features_of(options: TranscribeOptions) -> tuple[str, MfccOptions | PlpOptions | FbankOptions]:
    """The file with the options of the model's features, and the options."""
    from pykaldist.feats.extract import FbankOptions, MfccOptions, PlpOptions

    config = options.feats_config or f"conf/{options.kind}.conf"
    if not Path(config).is_file():
        raise UserError(f"{config} does not exist; work in the recipe's folder, or name the features' options with --feats-config.")
    kinds: dict[str, type[MfccOptions | PlpOptions | FbankOptions]] = {"mfcc": MfccOptions, "plp": PlpOptions, "fbank": FbankOptions}
    return config, read_conf(kinds[options.kind], config)


def samples_of(path: str, channel: int, rate: int) -> np.ndarray:
    """The samples of a recording at `rate` Hz; raises UserError where it cannot be read, or has a lower rate."""
    if not Path(path).is_file():
        raise UserError(f"{path} does not exist; give the paths of recordings.")
    try:
        samples, found = read_audio(path, channel)
    except AudioError as error:
        raise UserError(str(error).replace("check the path in wav.scp", "check the path")) from error
    if found < rate:
        raise UserError(f"{path}: expected {rate} Hz or more, found {found} Hz; the model was trained on {rate} Hz, and only a higher "
                        "rate can be taken to it.")
    return resampled(samples, found, rate)


def transcribe_stream(paths: Sequence[str], recogniser: Recogniser, options: TranscribeOptions,
                      chunk_length: float) -> Iterator[tuple[str, Heard]]:
    """Transcribe recordings as if they came while they are recognised: (path, what is heard), as `streaming.Recognition` gives it.

    The path `-` is standard input: 16-bit samples at the model's rate, little-endian, without a header. Raises UserError as `transcribe`
    does.
    """
    rate = int(recogniser.extractor.options.sample_frequency)
    chunk = max(1, round(chunk_length * rate))
    for path in paths:
        if path == "-":
            pieces = _raw_pieces(sys.stdin.buffer, chunk)
        else:
            samples = samples_of(path, options.channel, rate)
            pieces = (samples[start:start + chunk] for start in range(0, len(samples), chunk))
        try:
            for heard in recognise(recogniser, pieces):
                yield path, heard
        except UserError as error:
            raise UserError(f"{path}: {error}") from error


def _raw_pieces(stream: BinaryIO, chunk: int) -> Iterator[np.ndarray]:
    """Pieces of so many samples from a stream of 16-bit samples; half a sample at its end is left out."""
    while len(content := stream.read(2 * chunk)) > 1:
        yield np.frombuffer(content[:len(content) // 2 * 2], "<i2").astype(np.float32)


def resampled(samples: np.ndarray, found: int, rate: int) -> np.ndarray:
    """Resample samples at `found` Hz to `rate` Hz, by a polyphase filter."""
    from scipy.signal import resample_poly

    ratio = Fraction(rate, found)
    return samples if ratio == 1 else np.asarray(resample_poly(samples, ratio.numerator, ratio.denominator), np.float32)


def adapt(data: DataDir, graph_dir: Path, gmm: Path, work: Path, decoding: DecoderOptions) -> Path:
    """Make the folder with fMLLR transforms of the recordings' speakers, by the speaker-adapted system `gmm`."""
    colons = LangDir(graph_dir).file("phones/silence.csl").read_text(encoding="utf-8").strip()
    silence, utts = [int(phone) for phone in colons.split(":")], data.utterances()
    options = FmllrOptions(fmllr_min_count=MIN_COUNT, silence_weight=SILENCE_WEIGHT)
    alimdl = gmm / "final.alimdl" if (gmm / "final.alimdl").is_file() else gmm / "final.mdl"
    second = replace(decoding, lattice_beam=LATTICE_BEAM)
    first = replace(second, beam=FIRST_BEAM, max_active=FIRST_MAX_ACTIVE)
    transforms: Path | None = None
    for name, search, aligner, beam in (("first", first, alimdl, LATTICE_BEAM), ("second", second, None, SECOND_LATTICE_BEAM)):
        model = GmmModel(gmm, aligner, transforms)
        decoder = read_decoder(graph_dir, model.tid2pdf, search)

        def lattices(model: GmmModel = model, decoder: LatticeDecoder = decoder, name: str = name) -> Iterator[tuple[str, Lattice]]:
            for utt in progress(utts, f"{name} transforms", unit="recording"):
                if (lattice := decoder.decode(model.loglikes(model.features(data, utt)))) is not None:
                    yield utt, lattice

        archive = work / f"{name}.gz"
        write_lattices(archive, lattices())
        made, _ = transforms_from_lattices(data, utts, gmm, archive, silence, decoding.acwt, options, aligner, transforms, None, beam)
        transforms = work / name
        write_speaker_transforms(transforms / "trans.1", made.items())
    assert transforms is not None
    return transforms
