"""The options that say how utterances go through an nnet3 network, of all verbs that score frames by one."""

from __future__ import annotations

import argparse
from pathlib import Path

from pykaldist.decode.chunks import ChunkOptions, Nnet3Options


def add_nnet3_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of i-vectors and chunks."""
    parser.add_argument("--online-ivector-dir", type=Path, help="directory with the i-vectors of the data, for an nnet3 network that takes "
                        "them (default: none)")
    parser.add_argument("--frames-per-chunk", type=int, default=50, help="frames of features that share an i-vector, or that a recurrent "
                        "network begins anew with (default: 50)")
    for side, before, at, end in (("left", "before", "initial", "first"), ("right", "behind", "final", "last")):
        parser.add_argument(f"--extra-{side}-context", type=int, default=0, help=f"frames that a recurrent network goes through {before} "
                            "a chunk, beyond those that an output needs (default: 0)")
        parser.add_argument(f"--extra-{side}-context-{at}", type=int, default=-1, help=f"the same {before} an utterance's {end} chunk "
                            "(default: -1, as many as elsewhere)")


def nnet3_options(args: argparse.Namespace) -> Nnet3Options:
    """The options of i-vectors and chunks, given."""
    return Nnet3Options(args.online_ivector_dir, ChunkOptions(args.frames_per_chunk, args.extra_left_context, args.extra_right_context,
                                                              args.extra_left_context_initial, args.extra_right_context_final))
