"""Show alignments for people: the transition-ids of each phone in brackets, the phone's name below.

  pykaldist show-alignments data/lang/phones.txt exp/mono/final.mdl 'ark:exp/mono/ali.1.gz' | less -S
"""

from __future__ import annotations

import argparse

from pykaldist.hmm.alignments.read_alignments import read_alignments
from pykaldist.hmm.gmm.model_files import read_transition_model
from pykaldist.hmm.tree.phone_segments import phone_segments
from pykaldist.io.lang import SymbolTable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("phones", help="phones.txt")
    parser.add_argument("model", help="final.mdl")
    parser.add_argument("alignments", help="archive of transition-ids: ark:FILE (wildcards and .gz are fine)")


def run(args: argparse.Namespace) -> None:
    symbols, model = SymbolTable.read(args.phones), read_transition_model(args.model)
    for utt, tids in read_alignments(args.alignments, model):
        ids, names = "", ""
        for phone, start, length in zip(*(column.tolist() for column in phone_segments(tids, model)), strict=True):
            shown = f"[ {' '.join(map(str, tids[start:start + length].tolist()))} ] "
            name = symbols.symbol(phone) + " "
            width = max(len(shown), len(name))
            ids, names = ids + shown.ljust(width), names + name.ljust(width)
        print(f"{utt}  {ids}\n{utt}  {names}\n")
