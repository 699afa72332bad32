"""Copy a data directory, its tables sorted and its spk2utt made anew."""

from __future__ import annotations

import argparse

from pykaldist.io.datadir import DataDir, restrict


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", help="data directory")
    parser.add_argument("target", help="data directory to write")


def run(args: argparse.Namespace) -> None:
    data = DataDir(args.source)
    restrict(data, data.utterances(), args.target)
    print(f"{len(data.utt2spk)} utterances of {args.source} in {args.target}")
