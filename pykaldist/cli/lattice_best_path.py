"""words and alignment of each lattice's best path, as Kaldi's program of this name

Archives are gzipped if they end in .gz; `-` writes to standard output. Words are numbers, or symbols with --word-symbol-table.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pykaldist.cli._lattices import add_lattices, add_scales, add_symbol_table, each, read_symbol_table, write_words
from pykaldist.decode.paths import best_path
from pykaldist.io.tables import write_int_vectors


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_lattices(parser)
    parser.add_argument("transcriptions", nargs="?", default="-", help="text file to write (default: standard output)")
    parser.add_argument("alignments", nargs="?", type=Path, help="archive of transition-ids to write")
    add_scales(parser)
    add_symbol_table(parser)


def run(args: argparse.Namespace) -> None:
    symbols = read_symbol_table(args)
    paths = {utt: best_path(lattice, args.acoustic_scale, args.lm_scale) for utt, lattice in each(args.lattices)}
    write_words(args.transcriptions, ((utt, path.words) for utt, path in paths.items()), symbols)
    if args.alignments:
        write_int_vectors(args.alignments, ((utt, path.transition_ids) for utt, path in paths.items()))
