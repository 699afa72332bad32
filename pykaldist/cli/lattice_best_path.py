"""Words and alignment of each lattice's best path, as Kaldi's program of this name.

With --word-symbol-table, transcriptions are lines of words; else an archive of word numbers, as text for `ark,t:FILE`.
"""

from __future__ import annotations

import argparse

from pykaldist.cli._lattices import add_lattices, add_scales, add_symbol_table, lattices, read_symbol_table, write_words
from pykaldist.decode.paths import best_path
from pykaldist.io.specifiers import write_path
from pykaldist.io.tables import write_int_vectors


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_lattices(parser)
    parser.add_argument("transcriptions", nargs="?", default="ark,t:-", help="wspecifier of words (default: ark,t:-)")
    parser.add_argument("alignments", nargs="?", help="wspecifier of transition-ids")
    add_scales(parser)
    add_symbol_table(parser)


def run(args: argparse.Namespace) -> None:
    symbols = read_symbol_table(args)
    paths = {utt: best_path(lattice, args.acoustic_scale, args.lm_scale) for utt, lattice in lattices(args.lattices)}
    write_words(args.transcriptions, ((utt, path.words) for utt, path in paths.items()), symbols)
    if args.alignments:
        name, binary = write_path(args.alignments)
        write_int_vectors(name, ((utt, path.transition_ids) for utt, path in paths.items()), binary)
