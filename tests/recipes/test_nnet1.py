"""Kaldi's nnet1 scripts on a recipe of seconds: DBN, network, decoding, alignment and bottleneck features by Kaldi's command lines.

What comes out is the same, bit for bit, as by pack.sh and the project's own form of train.sh.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from pykaldist.feats.pipeline import FeaturePipeline
from pykaldist.frames.lattice_store import LatticeStore
from pykaldist.frames.store import FrameStore
from pykaldist.hmm.alignments.alignment_dir import AlignmentDir
from pykaldist.io.datadir import DataDir, restrict
from pykaldist.nnet.dbn import Dbn
from pykaldist.nnet.network import Network
from pykaldist.nnet.nnet1 import Nnet1
from pykaldist.nnet.nnet1_run import Nnet1Forward

MINI = Path(__file__).with_name("mini_recipe.py")
CMVN, DELTAS = "--norm-means=true --norm-vars=true", "--delta-order=2"
QUICK = ["--num-threads", "1", "--device", "cpu"]


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Path:
    """A folder with data/{tr,cv,test}, exp/mono_ali and exp/mono/graph, and with what a recipe has."""
    folder = tmp_path_factory.mktemp("nnet1") / "s5"
    subprocess.run([sys.executable, str(MINI), str(folder), "1", "gmm"], check=True, capture_output=True)
    for name in ("steps", "utils"):
        (folder / name).symlink_to(root / name)
    (folder / "path.sh").write_text(f". {root}/path.sh\n")
    data = DataDir(folder / "data/train")
    utts = data.utterances()
    restrict(data, utts[3:], folder / "data/tr")
    restrict(data, utts[:3], folder / "data/cv")
    for name in ("tr", "cv"):
        (folder / "data" / name / "cmvn.scp").write_text((folder / "data/train/cmvn.scp").read_text())
    (folder / "dnn.config").write_text("beam=12.0 # of this test\nlattice_beam=6.0\n")
    return folder


def sh(recipe: Path, script: str, *arguments: str) -> str:
    done = subprocess.run([f"steps/nnet/{script}.sh", *arguments], cwd=recipe, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def dbn(recipe: Path) -> Path:
    sh(recipe, "pretrain_dbn", "--nn-depth", "2", "--hid-dim", "24", "--rbm-iter", "1", "--param-stddev-first", "0.05", "--splice", "2",
       "--cmvn-opts", CMVN, "--delta-opts", DELTAS, *QUICK, "data/tr", "exp/pre")
    return recipe / "exp/pre"


@pytest.fixture(scope="module")
def dnn(recipe: Path, dbn: Path) -> Path:
    sh(recipe, "train", "--feature-transform", "exp/pre/final.feature_transform", "--dbn", "exp/pre/2.dbn", "--hid-layers", "0",
       "--learn-rate", "0.008", "--scheduler-opts", "--max-iters 3", *QUICK, "data/tr", "data/cv", "data/lang", "exp/mono_ali",
       "exp/mono_ali", "exp/dnn")
    return recipe / "exp/dnn"


def test_a_dbn_of_a_data_directory_has_seen_all_of_it(recipe, dbn):
    store = FrameStore(dbn / "store/train")
    assert store.utts == DataDir(recipe / "data/tr").utterances() and store.manifest.num_pdfs == 1
    assert set(FrameStore(dbn / "store/dev").utts) < set(store.utts)
    assert (dbn / "delta_opts").read_text() == "--delta-order=2\n" and "--norm-vars=true" in (dbn / "cmvn_opts").read_text()
    assert Dbn.load(dbn / "2.dbn").hid_dims == [24, 24] and Dbn.load(dbn / "1.dbn").hid_dims == [24]
    assert Dbn.load(dbn / "2.dbn").checksum() == Dbn.load(dbn).checksum()


def test_both_forms_make_the_same_network(recipe, dnn):
    sh(recipe, "pack", "--cv-data", "data/cv", "--cv-ali", "exp/mono_ali", "--cmvn-opts", CMVN, "--delta-opts", DELTAS, "data/tr",
       "exp/mono_ali", "exp/own/store")
    sh(recipe, "train", "--feature-transform", "exp/pre/final.feature_transform", "--dbn", "exp/pre", "--hid-layers", "2", "--hid-dim",
       "24", "--num-epochs", "3", *QUICK, "exp/own/store", "exp/own")
    for name in ("final.nnet", "final.feature_transform", "ali_train_pdf.counts", "cmvn_opts", "delta_opts", "final.mdl", "tree"):
        assert (recipe / "exp/own" / name).read_bytes() == (dnn / name).read_bytes(), name
    train, dev = FrameStore(dnn / "store/train"), FrameStore(dnn / "store/dev")
    assert (train.utts, dev.utts) == (DataDir(recipe / "data/tr").utterances(), DataDir(recipe / "data/cv").utterances())
    assert (dnn / "final.feature_transform").read_bytes() == (recipe / "exp/pre/final.feature_transform").read_bytes()


def test_run_again_there_is_nothing_to_pack_and_nothing_to_train(recipe, dnn):
    out = sh(recipe, "train", "--feature-transform", "exp/pre/final.feature_transform", "--dbn", "exp/pre/2.dbn", "--hid-layers", "0",
             "--learn-rate", "0.008", "--scheduler-opts", "--max-iters 3", *QUICK, "data/tr", "data/cv", "data/lang", "exp/mono_ali",
             "exp/mono_ali", "exp/dnn")
    assert "exp/dnn/store is already there" in out and "nothing to do" in out


def test_it_decodes_and_aligns(recipe, dnn):
    decode = ["--nj", "2", "--config", "dnn.config", "--acwt", "0.1", "--num-threads", "2", "--use-gpu", "no"]
    sh(recipe, "decode", *decode, "exp/mono/graph", "data/test", "exp/dnn/decode")
    assert "--beam 12.0" in (dnn / "decode/log/decode.1.log").read_text() and list((dnn / "decode").glob("wer_*"))
    # The same lattices by nnet1's files under other names, from a directory elsewhere.
    (recipe / "exp/other").mkdir()
    (dnn / "final.nnet").rename(dnn / "1.nnet")
    sh(recipe, "decode", *decode, "--srcdir", "exp/dnn", "--nnet", "exp/dnn/1.nnet", "--skip-scoring", "true", "exp/mono/graph",
       "data/test", "exp/other/decode")
    (dnn / "1.nnet").rename(dnn / "final.nnet")
    assert not list((recipe / "exp/other/decode").glob("wer_*"))
    assert (recipe / "exp/other/decode/lat.1.gz").is_file()
    said = sh(recipe, "align", "--nj", "2", "data/tr", "data/lang", "exp/dnn", "exp/dnn_ali")
    assert "21 of 21 utterances aligned" in said
    ours, gmm = AlignmentDir(recipe / "exp/dnn_ali"), AlignmentDir(recipe / "exp/mono_ali")
    utts = DataDir(recipe / "data/tr").utterances()
    same = np.concatenate([ours.phones(utt) == gmm.phones(utt) for utt in utts])
    assert same.mean() > 0.8  # a network that was trained on the other alignment, and other features
    for name in ("final.mdl", "tree"):
        assert (recipe / "exp/dnn_ali" / name).read_bytes() == (dnn / name).read_bytes()


def test_a_bottleneck_makes_features(recipe):
    sh(recipe, "train", "--hid-layers", "1", "--hid-dim", "16", "--bn-dim", "5", "--splice", "1", "--cmvn-opts", CMVN, "--scheduler-opts",
       "--max-iters 1", *QUICK, "data/tr", "data/cv", "data/lang", "exp/mono_ali", "exp/mono_ali", "exp/bn")
    markers = [c.marker for c in Nnet1.read(recipe / "exp/bn/final.nnet").components]
    assert markers[-5:] == ["LinearTransform", "AffineTransform", "Sigmoid", "AffineTransform", "Softmax"]
    sh(recipe, "make_bn_feats", "--nj", "2", "data-bn", "data/test", "exp/bn", "exp/make_bn", "exp/bn/feats")
    made, network = DataDir(recipe / "data-bn"), Network.load(recipe / "exp/bn/final.pt")
    store = DataDir(recipe / "data/test")
    utt = store.utterances()[0]
    x = FeaturePipeline.from_dir(recipe / "exp/bn").apply(store, utt)
    assert made.feats[utt].shape == (len(x), 5)
    components = Nnet1.read(recipe / "exp/bn/final.nnet").components[:-4]
    transformed = network.transform(torch.from_numpy(x)).numpy()
    assert np.allclose(made.feats[utt], Nnet1Forward(Nnet1(components), "cpu")(transformed), atol=1e-4)


@pytest.fixture(scope="module")
def denlats(recipe: Path, dnn: Path) -> list[str]:
    """Arguments of train_mpe.sh and train_mmi.sh, all but the last: with alignments and lattices of the network."""
    sh(recipe, "align", "--nj", "1", "data/tr", "data/lang", "exp/dnn", "exp/seq_ali")
    sh(recipe, "make_denlats", "--nj", "2", "--beam", "12", "--lattice-beam", "4", "data/tr", "data/lang", "exp/dnn", "exp/denlats")
    return ["data/tr", "data/lang", "exp/dnn", "exp/seq_ali", "exp/denlats"]


@pytest.mark.slow  # a minute and a half; what it calls and when, test_sequence_rounds.py says
def test_sequence_training_on_new_lattices_and_alignments(recipe, dnn, denlats):
    """Each iteration goes on from the one before at the rate that is due, the third on what was made beside the second.

    Ended in the third and run again, it comes to the same network (`test_sequence_rounds.py` says what is called when).
    """
    command = ["train_mpe", "--num-iters", "3", "--learn-rate=0.0005", "--halving-factor", "0.5", "--relattice-iters", "1",
               "--realign-iters", "1", "--relattice-beside", "true", "--denlats-opts", "--beam 12 --lattice-beam 4", "--cv-percent", "20",
               *QUICK, *denlats, "exp/rounds"]
    said = sh(recipe, *command)
    exp, made = recipe / "exp/rounds", recipe / "exp/rounds/iters1/new_denlats/lat.1.gz"
    assert "iteration 3 has alignments of exp/rounds/iters1/ali, lattices of exp/rounds/iters1/new_denlats" in said
    folders = (exp / "iters1", exp / "iters2", exp)
    rates = [[line["learn_rate"] for line in map(json.loads, (folder / "history.jsonl").read_text().splitlines())] for folder in folders]
    assert rates == [[0.0005], [0.00025], [0.000125]]
    models = [(folder / "final.nnet").read_bytes() for folder in (dnn, *folders)]
    assert len(set(models)) == 4
    assert FrameStore(exp / "store/train").utts and len(LatticeStore(exp / "denlats")) == 21
    before = made.stat().st_mtime_ns
    shutil.rmtree(exp / "ckpt")
    (exp / "final.pt").unlink()
    sh(recipe, *command)
    assert made.stat().st_mtime_ns == before and (exp / "final.nnet").read_bytes() == models[3]


@pytest.mark.parametrize(("script", "options", "value"), [("train_mpe", [], "expected_accuracy"), ("train_mmi", ["--boost", "0.1"], "mmi")])
def test_sequence_training_goes_on_from_a_network(recipe, dnn, denlats, script, options, value):
    command = [script, "--num-iters", "2", "--learn-rate", "0.0005", "--cv-percent", "20", *options, *QUICK, *denlats, f"exp/{script}"]
    assert "epoch 2: " in sh(recipe, *command)
    exp = recipe / "exp" / script
    first, last = (json.loads(line) for line in (exp / "history.jsonl").read_text().splitlines())
    assert last[f"train_{value}"] > first[f"train_{value}"] and last["train_loss"] < first["train_loss"]
    store = LatticeStore(exp / "denlats")
    assert set(FrameStore(exp / "store/train").utts) < set(store.utts) == set(DataDir(recipe / "data/tr").utterances())
    before, after = Network.load(dnn / "final.pt"), Network.load(exp / "final.pt")
    assert torch.equal(before.counts, after.counts) and torch.equal(before.transform.shift, after.transform.shift)
    assert 0 < (before.model.params - after.model.params).abs().max() < 0.5
    assert "is already there" in sh(recipe, *command)

