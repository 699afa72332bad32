"""Cut an ARPA language model to a vocabulary, with the options that recipes give to SRILM's program of this name."""

from __future__ import annotations

import argparse
from pathlib import Path

from pykaldist.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-vocab", type=Path, required=True, help="file with a word a line")
    parser.add_argument("-lm", type=Path, required=True, help="ARPA language model, gzipped if it ends in .gz")
    parser.add_argument("-write-lm", dest="write_lm", type=Path, required=True, help="where to write, gzipped if it ends in .gz")
    parser.add_argument("-order", type=int, default=3, help="longest n-grams that are kept (default: 3, as in SRILM)")
    parser.add_argument("-subset", action="store_true", help="words of the vocabulary that the model lacks stay outside; needed, for no "
                        "others are made here")
    parser.add_argument("-prune-lowprobs", dest="prune_lowprobs", action="store_true", help="leave out n-grams that backing off makes "
                        "more probable")
    parser.add_argument("-tolower", action="store_true", help="write all words in lower case")
    parser.add_argument("-unk", action="store_true", help="<unk> is a word")


def run(args: argparse.Namespace) -> None:
    from pykaldist.decode.change_vocab import change_vocab, read_arpa
    from pykaldist.io.tables import read_lines

    if not args.subset or args.order < 1:
        raise UserError("give -subset and an -order of at least 1; a model cannot be given words that it does not have.")
    words = {line.split()[0].lower() if args.tolower else line.split()[0] for line in read_lines(args.vocab) if line.split()}
    before = read_arpa(args.lm, args.tolower)
    after = change_vocab(before, words if args.unk else words - {"<unk>"}, args.order, args.prune_lowprobs)
    after.write_arpa(args.write_lm)
    counts = " + ".join(f"{len(new)} of {len(old)}" for new, old in zip(after.probabilities, before.probabilities, strict=False))
    print(f"{args.write_lm}: {counts} n-grams")
