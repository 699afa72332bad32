"""The pronunciations of words in one job's alignments or lattices; without --job, the counts of all (what steps/get_prons.sh runs)."""

from __future__ import annotations

import argparse
from pathlib import Path

from pykaldist.decode.prons import write_counts, write_prons
from pykaldist.io.datadir import DataDir
from pykaldist.io.lang import LangDir


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", type=Path, help="data directory")
    parser.add_argument("lang", type=Path, help="language directory")
    parser.add_argument("folder", type=Path, metavar="dir", help="directory with ali.*.gz, or with lat.*.gz")
    parser.add_argument("--job", type=int, default=0, help="the archive whose prons.JOB.gz is written; 0: those there are, are counted "
                                                           "(default: 0)")
    parser.add_argument("--lmwt", type=float, default=10.0, help="language model weight of lattices' best paths (default: 10)")


def run(args: argparse.Namespace) -> None:
    lang = LangDir(args.lang)
    if args.job:
        print(f"{write_prons(DataDir(args.data), lang, args.folder, args.job, args.lmwt)} utterances in {args.folder}/prons.{args.job}.gz")
    else:
        made = write_counts(lang, args.folder)
        print(f"SUMMARY: {made['words']} words of {made['utterances']} utterances, {made['pronunciations']} pronunciations")
