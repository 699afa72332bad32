"""Make a decoding graph in two halves, HCLr.fst and Gr.fst, which the decoder composes while it searches.

The graph directory becomes what Kaldi's mkgraph_lookahead.sh makes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pykaldist import usage
from pykaldist.decode.decoder import DecoderOptions
from pykaldist.decode.hclg import GraphOptions
from pykaldist.decode.lookahead import LookaheadDecoder
from pykaldist.decode.lookahead_graph import LookaheadGraph, make_lookahead_graph
from pykaldist.hmm.gmm.model_files import read_transition_model
from pykaldist.io.atomic import write_text
from pykaldist.options import add_options, boolean, from_args


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("lang", type=Path, help="language directory with L_disambig.fst, and with G.fst where there is no --arpa")
    parser.add_argument("model_dir", type=Path, help="directory with tree and final.mdl")
    parser.add_argument("graph_dir", type=Path, help="where to write")
    parser.add_argument("--arpa", type=Path, help="language model, perhaps compressed (default: G.fst of <lang>)")
    parser.add_argument("--compose-graph", type=boolean, default=False, help="write HCLG.fst of both halves too (default: false)")
    add_options(parser, GraphOptions)


def run(args: argparse.Namespace) -> None:
    hcl, grammar = make_lookahead_graph(args.lang, args.model_dir, args.graph_dir, from_args(GraphOptions, args), args.arpa)
    if args.compose_graph:
        tid2pdf = read_transition_model(args.model_dir / "final.mdl").tid2pdf
        whole = LookaheadDecoder(LookaheadGraph.read(args.graph_dir, tid2pdf), tid2pdf, DecoderOptions()).whole()
        whole.write(args.graph_dir / "HCLG.fst", "const")
    usage.stage()
    write_text(args.graph_dir / "log/mkgraph_lookahead.log", f"{usage.ending('mkgraph_lookahead')}\n")
    print(f"{args.graph_dir}/HCLr.fst: {hcl.num_states} states, {hcl.num_arcs} arcs; Gr.fst: {grammar.num_states} states, "
          f"{grammar.num_arcs} arcs")
