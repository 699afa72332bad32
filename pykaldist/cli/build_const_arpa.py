"""Make a language directory with G.carpa, Kaldi's ConstArpaLm of an ARPA language model, for rescoring lattices.

Checks the ARPA file line by line first. N-grams with words outside words.txt are left out.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pykaldist.decode.const_arpa import build_const_arpa
from pykaldist.errors import UserError
from pykaldist.io import provenance
from pykaldist.io.atomic import copy_file, copy_tree
from pykaldist.io.tables import read_map
from pykaldist.usage import ended


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("arpa", type=Path, help="ARPA language model, gzipped if it ends in .gz")
    parser.add_argument("old_lang", type=Path, help="language directory (utils/prepare_lang.sh)")
    parser.add_argument("new_lang", type=Path, help="where to write; may be the old one")


def run(args: argparse.Namespace) -> None:
    old, new = args.old_lang, args.new_lang
    if not (old / "words.txt").is_file() or not (old / "oov.int").is_file():
        raise UserError(f"{old} is no language directory (no words.txt or oov.int); make it with utils/prepare_lang.sh.")
    in_place = old.resolve() == new.resolve()
    if not in_place:
        provenance.check(old)
    new.mkdir(parents=True, exist_ok=True)
    (new / "G.carpa").unlink(missing_ok=True)
    symbols = {word: int(number) for word, number in read_map(old / "words.txt").items()}
    counts = build_const_arpa(args.arpa, symbols, int((old / "oov.int").read_text().split()[0]), new / "G.carpa")
    if not in_place:
        provenance.forget(new)
        for path in old.iterdir():
            if path.is_dir():
                copy_tree(path, new / path.name)
            elif path.name not in ("G.carpa", provenance.FILE):
                copy_file(path, new / path.name)
    provenance.record(new, "utils/build_const_arpa_lm.sh", [args.arpa, *([] if in_place else [old / "words.txt"])], sources=[old])
    print(ended(f"{new}/G.carpa: {' + '.join(map(str, counts))} n-grams"))
