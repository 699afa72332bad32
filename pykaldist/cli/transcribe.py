"""Transcribe recordings with a finished model: their words on standard output, one line a recording; see steps/transcribe.sh."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from pykaldist.decode.decoder import DecoderOptions
from pykaldist.decode.transcribe import TranscribeOptions, transcribe
from pykaldist.options import add_options, from_args


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("graph_dir", type=Path, help="directory with HCLG.fst and words.txt")
    parser.add_argument("model_dir", type=Path, help="directory of a GMM or network, such as exp/dnn")
    parser.add_argument("recordings", nargs="+", help="audio files: wav, flac, sphere, ...; a sampling rate above the model's is fine")
    add_options(parser, TranscribeOptions)
    add_options(parser, DecoderOptions, skip=("determinize_lattice",))


def run(args: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="pykaldist-transcribe-") as work:
        options, decoding = from_args(TranscribeOptions, args), from_args(DecoderOptions, args)
        for path, words in transcribe(args.recordings, args.graph_dir, args.model_dir, Path(work), options, decoding):
            print(path, *(["WARNING: no path survived the beam (--beam)"] if words is None else words), flush=True)
