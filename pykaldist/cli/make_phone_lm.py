"""Make the phone language model of chain (LF-MMI) training of an alignment's phones; see steps/nnet3/chain/make_phone_lm.sh."""

from __future__ import annotations

import argparse
from pathlib import Path

from pykaldist.hmm.chain.phone_lm import PhoneLmOptions
from pykaldist.options import add_options, from_args


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ali", type=Path, help="directory of an alignment, with final.mdl")
    parser.add_argument("out", type=Path, help="file to write")
    add_options(parser, PhoneLmOptions)


def run(args: argparse.Namespace) -> None:
    from pykaldist.hmm.alignments.alignment_dir import AlignmentDir
    from pykaldist.hmm.chain.phone_lm import estimate_phone_lm
    from pykaldist.train.chain_data import AlignedPhones

    args.out.parent.mkdir(parents=True, exist_ok=True)
    fst = estimate_phone_lm(AlignedPhones(AlignmentDir(args.ali, args.out.parent)).sequences(), from_args(PhoneLmOptions, args))
    fst.write(args.out)
    print(f"SUMMARY: {fst.num_states} states, {fst.num_arcs} arcs")
