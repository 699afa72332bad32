"""Copy an nnet1 network, to binary or text; a final.pt is converted to one."""

from __future__ import annotations

import argparse
from pathlib import Path

from pykaldist.options import boolean


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", type=Path, help="nnet1 network, or final.pt")
    parser.add_argument("target", type=Path, help="nnet1 network to write")
    parser.add_argument("--binary", type=boolean, default=True, help="true or false (default: true)")
    parser.add_argument("--feature-transform", type=Path, help="also write the feature transform of a final.pt to this file")


def run(args: argparse.Namespace) -> None:
    from pykaldist.nnet.load import load_nnet1

    nnet, transform = load_nnet1(args.source)
    if args.feature_transform and transform is not None:
        transform.write(args.feature_transform, args.binary)
    nnet.write(args.target, args.binary)
