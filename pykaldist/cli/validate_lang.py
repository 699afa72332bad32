"""Check that the files of a language directory agree with each other, and that its lexicon and grammar can be determinised."""

from __future__ import annotations

import argparse
import sys

from pykaldist.decode.hclg import lexicon_and_grammar
from pykaldist.hmm.lang.check_lang import problems_of
from pykaldist.io.fst import Fst
from pykaldist.io.lang import LangDir


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("lang", help="language directory")
    parser.add_argument("--skip-determinization-check", action="store_true", help="do not determinise the lexicon with the grammar")
    parser.add_argument("--skip-disambig-check", action="store_true", help="#0 and #1 may be missing")
    parser.add_argument("--skip-generate-words-check", action="store_true", help="taken as Kaldi takes it; no words are generated here")


def run(args: argparse.Namespace) -> int:
    lang = LangDir(args.lang)
    found = [problem for problem in problems_of(lang) if not (args.skip_disambig_check and problem.endswith("lacks #0 or #1."))]
    if not found and (lang.path / "G.fst").is_file() and not args.skip_determinization_check:
        lexicon_and_grammar(Fst.read(lang.path / "L_disambig.fst"), Fst.read(lang.path / "G.fst"))
    for problem in found:
        print(f"pykaldist validate-lang: ERROR: {problem}", file=sys.stderr)
    if not found:
        print(f"{args.lang} is a valid language directory: {len(lang.words)} words, {len(lang.phones)} phones")
    return int(bool(found))
