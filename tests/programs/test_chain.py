"""Programs for chain models give Kaldi's files."""

from __future__ import annotations

import gzip
import subprocess
from pathlib import Path

import pytest

from pykaldist.cli import main
from pykaldist.io.fst import Fst


def test_phone_language_model_and_denominator_graph_of_files(golden: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chain, lm = golden / "chain", tmp_path / "phone_lm.fst"
    (tmp_path / "phones").write_bytes(gzip.decompress((chain / "phones.txt.gz").read_bytes()))
    assert main(["chain-est-phone-lm", "--num-extra-lm-states=300", f"ark:{tmp_path}/phones", str(lm)]) == 0
    assert Fst.read(lm).num_arcs == Fst.read(chain / "phone_lm.fst").num_arcs == 2784
    made = [str(tmp_path / name) for name in ("den.fst", "normalization.fst")]
    assert main(["chain-make-den-fst", str(chain / "tree"), str(chain / "0.trans_mdl"), str(lm), *made]) == 0
    found = [(fst.num_states, fst.num_arcs) for fst in map(Fst.read, made)]
    assert found == [(fst.num_states, fst.num_arcs) for fst in (Fst.read(chain / Path(path).name) for path in made)]


def test_a_tree_of_another_model_is_refused(golden: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other, out = golden / "an4_kaldi/mono/tree", tmp_path / "den.fst"
    chain = golden / "chain"
    assert main(["chain-make-den-fst", str(other), str(chain / "0.trans_mdl"), str(chain / "phone_lm.fst"), str(out), str(out)]) == 1
    assert "0.trans_mdl 112; take the tree that the model was made with." in capsys.readouterr().err
    assert not out.exists()


def test_a_phone_language_model_without_a_final_state_is_refused(golden: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chain, lm, out = golden / "chain", Fst.read(golden / "chain/phone_lm.fst"), tmp_path / "den.fst"
    lm.final[:] = float("inf")
    lm.write(tmp_path / "endless.fst")
    assert main(["chain-make-den-fst", *(str(chain / name) for name in ("tree", "0.trans_mdl")), str(tmp_path / "endless.fst"), str(out),
                 str(out)]) == 1
    assert f"{tmp_path}/endless.fst: the denominator graph is empty: no phone sequence" in capsys.readouterr().err
    assert not out.exists()


def test_the_topology_of_lists_of_phones_is_kaldis(golden: Path, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    phones = golden / "an4_kaldi/lang/phones"
    lists = [(phones / f"{name}.csl").read_text().strip() for name in ("nonsilence", "silence")]
    found = subprocess.run([root / "steps/nnet3/chain/gen_topo.py", *lists], cwd=root, capture_output=True, text=True, check=True).stdout
    assert found.split() == (golden / "chain/topo").read_text().split()


@pytest.mark.parametrize(("lists", "words"), [(("4:x", "1"), "'x' is no phone number"), (("4:5", "5"), "phone 5 is given twice")])
def test_lists_that_are_no_phones_are_refused(lists: tuple[str, str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chain-topology", *lists]) == 1
    assert words in capsys.readouterr().err
