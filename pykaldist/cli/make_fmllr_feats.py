"""Features as a speaker-adapted GMM sees them, of one job's share of a data directory; see steps/nnet/make_fmllr_feats.sh."""

from __future__ import annotations

import argparse

from pykaldist.feats.make import transform_part
from pykaldist.feats.pipeline import FeaturePipeline
from pykaldist.io.datadir import DataDir


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", help="data directory that the features are for")
    parser.add_argument("source", help="data directory with feats.scp and cmvn.scp")
    parser.add_argument("gmm_dir", help="directory of the system: cmvn_opts, delta_opts or splice_opts and final.mat")
    parser.add_argument("feat_dir", help="where the archives go")
    parser.add_argument("--transform-dir", help="directory with trans.* of the source's speakers (default: no fMLLR)")
    parser.add_argument("--job", type=int, default=1, help="this job, from 1 (default: 1)")
    parser.add_argument("--nj", type=int, default=1, help="number of jobs (default: 1)")


def run(args: argparse.Namespace) -> None:
    pipeline = FeaturePipeline.from_dir(args.gmm_dir, args.transform_dir)
    transform_part(DataDir(args.source), DataDir(args.target), pipeline, args.feat_dir, args.job, args.nj)
