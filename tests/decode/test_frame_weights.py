"""Weights of frames by Kaldi's alignments and lattices of AN4, and by an archive of weights."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from pykaldist.decode.frame_weights import frame_weights
from pykaldist.errors import UserError
from pykaldist.hmm.alignments.alignment_dir import AlignmentDir
from pykaldist.hmm.gmm.model_files import read_transition_model
from pykaldist.io.tables import MatrixWriter


def test_silence_counts_its_own(golden: Path) -> None:
    path, silence = golden / "an4_kaldi/tri3_ali", [1, 2, 3, 4, 5]
    phones, ali = read_transition_model(path / "final.mdl").tid2phone, AlignmentDir(path)
    found = frame_weights(path, silence, 0.25)
    assert found.keys() == ali.labels.keys()
    for utt in list(found)[:20]:
        assert found[utt].tolist() == [0.25 if phones[tid] in silence else 1.0 for tid in ali.labels[utt]]
    assert {0.25, 1.0} == set(np.concatenate(list(found.values())).tolist())


def test_lattices_count_by_their_best_path(golden: Path, tmp_path: Path) -> None:
    chain = golden / "chain_an4"
    (tmp_path / "exp/decode").mkdir(parents=True)
    shutil.copy(chain / "decode/lat.gz", tmp_path / "exp/decode/lat.1.gz")
    shutil.copy(chain / "final.mdl", tmp_path / "exp/final.mdl")
    phones = read_transition_model(chain / "final.mdl").tid2phone
    found = frame_weights(tmp_path / "exp/decode", [1], 0.0)
    for line in (chain / "decode/ali_acwt1.txt").read_text().splitlines():
        utt, *tids = line.split()
        assert np.mean(found[utt] == (phones[np.array(tids, int)] != 1)) > 0.95  # found by another scale
    assert len(found) == 6


def test_an_archive_is_taken_as_it_is(tmp_path: Path) -> None:
    with MatrixWriter(tmp_path / "weights.ark", tmp_path / "weights.scp") as writer:
        writer.write("one", np.array([0.0, 0.5, 1.0], np.float32))
    assert frame_weights(tmp_path / "weights.ark", [], 0.0)["one"].tolist() == [0.0, 0.5, 1.0]
    with pytest.raises(UserError, match=r"expected an alignment directory \(ali.1.gz\), a decode directory"):
        frame_weights(tmp_path, [], 0.0)
