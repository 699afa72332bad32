"""Estimate the PCA transform of the features of i-vectors; see steps/online/nnet2/get_pca_transform.sh."""

from __future__ import annotations

import argparse

from pykaldist.hmm.ivector.stages import PcaOptions, pca_dir
from pykaldist.options import add_options, from_args


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", help="data directory with features and CMVN statistics")
    parser.add_argument("exp", help="directory of the transform, final.mat")
    parser.add_argument("--splice-opts", default="", help="such as \"--left-context=3 --right-context=3\" (default: 4 on either side)")
    parser.add_argument("--online-cmvn-opts", default="", help="such as \"--cmn-window=600\" (default: Kaldi's defaults)")
    add_options(parser, PcaOptions)


def run(args: argparse.Namespace) -> None:
    print(f"SUMMARY: {pca_dir(args.data, args.exp, from_args(PcaOptions, args), args.splice_opts, args.online_cmvn_opts)}")
