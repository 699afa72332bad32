"""Copy some utterances of a data directory to a new one."""

from __future__ import annotations

import argparse
import sys

from pykaldist.errors import UserError
from pykaldist.io.datadir import DataDir, restrict
from pykaldist.io.datadir_tools import choose_utterances, utterances_of_list


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", help="data directory")
    parser.add_argument("number", nargs="?", type=int, help="how many utterances (of each speaker with --per-spk)")
    parser.add_argument("target", help="data directory to write")
    how = parser.add_mutually_exclusive_group()
    for name, meaning in (("first", "the first ones"), ("last", "the last ones"), ("shortest", "the shortest ones"),
                          ("speakers", "whole speakers, until there are as many"), ("per-spk", "so many of each speaker")):
        how.add_argument(f"--{name}", dest="how", action="store_const", const=name, help=meaning)
    how.add_argument("--utt-list", help="the utterances in this file's first column")
    how.add_argument("--spk-list", help="those of the speakers in this file's first column")
    parser.set_defaults(how="spread")


def run(args: argparse.Namespace) -> None:
    data = DataDir(args.source)
    listed = args.utt_list or args.spk_list
    if bool(listed) == (args.number is not None):
        raise UserError("give either a number of utterances, or --utt-list or --spk-list.")
    keep = utterances_of_list(data, listed, speakers=bool(args.spk_list)) if listed else choose_utterances(data, args.number, args.how)
    if args.number is not None and args.how != "per-spk" and args.number > len(data.utt2spk):
        print(f"WARNING: {args.source} has {len(data.utt2spk)} utterances, {args.number} were asked for; all are taken.", file=sys.stderr)
    subset = restrict(data, keep, args.target)
    print(f"{len(subset.utt2spk)} of {len(data.utt2spk)} utterances of {args.source} in {args.target}")
