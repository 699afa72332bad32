"""The training programs of nnet1 against formulas written out in numpy, Kaldi's numbers, and Kaldi's scripts that call them."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pykaldist.cli import main
from pykaldist.io.posteriors import Posterior, write_posteriors
from pykaldist.nnet.nnet1 import Nnet1

PROTO = """<AffineTransform> <InputDim> 3 <OutputDim> 5 <BiasMean> 0 <BiasRange> 1 <LearnRateCoef> 0.5 <BiasLearnRateCoef> 0.5
<Sigmoid> <InputDim> 5 <OutputDim> 5
<AffineTransform> <InputDim> 5 <OutputDim> 4 <BiasMean> 0 <BiasRange> 1 <ParamStddev> 0.5
"""
ROOT = Path(__file__).resolve().parents[2]
SOFTMAX = "<Softmax> <InputDim> 4 <OutputDim> 4\n"
FRAMES = 24


def shell(folder: Path, line: str, **more: str) -> str:
    """What a command line prints, with the programs on its PATH."""
    env = {**os.environ, "PATH": f"{ROOT}/src/bin:{ROOT}/utils:{os.environ['PATH']}", "PYKALDIST_ROOT": str(ROOT), **more}
    env.setdefault("PYKALDIST_PYTHON", sys.executable)
    done = subprocess.run(["bash", "-o", "pipefail", "-c", line], cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def softmax(x: np.ndarray) -> np.ndarray:
    y = np.exp(x - x.max(1, keepdims=True))
    return y / y.sum(1, keepdims=True)


def text_matrix(key: str, x: np.ndarray) -> str:
    return f"{key}  [\n" + "\n".join(" ".join(f"{v:.9g}" for v in row) for row in x) + " ]\n"


@pytest.fixture
def data(tmp_path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features x (FRAMES, 3), soft targets (FRAMES, 4) and weights of two utterances, in files x, targets and weights."""
    rng = np.random.default_rng(0)
    x, weights = rng.normal(size=(FRAMES, 3)).astype(np.float32), np.ones(FRAMES, np.float32)
    weights[3:6] = 0.5
    targets = np.zeros((FRAMES, 4), np.float32)
    targets[np.arange(FRAMES), rng.integers(0, 4, FRAMES)] = 0.75
    targets[np.arange(FRAMES), rng.integers(0, 4, FRAMES)] += 0.25
    items = []
    for utt, part in (("a", slice(0, 10)), ("b", slice(10, FRAMES))):
        found = targets[part] > 0
        items.append((utt, Posterior(np.concatenate([[0], np.cumsum(found.sum(1))]), np.nonzero(found)[1].astype(np.int32),
                                     targets[part][found])))
    write_posteriors(tmp_path / "targets", items)
    (tmp_path / "x").write_text(text_matrix("a", x[:10]) + text_matrix("b", x[10:]))
    (tmp_path / "weights").write_text("".join(f"{utt}  [ {' '.join(map(str, w))} ]\n"
                                              for utt, w in (("a", weights[:10]), ("b", weights[10:]))))
    return x, targets, weights


def slow_pass(net: Nnet1, x: np.ndarray, targets: np.ndarray, weights: np.ndarray, size: int, rate: float, momentum: float, l2: float,
              xent: bool) -> tuple[list[np.ndarray], float]:
    """One pass over frames as they come: (weights and biases of both layers; summed loss), in float64."""
    first, second = (c.arrays for c in net.components if c.arrays)
    params = [a.astype(np.float64) for c in (first, second) for a in (c["linearity"], c["bias"])]
    coefs, velocity, loss = [0.5, 0.5, 1.0, 1.0], [np.zeros_like(p) for p in params], 0.0
    for begin in range(0, len(x), size):
        v, t, w = x[begin : begin + size].astype(np.float64), targets[begin : begin + size], weights[begin : begin + size, None]
        h = sigmoid(v @ params[0].T + params[1])
        y = h @ params[2].T + params[3]
        if xent:
            p = softmax(y)
            loss -= float((w * t * np.log(p)).sum())
            dy = w * (t.sum(1, keepdims=True) * p - t)
        else:
            loss += 0.5 * float((w * (y - t) ** 2).sum())
            dy = w * (y - t)
        dh = dy @ params[2] * h * (1 - h)
        for k, g in enumerate((dh.T @ v, dh.sum(0), dy.T @ h, dy.sum(0))):
            velocity[k] = momentum * velocity[k] + g
            params[k] = params[k] * (1 - rate * coefs[k] * l2 * len(v) * (params[k].ndim == 2)) - rate * coefs[k] * velocity[k]
    return params, loss


@pytest.mark.parametrize("objective", ["xent", "mse"])
def test_a_pass_equals_the_formulas(objective: str, tmp_path: Path, data: tuple[np.ndarray, ...], capsys: pytest.CaptureFixture[str],
                                    monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    x, targets, weights = data
    Path("proto").write_text(PROTO + SOFTMAX * (objective == "xent"))
    assert main(["nnet-initialize", "proto", "net"]) == 0
    before = Nnet1.read("net")
    command = ["nnet-train-frmshuff", "--randomize=false", f"--objective-function={objective}", "--minibatch-size=10", "--use-gpu=no",
               "--frame-weights=ark:weights"]
    assert main([*command, "--learn-rate=0.05", "--momentum=0.7", "--l2-penalty=0.01", "ark:x", "ark:targets", "net", "out"]) == 0
    params, loss = slow_pass(before, x, targets, weights, 10, 0.05, 0.7, 0.01, objective == "xent")
    after = Nnet1.read("out")
    found = [a for c in after.components if c.arrays for a in (c.arrays["linearity"], c.arrays["bias"])]
    for ours, expected in zip(found, params, strict=True):
        np.testing.assert_allclose(ours, expected, atol=2e-6)
    assert [c.options for c in after.components] == [c.options for c in before.components]
    assert after.components[0].options["LearnRateCoef"] == 0.5
    frames = float(weights.sum())
    entropy = -float((weights[:, None] * targets * np.log(np.where(targets > 0, targets, 1))).sum()) if objective == "xent" else 0.0
    line = re.search(r"^.*AvgLoss: .*$", capsys.readouterr().err, re.M)
    assert line and line[0].split()[4] == ("(Xent)," if objective == "xent" else "(Mse),")
    assert float(line[0].split()[3]) == pytest.approx((loss - entropy) / frames, rel=1e-4)
    assert main([*command, "--cross-validate=true", "ark:x", "ark:targets", "net"]) == 0
    _, loss = slow_pass(before, x, targets, weights, FRAMES, 0.0, 0.0, 0.0, objective == "xent")
    said = capsys.readouterr().err
    assert float(re.findall(r"AvgLoss: (\S+)", said)[0]) == pytest.approx((loss - entropy) / frames, rel=1e-4)
    assert "[CROSS-VALIDATION, NOT-RANDOMIZED" in said and ("FRAME_ACCURACY >> " in said) == (objective == "xent")


def test_utterances_that_are_left_out(tmp_path: Path, data: tuple[np.ndarray, ...], capsys: pytest.CaptureFixture[str],
                                      monkeypatch: pytest.MonkeyPatch) -> None:
    """Those without targets, and those too long; a few frames are cut off; utterances' weights are those of their frames."""
    monkeypatch.chdir(tmp_path)
    x, _, _ = data
    Path("proto").write_text(PROTO + SOFTMAX)
    assert main(["nnet-initialize", "proto", "net"]) == 0
    Path("more").write_text(text_matrix("a", x[:12]) + text_matrix("b", np.concatenate([x, x])) + text_matrix("c", x))
    command = ["nnet-train-frmshuff", "--cross-validate=true", "--use-gpu=no"]
    assert main([*command, "ark:more", "ark:targets", "net"]) == 0
    said = capsys.readouterr().err
    assert "b is left out: it has 48 frames, 14 targets" in said and "c is left out: it has no targets" in said
    assert "Done 1 files, 1 with no tgt_mats, 1 with other errors" in said
    Path("a_alone").write_text(text_matrix("a", x[:10]))
    Path("utt_weights").write_text("a 1\nb 0\n")
    losses = []
    for arguments in (["ark:a_alone"], ["--utt-weights=ark:utt_weights", "ark:x"]):
        assert main([*command, *arguments, "ark:targets", "net"]) == 0
        losses.append(re.findall(r"AvgLoss: (\S+)", capsys.readouterr().err)[0])
    assert losses[0] == losses[1]


def test_kaldis_network_has_kaldis_loss(golden: Path, tmp_path: Path) -> None:
    """The loss on held-out speakers that Kaldi's last iteration tells, 1.0908, and its frame accuracy of 66.8 %.

    Kaldi leaves out the frames behind the last whole minibatch.
    """
    an4 = golden / "an4_kaldi"
    said = shell(tmp_path, """copy-feats ark:$D/fmllr/train.ark ark,scp:feats.ark,feats.scp
        filter_scp.pl $D/fmllr/cv.utts feats.scp > cv.scp
        ali-to-pdf $D/tri3_ali/final.mdl "ark:gunzip -c $D/tri3_ali/ali.*.gz|" ark:- | ali-to-post ark:- ark:post
        nnet-train-frmshuff --cross-validate=true --randomize=false --use-gpu=no --feature-transform=$D/dnn/final.feature_transform \\
          scp:cv.scp ark:post $D/dnn/final.nnet 2>&1""", D=str(an4))
    assert "Done 91 files, 0 with no tgt_mats" in said
    assert float(re.findall(r"AvgLoss: (\S+)", said)[0]) == pytest.approx(1.0908, abs=1e-3)
    assert float(re.findall(r"FRAME_ACCURACY >> (\S+)%", said)[0]) == pytest.approx(66.8, abs=0.05)


@pytest.mark.parametrize("units", ["gauss", "bern"])
def test_an_rbm_equals_the_formulas(units: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                    monkeypatch: pytest.MonkeyPatch) -> None:
    """Hidden units are so sure of themselves that nothing is left to chance."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    x = (rng.random((30, 4)) > 0.5).astype(np.float32) if units == "bern" else rng.normal(size=(30, 4)).astype(np.float32)
    Path("x").write_text(text_matrix("a", x))
    Path("proto").write_text(f"<Rbm> <InputDim> 4 <OutputDim> 3 <VisibleType> {units} <HiddenType> bern <ParamStddev> 0.1\n")
    assert main(["nnet-initialize", "proto", "first"]) == 0
    net = Nnet1.read("first")
    assert net.components[0].arrays["vis_hid"].any() and not net.components[0].arrays["hid_bias"].any()
    net.components[0].arrays["hid_bias"] = np.array([60, -60, 60], np.float32)
    net.write("init")
    assert main(["rbm-train-cd1-frmshuff", "--learn-rate=0.1", "--num-iters=2", "--l2-penalty=0.01", "--minibatch-size=30",
                 "--momentum=0.4", "--use-gpu=no", "init", "ark:x", "out"]) == 0
    said = capsys.readouterr().err
    own = net.components[0].arrays
    w, c, b = (own[name].astype(np.float64) for name in ("vis_hid", "hid_bias", "vis_bias"))
    velocity, losses = [np.zeros_like(w), np.zeros_like(c), np.zeros_like(b)], []
    for _ in range(2):
        h = sigmoid(x @ w.T + c)
        again = (h > 0.5) @ w + b
        again = sigmoid(again) if units == "bern" else again
        h2 = sigmoid(again @ w.T + c)
        losses.append(((again - x) ** 2).mean())
        rate = 0.1 * (1 - 0.4)
        for k, g in enumerate((h2.T @ again - h.T @ x, (h2 - h).sum(0), (again - x).sum(0))):
            velocity[k] = 0.4 * velocity[k] + rate * (g / 30 + (0.01 * w if k == 0 else 0))
        w, c, b = w - velocity[0], c - velocity[1], b - velocity[2]
    trained = Nnet1.read("out").components[0].arrays
    for name, expected in (("vis_hid", w), ("hid_bias", c), ("vis_bias", b)):
        np.testing.assert_allclose(trained[name], expected, atol=1e-5)
    assert [float(v) for v in re.findall(r"done, AvgLoss: (\S+) \(Mse\)", said)] == pytest.approx(losses, rel=1e-4)
    assert said.count("progress: [") == 2
    assert main(["rbm-convert-to-nnet", "out", "dbn"]) == 0
    layer = Nnet1.read("dbn").components
    assert [part.marker for part in layer] == ["AffineTransform", "Sigmoid"]
    assert (layer[0].arrays["linearity"] == trained["vis_hid"]).all() and (layer[0].arrays["bias"] == trained["hid_bias"]).all()


def test_visible_biases_of_means(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(0).random((50, 2)) * [1, 0]
    Path("x").write_text(text_matrix("a", x))
    shell(tmp_path, "compute-cmvn-stats ark:x - | cmvn-to-nnet - cmvn")
    Path("proto").write_text("<Rbm> <InputDim> 2 <OutputDim> 3 <VisibleType> bern <HiddenType> bern <VisibleBiasCmvnFilename> cmvn\n")
    assert main(["nnet-initialize", "proto", "rbm"]) == 0
    mean = x[:, 0].mean()
    expected = [math.log(mean / (1 - mean)), math.log(1e-4 / (1 - 1e-4))]
    np.testing.assert_allclose(Nnet1.read("rbm").components[0].arrays["vis_bias"], expected, rtol=1e-5)


def test_kaldis_scripts(kaldi_egs: Path, tmp_path: Path) -> None:
    """Kaldi's own pretrain_dbn.sh and train_scheduler.sh, which call these programs, train a network that knows which noise is which."""
    rng = np.random.default_rng(0)
    means = rng.normal(size=(4, 6)) * 2
    labels = [np.repeat(rng.integers(0, 4, 8), 5) for _ in range(40)]
    (tmp_path / "data").mkdir()
    names = [f"utt{i:02d}" for i in range(40)]
    (tmp_path / "text").write_text("".join(text_matrix(n, means[k] + rng.normal(size=(40, 6))) for n, k in zip(names, labels, strict=True)))
    (tmp_path / "labels").write_text("".join(f"{n} {' '.join(map(str, k))}\n" for n, k in zip(names, labels, strict=True)))
    (tmp_path / "data/utt2spk").write_text("".join(f"{n} {n}\n" for n in names))
    (tmp_path / "data/spk2utt").write_text("".join(f"{n} {n}\n" for n in names))
    steps = kaldi_egs / "wsj/s5/steps/nnet"
    (tmp_path / "utils").symlink_to(ROOT / "utils")
    said = shell(tmp_path, f"""copy-feats ark:text ark,scp:$PWD/feats.ark,data/feats.scp && ali-to-post ark:labels ark:post &&
        head -n 30 data/feats.scp > tr.scp && tail -n 10 data/feats.scp > cv.scp &&
        {steps}/pretrain_dbn.sh --skip-cuda-check true --splice 1 --nn-depth 2 --hid-dim 16 --rbm-iter 2 --copy-feats false data dbn &&
        printf '%s\\n' '<AffineTransform> <InputDim> 16 <OutputDim> 4' '<Softmax> <InputDim> 4 <OutputDim> 4' > proto &&
        nnet-initialize proto top && nnet-concat dbn/2.dbn top init && mkdir dnn &&
        {steps}/train_scheduler.sh --max-iters 5 --learn-rate 0.02 --feature-transform dbn/final.feature_transform \\
          --train-tool-opts "--minibatch-size=32 --randomizer-size=1024 --randomizer-seed=1" \\
          init scp:tr.scp scp:cv.scp ark:post ark:post dnn 2>&1""")
    assert said.count("nnet accepted") >= 3 and "Succeeded training the Neural Network" in said
    first, *losses = [float(value) for value in re.findall(r"CROSSVAL(?: PRERUN)? AVG.LOSS (\S+?),? ", said.replace("\n", " "))]
    assert min(losses) < 0.3 < first
    assert Nnet1.read(tmp_path / "dnn/final.nnet").output_dim == 4 and (tmp_path / "dbn/log/rbm.2.log").is_file()


def test_refusals(tmp_path: Path, data: tuple[np.ndarray, ...], capsys: pytest.CaptureFixture[str],
                  monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("proto").write_text(PROTO)
    assert main(["nnet-initialize", "proto", "linear"]) == 0
    Path("proto").write_text(PROTO + SOFTMAX)
    assert main(["nnet-initialize", "proto", "net"]) == 0
    Path("proto").write_text("<LstmProjected> <InputDim> 3 <OutputDim> 4 <CellDim> 5\n" + SOFTMAX)
    assert main(["nnet-initialize", "proto", "lstm"]) == 0
    Path("high").write_bytes((tmp_path / "targets").read_bytes())
    write_posteriors(tmp_path / "high", [("a", Posterior.from_alignment(np.full(10, 9, np.int32)))])
    Path("wide").write_text(text_matrix("a", np.ones((10, 5))))
    for arguments, message in (
            (["ark:x", "ark:targets", "net"], "expected <nnet-out>, or --cross-validate=true"),
            (["ark:x", "ark:targets", "linear", "out"], "linear has no <Softmax> at its end"),
            (["ark:x", "ark:targets", "lstm", "out"], "lstm is recurrent"),
            (["ark:x", "ark:high", "net", "out"], "ark:high, a: found the label 9, expected 0 to 3"),
            (["--objective-function=multitask,xent,4,1.0", "ark:x", "ark:targets", "net", "out"], "the objectives are xent and mse"),
            (["--minibatch-size=9", "--randomizer-size=8", "ark:x", "ark:targets", "net", "out"], "no more of them than the buffer has"),
            (["--feature-transform=net", "ark:wide", "ark:targets", "net", "out"], "ark:wide, a: expected frames of dimension 3")):
        assert main(["nnet-train-frmshuff", "--use-gpu=no", *arguments]) == 1
        assert message in capsys.readouterr().err
    assert main(["rbm-train-cd1-frmshuff", "--use-gpu=no", "net", "ark:x", "out"]) == 1
    assert "expected one <Rbm>" in capsys.readouterr().err
    Path("proto").write_text("<Rbm> <InputDim> 3 <OutputDim> 2 <VisibleType> gauss <HiddenType> bern\n")
    assert main(["nnet-initialize", "proto", "rbm"]) == 0
    assert main(["rbm-train-cd1-frmshuff", "--use-gpu=no", "--num-iters=2", "rbm", "ark:-", "out"]) == 1
    assert "can be read once alone" in capsys.readouterr().err
    assert main(["rbm-train-cd1-frmshuff", "--use-gpu=no", "rbm", "ark:wide", "out"]) == 1
    assert "ark:wide, a: found 5 values a frame, expected 3" in capsys.readouterr().err
    Path("proto").write_text("<Rbm> <InputDim> 3 <OutputDim> 2 <VisibleType> binary <HiddenType> bern\n")
    assert main(["nnet-initialize", "proto", "rbm"]) == 1
    assert "the units of an RBM are bern or gauss, found 'binary'" in capsys.readouterr().err
    assert not Path("out").exists()
