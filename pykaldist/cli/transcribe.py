"""Transcribe recordings with a finished model, as text, CTM, subtitles or JSON; or serve it to programs and browsers.

  pykaldist transcribe exp/dnn recording.wav talk.mp3              # their words, one line a recording
  pykaldist transcribe --format srt --out subtitles exp/dnn *.mp3  # subtitles/<name>.srt; or ctm, vtt, json
  pykaldist transcribe --stream exp/chain/tdnn -                   # 16-bit samples on standard input, while they come
  pykaldist transcribe --serve true exp/chain/tdnn                 # a page for browsers, and Vosk's WebSocket protocol for programs

Files are wav, flac, mp3, ogg, opus or sphere, at the model's sampling rate or a higher one. Graph, features' options and scales are found
in the model's recipe, or named. Recordings longer than --longest seconds are cut in their pauses.

With --stream they are recognised as if they came while they are recognised, by a chain model or another nnet3 network: a line for each
utterance, with its begin and end in seconds, and before it lines with ... at their end for what is recognised of it so far.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read when numpy is loaded

from pykaldist.decode.decoder import DecoderOptions
from pykaldist.decode.endpoint import Endpointing, add_endpoint_options, endpointing_from, given_endpoint_options
from pykaldist.decode.streaming import StreamOptions
from pykaldist.errors import UserError
from pykaldist.io.atomic import write_text
from pykaldist.io.lang import LangDir
from pykaldist.options import add_flag, add_options, boolean, from_args
from pykaldist.serve.recipe import graph_of
from pykaldist.serve.server.options import ServerOptions
from pykaldist.serve.streamed import streaming_recogniser, transcribe_stream, transcriber_of
from pykaldist.serve.transcribe import TranscribeOptions, transcribe_files
from pykaldist.serve.transcript import FORMATS, SUFFIXES, Transcript

INTERMIXED = True
STREAMED, SERVED = StreamOptions(), ServerOptions()
EXTRACTOR = "extractor"  # the option of recognition while audio comes that whole recordings have, too
ONE_FILE = ("srt", "vtt")  # these have a place for one recording


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model_dir", type=Path, help="directory of a GMM or network, such as exp/dnn")
    parser.add_argument("recordings", nargs="*", help="audio files; with --stream, - for 16-bit samples at the model's rate on standard "
                                                      "input")
    parser.add_argument("--format", choices=tuple(FORMATS), default="text", help="what to write (default: text)")
    parser.add_argument("--out", type=Path, help="folder for a file a recording (default: all on standard output)")
    add_options(parser, TranscribeOptions)
    add_flag(parser, "stream", "recognise while the audio comes")
    add_options(parser, StreamOptions)
    add_endpoint_options(parser)
    add_options(parser, DecoderOptions, skip=("determinize_lattice", "acwt"))
    parser.add_argument("--serve", type=boolean, default=False, help="true: serve the model, to this machine alone unless --host says else")
    add_options(parser, ServerOptions)


def run(args: argparse.Namespace) -> None:
    options, decoding = from_args(TranscribeOptions, args), from_args(DecoderOptions, args, acwt=1.0)  # the model's own is set later
    streaming, serving = from_args(StreamOptions, args), from_args(ServerOptions, args)
    if args.serve:
        _serve(args, options, decoding, streaming, serving)
        return
    given = _changed(serving, SERVED)
    if given:
        raise UserError(f"{given[0]} is about the server; add --serve true.")
    if not args.recordings:
        raise UserError("no recording is named; give the paths of some, or --serve true.")
    if args.stream:
        _stream(args, options, decoding, streaming)
        return
    given = [name for name in _changed(streaming, STREAMED) if name != f"--{EXTRACTOR}"]
    given += [*given_endpoint_options(args), *(["the recording -"] if "-" in args.recordings else [])]
    if given:
        raise UserError(f"{given[0]} is for recognition while the audio comes; add --stream.")
    if args.out is None and args.format in ONE_FILE and len(args.recordings) > 1:
        raise UserError(f"--format {args.format} has a file for each recording; name a folder for them with --out.")
    targets = _targets(args.recordings, args.out, args.format) if args.out else {}
    transcriber = transcriber_of(args.model_dir, options, decoding, streaming.extractor)
    print(f"transcribe: {transcriber.parts}", file=sys.stderr)
    for transcript in transcribe_files(args.recordings, transcriber, options):
        _write(transcript, args.format, targets.get(transcript.file))


def _changed(options: StreamOptions | ServerOptions, default: StreamOptions | ServerOptions) -> list[str]:
    """The options that have another value than without them."""
    return [f"--{name.replace('_', '-')}" for name, value in vars(options).items() if value != getattr(default, name)]


def _targets(recordings: list[str], out: Path, form: str) -> dict[str, Path]:
    """The file of each recording; raises UserError where two would have one."""
    targets = {path: out / f"{Path(path).stem}{SUFFIXES.get(form, f'.{form}')}" for path in recordings}
    by_target = {target: path for path, target in targets.items()}
    twice = next((path for path, target in targets.items() if by_target[target] != path), None)
    if twice is not None:
        raise UserError(f"{twice} and {by_target[targets[twice]]} would both be written to {targets[twice]}; transcribe them apart.")
    out.mkdir(parents=True, exist_ok=True)
    return targets


def _write(transcript: Transcript, form: str, target: Path | None) -> None:
    text = FORMATS[form](transcript)
    if target is None:
        print(text, end="", flush=True)
    else:
        write_text(target, text)
        print(f"transcribe: {target}", file=sys.stderr)


def _stream(args: argparse.Namespace, options: TranscribeOptions, decoding: DecoderOptions, streaming: StreamOptions) -> None:
    streaming.check()
    if options.one_speaker or options.adapt_model:
        raise UserError("--one-speaker and --adapt-model are about whole recordings, and --stream knows no speakers; leave them out.")
    if args.format != "text" or args.out or options.lmwt is not None or options.word_ins_penalty is not None:
        raise UserError("--format, --out, --lmwt and --word-ins-penalty are about whole recordings, and --stream prints words as they "
                        "come; leave them out.")
    endpointing = None
    if streaming.do_endpointing:
        endpointing = _endpointing(args, graph_of(args.model_dir, options.graph))
    recogniser = streaming_recogniser(args.model_dir, options, decoding, streaming, endpointing)
    shown: list[str] = []
    for path, heard in transcribe_stream(args.recordings, recogniser, options.channel, streaming.chunk_length):
        ended = heard.lattice is not None
        if heard.words and (ended or (streaming.partial and heard.words != shown)):
            print(path, f"{heard.begin:.2f}-{heard.end:.2f}", *heard.words, *([] if ended else ["..."]), flush=True)
        shown = [] if ended else heard.words


def _endpointing(args: argparse.Namespace, graph_dir: Path) -> Endpointing:
    return endpointing_from(args, LangDir(graph_dir).file("phones/silence.csl").read_text(encoding="utf-8").strip())


def _serve(args: argparse.Namespace, options: TranscribeOptions, decoding: DecoderOptions, streaming: StreamOptions,
           serving: ServerOptions) -> None:
    from pykaldist.serve.server.engine import engine_of
    from pykaldist.serve.server.http_server import SpeechServer

    own = StreamOptions(mean_of=streaming.mean_of, extractor=streaming.extractor)
    if args.recordings or args.stream or args.out or args.format != "text" or options.one_speaker or streaming != own:
        raise UserError("--serve true takes audio from its clients, in forms that they ask for; leave out recordings, --stream, --out, "
                        "--format, --one-speaker, --chunk-length, --do-endpointing and --partial.")
    engine, parts = engine_of(args.model_dir, options, decoding, streaming, lambda graph_dir: _endpointing(args, graph_dir))
    print(f"transcribe: {parts}", file=sys.stderr)
    engine.warm_up()
    with SpeechServer(engine, serving) as server:
        print(f"transcribe: {server.address}  (ws:// for Vosk's clients, POST files to /transcribe; Ctrl-C ends it)", flush=True)
        server.serve_forever()
