"""Predict what an epoch takes with N workers, by strategy and averaging period, on this machine or a cluster; recommend one.

  pykaldist plan --ngpu 2 --hid-layers 4 --hid-dim 512 --store exp/dnn/store      # this machine, measured
  pykaldist plan --nodes 16 --bandwidth 1.2 --latency 30 --write-cluster ours.json # sixteen of it, 1.2 GB/s between them
  pykaldist plan --ngpu 2,4,8,16,32,64 --cluster k20-infiniband                    # a cluster file, or the name of a known one
  pykaldist plan --ngpu 16 --cluster k20-infiniband --accuracy egs/study/results   # and what the nearest tested cells cost in accuracy
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from pykaldist.cli._json import add_json, print_json
from pykaldist.errors import UserError
from pykaldist.options import add_options, from_args, option
from pykaldist.report.plan import as_dict, render
from pykaldist.study.nearest import DEFAULT_OPTIMIZER, Risk, known_cells, risks
from pykaldist.study.nearest import render as render_risks
from pykaldist.study.results import Results
from pykaldist.train.plan import Plan, PlanOptions, make_plan


@dataclass
class AccuracyOptions:
    """What accuracy may cost."""

    accuracy: str = option("", "folder of a study's results, such as egs/study/results: says what the nearest tested cells cost in "
                               "accuracy, and warns outside of what was tested")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_json(parser)
    add_options(parser, PlanOptions)
    add_options(parser, AccuracyOptions)


def run(args: argparse.Namespace) -> None:
    options, folder = from_args(PlanOptions, args), from_args(AccuracyOptions, args).accuracy
    if folder and not any(Path(folder).glob("*.jsonl")):
        raise UserError(f"--accuracy {folder}: expected a folder with results of a study (*.jsonl), such as egs/study/results.")
    plan = make_plan(options)
    known = risks_of(plan, Path(folder), options.optimizer or DEFAULT_OPTIMIZER) if folder else None
    if args.json:
        print_json(as_dict(plan) | ({} if known is None else {"accuracy": known}))
    else:
        print(render(plan))
        if known is not None:
            print(f"\nWhat accuracy may cost: the nearest cells of the study in {folder}\n\n{render_risks(known)}")


def risks_of(plan: Plan, folder: Path, optimizer: str) -> list[Risk]:
    """What is known of the accuracy of each prediction with several workers."""
    cells = known_cells(Results(folder), sorted(path.stem for path in folder.glob("*.jsonl")))
    asked = [(one.strategy, one.ngpu, one.period) for one in plan.predictions if one.ngpu > 1]
    return risks(cells, asked, plan.workload.minibatch_size, optimizer)
