from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from pykaldist.decode import search_graph
from pykaldist.decode.decoder import DecoderOptions, LatticeDecoder
from pykaldist.decode.hclg import GraphOptions, make_graph
from pykaldist.decode.search_graph import SearchGraph, read_search_graph
from pykaldist.errors import UserError
from pykaldist.hmm.gmm.model_files import read_transition_model
from pykaldist.io.fst import Fst
from pykaldist.io.tables import read_archive


@pytest.fixture(scope="module")
def graph_dir(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graph")
    make_graph(golden / "an4_kaldi/lang", golden / "an4_kaldi/tri3_ali", folder, GraphOptions())
    return folder


@pytest.fixture(scope="module")
def tid2pdf(golden: Path) -> np.ndarray:
    return read_transition_model(golden / "an4_kaldi/tri3_ali/final.mdl").tid2pdf


def is_mapped(graph: SearchGraph) -> bool:
    return not graph.arcs.flags.owndata


def test_the_mapped_graph_gives_the_same_lattices(graph_dir: Path, tid2pdf: np.ndarray, golden: Path) -> None:
    mapped, made = read_search_graph(graph_dir, tid2pdf), SearchGraph.of(Fst.read(graph_dir / "HCLG.fst"), tid2pdf)
    assert is_mapped(mapped) and not is_mapped(made)
    before = (graph_dir / search_graph.FILE).read_bytes()
    for name in ("start", "num_pdfs", "states", "arcs", "ilabel", "olabel"):
        np.testing.assert_array_equal(getattr(mapped, name), getattr(made, name))
    decoders = [LatticeDecoder(graph, tid2pdf, DecoderOptions(acwt=0.1)) for graph in (mapped, made)]
    for (_, loglikes), _ in zip(read_archive(golden / "an4_kaldi/dnn/loglikes.ark"), range(3), strict=False):
        one, other = (decoder.decode(loglikes) for decoder in decoders)
        assert one is not None and other is not None
        for name in ("offset", "word", "graph", "acoustic", "target", "final", "transition_ids"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert (graph_dir / search_graph.FILE).read_bytes() == before


def test_epsilons_come_first_and_all_else_keeps_its_order(tid2pdf: np.ndarray) -> None:
    fst = Fst.from_arcs(0, np.array([np.inf, 1.0]), np.zeros(5, int), np.array([3, 0, 2, 0, 1]), np.arange(1, 6), np.arange(5.0),
                        np.ones(5, int))
    graph = SearchGraph.of(fst, tid2pdf)
    assert graph.olabel.tolist() == [2, 4, 1, 3, 5] and graph.ilabel.tolist() == [0, 0, 3, 2, 1]
    assert graph.arcs["pdf"].tolist() == [-1, -1, *tid2pdf[[3, 2, 1]]] and graph.num_pdfs == max(tid2pdf[1:4]) + 1
    assert graph.states[["begin", "emit", "end"]].tolist() == [(0, 2, 5), (5, 5, 5)]


def test_a_file_for_another_model_or_an_older_graph_is_passed_over(graph_dir: Path, tid2pdf: np.ndarray) -> None:
    others = tid2pdf.copy()
    others[1:] = tid2pdf[1:][::-1]
    graph = read_search_graph(graph_dir, others)
    assert not is_mapped(graph) and graph.arcs["pdf"].max() == others[graph.ilabel].max()
    path, stat = graph_dir / "HCLG.fst", (graph_dir / search_graph.FILE).stat()
    kept = path.stat()
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    assert not is_mapped(read_search_graph(graph_dir, tid2pdf))
    os.utime(path, ns=(kept.st_atime_ns, kept.st_mtime_ns))
    assert is_mapped(read_search_graph(graph_dir, tid2pdf))


def test_a_damaged_file_is_named(graph_dir: Path, tid2pdf: np.ndarray, tmp_path: Path) -> None:
    content = (graph_dir / search_graph.FILE).read_bytes()
    for damaged, what in ((content[:-100], "truncated or damaged"), (b"other" + content, "no graph for the search"), (b"", "no graph")):
        (tmp_path / "file").write_bytes(damaged)
        with pytest.raises(UserError, match=what):
            SearchGraph.map(tmp_path / "file", tid2pdf)
