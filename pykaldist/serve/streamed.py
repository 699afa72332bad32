"""Recognition of audio that still comes, by a finished model with what else it takes, found in its recipe."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import numpy as np

from pykaldist.decode.acoustic import NETWORKS
from pykaldist.decode.decoder import DecoderOptions
from pykaldist.decode.endpoint import Endpointing
from pykaldist.decode.streaming import FirstUtterance, Heard, Recogniser, StreamOptions, recognise
from pykaldist.devices import take_device
from pykaldist.errors import UserError
from pykaldist.feats.extract import Extractor
from pykaldist.hmm.ivector.online import OnlineOptions
from pykaldist.hmm.ivector.posteriors import PosteriorOptions
from pykaldist.hmm.ivector.stages import read_extractor
from pykaldist.progress import progress
from pykaldist.serve.recipe import acwt_of, extractor_of, features_of, graph_of, mean_data_of, scales_of
from pykaldist.serve.recordings import feature_options, samples_of
from pykaldist.serve.transcribe import TranscribeOptions, Transcriber, Transcribing, WordReader, places_of
from pykaldist.serve.transcript import Transcript, Utterance


def streaming_recogniser(model_dir: Path, options: TranscribeOptions, decoding: DecoderOptions, streaming: StreamOptions,
                         endpointing: Endpointing | None) -> Recogniser:
    """The recogniser of an nnet3 network; raises UserError for another model, and where a part is missing or does not fit."""
    from pykaldist.nnet.nnet3.model import Nnet3Model, is_nnet3_model

    path = model_dir / "final.mdl"
    if not (path.is_file() and is_nnet3_model(path)):
        raise UserError(f"{path} is no nnet3 network, such as a chain model, and no other model recognises audio as it comes; leave out "
                        "--stream.")
    if options.dtype != "float32":
        raise UserError(f"--dtype {options.dtype} is for networks in a final.pt, and {path} is an nnet3 network; leave it out.")
    nnet = Nnet3Model.read(path).nnet
    graph_dir = graph_of(model_dir, options.graph)

    def fits(kind: str, config: str) -> bool:
        return _dim(Extractor(feature_options(kind, config))) == nnet.dim("input")

    extractor = Extractor(feature_options(*features_of(model_dir, options.kind, options.feats_config, fits)))
    found = extractor_of(model_dir, nnet.dim("ivector") if "ivector" in nnet.nodes else 0, streaming.extractor)
    ivectors = read_extractor(found, OnlineOptions(), PosteriorOptions()) if found else None
    return Recogniser(model_dir, graph_dir, extractor, replace(decoding, acwt=acwt_of(model_dir, options.acwt)), endpointing,
                      mean_data_of(model_dir, streaming.mean_of), device=take_device(options.device), ivectors=ivectors)


def _dim(extractor: Extractor) -> int:
    return int(extractor.extract([("", np.zeros(extractor.options.samples_per_frame, np.float32))])[0].shape[1])


class StreamTranscriber:
    """A recogniser for whole recordings, as a network that takes i-vectors wants it."""

    def __init__(self, recogniser: Recogniser, reader: WordReader, parts: str, longest: float) -> None:
        self._recogniser, self._reader, self.parts, self._longest = recogniser, reader, parts, longest
        self.rate = int(recogniser.extractor.options.sample_frequency)

    def transcribe(self, recordings: Sequence[tuple[str, np.ndarray]], alternatives: int = 0) -> Iterator[Transcript]:
        """As `Transcribing` says."""
        for name, samples in recordings:
            places = places_of(samples, self.rate, self._longest)
            found = [self._utterance(name, samples, begin, end, alternatives)
                     for begin, end in progress(places, "transcribing", unit="utterance")]
            yield Transcript(name, len(samples) / self.rate, found)

    def _utterance(self, name: str, samples: np.ndarray, begin: float, end: float, alternatives: int) -> Utterance:
        first, last = round(begin * self.rate), round(end * self.rate)
        try:
            lattice = FirstUtterance(self._recogniser, self.rate).decode(samples[first:last])
        except UserError as error:
            raise UserError(f"{name}: {error}") from error
        return self._reader.read(lattice, begin, end, alternatives)


def transcriber_of(model_dir: Path, options: TranscribeOptions, decoding: DecoderOptions, extractor: str | None) -> Transcribing:
    """What transcribes whole recordings by the model of a directory: with the i-vectors of an extractor, where it takes some."""
    if not takes_ivectors(model_dir):
        if extractor is not None:
            raise UserError(f"{model_dir} takes no i-vectors; leave out --extractor.")
        return Transcriber(model_dir, options, decoding)
    recogniser = streaming_recogniser(model_dir, options, decoding, StreamOptions(extractor=extractor), None)
    scales = scales_of(model_dir, options.lmwt, options.word_ins_penalty)
    reader = WordReader(model_dir, recogniser.graph_dir, scales, recogniser.decoder.options)
    return StreamTranscriber(recogniser, reader, f"graph {recogniser.graph_dir}, with i-vectors, words chosen by {scales}", options.longest)


def takes_ivectors(model_dir: Path) -> bool:
    """Whether a directory's model is an nnet3 network that takes i-vectors."""
    from pykaldist.nnet.nnet3.model import Nnet3Model, is_nnet3_model

    path = model_dir / "final.mdl"
    network = any((model_dir / name).is_file() for name in NETWORKS)
    return not network and path.is_file() and is_nnet3_model(path) and "ivector" in Nnet3Model.read(path).nnet.nodes


def transcribe_stream(paths: Sequence[str], recogniser: Recogniser, channel: int, chunk_length: float) -> Iterator[tuple[str, Heard]]:
    """Transcribe recordings as if they came while they are recognised: (path, what is heard), as `streaming.Recognition` gives it.

    The path `-` is standard input: 16-bit samples at the model's rate, little-endian, without a header. Raises UserError for a recording
    that cannot be read, or has a lower sampling rate than the model's.
    """
    rate = int(recogniser.extractor.options.sample_frequency)
    chunk = max(1, round(chunk_length * rate))
    for path in paths:
        if path == "-":
            pieces = _raw_pieces(sys.stdin.buffer, chunk)
        else:
            samples = samples_of(path, channel, rate)
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
