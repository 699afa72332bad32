"""Make the decoding graph (TLG) of a network trained with --objective ctc on phones.

e.g.: pykaldist mkgraph-ctc data/lang_test exp/ctc exp/ctc/graph
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pykaldist.decode.tlg import make_token_graph


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("lang", type=Path, help="language directory with L_disambig.fst and G.fst")
    parser.add_argument("model_dir", type=Path, help="directory with tokens.txt")
    parser.add_argument("graph_dir", type=Path, help="where to write")


def run(args: argparse.Namespace) -> None:
    graph = make_token_graph(args.lang, args.model_dir, args.graph_dir)
    print(f"{args.graph_dir}/HCLG.fst: {graph.num_states} states, {graph.num_arcs} arcs")
