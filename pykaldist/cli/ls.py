"""List the experiments below folders: model, training, best word error rate; those that meet conditions, in an order.

  pykaldist ls exp                                     # all of them
  pykaldist ls exp --where "wer<12" --sort wer         # the good ones, the best first
  pykaldist ls exp --where strategy=bmuf --where "learn-rate>0.01" --json
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pykaldist.cli._json import add_json, print_json
from pykaldist.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folders", type=Path, nargs="*", default=[Path("exp")], help="folders with experiments (default: exp)")
    parser.add_argument("--where", action="append", default=[], metavar="CONDITION",
                        help="a column or an option of training, one of = != < <= > >= ~ (contains), and a value; may be repeated")
    parser.add_argument("--sort", default="", metavar="NAME", help="a column or an option of training; -NAME: the largest first")
    add_json(parser)


def run(args: argparse.Namespace) -> None:
    from pykaldist.report.listing import chosen, experiments, render  # not above: --help answers without PyTorch

    found = experiments(args.folders)
    if not found:
        raise UserError(f"{' '.join(map(str, args.folders))}: no experiment below (no model, no training); run a recipe's ./run.sh first.")
    kept = chosen(found, args.where, args.sort)
    if args.json:
        print_json(kept)
    else:
        print(render(kept))
