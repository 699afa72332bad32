"""Make a language directory with G.fst from an ARPA language model.

Checks the ARPA file line by line first. N-grams with words outside words.txt are left out.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pykaldist.decode.arpa import format_lm
from pykaldist.usage import ended


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("lang", type=Path, help="language directory (utils/prepare_lang.sh)")
    parser.add_argument("arpa", type=Path, help="ARPA language model, gzipped if it ends in .gz")
    parser.add_argument("lexicon", type=Path, help="the lexicon that lang was made from")
    parser.add_argument("out_lang", type=Path, help="where to write; may be lang itself")


def run(args: argparse.Namespace) -> None:
    fst, summary = format_lm(args.lang, args.arpa, args.lexicon, args.out_lang)
    if summary.outside:
        some = ", ".join(summary.outside_words[:5])
        print(f"{args.arpa}: left out {summary.outside} n-grams with words that are not in words.txt ({some}"
              f"{', ...' if len(summary.outside_words) > 5 else ''})")
    print(ended(f"{args.out_lang}/G.fst: {' + '.join(map(str, summary.counts))} n-grams, {fst.num_states} states, {fst.num_arcs} arcs"))
