"""Make a decoding graph (HCLG) from a language directory, a tree and a model.

The model directory holds `tree` and `final.mdl`; the graph directory becomes what Kaldi's mkgraph.sh makes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pykaldist import usage
from pykaldist.decode.hclg import GraphOptions, make_graph
from pykaldist.io.atomic import write_text
from pykaldist.options import add_options, from_args


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("lang", type=Path, help="language directory with L_disambig.fst and G.fst")
    parser.add_argument("model_dir", type=Path, help="directory with tree and final.mdl")
    parser.add_argument("graph_dir", type=Path, help="where to write")
    add_options(parser, GraphOptions)


def run(args: argparse.Namespace) -> None:
    graph = make_graph(args.lang, args.model_dir, args.graph_dir, from_args(GraphOptions, args), keep=True)
    usage.stage()
    write_text(args.graph_dir / "log/mkgraph.log", f"{usage.ending('mkgraph')}\n")
    print(f"{args.graph_dir}/HCLG.fst: {graph.num_states} states, {graph.num_arcs} arcs")
