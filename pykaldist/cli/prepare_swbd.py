"""Turn Switchboard-1 and NIST's tests of telephone speech into data directories (egs/swbd/s5c/local/prepare_data.sh)."""

from __future__ import annotations

import argparse
from pathlib import Path

from pykaldist.errors import UserError
from pykaldist.io.corpora import hub5, swbd

FOLDERS = ("eval2000", "eval2000-transcripts", "eval2001", "rt03")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("corpus", help="folder with the packages of the Linguistic Data Consortium, LDC97S62 and others")
    parser.add_argument("data", type=Path, help="folder of data directories to write, such as data")
    parser.add_argument("--tables", type=Path, default=Path("local"), help="folder of words.tsv, stm.tsv, letters.txt (default: local)")
    parser.add_argument("--sets", default="train eval2000", help=f"some of: train {' '.join(hub5.SETS)} (default: train eval2000)")
    parser.add_argument("--swbd", default="", help="folder of LDC97S62, where it is elsewhere")
    parser.add_argument("--transcripts", default="", help="folder of Mississippi State's transcripts (default: there, or fetched)")
    for name in FOLDERS:
        parser.add_argument(f"--{name}", default="", help="folder of this package, where it is elsewhere")
    parser.add_argument("--fetch-dir", default="corpus", help="where fetched transcripts go (default: corpus)")


def run(args: argparse.Namespace) -> None:
    sets = args.sets.split()
    unknown = [name for name in sets if name != "train" and name not in hub5.SETS]
    if unknown or not sets:
        raise UserError(f"--sets {args.sets!r}: expected some of train, {', '.join(hub5.SETS)}.")
    folders = {name: getattr(args, name.replace("-", "_")) for name in FOLDERS}
    for name in sets:
        lines = swbd.prepare(args.swbd or args.corpus, args.data, args.fetch_dir, args.tables / "words.tsv", args.tables / "letters.txt",
                             args.transcripts or None) if name == "train" else \
            hub5.prepare(name, args.corpus, folders, args.data, args.tables / "stm.tsv")
        for line in lines:
            print(line)
