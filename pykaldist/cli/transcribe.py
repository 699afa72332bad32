"""Transcribe recordings with a finished model: their words on standard output, one line a recording; see steps/transcribe.sh.

With --stream they are recognised as if they came while they are recognised, by a chain model or another nnet3 network: a line for each
utterance, with its begin and end in seconds, and before it lines with ... at their end for what is recognised of it so far.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from pykaldist.decode.decoder import DecoderOptions
from pykaldist.decode.endpoint import add_endpoint_options, endpointing_from, given_endpoint_options
from pykaldist.decode.streaming import Recogniser, StreamOptions
from pykaldist.decode.transcribe import TranscribeOptions, features_of, transcribe, transcribe_stream
from pykaldist.errors import UserError
from pykaldist.io.lang import LangDir
from pykaldist.options import add_flag, add_options, from_args

STREAMED = StreamOptions()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("graph_dir", type=Path, help="directory with HCLG.fst, or HCLr.fst and Gr.fst, and words.txt")
    parser.add_argument("model_dir", type=Path, help="directory of a GMM or network, such as exp/dnn")
    parser.add_argument("recordings", nargs="+", help="audio files: wav, flac, sphere, ...; a sampling rate above the model's is fine; "
                                                      "with --stream, - for 16-bit samples at the model's rate on standard input")
    add_flag(parser, "stream", "recognise while the audio comes")
    add_options(parser, StreamOptions)
    add_endpoint_options(parser)
    add_options(parser, TranscribeOptions)
    add_options(parser, DecoderOptions, skip=("determinize_lattice",))


def run(args: argparse.Namespace) -> None:
    options, decoding, streaming = from_args(TranscribeOptions, args), from_args(DecoderOptions, args), from_args(StreamOptions, args)
    if args.stream:
        _stream(args, options, decoding, streaming)
        return
    given = [f"--{name.replace('_', '-')}" for name, value in vars(streaming).items() if value != getattr(STREAMED, name)]
    given += [*given_endpoint_options(args), *(["the recording -"] if "-" in args.recordings else [])]
    if given:
        raise UserError(f"{given[0]} is for recognition while the audio comes; add --stream.")
    with tempfile.TemporaryDirectory(prefix="pykaldist-transcribe-") as work:
        for path, words in transcribe(args.recordings, args.graph_dir, args.model_dir, Path(work), options, decoding):
            print(path, *(["WARNING: no path survived the beam (--beam)"] if words is None else words), flush=True)


def _stream(args: argparse.Namespace, options: TranscribeOptions, decoding: DecoderOptions, streaming: StreamOptions) -> None:
    from pykaldist.devices import choose_device
    from pykaldist.feats.extract import Extractor
    from pykaldist.hmm.ivector.online import OnlineOptions
    from pykaldist.hmm.ivector.posteriors import PosteriorOptions
    from pykaldist.hmm.ivector.stages import read_extractor

    streaming.check()
    if options.one_speaker or options.adapt_model:
        raise UserError("--one-speaker and --adapt-model are about whole recordings, and --stream knows no speakers; leave them out.")
    endpointing = None
    if streaming.do_endpointing:
        endpointing = endpointing_from(args, LangDir(args.graph_dir).file("phones/silence.csl").read_text(encoding="utf-8").strip())
    ivectors = read_extractor(streaming.extractor, OnlineOptions(), PosteriorOptions()) if streaming.extractor else None
    recogniser = Recogniser(args.model_dir, args.graph_dir, Extractor(features_of(options)[1]), decoding, endpointing,
                            Path(streaming.mean_of) if streaming.mean_of else None, device=choose_device(options.device), ivectors=ivectors)
    shown: list[str] = []
    for path, heard in transcribe_stream(args.recordings, recogniser, options, streaming.chunk_length):
        ended = heard.lattice is not None
        if heard.words and (ended or (streaming.partial and heard.words != shown)):
            print(path, f"{heard.begin:.2f}-{heard.end:.2f}", *heard.words, *([] if ended else ["..."]), flush=True)
        shown = [] if ended else heard.words
