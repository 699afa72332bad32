"""What the lattice verbs share."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pykaldist.decode.lattice import Lattice, read_decode_dir, read_lattices
from pykaldist.io.atomic import write_text
from pykaldist.io.lang import SymbolTable


def add_lattices(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("lattices", type=Path, help="archive of lattices (lat.1.gz), or a decode directory with lat.*.gz")


def add_scales(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--acoustic-scale", type=float, default=1.0, help="scale of acoustic costs (default: 1)")
    parser.add_argument("--lm-scale", type=float, default=1.0, help="scale of graph costs (default: 1)")


def add_symbol_table(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--word-symbol-table", type=Path, help="words.txt")


def read_symbol_table(args: argparse.Namespace) -> SymbolTable | None:
    return SymbolTable.read(args.word_symbol_table) if args.word_symbol_table else None


def each(path: Path) -> Iterator[tuple[str, Lattice]]:
    """(utterance, lattice) of an archive or a decode directory."""
    return read_decode_dir(path) if path.is_dir() else read_lattices(path)


def write_words(path: str, items: Iterable[tuple[str, Sequence[int]]], symbols: SymbolTable | None) -> None:
    """Lines of an utterance and its words."""
    text = "".join(" ".join([utt, *(symbols.symbol(w) if symbols else str(w) for w in words)]) + "\n" for utt, words in items)
    if path == "-":
        sys.stdout.write(text)
    else:
        write_text(Path(path), text)
