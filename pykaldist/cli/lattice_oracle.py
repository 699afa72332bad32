"""Word error rate of the lattices' paths that are nearest to a reference, as Kaldi's program of this name."""

from __future__ import annotations

import argparse
from pathlib import Path

from pykaldist.cli._lattices import add_lattices, add_symbol_table, lattices, read_symbol_table, write_words
from pykaldist.decode.oracle import oracle_words
from pykaldist.errors import UserError
from pykaldist.io.tables import read_map
from pykaldist.score.wer import compute_wer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_lattices(parser)
    parser.add_argument("reference", type=Path, help="text: utterance and words, or word numbers without --word-symbol-table")
    parser.add_argument("transcriptions", nargs="?", help="wspecifier of the nearest paths' words")
    add_symbol_table(parser)


def run(args: argparse.Namespace) -> None:
    symbols = read_symbol_table(args)
    refs = {utt: words.split() for utt, words in read_map(args.reference).items()}

    def number(word: str) -> int:
        if symbols is not None:
            return symbols.get(word, -1)  # a word that no lattice can have
        if not word.isdecimal():
            raise UserError(f"{args.reference}: expected word numbers, found {word!r}; or give --word-symbol-table words.txt.")
        return int(word) if len(word) < 10 else -1

    hyps: dict[str, list[int]] = {}
    for utt, lattice in lattices(args.lattices):
        if utt not in refs:
            raise UserError(f"{args.reference} has no utterance {utt}; give the text of the data that was decoded.")
        hyps[utt] = oracle_words(lattice, [number(w) for w in refs[utt]])
    if args.transcriptions:
        write_words(args.transcriptions, hyps.items(), symbols)
    name = symbols.symbol if symbols is not None else str
    print(compute_wer(refs, {utt: [name(w) for w in words] for utt, words in hyps.items()}), end="")
