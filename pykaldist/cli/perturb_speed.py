"""Copy a data directory with its utterances at other speeds beside them; see utils/perturb_data_dir_speed_3way.sh."""

from __future__ import annotations

import argparse

from pykaldist.errors import UserError
from pykaldist.io.perturb import perturb_speed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", help="data directory")
    parser.add_argument("target", help="data directory to write")
    parser.add_argument("--factors", default="0.9 1.1", help="speeds of the copies (default: 0.9 1.1)")


def run(args: argparse.Namespace) -> None:
    try:
        factors = [float(f) for f in args.factors.split()]
    except ValueError as error:
        raise UserError(f"--factors: expected speeds such as '0.9 1.1', found {args.factors!r}.") from error
    made = perturb_speed(args.source, args.target, factors)
    print(f"{len(made.utt2spk)} utterances in {args.target}: those of {args.source}, and at speed {', '.join(f'{f:g}' for f in factors)}")
