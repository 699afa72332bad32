"""Make the tree of a chain (LF-MMI) model from an alignment; see steps/nnet3/chain/build_tree.sh."""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from pykaldist.hmm.training.chain_tree import ChainTreeOptions, build_chain_tree_dir
from pykaldist.hmm.training.jobs import ArrayOptions
from pykaldist.options import add_options, from_args


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("num_leaves", type=int, help="leaves of the decision tree, at most")
    parser.add_argument("data", help="data directory with the features of the alignment")
    parser.add_argument("lang", help="language directory with a chain model's topology")
    parser.add_argument("ali", help="directory of the alignment, and of transforms of its speakers where it has them")
    parser.add_argument("exp", help="the tree's directory")
    parser.add_argument("--nj", type=int, default=1, help="threads, or jobs of --jobs-cmd (%(default)s)")
    add_options(parser, ChainTreeOptions)
    add_options(parser, ArrayOptions)


def run(args: argparse.Namespace) -> None:
    made = build_chain_tree_dir(args.data, args.lang, args.ali, args.exp, args.num_leaves, from_args(ChainTreeOptions, args), nj=args.nj,
                                jobs=from_args(ArrayOptions, args))
    print(f"SUMMARY: {made}")
