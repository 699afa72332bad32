"""Word or character error rates of a decode directory at every LM weight and insertion penalty (what steps/score_kaldi.sh runs)."""

from __future__ import annotations

import argparse
from pathlib import Path

from pykaldist import usage
from pykaldist.decode.pairs import check_decoding
from pykaldist.io.datadir import DataDir
from pykaldist.io.lang import SymbolTable
from pykaldist.options import add_options, from_args
from pykaldist.score.score_dir import ScoreOptions, score_dir


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", type=Path, help="data directory with text and utt2spk")
    parser.add_argument("graph_dir", type=Path, help="language or graph directory, for its words.txt")
    parser.add_argument("decode_dir", type=Path, help="directory with lat.*.gz")
    parser.add_argument("--dev-dir", type=Path, help="scored decode directory of a development set, which chooses LMWT and penalty")
    add_options(parser, ScoreOptions)


def run(args: argparse.Namespace) -> None:
    usage.stage()
    check_decoding(args.decode_dir, args.graph_dir)
    best, path = score_dir(DataDir(args.data), SymbolTable.read(args.graph_dir / "words.txt"), args.decode_dir,
                           from_args(ScoreOptions, args), args.dev_dir)
    print(f"{best.wer_line()} {path}")
