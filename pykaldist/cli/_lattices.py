"""Functions that the lattice verbs share."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from pykaldist.decode.lattice import Lattice, read_lattices
from pykaldist.io.lang import SymbolTable
from pykaldist.io.specifiers import read_paths, write_path
from pykaldist.io.tables import output_archive, write_int_vectors


def add_lattices(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("lattices", help="rspecifier of lattices (lat.1.gz, or 'ark:exp/mono/decode/lat.*.gz')")


def add_symbol_table(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--word-symbol-table", type=Path, help="words.txt, to have words rather than their numbers")


def read_symbol_table(args: argparse.Namespace) -> SymbolTable | None:
    return SymbolTable.read(args.word_symbol_table) if args.word_symbol_table else None


def lattices(rspecifier: str) -> Iterator[tuple[str, Lattice]]:
    """Iterate over (utterance, lattice) of all archives that `rspecifier` names."""
    return (entry for path in read_paths(rspecifier) for entry in read_lattices(path))


def write_words(wspecifier: str, items: Iterable[tuple[str, Sequence[int]]], symbols: SymbolTable | None) -> None:
    """Write word numbers as an archive; with `symbols`, lines of an utterance and its words."""
    path, binary = write_path(wspecifier)
    if symbols is None:
        write_int_vectors(path, ((utt, np.array(words, np.int32)) for utt, words in items), binary)
        return
    with output_archive(path) as stream:
        for utt, words in items:
            stream.write((" ".join([utt, *map(symbols.symbol, words)]) + "\n").encode("utf-8"))
