"""Word times and confidences of a decode directory at every LM weight (what steps/get_ctm.sh runs)."""

from __future__ import annotations

import argparse
from pathlib import Path

from pykaldist.decode.ctm import CtmOptions, write_ctms
from pykaldist.decode.pairs import check_decoding
from pykaldist.io.datadir import DataDir
from pykaldist.io.lang import LangDir
from pykaldist.options import add_options, from_args


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", type=Path, help="data directory")
    parser.add_argument("lang", type=Path, help="language or graph directory, with words.txt and phones/align_lexicon.int")
    parser.add_argument("decode_dir", type=Path, help="directory with lat.*.gz, inside the model's")
    add_options(parser, CtmOptions)


def run(args: argparse.Namespace) -> None:
    check_decoding(args.decode_dir, args.lang, args.decode_dir.parent / "final.mdl")
    paths = write_ctms(DataDir(args.data), LangDir(args.lang), args.decode_dir, from_args(CtmOptions, args))
    print(f"{paths[0]} ... {paths[-1].parent.name}")
