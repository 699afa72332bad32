"""Check which calls of a recipe's run.sh and local/ scripts are accepted here; nothing of it is run."""

from __future__ import annotations

import argparse
import importlib
import math
import os
from pathlib import Path

from pykaldist.cli import verbs
from pykaldist.cli._json import add_json, print_json
from pykaldist.io.text_tools.run import MODULES, tool_named
from pykaldist.options import boolean
from pykaldist.report.check_recipe import check_recipe, lines, table
from pykaldist.report.interfaces import Interface, Interfaces


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recipes", nargs="+", type=Path, metavar="run.sh", help="a recipe's run.sh")
    parser.add_argument("--only-run", type=boolean, default=False, help="leave the scripts of local/ out (default: false)")
    parser.add_argument("--table", type=boolean, default=False, help="a Markdown table of the recipes only (default: false)")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    root = Path(os.environ.get("PYKALDIST_ROOT") or Path(__file__).parents[2])
    interfaces = Interfaces(root, verbs(), verb_options, tool_interfaces())
    found = [check_recipe(path, interfaces, args.only_run) for path in args.recipes]
    if args.json:
        print_json([{"recipe": checked.recipe, "calls": checked.calls} for checked in found])
    else:
        print("\n".join(table(found) if args.table else (line for checked in found for line in lines(checked))))
    return 0 if all(checked.number("accepted") == len(checked.calls) for checked in found) else 1


def verb_options(verb: str) -> dict[str, bool]:
    """The options of a verb with whether they take a value."""
    parser = argparse.ArgumentParser(add_help=False)
    importlib.import_module(f"pykaldist.cli.{verb.replace('-', '_')}").add_arguments(parser)
    return {name.lstrip("-").partition("=")[0]: action.nargs != 0 for action in parser._actions for name in action.option_strings}


def tool_interfaces() -> dict[str, Interface]:
    """What each of the text tools takes, by the names of their files."""
    found = {}
    for name in sorted(name for names in MODULES.values() for name in names):
        if (tool := tool_named(name)) is not None:
            values = {option: count > 0 for option, count in tool.options.items()}
            found[name.rpartition("/")[2]] = Interface(values, (tool.least, math.inf if tool.most < 0 else tool.most))
    return found
