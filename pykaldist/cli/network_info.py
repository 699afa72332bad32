"""Print what nnet3 experiments came to, a line each; with --plots draw the course of each measure of them, too."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("exp", type=Path, nargs="+", help="experiment folder of steps/nnet3/chain/train.py or steps/nnet3/train_dnn.py")
    parser.add_argument("--plots", type=Path, help="folder for a picture of each measure (default: none)")


def run(args: argparse.Namespace) -> None:
    from pykaldist.io.atomic import write_text
    from pykaldist.report.network_info import described, draw

    text = "".join(f"{described(exp)}\n" for exp in args.exp)
    print(text, end="")
    if args.plots is not None:
        for path in draw(args.exp, args.plots):
            print(f"picture: {path}")
        write_text(args.plots / "info.txt", text)
