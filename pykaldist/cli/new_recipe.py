"""Write a recipe for audio files and a table of transcripts; see utils/new_recipe.sh."""

from __future__ import annotations

import argparse
from pathlib import Path

from pykaldist.cli._table import add_table_arguments, read_corpus
from pykaldist.io.corpora.table.prepare import TableOptions
from pykaldist.io.corpora.table.recipe import check_folder, write_recipe
from pykaldist.options import from_args


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="of the corpus")
    parser.add_argument("dir", type=Path, help="folder to write the recipe to; it must not exist")
    parser.add_argument("--root", type=Path, required=True, help="folder with steps/, utils/ and path.sh")
    add_table_arguments(parser)


def run(args: argparse.Namespace) -> None:
    check_folder(args.name, args.dir)
    corpus, pronounced = read_corpus(args)
    sizes = write_recipe(args.name, args.dir, args.root, corpus, args.audio, args.transcripts, args.lexicon, from_args(TableOptions, args))
    for line in (*corpus.said, *pronounced.said):
        print(line)
    print(f"{args.dir}: a recipe for {corpus.hours('train'):.2f} hours of training speech at {corpus.rate} Hz: {sizes.leaves} leaves, "
          f"{sizes.gauss} Gaussians, a network of {sizes.hid_layers} x {sizes.hid_dim}")
