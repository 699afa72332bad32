"""Train a GMM system further by MPE or sMBR, on lattices; see steps/train_mpe.sh and steps/train_smbr.sh."""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # --nj says how many threads work; read when numpy is loaded

from pykaldist.cli._sequence import add_sequence_arguments
from pykaldist.hmm.gmm.ebw import EbwOptions
from pykaldist.hmm.training.jobs import JobsOptions
from pykaldist.options import from_args
from pykaldist.train.gmm_sequence import Accuracy, IterationOptions
from pykaldist.train.gmm_sequence_dirs import train_model_dir


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_sequence_arguments(parser, IterationOptions, Accuracy)
    parser.set_defaults(weight_tau=0.0)  # what Kaldi's scripts have in effect


def run(args: argparse.Namespace) -> None:
    made = train_model_dir(f"steps/train_{args.criterion}.sh", args.data, args.lang, args.ali, args.denlats, args.exp,
                           from_args(Accuracy, args), from_args(IterationOptions, args), from_args(EbwOptions, args), args.nj, args.device,
                           args.stage, jobs=from_args(JobsOptions, args))
    print(f"SUMMARY: {made}")
