"""The reference of an utterance as a path of its lattice: its costs are Kaldi's, and every other path stays as it was."""

from __future__ import annotations

import shutil
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykaldist.decode.lattice import read_lattices
from pykaldist.decode.paths import LatticePath, nbest
from pykaldist.decode.reference_path import ReferencePaths, with_path
from pykaldist.frames.lattice_store import LatticeStore
from pykaldist.io.fst import Fst
from pykaldist.io.lang import SymbolTable
from pykaldist.io.tables import write_int_vectors

from .test_denlats import folder, pack
from .test_lattice import enumerate_paths, random_lattice

__all__ = ["folder"]  # a fixture


@pytest.fixture(scope="module")
def references(golden: Path) -> ReferencePaths:
    return ReferencePaths(Fst.read(golden / "an4_kaldi/graph_tri3/HCLG.fst"), {})


def test_words_and_graph_costs_of_kaldis_own_paths(references: ReferencePaths, golden: Path) -> None:
    """Kaldi's decoder has made these lattices by this graph; the alignments of five paths of each are found again, with their costs."""
    for _, lattice in read_lattices(golden / "seq/lat.gz"):
        for path in islice(nbest(lattice, 5, 0.1), 5):
            found = references.path(path.transition_ids, path.words)
            assert found is not None and found.graph == pytest.approx(path.graph, abs=2e-3)
            assert references.path(path.transition_ids, path.words[1:]) is None
    assert references.path(np.array([1, 1, 1]), []) is None  # a phone that ends in the midst


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1), words=st.lists(st.integers(1, 9), max_size=4))
def test_every_other_path_stays(seed: int, words: list[int]) -> None:
    lattice = random_lattice(seed)
    one = LatticePath(words, np.arange(1, lattice.num_frames + 1, dtype=np.int32), 2.5, 0.25)
    expected = [*enumerate_paths(lattice), (tuple(words), 2.5, 0.25, tuple(one.transition_ids.tolist()))]
    assert sorted(enumerate_paths(with_path(lattice, one))) == sorted(expected)
    assert sorted(enumerate_paths(with_path(with_path(lattice, one), one))) == sorted([*expected, expected[-1]])


def test_a_store_has_references_that_lattices_lack(folder: Path, golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Three utterances are given a wrong last word, which their lattices have not, a fourth an alignment that is none, a fifth no words."""
    labels = {utt: np.array(ids, np.int32) for utt, *ids in map(str.split, (golden / "seq/wrong_ali.txt").read_text().splitlines())}
    write_int_vectors(folder / "ali/ali.1.gz", labels.items())
    assert pack(folder) == 0
    assert LatticeStore(folder / "store").manifest.without_reference == {"frames": 136, "utterances": 3}
    for name in ("words.txt", "oov.txt"):
        shutil.copy(golden / "an4_kaldi/lang" / name, folder / "lang")
    text = dict(line.split(maxsplit=1) for name in ("text", "wrong_text") for line in (golden / f"seq/{name}").read_text().splitlines())
    wrong, lattices = set(labels), dict(read_lattices(golden / "seq/lat.gz"))
    text["menk-an425-menk-b"] = "NINE NINE"
    del text["fjlp-cen4-fjlp-b"]
    (folder / "data").mkdir()
    (folder / "data/text").write_text("".join(f"{utt} {words}\n" for utt, words in sorted(text.items())))
    labels |= {utt: np.ones(lattices[utt].num_frames, np.int32) for utt in ("menk-an425-menk-b", "fjlp-cen4-fjlp-b")}
    write_int_vectors(folder / "ali/ali.1.gz", labels.items())
    graph = golden / "an4_kaldi/graph_tri3/HCLG.fst"
    capsys.readouterr()
    assert pack(folder, "--reference-data", str(folder / "data"), "--reference-graph", str(graph)) == 0
    assert "references: 3 added, 1 not in the graph, 1 without a transcript" in capsys.readouterr().out
    store, words = LatticeStore(folder / "store"), SymbolTable.read(folder / "lang/words.txt")
    assert store.manifest.references == {"added": 3, "not in the graph": 1, "without a transcript": 1}
    for utt in wrong:
        arrays, reference = store.lattices([store.number[utt]])
        whole = np.flatnonzero(np.diff(arrays.string) == len(reference))  # arcs that take all frames
        paths = [arrays.transition_id[arrays.entry[arrays.string[arc] : arrays.string[arc + 1]]].tolist() for arc in whole]
        assert arrays.word is not None and arrays.word[whole[paths.index(labels[utt].tolist())]] == words[text[utt].split()[0]]
