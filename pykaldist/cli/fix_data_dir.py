"""Sort the tables of a data directory and keep the utterances that all of them have."""

from __future__ import annotations

import argparse

from pykaldist.io.datadir import DataDir
from pykaldist.io.datadir_tools import fix_data_dir
from pykaldist.usage import ended


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", help="data directory; its old tables go to .backup in it")


def run(args: argparse.Namespace) -> None:
    for line in fix_data_dir(args.data):
        print(f"{args.data}/{line}")
    print(ended(f"{args.data} has {len(DataDir(args.data).utt2spk)} utterances"))
