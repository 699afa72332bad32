"""Be one of the jobs of a training or alignment of GMMs, UBMs or SGMMs, or of a chain model's tree, which starts them.

See steps/train_mono.sh --jobs."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read when numpy is loaded

from pykaldist.hmm.ivector import stages  # noqa: F401 its tasks, which a job finds by their names
from pykaldist.hmm.sgmm import experiment  # noqa: F401 its tasks, which a job finds by their names
from pykaldist.hmm.training import chain_tree  # noqa: F401 its tasks, which a job finds by their names
from pykaldist.hmm.training.jobs import carry_out
from pykaldist.train import gmm_sequence, sgmm_sequence  # noqa: F401 their tasks, which a job finds by their names


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="folder that the stage and its jobs share")
    parser.add_argument("task", type=int, help="number of the task")
    parser.add_argument("job", type=int, help="number of the job, from 1")


def run(args: argparse.Namespace) -> None:
    carry_out(args.folder, args.task, args.job)
