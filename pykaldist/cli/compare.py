"""Compare experiments: options that differ, trainings, word error rates with intervals and significance against the first.

  pykaldist compare exp/a exp/b
  pykaldist report exp/a exp/b --html both.html     # the same for a browser, with curves and utterances
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pykaldist.cli._json import add_json, print_json
from pykaldist.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("experiments", type=Path, nargs="+", help="folders of two experiments or more; each is compared with the first")
    add_json(parser)


def run(args: argparse.Namespace) -> None:
    from pykaldist.report.comparison import compare, render  # not above: --help answers without PyTorch

    if len(args.experiments) < 2:
        raise UserError(f"{args.experiments[0]} is one experiment; name another one to compare it with.")
    found = compare(args.experiments)
    if args.json:
        print_json(found)
    else:
        print(render(found))
