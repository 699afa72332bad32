"""Packing of Kaldi's own lattices and alignments by the verb: what is in the store, and what is left out."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import numpy as np
import pytest

from pykaldist.cli import main
from pykaldist.decode.lattice import read_lattices
from pykaldist.decode.lattice_arrays import as_arrays
from pykaldist.frames.lattice_store import LatticeStore
from pykaldist.io.tables import write_int_vectors


@pytest.fixture
def folder(tmp_path: Path, golden: Path) -> Path:
    """`lang`, `ali` and `denlats` of eight utterances; of two, one has no alignment and one an alignment that is too short."""
    for name in ("lang/phones", "ali", "denlats"):
        (tmp_path / name).mkdir(parents=True)
    shutil.copy(golden / "seq/silence.csl", tmp_path / "lang/phones/silence.csl")
    shutil.copy(golden / "seq/lat.gz", tmp_path / "denlats/lat.1.gz")
    (tmp_path / "ali/final.mdl").write_bytes(gzip.decompress((golden / "seq/trans.mdl.txt.gz").read_bytes()))
    lines = [line.split() for line in (golden / "seq/ref_ali.txt").read_text().splitlines()]
    labels = {utt: np.array(ids, np.int32) for utt, *ids in lines[1:]}
    labels["mjwl-cen6-mjwl-b"] = labels["mjwl-cen6-mjwl-b"][:-1]
    labels["nobody"] = labels["mjwl-cen6-mjwl-b"]
    write_int_vectors(tmp_path / "ali/ali.1.gz", labels.items())
    return tmp_path


def pack(folder: Path, *options: str) -> int:
    return main(["pack-lattices", *options, *(str(folder / name) for name in ("lang", "ali", "denlats", "store"))])


def test_a_store_of_kaldis_lattices(folder: Path, golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pack(folder, "--unkphonelist", "12:3") == 0
    assert "6 lattices, " in capsys.readouterr().out
    store = LatticeStore(folder / "store")
    store.verify()
    assert store.manifest.silence_phones == [*range(1, 11), 12]
    assert store.manifest.skipped == {"fcaw-an406-fcaw-b": "no alignment", "nobody": "no lattice",
                                      "mjwl-cen6-mjwl-b": "188 frames of the lattice, 187 of the alignment"}
    assert store.manifest.without_reference == {"frames": 0, "utterances": 0}
    expected = {utt: as_arrays(lattice) for utt, lattice in read_lattices(golden / "seq/lat.gz")}
    for utt, number in store.number.items():
        lattices, reference = store.lattices([number])
        assert len(reference) == lattices.frames[-1] == expected[utt].frames[-1]
        np.testing.assert_array_equal(lattices.graph, expected[utt].graph)
        np.testing.assert_array_equal(lattices.transition_id, expected[utt].transition_id)


@pytest.mark.usefixtures("all_plain_lines")
def test_it_says_how_far_it_is(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pack(folder) == 0
    assert "packing store: 8/8 (100 %) utt" in capsys.readouterr().err


def test_frames_without_their_reference_are_counted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """MMI leaves them out; two frames of one utterance are given a transition-id of a pdf that is not in its lattice there."""
    assert pack(folder) == 0
    store = LatticeStore(folder / "store")
    before, labels = dict(store.manifest.without_reference), {}
    for utt, number in store.number.items():
        lattices, labels[utt] = store.lattices([number])
    pdfs = {int(frame): set(store.tid2pdf[lattices.transition_id[lattices.frame == frame]]) for frame in (3, 4)}
    assert all(store.tid2pdf[labels[utt][frame]] in there for frame, there in pdfs.items())  # of the last utterance
    for frame, there in pdfs.items():
        labels[utt][frame] = next(i for i in range(1, len(store.tid2pdf)) if store.tid2pdf[i] not in there)
    write_int_vectors(folder / "ali/ali.1.gz", labels.items())
    capsys.readouterr()
    assert pack(folder) == 0
    found = LatticeStore(folder / "store").manifest.without_reference
    assert found["frames"] == before["frames"] + 2
    assert f"{found['frames']} frames of {found['utterances']} utterances without a path" in capsys.readouterr().out


def test_what_cannot_be_packed_is_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pack(folder, "--unkphonelist", "SPN") == 1
    assert "--unkphonelist: expected numbers of phones" in capsys.readouterr().err
    write_int_vectors(folder / "ali/ali.1.gz", [("nobody", np.ones(3, np.int32))])
    assert pack(folder) == 1
    assert "no utterance has a lattice and a reference alignment: no alignment" in capsys.readouterr().err
    assert not (folder / "store/manifest.json").exists()
