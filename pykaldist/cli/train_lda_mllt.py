"""Train a context-dependent GMM system on LDA+MLLT features; see steps/train_lda_mllt.sh."""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # --nj says how many threads work; read when numpy is loaded

from pykaldist.cli._gmm import add_training_arguments
from pykaldist.hmm.alignments.align import AlignOptions
from pykaldist.hmm.training.adapted_experiment import train_lda_mllt_dir
from pykaldist.hmm.training.jobs import JobsOptions
from pykaldist.hmm.training.lda_mllt import LdaMlltOptions
from pykaldist.options import from_args


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_training_arguments(parser, LdaMlltOptions)
    parser.add_argument("--cmvn-opts", default="", help="options of CMVN, such as --norm-vars=true (default: means only)")
    parser.add_argument("--splice-opts", default="", help="options of splicing, such as --left-context=3 --right-context=3 (default: 4)")


def run(args: argparse.Namespace) -> None:
    made = train_lda_mllt_dir(args.data, args.lang, args.ali, args.exp, args.num_leaves, args.tot_gauss, from_args(LdaMlltOptions, args),
                              from_args(AlignOptions, args), args.cmvn_opts, args.splice_opts, args.nj,
                              device=args.device, stage=args.stage, jobs=from_args(JobsOptions, args))
    print(f"SUMMARY: {made}")
