"""The options of verbs that estimate fMLLR transforms, in a basis or without one."""

from __future__ import annotations

import argparse
from pathlib import Path

from pykaldist.errors import UserError
from pykaldist.hmm.adaptation.basis_fmllr import BasisFmllr, BasisFmllrOptions, read_basis
from pykaldist.hmm.adaptation.fmllr import FmllrOptions
from pykaldist.options import add_options, from_args


def add_basis(parser: argparse.ArgumentParser) -> None:
    """Add --fmllr-basis, and what belongs to it."""
    parser.add_argument("--fmllr-basis", default="", help="file of the basis of transforms, in the system's directory or elsewhere, "
                        "such as fmllr.basis (none: any transform)")
    add_options(parser, BasisFmllrOptions)


def fmllr_options(args: argparse.Namespace, system: Path) -> FmllrOptions:
    """The options of a command line; with those of the basis, which is read. Raises UserError where they are given without a basis."""
    options, search = from_args(FmllrOptions, args), from_args(BasisFmllrOptions, args)
    if args.fmllr_basis:
        return BasisFmllr(**vars(options), basis=read_basis(system / args.fmllr_basis), search=search)
    if search != BasisFmllrOptions():
        raise UserError("--num-iters, --size-scale and --step-size-iters are of transforms in a basis; give it with --fmllr-basis.")
    return options
