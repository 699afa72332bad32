"""Word error rates of a decode directory by NIST's sclite, at every LM weight and insertion penalty (what steps/score_sclite.sh runs)."""

from __future__ import annotations

import argparse
from pathlib import Path

from pykaldist.decode.pairs import check_decoding
from pykaldist.io.datadir import DataDir
from pykaldist.io.lang import LangDir
from pykaldist.options import add_options, from_args
from pykaldist.score.sclite import ScliteOptions, score_dir


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", type=Path, help="data directory with stm and glm")
    parser.add_argument("lang", type=Path, help="language or graph directory, with words.txt and phones/align_lexicon.int")
    parser.add_argument("decode_dir", type=Path, help="directory with lat.*.gz, inside the model's")
    add_options(parser, ScliteOptions)


def run(args: argparse.Namespace) -> None:
    check_decoding(args.decode_dir, args.lang, args.decode_dir.parent / "final.mdl")
    for part, (stats, path) in score_dir(DataDir(args.data), LangDir(args.lang), args.decode_dir, from_args(ScliteOptions, args)).items():
        print(f"{part or 'all'}: {stats.wer_line()} {path}")
