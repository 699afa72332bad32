"""Make a language directory (symbol tables, topology, lexicon transducers) from a dictionary directory."""

from __future__ import annotations

import argparse

from pykaldist.hmm.lang.prepare_lang import LangOptions, prepare_lang
from pykaldist.options import add_options, from_args


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dict_dir", metavar="dict-src", help="lexicon.txt or lexiconp.txt, (non)silence_phones.txt, ...")
    parser.add_argument("oov", metavar="oov-entry", help="the word of the lexicon that stands for unknown words")
    parser.add_argument("tmp", metavar="tmp-dir", help="gets the lexicon with positions and disambiguation symbols")
    parser.add_argument("lang", metavar="lang-dir", help="the language directory to write")
    add_options(parser, LangOptions)


def run(args: argparse.Namespace) -> None:
    count = prepare_lang(args.dict_dir, args.oov, args.tmp, args.lang, from_args(LangOptions, args))
    print(f"{count['words']} words, {count['pronunciations']} pronunciations, {count['phones']} phones")
