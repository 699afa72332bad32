"""CMVN statistics of each speaker of a data directory; see steps/compute_cmvn_stats.sh."""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", help="data directory with feats.scp and utt2spk")
    parser.add_argument("feat_dir", help="where the archive goes")


def run(args: argparse.Namespace) -> None:
    from pykaldist.feats.make import speaker_cmvn
    from pykaldist.io.datadir import DataDir

    print(speaker_cmvn(DataDir(args.data), args.feat_dir))
