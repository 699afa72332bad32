"""Check that the tables of a data directory are sorted, complete and about the same utterances."""

from __future__ import annotations

import argparse

from pykaldist.io.datadir import DataDir
from pykaldist.usage import ended


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", help="data directory")
    parser.add_argument("--no-text", action="store_true", help="text may be missing")
    parser.add_argument("--no-wav", action="store_true", help="wav.scp may be missing")
    parser.add_argument("--no-feats", action="store_true", help="feats.scp may be missing or incomplete")


def run(args: argparse.Namespace) -> None:
    data = DataDir(args.data)
    data.validate(text=not args.no_text, wav=not args.no_wav, feats=not args.no_feats)
    count, speakers = data.speakers()
    print(ended(f"{args.data} is a valid data directory: {sum(len(utts) for _, utts in speakers)} utterances, {count} speakers"))
