"""Align a data directory with a network; see steps/nnet/align.sh."""

from __future__ import annotations

import argparse
from pathlib import Path

from pykaldist.decode.align import align_nnet_dir
from pykaldist.hmm.alignments.align import AlignOptions
from pykaldist.nnet.forwarding import ForwardOptions
from pykaldist.options import add_options, from_args


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", type=Path, help="data directory with features and transcripts")
    parser.add_argument("lang", type=Path, help="language directory")
    parser.add_argument("src", type=Path, help="directory of the network that aligns")
    parser.add_argument("ali", type=Path, help="directory of the alignments")
    parser.add_argument("--nj", type=int, default=1, help="files of alignments, and threads, as far as there are cores (default: 1)")
    parser.add_argument("--device", default="cpu", help="where the network computes: cpu, cuda, cuda:N or auto (default: cpu)")
    add_options(parser, AlignOptions, skip=("boost_silence",))
    add_options(parser, ForwardOptions, skip=("device",))


def run(args: argparse.Namespace) -> None:
    made = align_nnet_dir(args.data, args.lang, args.src, args.ali, from_args(AlignOptions, args), from_args(ForwardOptions, args), args.nj)
    print(f"SUMMARY: {made}")
