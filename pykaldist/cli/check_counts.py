"""Compare how many utterances, hours and speakers data directories have with what public recipes say of the corpus.

  pykaldist check-counts egs/swbd/s5c/local/counts.tsv data

It prints a table, and ends with an error where a count differs by more than the table allows. Directories that are not there are passed by.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pykaldist.cli._json import add_json, print_json
from pykaldist.errors import UserError
from pykaldist.io.corpora.counts import compare, report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("expected", type=Path, help="table: directory, what is counted, number, tolerance, source, with tabs between")
    parser.add_argument("data", type=Path, help="folder of the directories")
    add_json(parser)


def run(args: argparse.Namespace) -> None:
    counts = compare(args.expected, args.data)
    if args.json:
        print_json(counts)
    else:
        print(report(counts))
    differing = [one for one in counts if one.differs]
    if differing:
        first = differing[0]
        raise UserError(f"{len(differing)} of {len(counts)} counts are not those of {args.expected}, such as {first.what} of "
                        f"{args.data / first.folder}: expected {first.expected:,g}, found {first.found:,g}. A part of the corpus is "
                        "missing, or it is another release.")
