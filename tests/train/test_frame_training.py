"""Cross-entropy training of nnet3 networks on frames: gradients, the LDA-like transform, train_dnn.py's command line, and a whole run."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from test_chain import folder_of_an4

from pykaldist.cli import main
from pykaldist.errors import UserError
from pykaldist.feats.lda import LdaStats
from pykaldist.frames.sampler import Minibatch
from pykaldist.frames.store import FrameStore
from pykaldist.hmm.gmm.model_files import read_transition_model
from pykaldist.io.kaldi import KaldiReader, KaldiWriter
from pykaldist.io.tables import read_archive
from pykaldist.nnet.nnet3.initialise import initialised
from pykaldist.nnet.nnet3.model import Nnet3Model
from pykaldist.nnet.nnet3.network import Nnet3Network
from pykaldist.nnet.nnet3_learner import DropoutOptions, FrameLearner
from pykaldist.train import nnet3_experiment
from pykaldist.train.input_transform import write_prior_scale
from pykaldist.train.nnet3_forms import read_frame_form

XCONFIG = """input dim=4 name=ivector
input dim=40 name=input
fixed-affine-layer name=lda input=Append(0,ReplaceIndex(ivector,t,0)) affine-transform-file={folder}/configs/lda.mat
relu-batchnorm-layer name=tdnn1 dim=16
relu-batchnorm-layer name=tdnn2 dim=16 input=Append(-2,1)
output-layer name=output dim={pdfs}
"""
SMALL = ["input-node name=input dim=3", "input-node name=ivector dim=2",
         "component name=affine1 type=NaturalGradientAffineComponent input-dim=8 output-dim=5",
         "component-node name=affine1 component=affine1 input=Append(Offset(input, -1), Offset(input, 1), ReplaceIndex(ivector, t, 0))",
         "component name=tanh type=TanhComponent dim=5", "component-node name=tanh component=tanh input=affine1",
         "component name=affine2 type=NaturalGradientAffineComponent input-dim=5 output-dim=4",
         "component-node name=affine2 component=affine2 input=tanh", "component name=softmax type=LogSoftmaxComponent dim=4",
         "component-node name=softmax component=softmax input=affine2", "output-node name=output input=softmax"]


def test_the_gradient_is_that_of_cross_entropy():
    """By finite differences, in double precision, through the log-softmax; of columns that are frames with their i-vectors."""
    model = Nnet3Network(initialised(SMALL, torch.Generator().manual_seed(1)), dtype=torch.float64, subsampling=1)
    learner = FrameLearner(model, DropoutOptions(), np.full(4, -1.4, np.float32))
    inputs = torch.randn(6, 3 * 5, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    minibatch = Minibatch(inputs, torch.tensor([0, 1, 2, 3, 1, 0], dtype=torch.int32), 0, False)

    def loss() -> float:
        totals = torch.zeros(3, dtype=torch.float64)
        learner.score(minibatch, totals)
        return float(totals[0])

    grads, totals = torch.zeros_like(model.params), torch.zeros(3, dtype=torch.float64)
    learner.gradient(minibatch, grads, 0.0, totals)
    assert float(totals[0]) == pytest.approx(loss()) and float(totals[2]) == 6
    trained = [index for part in model.map_slices() for index in range(part.start, part.stop)]
    for index in trained[::5]:
        before, found = model.params[index].item(), []
        for step in (1e-5, -1e-5):
            model.params[index] = before + step
            found.append(loss())
        model.params[index] = before
        assert grads[index].item() == pytest.approx((found[0] - found[1]) / 2e-5, abs=1e-6)
    by_hand = torch.log_softmax(learner.outputs(minibatch), 1)
    assert torch.allclose(by_hand.exp().sum(1), torch.ones(6, dtype=torch.float64))
    assert learner.mean_posterior([minibatch]).sum() == pytest.approx(1.0)


def test_the_transform_keeps_what_separates_classes():
    """Its outputs have the mean 0, and directions in which classes differ have far more variance than others; Kaldi's formula by hand."""
    rng = np.random.default_rng(3)
    classes = rng.integers(0, 2, 4000)
    mixing = np.eye(5) + 0.3 * rng.standard_normal((5, 5))
    x = (rng.standard_normal((4000, 5)) + np.outer(classes * 4.0, np.eye(5)[0])) @ mixing + 7.0
    stats = LdaStats(5, 2)
    stats.add(x[:1000], classes[:1000])
    stats.add(np.repeat(x[1000:], 2, axis=0), np.repeat(classes[1000:], 2), np.full(6000, 0.5))
    matrix = stats.input_transform(limit=1e9)
    y = x @ matrix[:, :5].T + matrix[:, 5]
    variance = y.var(axis=0)
    assert np.abs(y.mean(axis=0)).max() < 1e-9 and variance[0] == pytest.approx(4.0, rel=0.1) and variance[1:].max() < 0.01
    within = sum((classes == c).mean() * np.cov(y[classes == c].T, bias=True) for c in (0, 1))
    scale = np.sqrt((1e-4 + variance[0]) / (1 + variance[0]))
    assert within[0, 0] == pytest.approx(scale**2, rel=0.02) and np.abs(np.cov(y.T) - np.diag(np.diag(np.cov(y.T)))).max() < 1e-6
    assert np.linalg.svd(stats.input_transform(limit=0.5)[:, :5])[1].max() <= 0.5 + 1e-9


def test_scales_of_priors(tmp_path):
    write_prior_scale(tmp_path, np.array([100.0, 1.0, 0.0, 10.0]))
    scales = KaldiReader.open(tmp_path / "presoftmax_prior_scale.vec").vector()
    assert scales.mean() == pytest.approx(1.0) and scales[0] < scales[3] < scales[1] < scales[2]


@pytest.fixture(scope="module")
def folder(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data of six utterances with i-vectors, their alignment, and configs of a network that begins with an LDA-like transform."""
    folder = folder_of_an4(golden, tmp_path_factory.mktemp("frames"))
    shutil.copy(golden / "an4_kaldi/tri3_ali/tree", folder / "ali/tree")
    shutil.copytree(golden / "an4_kaldi/lang", folder / "lang")
    utts = (golden / "chain/utts").read_text().split()
    rng, ivectors = np.random.default_rng(1), folder / "ivectors"
    ivectors.mkdir()
    (ivectors / "ivector_period").write_text("10\n")
    with open(ivectors / "ivectors.ark", "wb") as stream, open(ivectors / "ivector_online.scp", "w") as scp:
        for utt, feats in read_archive(golden / "chain/feats.ark"):
            stream.write(f"{utt} ".encode())
            scp.write(f"{utt} {ivectors}/ivectors.ark:{stream.tell()}\n")
            KaldiWriter(stream).matrix(rng.standard_normal((-(-len(feats) // 10), 4)).astype(np.float32))
    assert len(utts) == 6
    return folder


def configs(folder: Path, exp: Path) -> None:
    pdfs = read_transition_model(folder / "ali/final.mdl").num_pdfs
    exp.mkdir()
    (exp / "network.xconfig").write_text(XCONFIG.format(folder=exp, pdfs=pdfs))
    assert main(["xconfig-to-configs", "--xconfig-file", str(exp / "network.xconfig"), "--config-dir", str(exp / "configs")]) == 0


def dnn(folder: Path, exp: Path) -> list[str]:
    """Prepare the training of a network on frames; returns the options of `pykaldist train`."""
    configs(folder, exp)
    words = ["--feat-dir", str(folder / "data"), "--ali-dir", str(folder / "ali"), "--lang", str(folder / "lang"), "--dir", str(exp),
             "--feat.online-ivector-dir", str(folder / "ivectors"), "--egs.opts", "--num-utts-subset 1", "--trainer.num-epochs", "3",
             "--trainer.optimization.num-jobs-final", "2", "--trainer.samples-per-iter", "100", "--trainer.optimization.minibatch-size",
             "64,32", "--trainer.optimization.initial-effective-lrate", "0.01", "--use-gpu", "no"]
    assert main(["prepare-nnet3", "train_dnn", *words]) == 0
    return [*(exp / "train_options").read_text().split("\n")[:-1], "--fabric", "virtual", "--num-threads", "1"]


def lstm(folder: Path, exp: Path) -> list[str]:
    """The same of an LSTM on chunks."""
    pdfs = read_transition_model(folder / "ali/final.mdl").num_pdfs
    exp.mkdir()
    (exp / "network.xconfig").write_text(
        "input dim=4 name=ivector\ninput dim=40 name=input\n"
        f"fixed-affine-layer name=lda input=Append(0,ReplaceIndex(ivector,t,0)) affine-transform-file={exp}/configs/lda.mat\n"
        "fast-lstmp-layer name=lstm cell-dim=16 recurrent-projection-dim=6 non-recurrent-projection-dim=6 delay=-3\n"
        f"output-layer name=output dim={pdfs} output-delay=5\n")
    assert main(["xconfig-to-configs", "--xconfig-file", str(exp / "network.xconfig"), "--config-dir", str(exp / "configs")]) == 0
    words = ["--feat-dir", str(folder / "data"), "--ali-dir", str(folder / "ali"), "--lang", str(folder / "lang"), "--dir", str(exp),
             "--feat.online-ivector-dir", str(folder / "ivectors"), "--egs.opts", "--num-utts-subset 1", "--trainer.num-epochs", "4",
             "--trainer.optimization.num-jobs-final", "1", "--trainer.rnn.num-chunk-per-minibatch", "8", "--egs.chunk-left-context", "10",
             "--trainer.optimization.initial-effective-lrate", "0.01", "--use-gpu", "no"]
    assert main(["prepare-nnet3", "train_rnn", *words]) == 0
    return [*(exp / "train_options").read_text().split("\n")[:-1], "--fabric", "virtual", "--num-threads", "1"]


def test_a_whole_run_with_workers_that_grow(folder, tmp_path):
    exp = tmp_path / "exp"
    options = dnn(folder, exp)
    store = FrameStore(exp / "store/train")
    assert store.manifest.dim == 44 and (exp / "configs/lda.mat").is_file()
    spliced = KaldiReader.open(exp / "configs/lda.mat").matrix()
    assert spliced.shape == (44, 45)
    assert main(["train", *options, str(exp / "store"), str(exp)]) == 0
    history = [json.loads(line) for line in (exp / "history.jsonl").read_text().splitlines()]
    assert len(history) == 3 and history[-1]["train_loss"] < history[0]["train_loss"] - 0.2 and "cv_acc" in history[0]
    model = Nnet3Model.read(exp / "final.mdl")
    assert model.priors.sum() == pytest.approx(1.0, abs=1e-4) and (model.left_context, model.right_context) == (2, 1)
    assert (exp / "tree").is_file() and (exp / "cmvn_opts").is_file() and not (exp / "frame_subsampling_factor").exists()


def test_a_whole_run_of_an_lstm(folder, tmp_path, capsys):
    exp = tmp_path / "exp"
    options = lstm(folder, exp)
    assert "NOTE: --trainer.optimization.shrink-value 0.99" in capsys.readouterr().out
    assert main(["train", *options, str(exp / "store"), str(exp)]) == 0
    history = [json.loads(line) for line in (exp / "history.jsonl").read_text().splitlines()]
    assert len(history) == 4 and history[-1]["train_loss"] < history[0]["train_loss"] - 0.2
    assert history[0]["frames"] == len(FrameStore(exp / "store/train"))
    model = Nnet3Model.read(exp / "final.mdl")
    assert model.priors.sum() == pytest.approx(1.0, abs=1e-4) and (model.left_context, model.right_context) == (0, 5)
    start = options.index("--chunk-width")
    assert main(["train", *options[:start], *options[start + 4:], str(exp / "store"), str(tmp_path / "frames")]) != 0
    assert "is recurrent; train it with steps/nnet3/train_rnn.py" in capsys.readouterr().err


@pytest.mark.gpu
@pytest.mark.parametrize("prepared", [dnn, pytest.param(lstm, marks=pytest.mark.slow)])
def test_a_gpu_takes_what_was_forecast(folder, tmp_path, monkeypatch, emulated, capsys, prepared):
    options, ledgers, settled = prepared(folder, tmp_path / "exp"), [], nnet3_experiment.settled
    monkeypatch.setattr(nnet3_experiment, "settled", lambda ledger, *rest: ledgers.append(ledger.total) or settled(ledger, *rest))
    assert main(["train", *options, "--device", "cuda", str(tmp_path / "exp/store"), str(tmp_path / "exp")]) == 0
    assert "  memory            " in capsys.readouterr().out
    (forecast,) = ledgers
    assert 0.6 * forecast < torch.cuda.max_memory_allocated() <= forecast


def test_networks_of_other_data_are_refused(folder, tmp_path, capsys):
    initialised(SMALL, torch.Generator()).write(tmp_path / "small.raw")
    pack = ["pack", "--cmvn-opts=--norm-means=false", "--cv-percent", "20"]
    assert main([*pack, str(folder / "data"), str(folder / "ali"), str(tmp_path / "store")]) == 0
    job = ["train", "--objective", "xent", "--optimizer", "nnet3", "--device", "cpu"]
    assert main([*job, "--initial-model", str(tmp_path / "small.raw"), str(tmp_path / "store"), str(tmp_path / "exp")]) != 0
    assert "takes features of dimension 3 and i-vectors of 2" in capsys.readouterr().err
    assert main([*job, str(tmp_path / "store"), str(tmp_path / "exp")]) != 0
    assert "needs --initial-model" in capsys.readouterr().err


FOLDERS = ["--feat-dir", "data/train", "--ali-dir", "exp/ali", "--lang", "data/lang", "--dir", "exp/tdnn"]


def test_a_recipes_call_in_our_words():
    found = read_frame_form([*FOLDERS, *shlex.split(
        "--stage=-10 --cmd=run.pl --feat.online-ivector-dir exp/iv --feat.cmvn-opts='--norm-means=false --norm-vars=false' "
        "--trainer.num-epochs 3 --trainer.samples-per-iter=300000 --trainer.optimization.num-jobs-initial 2 "
        "--trainer.optimization.num-jobs-final 12 --trainer.optimization.initial-effective-lrate=0.0015 "
        "--trainer.optimization.final-effective-lrate 0.00015 --trainer.optimization.minibatch-size=256,128 --egs.dir '' "
        "--cleanup.remove-egs=true --use-gpu=true --reporting.email=me --egs.frames-per-eg 8")])
    wanted = {"ngpu": "12", "strategy": "ma", "initial-workers": "2", "average-frames": "300000", "num-epochs": "3",
              "minibatch-size": "256", "learn-rate": "0.0015", "final-learn-rate": "0.00015", "objective": "xent", "optimizer": "nnet3",
              "initial-model": "exp/tdnn/0.raw", "device": "auto"}
    assert {name: found.job[name] for name in wanted} == wanted and found.notes == []
    assert found.pack == {"cmvn-opts": "--norm-means=false --norm-vars=false", "online-ivector-dir": "exp/iv"} and found.cv_utts == 0
    for text, sentence in (("--egs.dir exp/egs", "no examples on disk"), ("--trainer.samples-per-iter 0", "expected 1 or more"),
                           ("--trainer.optimization.minibatch-size x", "minibatch-size x"), ("data", "options alone")):
        with pytest.raises(UserError, match=re.escape(sentence)):
            read_frame_form([*FOLDERS, *shlex.split(text)])
    with pytest.raises(UserError, match="--ali-dir is needed"):
        read_frame_form(FOLDERS[:2])


def test_a_recipes_call_for_a_recurrent_network_in_our_words():
    found = read_frame_form([*FOLDERS, *shlex.split(
        "--trainer.num-epochs=6 --trainer.samples-per-iter=10000 --trainer.optimization.num-jobs-final=4 --egs.chunk-width=40,30,20 "
        "--trainer.optimization.shrink-value=1.0 --trainer.rnn.num-chunk-per-minibatch=128,64 --egs.chunk-right-context=20 "
        "--trainer.deriv-truncate-margin 10 --egs.chunk-left-context-initial=0")], "train_rnn")
    wanted = {"chunk-width": "40", "num-chunk-per-minibatch": "128,64", "average-frames": "400000", "momentum": "0.5",
              "chunk-left-context": "40", "chunk-right-context": "20", "deriv-truncate-margin": "10", "num-epochs": "6"}
    assert {name: found.job[name] for name in wanted} == wanted and "minibatch-size" not in found.job
    assert [note.split()[0] for note in found.notes] == ["--egs.chunk-width", "--egs.chunk-left-context-initial"]
    with pytest.raises(UserError, match="chunk-width x: expected frames"):
        read_frame_form([*FOLDERS, "--egs.chunk-width", "x"], "train_rnn")
