"""Prepare chain (LF-MMI) training from transcripts alone; see steps/nnet3/chain/e2e/prepare_e2e.sh."""

from __future__ import annotations

import argparse
from pathlib import Path

from pykaldist.hmm.chain.flat_start import FlatStartOptions, prepare_flat_start
from pykaldist.io.datadir import DataDir
from pykaldist.io.lang import LangDir
from pykaldist.options import add_options, from_args


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", help="data directory with transcripts")
    parser.add_argument("lang", help="language directory with a chain model's topology")
    parser.add_argument("out", type=Path, help="directory of the tree, the transition model and the graphs")
    parser.add_argument("--nj", type=int, default=1, help="archives of graphs (default: 1)")
    parser.add_argument("--treedir", type=Path, help="directory whose tree and model are taken (default: none; they are made)")
    add_options(parser, FlatStartOptions)


def run(args: argparse.Namespace) -> None:
    made = prepare_flat_start(DataDir(args.data), LangDir(args.lang), args.out, from_args(FlatStartOptions, args), args.nj, args.treedir)
    print(f"SUMMARY: {made}")
