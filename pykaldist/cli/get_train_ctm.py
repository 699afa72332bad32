"""Word times (a CTM file) of the transcripts of an alignment directory (what steps/get_train_ctm.sh runs)."""

from __future__ import annotations

import argparse
from pathlib import Path

from pykaldist.decode.prons import write_train_ctm
from pykaldist.io.datadir import DataDir
from pykaldist.io.lang import LangDir
from pykaldist.options import boolean


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", type=Path, help="data directory with text")
    parser.add_argument("lang", type=Path, help="language directory, with phones/align_lexicon.int")
    parser.add_argument("ali", type=Path, help="directory with ali.*.gz and final.mdl")
    parser.add_argument("target", type=Path, nargs="?", metavar="output-dir", help="where ctm goes (default: the alignments' directory)")
    parser.add_argument("--frame-shift", type=float, default=0.01, help="seconds from frame to frame (default: 0.01)")
    parser.add_argument("--use-segments", type=boolean, default=True, help="times of recordings, where there are segments (default: true)")
    parser.add_argument("--print-silence", type=boolean, default=False, help="lines of silence too, as <eps> (default: false)")


def run(args: argparse.Namespace) -> None:
    target = args.target or args.ali
    count = write_train_ctm(DataDir(args.data), LangDir(args.lang), args.ali, target, args.frame_shift, args.use_segments,
                            args.print_silence)
    print(f"SUMMARY: {count} words in {target}/ctm")
