"""Predict what an epoch takes with N workers, by strategy and averaging period, on this machine or a cluster; recommend one.

  pykaldist plan --ngpu 2 --hid-layers 4 --hid-dim 512 --store exp/dnn/store      # this machine, measured
  pykaldist plan --nodes 16 --bandwidth 1.2 --latency 30 --write-cluster ours.json # sixteen of it, 1.2 GB/s between them
  pykaldist plan --ngpu 2,4,8,16,32,64 --cluster k20-infiniband                    # a cluster file, or the name of a known one
"""

from __future__ import annotations

import argparse

from pykaldist.cli._json import add_json, print_json
from pykaldist.options import add_options, from_args
from pykaldist.report.plan import as_dict, render
from pykaldist.train.plan import PlanOptions, make_plan


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_json(parser)
    add_options(parser, PlanOptions)


def run(args: argparse.Namespace) -> None:
    plan = make_plan(from_args(PlanOptions, args))
    if args.json:
        print_json(as_dict(plan))
    else:
        print(render(plan))
