"""Copy a decision tree between binary and text.

  pykaldist copy-tree --binary=false exp/mono/tree tree.txt
"""

from __future__ import annotations

import argparse

from pykaldist.hmm.gmm.model_files import read_tree, write_tree
from pykaldist.options import boolean


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", help="tree, binary or text")
    parser.add_argument("target", help="file to write")
    parser.add_argument("--binary", type=boolean, default=True, metavar="true|false", help="write binary (default: true)")


def run(args: argparse.Namespace) -> None:
    write_tree(args.target, read_tree(args.source), binary=args.binary)
