"""Do the trainings that a study lacks, and write its page (what egs/study/run.sh runs).

  pykaldist study --corpora an4=DIR egs/study exp        # until nothing is missing; can be stopped and run again
  pykaldist study --dry-run true egs/study exp           # what is missing, and what it will cost

<study> has claims/*.json, corpora.json and results/; what is found goes to results/ and RESULTS.md.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from pykaldist.cli._json import add_json, print_json
from pykaldist.errors import UserError
from pykaldist.options import add_options, from_args, option


@dataclass
class StudyOptions:
    """Which part of a study, and how much of it now."""

    corpora: str = option("", "folders of corpora: an4=DIR,speechocean762=DIR; claims on others are left out")
    claim: str = option("", "claims to examine, with commas between (all)")
    nj: int = option(1, "trainings at a time, each on one core")
    max_minutes: float = option(1e9, "begin no training after so many minutes (no limit)")
    dry_run: bool = option(False, "say what is missing and what it will cost, and do nothing")
    evidence: bool = option(False, "train ten cells again, in 15 minutes of CPU, and compare them with the results that there are")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("study", type=Path, help="folder of the study, such as egs/study")
    parser.add_argument("exp", type=Path, help="folder for stores, logs and trainings under way")
    add_json(parser)
    add_options(parser, StudyOptions)


def run(args: argparse.Namespace) -> None:
    from pykaldist.study.campaign import Campaign  # not above: --help answers without PyTorch

    options = from_args(StudyOptions, args)
    if options.nj < 1:
        raise UserError(f"--nj {options.nj}: expected 1 or more.")
    campaign = Campaign(args.study, args.exp, options.claim.split(",") if options.claim else [], options.corpora)
    if args.json and not options.dry_run:
        raise UserError("--json prints what --dry-run true tells; add it.")
    if options.dry_run and args.json:
        print_json(campaign.missing())
    elif options.dry_run:
        print(campaign.described())
    elif options.evidence:
        campaign.compare()
    else:
        campaign.run(options.nj, options.max_minutes)
