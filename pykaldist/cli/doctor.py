"""Say what this machine can do, and what that means for the options; the last line is a recipe's command that follows from it.

  pykaldist doctor              # the recipe of this folder, else the first one of the checkout
  pykaldist doctor egs/an4/s5
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from pykaldist.cli._json import add_json, print_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recipe", type=Path, nargs="?", default=Path(),
                        help="a recipe's folder, whose disk is measured (default: this folder)")
    add_json(parser)


def run(args: argparse.Namespace) -> None:
    from pykaldist.report.doctor import examine, recipe_of, render  # not above: --help answers without PyTorch

    root = Path(os.environ.get("PYKALDIST_ROOT") or Path(__file__).parents[2])
    run_sh = recipe_of(args.recipe, root)
    machine = examine(args.recipe)
    if args.json:
        print_json({"machine": machine, "command": machine.command(run_sh)})
    else:
        print(render(machine, machine.command(run_sh)))
