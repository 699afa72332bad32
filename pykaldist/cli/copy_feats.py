"""Copy features or other matrices between archives, text and scp files.

  pykaldist copy-feats scp:data/train/feats.scp ark,t:- | less
  pykaldist copy-feats ark:fmllr/train.ark ark,scp:fmllr/copy.ark,data-fmllr/train/feats.scp
"""

from __future__ import annotations

import argparse
import sys

from pykaldist.io.specifiers import read_matrices, write_matrices
from pykaldist.options import add_flag


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", help="scp:FILE or ark:FILE")
    parser.add_argument("target", help="ark:FILE, ark,t:FILE or ark,scp:FILE,FILE")
    add_flag(parser, "compress", "one byte a value, in binary archives")
    parser.add_argument("--compression-method", type=int, choices=range(1, 8), default=2,
                        help="Kaldi's number of the method (default: 2, for features)")


def run(args: argparse.Namespace) -> None:
    count = write_matrices(args.target, read_matrices(args.source), args.compression_method if args.compress else 0)
    print(f"{count} matrices copied", file=sys.stderr)
