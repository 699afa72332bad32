"""Check a dictionary directory: phones, pronunciations and questions, line by line."""

from __future__ import annotations

import argparse

from pykaldist.io.dictdir import DictDir


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dict_dir", metavar="dict-dir", help="dictionary directory")


def run(args: argparse.Namespace) -> None:
    found = DictDir.read(args.dict_dir)
    words = {entry.word for entry in found.lexicon}
    print(f"{args.dict_dir} is a valid dictionary directory: {len(words)} words, {len(found.lexicon)} pronunciations")
