"""Subspace models by the scripts, from UBM to MMI, on the features of Kaldi's speaker-adapted system and the speech of two speakers."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from pykaldist.decode.lattice import read_lattices
from pykaldist.decode.paths import best_path
from pykaldist.decode.sgmm import SgmmModel
from pykaldist.feats.transforms import SpeakerTransforms
from pykaldist.hmm.sgmm.speaker_vectors import read_speaker_vectors
from pykaldist.io.datadir import DataDir

from .conftest import make_recipe, run, succeed

pytestmark = pytest.mark.slow

TRAIN = ("data/test", "data/lang", "exp/tri3_ali")
DECODE = ("steps/decode_sgmm2.sh", "--nj", "2", "--transform-dir", "exp/tri3_ali")


@pytest.fixture(scope="module")
def recipe(root: Path, shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All test utterances of two speakers, which are the training data here; a system of few iterations, and its decoding."""
    files = ("final.mdl", "final.alimdl", "tree", "cmvn_opts", "splice_opts", "final.mat")
    folder = make_recipe(tmp_path_factory.mktemp("s5"), root, shared, shared / "golden/an4_kaldi/tri3_ali", "tri3", files, None)
    succeed(folder, "steps/align_fmllr.sh", "--nj", "2", "data/test", "data/lang", "exp/tri3", "exp/tri3_ali")
    said = succeed(folder, "steps/train_ubm.sh", "--silence-weight", "0.5", "30", *TRAIN, "exp/ubm")
    assert re.search(r"train_ubm\.sh: \d+ Gaussians with full covariances; UBM in exp/ubm/final\.ubm$", said.splitlines()[-1])
    said = succeed(folder, "steps/train_sgmm2.sh", "--num-iters", "8", "--num-iters-alimdl", "2", "--realign-iters", "4",
                   "--spkvec-iters", "3 5", "--spk-dim", "10", "60", "90", *TRAIN, "exp/ubm/final.ubm", "exp/sgmm")
    assert re.search(r"train_sgmm2\.sh: \d+ pdfs in \d+ groups, \d+ substates, .*; model in exp/sgmm$", said.splitlines()[-1])
    succeed(folder, "utils/mkgraph.sh", "data/lang", "exp/sgmm", "exp/sgmm/graph")
    succeed(folder, *DECODE, "exp/sgmm/graph", "data/test", "exp/sgmm/decode")
    return folder


def rate(recipe: Path, folder: str) -> float:
    return float((recipe / "exp" / folder / "best_wer").read_text().split()[1])


def test_decoding(recipe: Path) -> None:
    """Lattices have the costs that the model has with the vectors; the words are nearly right."""
    assert rate(recipe, "sgmm/decode") < 10 and not (recipe / "exp/sgmm/decode.pass1").exists()
    system, data = recipe / "exp/sgmm", DataDir(recipe / "data/test")
    vectors = read_speaker_vectors(system / "decode")
    assert len(vectors) == 2 and all(np.linalg.norm(vector) > 0 for vector in vectors.values())
    model = SgmmModel(system, None, recipe / "exp/tri3_ali", vectors=vectors)
    for utt, lattice in list(read_lattices(system / "decode/lat.1.gz"))[:3]:
        path, feats = best_path(lattice, 0.1), model.features(data, utt)
        scores = model.utterance_loglikes(data, utt, feats)[np.arange(len(feats)), model.tid2pdf[path.transition_ids]]
        assert path.acoustic == pytest.approx(-scores.sum(dtype=np.float64), rel=1e-4)


def test_fmllr(recipe: Path) -> None:
    """Transforms are new and old in one, and make the features more likely."""
    said = succeed(recipe, *DECODE, "--use-fmllr", "true", "--fmllr-min-count", "500", "exp/sgmm/graph", "data/test",
                   "exp/sgmm/decode_fmllr")
    assert "lattices of 26 utterances" in said.splitlines()[-1] and rate(recipe, "sgmm/decode_fmllr") < 10
    new, old = (SpeakerTransforms.read(recipe / folder) for folder in ("exp/sgmm/decode_fmllr", "exp/tri3_ali"))
    assert set(new) == set(old) and all(np.abs(new[speaker] - old[speaker]).max() > 0 for speaker in new)
    logs = [path.read_text() for path in (recipe / "exp/sgmm/decode_fmllr/log").glob("vecs.*.log")]
    assert all(float(re.search(r"fMLLR: 1 speakers, auxiliary function ([-+0-9.]+)", log)[1]) > 0 for log in logs)  # type: ignore[index]  # every log has the line


def test_mmi_and_rescoring(recipe: Path) -> None:
    """From alignment to the lattices rescored; a training that goes on at --stage 1 comes to the same model."""
    succeed(recipe, "steps/align_sgmm2.sh", "--nj", "2", "--transform-dir", "exp/tri3_ali", "--use-graphs", "true", "--use-gselect", "true",
            "data/test", "data/lang", "exp/sgmm", "exp/sgmm_ali")
    refused = run(recipe, "steps/make_denlats_sgmm2.sh", "data/test", "data/lang", "exp/tri3_ali", "exp/wrong")
    assert refused.returncode == 1 and "exp/tri3_ali has no vectors of speakers (vecs.1)" in refused.stderr
    said = succeed(recipe, "steps/make_denlats_sgmm2.sh", "--nj", "2", "--sub-split", "20", "--transform-dir", "exp/tri3_ali",
                   "data/test", "data/lang", "exp/sgmm_ali", "exp/sgmm_denlats")
    assert said.splitlines()[-1] == "make_denlats_sgmm2.sh: lattices in exp/sgmm_denlats"
    command = ("steps/train_mmi_sgmm2.sh", "--transform-dir", "exp/tri3_ali", "--boost", "0.2", "--num-iters", "2", "--update-opts",
               "--tau-m=100 --tau-sigma=100", "data/test", "data/lang", "exp/sgmm_ali", "exp/sgmm_denlats", "exp/sgmm_mmi")
    succeed(recipe, *command)
    values = [float(value) for value in re.findall(r"MMI objective (\S+) a frame", (recipe / "exp/sgmm_mmi/log/train.log").read_text())]
    assert values[1] > values[0]
    last = (recipe / "exp/sgmm_mmi/final.mdl").read_bytes()
    succeed(recipe, command[0], "--stage", "1", *command[1:])
    assert (recipe / "exp/sgmm_mmi/final.mdl").read_bytes() == last
    for jobs in ("threads", "array"):
        succeed(recipe, *command[:1], "--nj", "2", "--jobs", jobs, "--block-frames", "3000", *command[1:-1], f"exp/sgmm_mmi_{jobs}")
    assert (recipe / "exp/sgmm_mmi_threads/final.mdl").read_bytes() == (recipe / "exp/sgmm_mmi_array/final.mdl").read_bytes()
    said = succeed(recipe, "steps/decode_sgmm2_rescore.sh", "--iter", "1", "--transform-dir", "exp/tri3_ali", "data/lang", "data/test",
                   "exp/sgmm/decode", "exp/sgmm_mmi/decode_it1")
    assert "lattices of 26 utterances in exp/sgmm_mmi/decode_it1; %WER" in said and rate(recipe, "sgmm_mmi/decode_it1") < 10


def test_what_does_not_fit_is_refused(recipe: Path) -> None:
    for command, said in (
            (("steps/decode_sgmm2.sh", "exp/tri3/graph", "data/test", "exp/tri3/decode_sgmm"), "is no subspace model"),
            (("steps/train_sgmm2.sh", "60", "90", *TRAIN, "exp/ubm/final.dubm", "exp/x"), "exp/ubm/final.dubm does not exist"),
            (("utils/pykaldist", "decode", "--spk-vecs", "exp/sgmm", "exp/tri3/graph", "data/test", "exp/tri3/x"), "is no subspace model"),
            (("utils/pykaldist", "rescore-lattices", "--spk-vecs", "exp/sgmm", "data/test", "exp/tri3", "exp/sgmm/decode", "exp/tri3/y"),
             "decode again with this model")):
        refused = run(recipe, *command)
        assert refused.returncode == 1 and said in refused.stderr + refused.stdout, (command, refused.stderr, refused.stdout)
