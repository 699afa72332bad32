"""Copy a model (transition model and mixtures) between binary and text.

  pykaldist gmm-copy --binary=false exp/mono/final.mdl final.mdl.txt
"""

from __future__ import annotations

import argparse

from pykaldist.hmm.gmm.model_files import read_model, write_model
from pykaldist.options import boolean


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", help="final.mdl, binary or text")
    parser.add_argument("target", help="file to write")
    parser.add_argument("--binary", type=boolean, default=True, metavar="true|false", help="write binary (default: true)")


def run(args: argparse.Namespace) -> None:
    write_model(args.target, *read_model(args.source), binary=args.binary)
