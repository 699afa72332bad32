"""Print a table of a paper beside the one that a recipe has obtained, or the runs that it needs (egs/swbd/s5c/local/tables.sh).

  pykaldist paper-table --table 6 local exp/tables              # the table: word error rates (%), published and obtained
  pykaldist paper-table --table 6 --runs true local exp/tables  # its runs, a line each: name, workers, RBMs, options, with tabs between
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from pykaldist.cli._json import add_json, print_json
from pykaldist.options import add_options, from_args, option


@dataclass
class PaperTableOptions:
    """Which table."""

    table: str = option("1", "the table's name: its number in the paper, or as tables.tsv has it")
    runs: bool = option(False, "print the runs that it needs")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("tables", type=Path, help="folder with runs.tsv and tables.tsv")
    parser.add_argument("exp", type=Path, help="folder of the runs")
    add_json(parser)
    add_options(parser, PaperTableOptions)


def run(args: argparse.Namespace) -> None:
    from pykaldist.report.paper_table import as_rows, read_table, render  # not above: --help answers without PyTorch

    options = from_args(PaperTableOptions, args)
    cells, runs = read_table(args.tables, options.table)
    if args.json:
        print_json(list(runs.values()) if options.runs else as_rows(cells, args.exp))
    elif options.runs:
        for one in runs.values():
            print("\t".join([one.name, str(one.ngpu), str(one.rbm).lower(), one.schedule_opts, one.train_opts]))
    else:
        print(render(cells, args.exp))
