"""Turn audio files and a table of transcripts into data directories and a dictionary; see utils/new_recipe.sh.

The vocabulary is that of the training transcripts, with a lexicon its words too.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pykaldist.cli._table import add_table_arguments, read_corpus
from pykaldist.io.corpora.dictionary import write_dict
from pykaldist.io.corpora.table.prepare import write


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", type=Path, help="folder of data directories to write, such as data")
    add_table_arguments(parser)


def run(args: argparse.Namespace) -> None:
    corpus, pronounced = read_corpus(args)
    (args.data / "local/dict").mkdir(parents=True, exist_ok=True)
    write_dict(args.data / "local/dict", pronounced.lexicon)
    for line in (*corpus.said, *pronounced.said, *write(corpus, args.data)):
        print(line)
