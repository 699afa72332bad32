"""Be one of the jobs of a GMM training or alignment, which starts them by itself; see steps/train_mono.sh --jobs."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read when numpy is loaded

from pykaldist.hmm.training.jobs import carry_out
from pykaldist.train import gmm_sequence  # noqa: F401 its tasks, which a job finds by their names


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="folder that the stage and its jobs share")
    parser.add_argument("task", type=int, help="number of the task")
    parser.add_argument("job", type=int, help="number of the job, from 1")


def run(args: argparse.Namespace) -> None:
    carry_out(args.folder, args.task, args.job)
