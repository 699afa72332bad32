"""Import alignments that another system made; see steps/import_ali.sh."""

from __future__ import annotations

import argparse

from pykaldist.hmm.import_ali.import_ali import ImportOptions, import_alignments
from pykaldist.options import add_options, from_args


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", help="Kaldi alignment directory, archive(s) of pdfs or phones, CTM, TextGrids, .npz or directory of .npy")
    parser.add_argument("data", help="data directory with features")
    parser.add_argument("lang", help="language directory")
    parser.add_argument("exp", help="directory of the alignments to write")
    parser.add_argument("--nj", type=int, default=1, help="files of alignments (default: 1)")
    add_options(parser, ImportOptions)


def run(args: argparse.Namespace) -> None:
    print(f"SUMMARY: {import_alignments(args.source, args.data, args.lang, args.exp, from_args(ImportOptions, args), args.nj)}")
