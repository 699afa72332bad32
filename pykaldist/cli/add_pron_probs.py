"""Give a dictionary directory probabilities of pronunciations and silence, by counts (what utils/dict_dir_add_pronprobs.sh runs)."""

from __future__ import annotations

import argparse

from pykaldist.errors import UserError
from pykaldist.io.pron_probs import add_pron_probs
from pykaldist.options import boolean


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dict_dir", metavar="dict-dir", help="dictionary directory")
    parser.add_argument("pron_counts", metavar="pron-counts", help="lines `count word phone ...`")
    parser.add_argument("rest", nargs="+", metavar="dir", help="[<sil-counts> <bigram-counts>] <new-dict-dir>")
    parser.add_argument("--max-normalize", type=boolean, default=True, help="a word's best pronunciation gets 1 (default: true)")


def run(args: argparse.Namespace) -> None:
    if len(args.rest) not in (1, 3):
        raise UserError("expected <dict-dir> <pron-counts> [<sil-counts> <bigram-counts>] <new-dict-dir>, found "
                        f"{2 + len(args.rest)} names.")
    sil_counts, bigram_counts, target = args.rest if len(args.rest) == 3 else (None, None, *args.rest)
    made = add_pron_probs(args.dict_dir, args.pron_counts, target, sil_counts, bigram_counts, args.max_normalize)
    print(f"{made['words']} words, {made['pronunciations']} pronunciations in {target}")
