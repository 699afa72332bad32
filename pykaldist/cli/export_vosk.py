"""Write a chain model, its graph and its i-vector extractor as a Vosk model directory (what steps/export_vosk.sh runs)."""

from __future__ import annotations

import argparse
from pathlib import Path

from pykaldist.decode.vosk import VoskOptions, export_vosk
from pykaldist.options import add_options, from_args


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model_dir", type=Path, help="directory of the model, such as exp/chain/tdnn")
    parser.add_argument("target", type=Path, help="directory to write")
    parser.add_argument("--graph-dir", type=Path, help="directory with HCLG.fst, or with HCLr.fst, Gr.fst and disambig_tid.int (default: "
                                                       "graph in the model's)")
    parser.add_argument("--extractor", type=Path, help="directory of the i-vector extractor, for a network that takes i-vectors")
    parser.add_argument("--mean-of", type=Path, help="training data of a network that takes features less each speaker's mean; the export "
                                                     "subtracts the mean of all of it")
    add_options(parser, VoskOptions)


def run(args: argparse.Namespace) -> None:
    graph = args.graph_dir or args.model_dir / "graph"
    export_vosk(args.model_dir, graph, args.target, args.extractor, args.mean_of, from_args(VoskOptions, args))
    print(f"{args.target}: {args.model_dir} with {graph}")
