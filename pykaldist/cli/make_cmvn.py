"""CMVN statistics of each speaker of a data directory; see steps/compute_cmvn_stats.sh."""

from __future__ import annotations

import argparse

from pykaldist import usage
from pykaldist.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", help="data directory with feats.scp and utt2spk")
    parser.add_argument("feat_dir", help="where the archive goes")
    parser.add_argument("--fake", action="store_true", help="statistics that change nothing: of mean 0 and variance 1")
    parser.add_argument("--fake-dims", default="", help="dimensions that are not to change, from 0, with colons between")


def run(args: argparse.Namespace) -> None:
    usage.stage()
    from pykaldist.feats.make import speaker_cmvn
    from pykaldist.io.datadir import DataDir

    dims = args.fake_dims.split(":") if args.fake_dims else []
    if not all(dim.isdecimal() for dim in dims):
        raise UserError(f"--fake-dims: expected dimensions with colons between, such as 13:14:15, found {args.fake_dims!r}.")
    print(speaker_cmvn(DataDir(args.data), args.feat_dir, None if args.fake else [int(dim) for dim in dims]))
