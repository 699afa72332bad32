"""Kaldi's model and tree files: read and written back byte for byte; damage ends in a sentence."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykaldist.errors import UserError
from pykaldist.hmm.gmm.gmm import AmDiagGmm
from pykaldist.hmm.gmm.model_files import read_model, read_transition_model, read_tree, write_model, write_tree
from pykaldist.hmm.lang.topology import HmmState, Topology, read_topology
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.hmm.tree.tree import ContextDependency, monophone_tree
from pykaldist.io.kaldi import KaldiReader
from pykaldist.io.lang import LangDir


@pytest.mark.parametrize("system", ["mono", "tri1", "tri3_ali"])
def test_golden_files_byte_for_byte(golden: Path, tmp_path: Path, system: str) -> None:
    source = golden / "an4_kaldi" / system
    write_model(tmp_path / "final.mdl", *read_model(source / "final.mdl"))
    write_tree(tmp_path / "tree", read_tree(source / "tree"))
    for name in ("final.mdl", "tree"):
        assert (tmp_path / name).read_bytes() == (source / name).read_bytes()


@pytest.mark.parametrize("system", ["mono", "tri1"])
def test_golden_tree_as_text(golden: Path, tmp_path: Path, system: str) -> None:
    source = golden / "an4_kaldi" / system
    tree = read_tree(source / "tree")
    write_tree(tmp_path / "tree", tree, binary=False)
    assert (tmp_path / "tree").read_bytes() == (source / "tree.txt").read_bytes()
    assert read_tree(source / "tree.txt") == tree


def test_golden_model_as_text(golden: Path, tmp_path: Path) -> None:
    source = golden / "an4_kaldi/mono"
    transition_model, gmm = read_model(source / "final.mdl")
    write_model(tmp_path / "final.mdl", transition_model, gmm, binary=False)
    assert (tmp_path / "final.mdl").read_bytes() == gzip.decompress((source / "final.mdl.txt.gz").read_bytes())
    from_text = read_model(source / "final.mdl.txt.gz")[1]
    np.testing.assert_allclose(from_text.means_invvars, gmm.means_invvars, rtol=1e-6)


def test_golden_topology_as_text(golden: Path) -> None:
    lang = golden / "an4_kaldi/lang/topo"
    assert read_topology(lang).entries == read_transition_model(golden / "an4_kaldi/mono/final.mdl").topology.entries


def test_self_loop_pdfs_of_their_own(tmp_path: Path) -> None:
    """The chain topology: one frame in pdf 0, then self-loops in pdf 1 (`<Tuples>` in files)."""
    topology = Topology([(HmmState(0, 1, ((0, 0.5), (1, 0.5))), HmmState(-1, -1, ()))], {1: 0, 2: 0})
    tree = monophone_tree([[1], [2]], topology.num_pdf_classes)
    model = TransitionModel.from_tree(tree, topology)
    assert model.tid2pdf.tolist() == [0, 1, 0, 3, 2]
    for binary in (True, False):
        write_model(tmp_path / "mdl", model, binary=binary)
        again = read_transition_model(tmp_path / "mdl")
        assert again.tuples.tolist() == [[1, 0, 0, 1], [2, 0, 2, 3]] and again.topology.entries == topology.entries
        np.testing.assert_allclose(again.log_probs, model.log_probs, rtol=1e-6)


def toy_model(lang: LangDir) -> tuple[ContextDependency, TransitionModel, AmDiagGmm]:
    topology = read_topology(lang.path / "topo")
    tree = monophone_tree(lang.phone_sets, topology.num_pdf_classes)
    model = TransitionModel.from_tree(tree, topology)
    return tree, model, AmDiagGmm.flat_start(model.num_pdfs, np.zeros(2), np.ones(2))


def test_every_truncation_is_refused(toy_lang: LangDir, tmp_path: Path) -> None:
    tree, model, gmm = toy_model(toy_lang)
    write_model(tmp_path / "mdl", model, gmm)
    write_tree(tmp_path / "tree", tree)
    for name, read in (("mdl", lambda r: (TransitionModel.read(r), AmDiagGmm.read(r))), ("tree", ContextDependency.read)):
        data = (tmp_path / name).read_bytes()
        for length in range(2, len(data) - 1, 7):
            with pytest.raises(UserError, match=f"{name}, byte"):
                read(KaldiReader(data[:length], name))


@settings(max_examples=200)
@given(st.data())
def test_damage_never_ends_in_a_traceback(toy_lang: LangDir, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.mdl"
    _, model, gmm = toy_model(toy_lang)
    write_model(path, model, gmm)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(2, len(content) - 1))] = data.draw(st.integers(0, 255))
    reader = KaldiReader(bytes(content), "damaged")
    try:
        TransitionModel.read(reader)
        AmDiagGmm.read(reader)
    except UserError as error:
        assert "damaged" in str(error)  # either outcome is right, a traceback is not


def test_halves_that_do_not_belong_together(toy_lang: LangDir, tmp_path: Path) -> None:
    _, model, _ = toy_model(toy_lang)
    write_model(tmp_path / "mdl", model, AmDiagGmm.flat_start(3, np.zeros(2), np.ones(2)))
    with pytest.raises(UserError, match="pdfs, the mixtures 3"):
        read_model(tmp_path / "mdl")
