"""Print tables of the scored systems below a folder, with WER, interval, accuracy, time, and of what stages took; or of runs' spread.

  pykaldist report exp                            # the table, also in exp/report.md
  pykaldist report exp --html report.html         # a page for a browser: curves, sweeps, utterances with audio, significance
  pykaldist report exp/a exp/b --html both.html   # two experiments beside each other
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from pykaldist.cli._json import add_json, print_json
from pykaldist.errors import UserError
from pykaldist.io.atomic import write_text
from pykaldist.options import add_options, from_args
from pykaldist.report.page.options import PageOptions
from pykaldist.report.stages import render_stages, stages
from pykaldist.report.table import as_rows, render, render_spread, spread, systems

DEFAULTS = PageOptions()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("exp", type=Path, nargs="+", help="folder of a recipe's experiments; its table is also written to <exp>/report.md. "
                        "Of several folders, such as runs with other seeds: the mean and the spread of each system's WER")
    parser.add_argument("--html", type=Path, help="write a page for a browser to this file, in place of the table")
    add_json(parser)
    add_options(parser, PageOptions)


def run(args: argparse.Namespace) -> None:
    options = from_args(PageOptions, args)
    if args.html is not None:
        if args.json:
            raise UserError("--json and --html exclude each other: the page has its JSON in it.")
        from pykaldist.report.page.write import write_page  # it loads PyTorch, which the table does without

        write_page(args.exp, options, args.html)
        return
    given = [name for name, value in vars(options).items() if value != getattr(DEFAULTS, name)]
    if given:
        raise UserError(f"--{given[0].replace('_', '-')} is for a page; add --html FILE.")
    found = [systems(exp) for exp in args.exp]
    if args.json:
        print_json(spread(found) if len(found) > 1 else {"systems": as_rows(found[0]),
                                                         "stages": [asdict(stage) for stage in stages(args.exp[0])]})
        return
    if len(found) > 1:
        print(render_spread(found))
        return
    exp, = args.exp
    table = "\n\n".join(filter(None, [render(found[0]), render_stages(stages(exp))]))
    write_text(exp / "report.md", table + "\n")
    print(table)
    print(f"report: {exp / 'report.md'}")
