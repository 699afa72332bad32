"""Turn alignments (transition-ids) into phones: a sequence, one a frame, with lengths, or a CTM.

  pykaldist ali-to-phones --per-frame exp/mono/final.mdl 'ark:exp/mono/ali.*.gz' ark,t:-
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable

import numpy as np

from pykaldist.errors import UserError
from pykaldist.hmm.alignments.read_alignments import read_alignments
from pykaldist.hmm.gmm.model_files import read_transition_model
from pykaldist.hmm.tree.phone_segments import phone_segments
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.io.specifiers import write_path
from pykaldist.io.tables import output_archive, write_int_vectors
from pykaldist.options import add_flag


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="final.mdl")
    parser.add_argument("alignments", help="archive of transition-ids: ark:FILE (wildcards and .gz are fine)")
    parser.add_argument("phones", help="archive to write (ark:FILE, ark,t:FILE), or the CTM file")
    for name, text in (("per-frame", "a phone a frame"), ("write-lengths", "pairs of phone and frames: 1 12 ; 48 9 ; ..."),
                       ("ctm-output", "write a CTM: utterance 1 start duration phone")):
        add_flag(parser, name, text)
    parser.add_argument("--frame-shift", type=float, default=0.01, help="seconds a frame, for the CTM (default: 0.01)")


def run(args: argparse.Namespace) -> None:
    if args.per_frame + args.write_lengths + args.ctm_output > 1:
        raise UserError("--per-frame, --write-lengths and --ctm-output exclude each other; choose one.")
    model = read_transition_model(args.model)
    alignments = read_alignments(args.alignments, model)
    path, binary = write_path(args.phones)
    if args.write_lengths and binary:
        raise UserError(f"{args.phones!r}: pairs of phone and length are written as text; give ark,t:FILE.")
    if not args.write_lengths and not args.ctm_output:
        count = write_int_vectors(path, ((utt, model.tid2phone[tids] if args.per_frame else phone_segments(tids, model)[0])
                                         for utt, tids in alignments), binary)
    else:
        count = write_text_segments(path, alignments, model, None if args.write_lengths else args.frame_shift)
    print(f"{count} alignments turned into phones", file=sys.stderr)


def write_text_segments(path: str, alignments: Iterable[tuple[str, np.ndarray]], model: TransitionModel, frame_shift: float | None) -> int:
    """Write a CTM, or, without `frame_shift`, phones with their lengths in frames; returns the number of alignments."""
    count = 0
    with output_archive(path) as stream:
        for utt, tids in alignments:
            count += 1
            segments = list(zip(*(column.tolist() for column in phone_segments(tids, model)), strict=True))
            if frame_shift is None:
                lines = [f"{utt} " + "; ".join(f"{phone} {length} " for phone, _, length in segments)]
            else:
                digits = 3 if frame_shift < 0.01 else 2
                lines = [f"{utt} 1 {start * frame_shift:.{digits}f} {length * frame_shift:.{digits}f} {phone}"
                         for phone, start, length in segments]
            stream.write("".join(f"{line}\n" for line in lines).encode())
    return count
