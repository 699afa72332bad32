"""Turn alignments (transition-ids) into pdfs, one a frame.

  pykaldist ali-to-pdf exp/mono/final.mdl 'ark:exp/mono/ali.*.gz' ark,t:-
"""

from __future__ import annotations

import argparse
import sys

from pykaldist.hmm.alignments.read_alignments import read_alignments
from pykaldist.hmm.gmm.model_files import read_transition_model
from pykaldist.io.specifiers import write_path
from pykaldist.io.tables import write_int_vectors


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="final.mdl")
    parser.add_argument("alignments", help="archive of transition-ids: ark:FILE (wildcards and .gz are fine)")
    parser.add_argument("pdfs", help="archive to write: ark:FILE, ark,t:FILE")


def run(args: argparse.Namespace) -> None:
    model = read_transition_model(args.model)
    path, binary = write_path(args.pdfs)
    count = write_int_vectors(path, ((utt, model.tid2pdf[tids]) for utt, tids in read_alignments(args.alignments, model)), binary)
    print(f"{count} alignments turned into pdfs", file=sys.stderr)
