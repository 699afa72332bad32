"""The programs of nnet3 beside Kaldi's: what they print and write of its own networks."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from pykaldist.cli import main
from pykaldist.io.tables import read_archive
from pykaldist.nnet.nnet3.model import Nnet3, Nnet3Model


def test_nnet3_info_says_what_kaldis_says(golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kaldis = (golden / "chain/net/info").read_text().splitlines()
    assert main(["nnet3-info", str(golden / "chain/net/final.raw")]) == 0
    ours = capsys.readouterr().out.splitlines()
    assert len(ours) == len([line for line in kaldis if not line.startswith(" ")])
    for line, other in zip(ours, [line for line in kaldis if not line.startswith(" ")], strict=True):
        if line.startswith("component name="):
            assert set(line.split(", ")) <= set(re.sub(r"=\[[^]]*\]", "", other).split(", ")), other
        else:
            assert line == other
    assert main(["nnet3-am-info", str(golden / "chain/net/final.mdl")]) == 0
    am = capsys.readouterr().out.splitlines()
    assert am[:5] == ["input-dim: 40", "ivector-dim: -1", "num-pdfs: 112", "prior-dimension: 0", "# Nnet info follows."]
    assert am[5:] == ours


def test_models_are_made_and_copied(golden: Path, tmp_path: Path) -> None:
    net, mdl, raw = golden / "chain/net", tmp_path / "mdl", tmp_path / "raw"
    assert main(["nnet3-am-init", str(golden / "chain/0.trans_mdl"), str(net / "final.raw"), str(mdl)]) == 0
    ours, kaldis = Nnet3Model.read(mdl), Nnet3Model.read(net / "final.mdl")
    assert (ours.left_context, ours.right_context) == (kaldis.left_context, kaldis.right_context) == (5, 5)
    assert mdl.stat().st_size == (net / "final.mdl").stat().st_size  # Kaldi makes statistics anew when it writes: their last digit differs
    assert mdl.read_bytes()[-40:] == (net / "final.mdl").read_bytes()[-40:]
    for name, component in kaldis.nnet.components.items():
        for token, value in component.values.items():
            np.testing.assert_allclose(ours.nnet.components[name].values[token], value, rtol=1e-6, atol=1e-6)
    assert main(["nnet3-am-copy", "--raw=true", str(mdl), str(raw)]) == 0
    assert raw.read_bytes() == (net / "final.raw").read_bytes()
    assert main(["nnet3-am-copy", "--prepare-for-test=true", "--learning-rate=0.5", str(mdl), str(mdl)]) == 0
    assert Nnet3Model.read(mdl).nnet.components["output-xent.affine"].values["LearningRate"] == 2.5  # its factor is 5
    assert main(["nnet3-copy", "--binary=false", "--prepare-for-test=true", str(net / "final.raw"), str(raw)]) == 0
    assert list(Nnet3.read(raw).components) == list(Nnet3.read(net / "final.prepared.raw.txt.gz").components)


def test_nnet3_compute_makes_kaldis_outputs(golden: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net, out = golden / "chain/net", tmp_path / "out"
    feats = f"ark:gunzip -c {net}/feats2.ark.gz |"
    options = ["--frame-subsampling-factor=3", "--frames-per-chunk=51"]
    assert main(["nnet3-compute", *options, str(net / "final.raw"), feats, f"ark:{out}"]) == 0
    ours, kaldis = dict(read_archive(out)), dict(read_archive(net / "output_sub3.ark.gz"))
    assert list(ours) == list(kaldis)
    for utt, matrix in kaldis.items():
        np.testing.assert_allclose(ours[utt], matrix, atol=1e-4)
    assert main(["nnet3-compute", str(net / "final.mdl"), feats, f"ark:{out}"]) == 1
    assert "is a model, not a raw network; give 'nnet3-am-copy --raw=true" in capsys.readouterr().err


def test_a_model_of_another_tree_is_not_made(golden: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = str(golden / "chain_an4/decode/0.trans_mdl")
    assert main(["nnet3-am-init", other, str(golden / "chain/net/final.raw"), str(tmp_path / "mdl")]) == 1
    assert "has 248 pdfs, the network" in capsys.readouterr().err and not (tmp_path / "mdl").exists()


def test_networks_are_made_of_configs(golden: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                      monkeypatch: pytest.MonkeyPatch) -> None:
    net, raw, more = golden / "chain/net", tmp_path / "0.raw", tmp_path / "more.config"
    monkeypatch.chdir(net)  # where the config's matrices are
    assert main(["nnet3-init", "--srand=1", "final.config", str(raw)]) == 0
    made = Nnet3.read(raw)
    assert list(made.components) == list(Nnet3.read(net / "final.raw").components) and made.num_params == 11424
    assert main(["nnet3-init", "--srand=1", "--binary=false", "final.config", str(tmp_path / "text")]) == 0
    weights = made.components["prefinal-l"].linear
    np.testing.assert_allclose(Nnet3.read(tmp_path / "text").components["prefinal-l"].linear, weights, rtol=1e-5)
    more.write_text("component name=extra type=NoOpComponent dim=112\ncomponent-node name=extra component=extra input=output.affine\n"
                    "output-node name=output input=extra\n")
    assert main(["nnet3-init", str(raw), str(more), str(tmp_path / "1.raw")]) == 0
    assert str(Nnet3.read(tmp_path / "1.raw").nodes["output"].input) == "extra"
    assert main(["nnet3-copy", f"--nnet-config={more}", "--edits=rename-node old-name=extra new-name=more", "--scale=0.5", str(raw),
                 str(tmp_path / "2.raw")]) == 0
    other = Nnet3.read(tmp_path / "2.raw")
    assert str(other.nodes["output"].input) == "more"
    np.testing.assert_allclose(other.components["prefinal-l"].linear, 0.5 * weights, rtol=1e-6)
    assert main(["nnet3-average", "--weights=3:1", str(raw), str(tmp_path / "2.raw"), str(tmp_path / "3.raw")]) == 1
    assert "the networks differ in the component extra" in capsys.readouterr().err
    assert main(["nnet3-average", "--weights=3:1", str(raw), str(raw), str(tmp_path / "3.raw")]) == 0
    np.testing.assert_allclose(Nnet3.read(tmp_path / "3.raw").components["prefinal-l"].linear, weights, rtol=1e-6)
    assert main(["nnet3-average", "--weights=3", str(raw), str(raw), str(tmp_path / "3.raw")]) == 1
    assert "expected 2 weights with a sum above 0, found 1" in capsys.readouterr().err


def test_a_model_is_made_of_a_tree_and_a_topology(golden: Path, tmp_path: Path) -> None:
    chain, mdl = golden / "chain", tmp_path / "mdl"
    assert main(["nnet3-am-init", str(chain / "tree"), str(chain / "topo"), str(chain / "net/final.raw"), str(mdl)]) == 0
    ours, kaldis = Nnet3Model.read(mdl), Nnet3Model.read(chain / "net/final.mdl")
    np.testing.assert_array_equal(ours.transition_model.tuples, kaldis.transition_model.tuples)
    assert main(["nnet3-am-copy", "--edits=remove-output-nodes name=output-xent; remove-orphans", str(mdl), str(mdl)]) == 0
    assert list(Nnet3Model.read(mdl).nnet.nodes)[-1] == "output"


def test_the_stage_makes_configs_of_an_xconfig(golden: Path, root: Path, tmp_path: Path) -> None:
    script = root / "steps/nnet3/xconfig_to_configs.py"
    (tmp_path / "xconfig").write_text("input dim=4 name=input\noutput-layer name=output input=Append(-1,0,2) dim=3 max-chang=1\n")
    options = ["--xconfig-file", str(tmp_path / "xconfig"), "--config-dir", f"{tmp_path}/configs/"]
    failed = subprocess.run([script, *options], cwd=root, capture_output=True, text=True, check=False)
    assert failed.returncode == 1 and "line 2" in failed.stderr and "the nearest is max-change" in failed.stderr
    (tmp_path / "xconfig").write_text("output-layer name=output input=Append(idct@-7,prefinal-l) dim=3 max-change=1\n")
    done = subprocess.run([script, *options, "--existing-model", str(golden / "chain/net/final.mdl")], cwd=root, capture_output=True,
                          text=True, check=True)
    assert "takes 7 frames before and 5 behind" in done.stdout
    assert f"# steps/nnet3/xconfig_to_configs.py --xconfig-file {tmp_path}/xconfig" in (tmp_path / "configs/final.config").read_text()
