"""Models in other formats: each export is run again, by readers that are not the writer's, and says so on a model card."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

from pykaldist.cli import main
from pykaldist.io.atomic import write_text
from pykaldist.nnet.dnn import DnnOptions
from pykaldist.nnet.kinds import init_nnet, make_nnet
from pykaldist.nnet.network import FeatureTransform, Network
from pykaldist.nnet.nnet3.model import Nnet3Model
from pykaldist.nnet.onnx_export import export_onnx
from pykaldist.serve import export as module

DIM, PDFS, SPLICE = 6, 5, [-1, 0, 1]


@pytest.fixture
def dnn(tmp_path: Path) -> Path:
    """An experiment with a small network, one scored decode directory and what decoding needs."""
    generator = torch.Generator().manual_seed(3)
    options = DnnOptions(hid_layers=1, hid_dim=8)
    model = make_nnet(options, DIM * len(SPLICE), PDFS, len(SPLICE))
    init_nnet(model, options, generator)
    scale = 0.5 + torch.rand(DIM * len(SPLICE), generator=generator)
    network = Network(options, model, FeatureTransform(SPLICE, torch.randn(DIM * len(SPLICE), generator=generator), scale),
                      torch.tensor([10.0, 20.0, 30.0, 5.0, 35.0]))
    exp = tmp_path / "exp/dnn"
    exp.mkdir(parents=True)
    network.save(exp / "final.pt")
    write_text(exp / "cmvn_opts", "--norm-vars=true\n")
    (exp / "decode").mkdir()
    write_text(exp / "decode/best_wer", "%WER 12.50 [ 1 / 8, 0 ins, 0 del, 1 sub ] exp/dnn/decode/wer_9_0.5\n")
    return exp


@pytest.fixture
def chain(golden: Path, tmp_path: Path) -> Path:
    """Kaldi's chain model of AN4 that takes features as they are, with its graph."""
    exp, source, lang = tmp_path / "exp/tdnn", golden / "chain_an4", golden / "an4_kaldi/lang"
    (exp / "graph/phones").mkdir(parents=True)
    shutil.copyfile(source / "final_global_mean.mdl", exp / "final.mdl")
    write_text(exp / "frame_subsampling_factor", "3\n")
    shutil.copyfile(source / "HCLG.fst", exp / "graph/HCLG.fst")
    shutil.copyfile(source / "decode/words.txt", exp / "graph/words.txt")
    for name in ("silence.csl", "word_boundary.int"):
        shutil.copyfile(lang / "phones" / name, exp / "graph/phones" / name)
    return exp


def test_onnx_gives_the_outputs_of_the_network(dnn: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "onnx"
    assert main(["export", str(dnn), str(target), "--to", "onnx", "--licence", "CC BY 4.0"]) == 0
    assert "no output differs by more than" in capsys.readouterr().out
    feats = np.random.default_rng(1).normal(size=(17, DIM)).astype(np.float32)
    found, = onnxruntime.InferenceSession(str(target / "model.onnx")).run(None, {"feats": feats})
    np.testing.assert_allclose(found, Network.load(dnn / "final.pt").loglikes(feats), atol=1e-5)
    card = (target / "README.md").read_text()
    assert card.startswith("# dnn\n") and "CC BY 4.0" in card and "| 12.50 |" in card and "no output differs" in card
    assert "dnn, 197 parameters, 5 outputs" in card and (target / "cmvn_opts").is_file()  # 8 (3 x 6 + 1) + 5 (8 + 1)


def test_nnet1_is_decoded_by_kaldis_program(dnn: Path, tmp_path: Path, root: Path) -> None:
    target = tmp_path / "nnet1"
    assert main(["export", str(dnn), str(target), "--to", "nnet1"]) == 0
    feats = np.random.default_rng(1).normal(size=(4, DIM)).astype(np.float32)
    write_text(tmp_path / "feats.txt", "u1  [\n" + "\n".join(" ".join(map(str, row)) for row in feats) + " ]\n")
    command = [root / "src/bin/nnet-forward", f"--feature-transform={target}/final.feature_transform", "--apply-log=true",
               f"--class-frame-counts={target}/ali_train_pdf.counts", target / "final.nnet", f"ark:{tmp_path}/feats.txt", "ark,t:-"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = np.array([line.strip(" ]").split() for line in done.stdout.splitlines()[1:]], float)
    np.testing.assert_allclose(found, Network.load(dnn / "final.pt").loglikes(feats), atol=1e-4)


def test_nnet3_and_onnx_of_a_chain_model(chain: Path, tmp_path: Path) -> None:
    assert main(["export", str(chain), str(tmp_path / "nnet3"), "--to", "nnet3"]) == 0
    written = Nnet3Model.read(tmp_path / "nnet3/final.mdl")
    assert written.nnet.num_params == Nnet3Model.read(chain / "final.mdl").nnet.num_params
    assert (tmp_path / "nnet3/frame_subsampling_factor").read_text() == "3\n"
    for int8 in ("false", "true"):
        assert main(["export", str(chain), str(tmp_path / "onnx"), "--to", "onnx", "--int8", int8]) == 0  # the second replaces the first
        feats = 8 * np.random.default_rng(1).normal(size=(30, 40)).astype(np.float32)
        found, = onnxruntime.InferenceSession(str(tmp_path / "onnx/model.onnx")).run(None, {"feats": feats})
        assert found.shape == (10, written.nnet.dim("output"))
    assert "8-bit integers" in (tmp_path / "onnx/README.md").read_text()


def test_a_vosk_directory_recognises(chain: Path, tmp_path: Path, golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["export", str(chain), str(tmp_path / "vosk"), "--to", "vosk", "--mfcc-config", str(golden / "chain_an4/mfcc_hires.conf")]
    for folder in (chain, chain.parent / "tree"):  # the graph of a recipe's chain model lies beside its tree; an earlier export is replaced
        folder.mkdir(exist_ok=True)
        if folder != chain:
            (chain / "graph").rename(folder / "graph")
        assert main(command) == 0
        assert "two seconds of noise go through" in capsys.readouterr().out
    assert {path.name for path in (tmp_path / "vosk").iterdir()} == {"am", "conf", "graph", "README.md"}
    write_text(tmp_path / "vosk/notes.txt", "mine\n")
    assert main(command) == 1
    assert "has notes.txt, which is no part of an export to vosk" in capsys.readouterr().err
    assert (tmp_path / "vosk/notes.txt").is_file()


def test_an_export_that_does_something_else_is_not_left(dnn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                        capsys: pytest.CaptureFixture[str]) -> None:
    def wrong(network: Network, path: Path) -> None:
        network.model.params.mul_(1.5)
        export_onnx(network, path)

    monkeypatch.setattr("pykaldist.nnet.onnx_export.export_onnx", wrong)
    assert main(["export", str(dnn), str(tmp_path / "out"), "--to", "onnx"]) == 1
    assert "gives other outputs than the model here" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["exp"]


@pytest.mark.parametrize(("words", "said"), [
    (["--to", "nnet3"], "has no final.mdl with an nnet3 network"), (["--to", "onnx", "--int8", "true"], "decode it with --dtype int8"),
    (["--to", "nnet1", "--beam", "9"], "--beam belongs to --to vosk"),
])
def test_what_cannot_be_exported_is_refused(dnn: Path, tmp_path: Path, words: list[str], said: str,
                                            capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(dnn), str(tmp_path / "out"), *words]) == 1
    assert said in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_a_folder_without_a_model_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "exp").mkdir()
    for exp, said in (("exp", "has no final.pt"), ("nowhere", "is no folder")):
        assert main(["export", str(tmp_path / exp), str(tmp_path / "out"), "--to", "nnet1"]) == 1
        assert said in capsys.readouterr().err


def test_int8_outputs_that_are_far_away_are_refused() -> None:
    expected = np.ones((4, 3))
    assert "5.0 %" in module._near(1.05 * expected, expected)
    with pytest.raises(module.UserError, match="differ by 20 %"):
        module._near(1.2 * expected, expected)
