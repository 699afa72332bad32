"""Print a table of every scored system below a folder: WER, frame accuracy, training time."""

from __future__ import annotations

import argparse
from pathlib import Path

from pykaldist.io.atomic import write_text
from pykaldist.report.table import render, systems


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("exp", type=Path, help="folder of the recipe's experiments; the table is also written to <exp>/report.md")


def run(args: argparse.Namespace) -> None:
    table = render(systems(args.exp))
    write_text(args.exp / "report.md", table + "\n")
    print(table)
    print(f"report: {args.exp / 'report.md'}")
