"""The programs of nnet1: parts and wholes of Kaldi's own network, networks of prototypes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pykaldist.cli import main
from pykaldist.io.tables import read_archive
from pykaldist.nnet.nnet1 import Nnet1
from pykaldist.nnet.prototype import build_vector

ROOT = Path(__file__).resolve().parents[2]
PROTO = """<NnetProto>
<Splice> <InputDim> 2 <OutputDim> 10 <BuildVector> -2:2 </BuildVector>
<Copy> <InputDim> 10 <OutputDim> 3 <BuildVector> 10 1:4:5 </BuildVector>
<AddShift> <InputDim> 3 <OutputDim> 3 <InitParam> 0.5
<Rescale> <InputDim> 3 <OutputDim> 3 <InitParam> 2 <LearnRateCoef> 0
<AffineTransform> <InputDim> 3 <OutputDim> 4000 <BiasMean> -2.0 <BiasRange> 4.0 <ParamStddev> 0.1 <MaxNorm> 1.5
<Sigmoid> <InputDim> 4000 <OutputDim> 4000
<LinearTransform> <InputDim> 4000 <OutputDim> 8 <ParamStddev> 0.2
<Dropout> <InputDim> 8 <OutputDim> 8 <DropoutRate> 0.3
<LstmProjected> <InputDim> 8 <OutputDim> 2 <CellDim> 5 <ParamRange> 0.1
<Softmax> <InputDim> 2 <OutputDim> 2
</NnetProto>
"""


def shell(folder: Path, line: str, **more: str) -> str:
    env = {**os.environ, "PATH": f"{ROOT}/src/bin:{os.environ['PATH']}", **more}
    env.setdefault("PYKALDIST_PYTHON", sys.executable)
    return subprocess.run(["bash", "-o", "pipefail", "-c", line], cwd=folder, env=env, capture_output=True, text=True, check=True).stdout


def test_parts_make_the_whole(golden: Path, tmp_path: Path) -> None:
    """As rm's run_cnn.sh and run_multilingual.sh have it."""
    network = golden / "an4_kaldi/dnn/final.nnet"
    shell(tmp_path, 'n=$(nnet-info $N | grep -m1 num-components | awk "{print \\$2;}"); '
          'nnet-copy --remove-last-components=$((n - 3)) $N a; '
          'nnet-concat a "nnet-copy --remove-first-components=3 $N - |" whole && cmp whole $N', N=str(network))
    components = Nnet1.read(network).components
    assert [c.marker for c in Nnet1.read(tmp_path / "a").components] == [c.marker for c in components[:3]]
    assert main(["nnet-copy", "--binary=false", str(network), str(tmp_path / "t")]) == 0
    assert main(["nnet-copy", str(tmp_path / "t"), str(tmp_path / "b")]) == 0
    for ours, theirs in zip(Nnet1.read(tmp_path / "b").components, components, strict=True):
        for name, array in theirs.arrays.items():
            np.testing.assert_allclose(ours.arrays[name], array, rtol=1e-6)
    transform, feats = golden / "an4_kaldi/dnn/final.feature_transform", golden / "an4_kaldi/fmllr/test.ark"
    shell(tmp_path, 'head -c 200000 $F > part; nnet-forward --no-softmax=true --feature-transform=$T $N ark,p:part ark:one; '
          'nnet-concat $T $N joined; nnet-forward --no-softmax=true --use-gpu=no "nnet-copy joined - |" ark,p:part ark,t:- > two',
          N=str(network), T=str(transform), F=str(feats))
    one, two = dict(read_archive(tmp_path / "one")), dict(read_archive(tmp_path / "two"))
    assert one and list(one) == list(two)
    for utt, scores in one.items():
        np.testing.assert_allclose(two[utt], scores, atol=1e-4, rtol=1e-4)


def test_prototypes(tmp_path: Path) -> None:
    (tmp_path / "proto").write_text(PROTO)
    shell(tmp_path, "nnet-initialize --seed=1 proto a; nnet-initialize --seed=1 <(cat proto) b; cmp a b; "
          "nnet-initialize --seed=2 proto c; ! cmp -s a c")
    parts = Nnet1.read(tmp_path / "a").components
    assert parts[0].arrays["frame_offsets"].tolist() == [-2, -1, 0, 1, 2] and parts[1].arrays["copy_from_indices"].tolist() == [9, 0, 4]
    assert (parts[2].arrays["shift"] == 0.5).all() and (parts[3].arrays["scale"] == 2).all() and parts[3].options["LearnRateCoef"] == 0
    bias, linearity = parts[4].arrays["bias"], parts[4].arrays["linearity"]
    assert -4 <= bias.min() < -3.9 and -0.1 < bias.max() <= 0 and abs(bias.mean() + 2) < 0.1
    assert abs(linearity.std() - 0.1) < 0.005 and abs(linearity.mean()) < 0.005 and parts[4].options["MaxNorm"] == 1.5
    assert parts[7].options["DropoutRate"] == pytest.approx(0.3)
    assert all(0.09 < np.abs(a).max() <= 0.1 for name, a in parts[8].arrays.items() if a.size > 50)
    assert build_vector(["-10", "-5:5:10", "1:2:5", "3:-1:1"]).tolist() == [-10, -5, 0, 5, 10, 1, 3, 5, 3, 2, 1]


def test_transforms(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(3, 2, (500, 2)).astype(np.float32)
    (tmp_path / "f").write_text("u  [\n" + "\n".join(" ".join(f"{v:.7g}" for v in row) for row in x) + " ]\n")
    (tmp_path / "m").write_text(" [\n 1 2\n 0 1\n 3 0 ]\n")
    out = shell(tmp_path, "compute-cmvn-stats ark:f - | cmvn-to-nnet - - | nnet-concat - 'transf-to-nnet m - |' net; "
                "nnet-forward --device=cpu net ark:f ark,t:-")
    (tmp_path / "y").write_text(out)
    z = (x - x.mean(0)) / x.std(0)
    np.testing.assert_allclose(dict(read_archive(tmp_path / "y"))["u"], z @ np.array([[1, 2], [0, 1], [3, 0]]).T, atol=1e-4)


def test_refusals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    proto = str(tmp_path / "proto")
    for text, message in (("<Foo> <InputDim> 1 <OutputDim> 1", "line 1: there is no component <Foo>"), ("", "has no components"),
                          ("<Sigmoid> <InputDim> 2 <OutputDim> 3", "line 1: <Sigmoid> has output dimension 3"),
                          ("<Sigmoid> <InputDim> 2 <OutputDim> 2\n<Tanh> <InputDim> 3 <OutputDim> 3", "line 2: <Tanh> takes 3 inputs"),
                          ("<Softmax> <InputDim> 2 <OutputDim> 2 <Rate> 3", "<Softmax> has no <Rate>")):
        Path(proto).write_text(text)
        assert main(["nnet-initialize", proto, str(tmp_path / "x")]) == 1
        assert message in capsys.readouterr().err
    Path(proto).write_text("<Sigmoid> <InputDim> 2 <OutputDim> 2")
    assert main(["nnet-initialize", proto, str(tmp_path / "x")]) == 0
    assert main(["nnet-copy", "--remove-last-components=1", str(tmp_path / "x"), str(tmp_path / "y")]) == 1
    assert "has 1 components, of which 0 and 1 cannot be left out" in capsys.readouterr().err
    assert not (tmp_path / "y").exists()
