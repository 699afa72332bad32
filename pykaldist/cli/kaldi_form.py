"""Pack what a command line of Kaldi's steps/nnet/train.sh, train_mpe.sh, train_mmi.sh or pretrain_dbn.sh names, and say how to train on it.

The words after `train`, `train_mpe`, `train_mmi` or `pretrain_dbn` are those of Kaldi's script. Writes <exp>/store (and <exp>/denlats, of
lattices), and <exp>/options: the options of `pykaldist train` or `pretrain-dbn`, one a line, which the script goes on with.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import numpy as np

from pykaldist.cli import pack, pack_lattices
from pykaldist.errors import UserError
from pykaldist.io import provenance
from pykaldist.io.atomic import write_text
from pykaldist.io.lang import LangDir, check_phones
from pykaldist.train.kaldi_forms import ARGUMENTS, Form, read_form, shape_of
from pykaldist.train.sequence_forms import SEQUENCE_ARGUMENTS, SequenceForm, read_sequence_form


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("stage", choices=(*ARGUMENTS, *SEQUENCE_ARGUMENTS), help="the script")
    parser.add_argument("words", nargs=argparse.REMAINDER, help="its options and arguments")


def run(args: argparse.Namespace) -> None:
    from pykaldist.nnet.prototype import read_prototype

    if args.stage in SEQUENCE_ARGUMENTS:
        _of_lattices(read_sequence_form(args.stage, args.words))
        return
    form = read_form(args.stage, args.words)
    exp = form.arguments[-1]
    if form.lang_check:
        lang = LangDir(form.arguments[2])
        for ali in {form.arguments[3], form.arguments[4]} if form.labelled else ():
            check_phones(lang, ali)
    _pack(form, args.stage, exp / "store")
    if proto := form.job.pop("nnet_proto", ""):
        form.job["nnet_init"] = str(exp / "nnet.init")
        read_prototype(proto, np.random.default_rng(int(form.job["seed"]))).write(exp / "nnet.init")
    if init := form.job.get("nnet_init"):
        form.job = shape_of(Path(init), 2 * int(form.job.get("splice", 0)) + 1) | form.job
    for note in form.notes:
        print(f"NOTE: {note}")
    write_text(exp / "options", "".join(f"{word}\n" for word in words(form.job)))


def words(options: Mapping[str, str]) -> list[str]:
    """Options as words of a command line."""
    return [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]


def _of_lattices(form: SequenceForm) -> None:
    """Pack the frames and the lattices of a sequence training, and write its options."""
    data, lang, _, ali, denlats, exp = map(str, form.arguments)
    check_phones(LangDir(lang), Path(ali))
    once(pack, [*words(form.pack), data, ali, f"{exp}/store"], ("train/manifest.json", "dev/manifest.json"))
    once(pack_lattices, [*words(form.lattices), lang, ali, denlats, f"{exp}/denlats"], ("manifest.json",))
    write_text(Path(exp) / "options", "".join(f"{word}\n" for word in words(form.job)))


def _pack(form: Form, stage: str, store: Path) -> None:
    """Pack the store, unless it is there already, of the same files and options."""
    if stage == "train":
        data, cv_data, _, ali, cv_ali, _ = map(str, form.arguments)
        held_out = {"cv_data": cv_data, **({"cv_ali": cv_ali} if form.labelled else {})}
        command = [*words({**form.pack, **held_out}), data, *([ali] if form.labelled else []), str(store)]
    else:
        command = [*words(form.pack), str(form.arguments[0]), str(store)]
    once(pack, command, ("train/manifest.json", "dev/manifest.json"))


def once(verb: ModuleType, command: list[str], files: tuple[str, ...]) -> None:
    """Run a verb that makes the folder named last, unless its `files` are there already, made of the same files and options."""
    store, said = Path(command[-1]), "".join(f"{word}\n" for word in command)
    made = store / "packed_by"
    if made.is_file() and made.read_text(encoding="utf-8") == said and _as_it_was(store, files):
        print(f"{store} is already there, packed of the same files.")
        return
    made.unlink(missing_ok=True)
    parser = argparse.ArgumentParser()
    verb.add_arguments(parser)
    verb.run(parser.parse_args(command))
    write_text(made, said)


def _as_it_was(store: Path, files: tuple[str, ...]) -> bool:
    try:
        provenance.check(store)
    except UserError:
        return False
    return all((store / name).is_file() for name in files)
