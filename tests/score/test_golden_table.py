"""Kaldi's whole experiment on AN4, from its fMLLR features and network to its table of word error rates."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from pykaldist.decode.decoder import DecoderOptions, LatticeDecoder
from pykaldist.decode.lattice import read_lattices
from pykaldist.decode.run import decode_all
from pykaldist.hmm.gmm.model_files import read_transition_model
from pykaldist.io.datadir import DataDir
from pykaldist.io.fst import Fst
from pykaldist.io.lang import SymbolTable
from pykaldist.io.tables import read_archive
from pykaldist.nnet.nnet1 import Nnet1
from pykaldist.nnet.nnet1_run import Nnet1Forward
from pykaldist.nnet.priors import log_priors, read_counts
from pykaldist.score.sweep import SweepOptions, sweep
from pykaldist.score.wer import compute_wer


def test_every_cell_is_within_a_word_of_kaldis(golden: Path, tmp_path: Path) -> None:
    folder = golden / "an4_kaldi"
    torch.set_num_threads(1)
    transform, nnet = (Nnet1.read(folder / "dnn" / name) for name in ("final.feature_transform", "final.nnet"))
    assert nnet.components.pop().marker == "Softmax"
    priors = log_priors(read_counts(folder / "dnn/ali_train_pdf.counts", nnet.output_dim, "the network"))
    forward = Nnet1Forward(Nnet1(transform.components + nnet.components))
    loglikes = ((utt, forward(np.array(feats)) - priors) for utt, feats in read_archive(folder / "fmllr/test.ark"))
    decoder = LatticeDecoder(Fst.read(folder / "graph_tri3/HCLG.fst"), read_transition_model(folder / "tri3_ali/final.mdl").tid2pdf,
                             DecoderOptions(acwt=0.1))
    words = SymbolTable.read(folder / "graph_tri3/words.txt")
    assert decode_all(decoder, loglikes, tmp_path / "lat.1.gz", words).done == 130
    points, refs = SweepOptions(4, 15).points(), DataDir(folder / "data/test").text
    hyps = sweep(read_lattices(tmp_path / "lat.1.gz"), words, points)
    errors = {f"wer_{lmwt}_{wip}": compute_wer(refs, hyp).errors for (lmwt, wip), hyp in zip(points, hyps, strict=True)}
    expected = {f[0]: int(f[4]) for f in map(str.split, (folder / "decode_dnn/wer.txt").read_text().splitlines())}
    assert errors.keys() == expected.keys() and len(expected) == 36
    # An exact tie of O with OH, which sound alike, is one word in 15 of the 36 cells.
    assert all(abs(errors[cell] - expected[cell]) <= 1 for cell in expected)
    assert sum(errors[cell] == expected[cell] for cell in expected) >= 21
