"""Make feats.scp of the parts that the jobs of make-feats, make-fmllr-feats or make-bn-feats have written."""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", help="data directory")
    parser.add_argument("feat_dir", help="where the archives are")
    kinds = ("mfcc", "plp", "fbank", "mfcc_pitch", "plp_pitch", "fbank_pitch", "fmllr", "bn")
    parser.add_argument("--kind", choices=kinds, default="mfcc")
    parser.add_argument("--nj", type=int, default=1, help="number of jobs (default: 1)")


def run(args: argparse.Namespace) -> None:
    from pykaldist.feats.make import collect_parts
    from pykaldist.io.datadir import DataDir

    print(collect_parts(DataDir(args.data), args.feat_dir, args.kind, args.nj))
