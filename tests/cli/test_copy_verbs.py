"""copy-feats, gmm-copy, sgmm2-copy, copy-tree, copy-transition-model: there and back, and beside Kaldi's text."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from pykaldist.cli import main
from pykaldist.hmm.gmm.model_files import read_transition_model
from pykaldist.hmm.sgmm.full_gmm import FullGmm
from pykaldist.hmm.sgmm.model import AmSgmm2, write_sgmm
from pykaldist.io.tables import MatrixReader, read_archive


def test_feats_there_and_back(golden: Path, tmp_path: Path) -> None:
    source, base = golden / "feats/mfcc13_16k.txt.gz", str(tmp_path)
    expected = dict(read_archive(source))
    assert main(["copy-feats", f"ark:{source}", f"ark,scp:{base}/a.ark,{base}/a.scp"]) == 0
    assert main(["copy-feats", f"scp:{base}/a.scp", f"ark,t:{base}/a.txt.gz"]) == 0
    assert main(["copy-feats", "--compress=true", f"ark,t:{base}/a.txt.gz", f"ark:{base}/c.ark"]) == 0
    assert gzip.decompress((tmp_path / "a.txt.gz").read_bytes()).startswith(next(iter(expected)).encode() + b"  [\n  ")
    by_scp, compressed = MatrixReader(tmp_path / "a.scp"), dict(read_archive(tmp_path / "c.ark"))
    for utt, x in expected.items():
        np.testing.assert_array_equal(by_scp[utt], x)
        np.testing.assert_allclose(compressed[utt], x, atol=np.ptp(x, axis=0).max() / 60)
        assert np.abs(compressed[utt] - x).max() > 0


def test_vectors_as_text(tmp_path: Path) -> None:
    (tmp_path / "v").write_text("a  [ 1 2.5 ]\n")
    assert main(["copy-feats", f"ark:{tmp_path}/v", f"ark:{tmp_path}/b"]) == 0
    assert main(["copy-feats", f"ark:{tmp_path}/b", f"ark,t:{tmp_path}/t"]) == 0
    assert (tmp_path / "t").read_text() == "a  [ 1 2.5 ]\n"


@pytest.mark.parametrize(("verb", "name", "text"), [("gmm-copy", "final.mdl", "final.mdl.txt.gz"), ("copy-tree", "tree", "tree.txt")])
def test_golden_models(golden: Path, tmp_path: Path, verb: str, name: str, text: str) -> None:
    mono = golden / "an4_kaldi/mono"
    assert main([verb, "--binary=false", f"{mono}/{name}", f"{tmp_path}/text"]) == 0
    content = (mono / text).read_bytes()
    assert (tmp_path / "text").read_bytes() == (gzip.decompress(content) if text.endswith(".gz") else content)
    assert main([verb, f"{mono}/{name}", f"{tmp_path}/binary"]) == 0
    assert (tmp_path / "binary").read_bytes() == (mono / name).read_bytes()


def test_transition_model_alone(golden: Path, tmp_path: Path) -> None:
    assert main(["copy-transition-model", f"{golden}/an4_kaldi/mono/final.mdl", f"{tmp_path}/t"]) == 0
    content = (tmp_path / "t").read_bytes()
    assert (golden / "an4_kaldi/mono/final.mdl").read_bytes().startswith(content) and content.endswith(b"</TransitionModel> ")


def test_subspace_models(golden: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """As text and back the same bytes; their sizes."""
    model = read_transition_model(golden / "an4_kaldi/mono/final.mdl")
    rng, dim = np.random.default_rng(0), 3
    ubm = FullGmm.of_moments(np.full(4, 0.25), rng.normal(size=(4, dim)), np.tile(np.eye(dim), (4, 1, 1)))
    sgmm = AmSgmm2.initial(ubm, np.arange(model.num_pdfs) // 2, 3, 2, True, 0.9)
    write_sgmm(tmp_path / "binary", model, sgmm)
    assert main(["sgmm2-copy", "--binary=false", f"{tmp_path}/binary", f"{tmp_path}/text"]) == 0
    assert main(["sgmm2-copy", f"{tmp_path}/text", f"{tmp_path}/again"]) == 0
    assert main(["sgmm2-copy", "--binary=false", f"{tmp_path}/again", f"{tmp_path}/text2"]) == 0
    assert (tmp_path / "text").read_bytes() == (tmp_path / "text2").read_bytes()
    capfd.readouterr()
    assert main(["sgmm2-info", f"{tmp_path}/binary"]) == 0
    said = capfd.readouterr().out
    assert f"number of pdfs {model.num_pdfs}\n" in said and f"number of substates {model.num_pdfs}\n" in said
    assert "dimension of speaker vector space 2\nspeaker-dependent weights yes\n" in said


def test_refusals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, message in ((["copy-feats", "scp:nothing.scp", "ark:x"], "nothing.scp does not exist"),
                               (["copy-feats", "ark:false|", "ark:x"], "`false`, which was read from, ended with status 1"),
                               (["copy-tree", __file__, "x"], "damaged or of another kind")):
        assert main(arguments) == 1
        assert message in capsys.readouterr().err
