"""Show in five minutes what a recipe has made: its page, an utterance to hear, two strategies side by side, a recording transcribed.

  pykaldist tour                 # the recipe of this folder, else egs/prompts/s5 of the checkout
  pykaldist tour egs/an4/s5

Each stop is a command of your own, which is printed, then run. The recipe is only read; what the tour makes goes to --out.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from pykaldist.options import boolean


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recipe", type=Path, nargs="?", default=Path(), help="a recipe's folder, which was run (default: this folder)")
    parser.add_argument("--out", type=Path, help="folder for what the tour makes (default: tour in the recipe's folder)")
    parser.add_argument("--pause", type=boolean, default=True, help="wait for Enter between the stops, on a terminal (default: true)")
    parser.add_argument("--open", type=boolean, default=True, help="open the page in a browser (default: true)")


def run(args: argparse.Namespace) -> None:
    from pykaldist.report.doctor import recipe_of  # not above: --help answers without PyTorch
    from pykaldist.serve.tour import Tour

    root = Path(os.environ.get("PYKALDIST_ROOT") or Path(__file__).parents[2])
    recipe = Path(recipe_of(args.recipe, root)).parent

    def pause() -> None:
        if args.pause and sys.stdin.isatty():
            input("\nEnter goes on, Ctrl-C ends the tour. ")

    def say(text: str) -> None:
        print(text, flush=True)

    Tour(recipe, args.out or recipe / "tour", args.open, pause, say).run()
