"""Train offsets of a GMM system's features by MMI (fMMI), and the system itself, on lattices; see steps/train_mmi_fmmi.sh."""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # --nj says how many threads work; read when numpy is loaded

from pykaldist.cli._sequence import add_sequence_arguments
from pykaldist.hmm.gmm.ebw import EbwOptions
from pykaldist.hmm.training.jobs import JobsOptions
from pykaldist.options import from_args
from pykaldist.train.gmm_sequence import IterationOptions, Mmi
from pykaldist.train.gmm_sequence_dirs import FmmiOptions, train_fmmi_dir


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_sequence_arguments(parser, IterationOptions, Mmi, FmmiOptions, ubm=True, skip=("num_iters",))


def run(args: argparse.Namespace) -> None:
    made = train_fmmi_dir(args.data, args.lang, args.ali, args.ubm, args.denlats, args.exp, from_args(Mmi, args), args.acwt,
                          from_args(FmmiOptions, args), from_args(EbwOptions, args), args.nj, args.device, args.stage,
                          jobs=from_args(JobsOptions, args))
    print(f"SUMMARY: {made}")
