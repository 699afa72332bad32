"""Prepare chain training from the command line of Kaldi's steps/nnet3/chain/train.py or e2e/train_e2e.py, which run this.

The words after `train` or `train_e2e` are those of that script. Writes the denominator graph, the frame stores and the chunks with their
numerators to --dir, and <dir>/train_options, the options of `pykaldist train` for what follows, one a line.
"""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("script", choices=("train", "train_e2e"), help="the script")
    parser.add_argument("words", nargs=argparse.REMAINDER, help="its options")


def run(args: argparse.Namespace) -> None:
    from pykaldist.decode.phone_align import read_phone_lattices
    from pykaldist.io.atomic import write_text
    from pykaldist.io.lock import locked
    from pykaldist.train.chain_forms import read_chain_form
    from pykaldist.train.chain_preparation import Preparation
    from pykaldist.train.flat_start import FlatStartPreparation

    form = read_chain_form(args.words, args.script)
    with locked(form.exp / "store"):
        preparation = FlatStartPreparation(form.data, form.tree_dir, form.exp, form.preparation) if form.ali_dir is None else \
            Preparation(form.data, form.tree_dir, form.ali_dir, form.exp, form.preparation, form.phone_lm,
                        read_phone_lattices if form.lattices else None)
        if not preparation.run():
            print(f"{preparation.store} is already there, made of the same data with the same options")
    for note in form.notes:
        print(f"NOTE: {note}")
    write_text(form.exp / "train_options", "".join(f"--{name}\n{value}\n" for name, value in form.job.items()))
