"""Print tables of the scored systems below a folder, with WER, interval, accuracy, time, and of what stages took; or of runs' spread."""

from __future__ import annotations

import argparse
from pathlib import Path

from pykaldist.io.atomic import write_text
from pykaldist.report.stages import render_stages, stages
from pykaldist.report.table import render, render_spread, systems


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("exp", type=Path, nargs="+", help="folder of a recipe's experiments; its table is also written to <exp>/report.md. "
                        "Of several folders, such as runs with other seeds: the mean and the spread of each system's WER")


def run(args: argparse.Namespace) -> None:
    if len(args.exp) > 1:
        print(render_spread([systems(exp) for exp in args.exp]))
        return
    exp, = args.exp
    table = "\n\n".join(filter(None, [render(systems(exp)), render_stages(stages(exp))]))
    write_text(exp / "report.md", table + "\n")
    print(table)
    print(f"report: {exp / 'report.md'}")
