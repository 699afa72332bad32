"""The N best paths of each lattice as lattices of their own, <utterance>-1 ... <utterance>-N, as Kaldi's program of this name."""

from __future__ import annotations

import argparse
import sys

from pykaldist.cli._lattices import add_lattices, add_scales, lattices
from pykaldist.decode.lattice import write_lattices
from pykaldist.decode.paths import nbest
from pykaldist.io.specifiers import write_path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_lattices(parser)
    parser.add_argument("nbest", help="wspecifier of lattices")
    parser.add_argument("--n", type=int, default=1, help="most paths of a lattice (default: 1)")
    add_scales(parser)


def run(args: argparse.Namespace) -> None:
    path, _ = write_path(args.nbest)
    count = write_lattices(path, ((f"{utt}-{k}", one.lattice()) for utt, lattice in lattices(args.lattices)
                                  for k, one in enumerate(nbest(lattice, args.n, args.acoustic_scale, args.lm_scale), 1)))
    print(f"{count} paths", file=sys.stderr)
