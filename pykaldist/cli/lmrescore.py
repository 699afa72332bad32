"""Replace the language model's costs in one job's lattices by those of another language model.

The work of steps/lmrescore.sh and steps/lmrescore_const_arpa.sh.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from pykaldist.decode.const_arpa import ConstArpaLm
from pykaldist.decode.lattice import Lattice, read_lattices, write_lattices
from pykaldist.decode.lm_rescore import Grammar, LanguageModel, lm_rescored
from pykaldist.decode.pairs import check_decoding, record_lm_rescoring
from pykaldist.decode.paths import pruned
from pykaldist.errors import UserError
from pykaldist.io.fst import Fst
from pykaldist.io.tables import read_map
from pykaldist.progress import progress
from pykaldist.usage import heard


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("old_lang", type=Path, help="language directory that was decoded with, or its G.fst, which is taken off")
    parser.add_argument("new_lang", type=Path, help="language directory with G.fst or G.carpa, or its G.fst, which is added")
    parser.add_argument("lattice_dir", type=Path, help="directory with lat.JOB.gz")
    parser.add_argument("decode_dir", type=Path, help="where lat.JOB.gz goes")
    parser.add_argument("--job", type=int, default=1, help="this job, from 1 (default: 1)")
    parser.add_argument("--const-arpa", action="store_true", help="the new model is G.carpa (utils/build_const_arpa_lm.sh)")
    parser.add_argument("--lattice-beam", type=float, default=0.0, help="paths worse than the best by more are removed (default: 0: none)")
    parser.add_argument("--acwt", type=float, default=0.083333, help="scale of the log-likelihoods in that (default: 0.083333)")


def run(args: argparse.Namespace) -> None:
    given = "G.carpa" if args.const_arpa else "G.fst"
    old_file, file = (lang / name if lang.is_dir() else lang for lang, name in ((args.old_lang, "G.fst"), (args.new_lang, given)))
    old_words, new_words = (read_map(model.parent / "words.txt") for model in (old_file, file))
    other = next((word for word, number in old_words.items() if not word.startswith("#") and new_words.get(word) != number), None)
    if other is not None:
        raise UserError(f"{file.parent}/words.txt has {other} as number {new_words.get(other)}, {old_file.parent}/words.txt as "
                        f"{old_words[other]}; make both from one lexicon (utils/prepare_lang.sh).")
    check_decoding(args.lattice_dir, lang=old_file.parent)
    old = Grammar(Fst.read(old_file), old_file)
    new: LanguageModel = ConstArpaLm(file) if args.const_arpa else Grammar(Fst.read(file), file)
    if args.job == 1:
        record_lm_rescoring(args.decode_dir, args.lattice_dir, [old_file, file])
    name = f"lat.{args.job}.gz"

    def rescored() -> Iterator[tuple[str, Lattice]]:
        for utt, lattice in read_lattices(args.lattice_dir / name):
            made = lm_rescored(lattice, [(old, -1.0), (new, 1.0)], f"{args.lattice_dir / name}, {utt}")
            heard(made.num_frames)
            yield utt, pruned(made, args.lattice_beam, args.acwt) if args.lattice_beam else made

    print(f"rescored {write_lattices(args.decode_dir / name, progress(rescored(), 'rescoring', None, 'utt'))} lattices")
