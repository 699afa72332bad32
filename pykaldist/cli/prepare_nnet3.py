"""Prepare cross-entropy training of an nnet3 network from the command line of Kaldi's train_dnn.py or train_rnn.py, which run this.

The words after the script's name are its options. Writes the frame stores to <dir>/store, the network before training, <dir>/0.raw,
with configs/lda.mat where configs/init.config asks for it, and <dir>/train_options, the options of `pykaldist train` for what follows, one
a line.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pykaldist.frames.store import FrameStore

if TYPE_CHECKING:
    from pykaldist.train.input_transform import LabelledUtterance


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("script", choices=("train_dnn", "train_rnn"), help="the script")
    parser.add_argument("words", nargs=argparse.REMAINDER, help="its options")


def run(args: argparse.Namespace) -> None:
    from pykaldist.cli import pack
    from pykaldist.cli.kaldi_form import once, words
    from pykaldist.errors import UserError
    from pykaldist.frames.holdout import held_out_percent
    from pykaldist.io.atomic import write_text
    from pykaldist.io.datadir import DataDir
    from pykaldist.io.lang import LangDir, check_phones
    from pykaldist.train.nnet3_forms import read_frame_form

    form = read_frame_form(args.words, args.script)
    if not (form.exp / "configs/final.config").is_file():
        raise UserError(f"{form.exp / 'configs/final.config'} does not exist; run steps/nnet3/xconfig_to_configs.py.")
    check_phones(LangDir(form.lang), form.ali)
    percent = held_out_percent(DataDir(form.data), form.cv_utts)
    once(pack, [*words({**form.pack, "cv-percent": repr(percent)}), str(form.data), str(form.ali), str(form.exp / "store")],
         ("train/manifest.json", "dev/manifest.json"))
    _make_network(form.exp, FrameStore(form.exp / "store/train"), form.srand)
    for note in form.notes:
        print(f"NOTE: {note}")
    write_text(form.exp / "train_options", "".join(f"--{name}\n{value}\n" for name, value in form.job.items()))


def _make_network(exp: Path, store: FrameStore, srand: int) -> None:
    """Write the network before training, and the matrices of its configs that are made of data."""
    import torch

    from pykaldist.nnet.nnet3.initialise import initialised
    from pykaldist.train.input_transform import LDA, PRIOR_SCALE, asks_for_transform, write_input_transform, write_prior_scale

    configs = exp / "configs"
    text = (configs / "final.config").read_text(encoding="utf-8")
    if asks_for_transform(configs):
        dim = initialised((configs / "init.config").read_text(encoding="utf-8").splitlines(), torch.Generator(), ".").dim("input")
        frames = write_input_transform(configs, _labelled(store, dim), store.manifest.num_pdfs, 1)
        print(f"{configs / LDA}: made of {frames} frames")
    if PRIOR_SCALE in text:
        write_prior_scale(configs, store.counts())
    initialised(text.splitlines(), torch.Generator().manual_seed(srand), ".", str(configs / "final.config")).write(exp / "0.raw")


def _labelled(store: FrameStore, dim: int) -> Iterator[LabelledUtterance]:
    """The utterances of a store with their pdfs; behind the `dim` features of a frame is its i-vector, where there are some."""
    from pykaldist.train.input_transform import LabelledUtterance

    for begin, end in zip(store.offsets[:-1], store.offsets[1:], strict=True):
        feats = np.array(store.feats[begin:end], np.float32)
        ivector = feats[len(feats) // 2, dim:] if feats.shape[1] > dim else None
        yield LabelledUtterance(feats[:, :dim], ivector, np.arange(len(feats)), np.asarray(store.targets[begin:end], np.int64),
                                np.ones(len(feats)))
