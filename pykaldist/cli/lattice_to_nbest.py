"""the N best paths of each lattice as lattices of their own, <utterance>-1 ... <utterance>-N, as Kaldi's program of this name"""

from __future__ import annotations

import argparse
from pathlib import Path

from pykaldist.cli._lattices import add_lattices, add_scales, each
from pykaldist.decode.lattice import write_lattices
from pykaldist.decode.paths import nbest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_lattices(parser)
    parser.add_argument("nbest", type=Path, help="archive of lattices to write, gzipped if it ends in .gz")
    parser.add_argument("--n", type=int, default=1, help="most paths of a lattice (default: 1)")
    add_scales(parser)


def run(args: argparse.Namespace) -> None:
    count = write_lattices(args.nbest, ((f"{utt}-{k}", path.lattice()) for utt, lattice in each(args.lattices)
                                        for k, path in enumerate(nbest(lattice, args.n, args.acoustic_scale, args.lm_scale), 1)))
    print(f"{args.nbest}: {count} paths")
