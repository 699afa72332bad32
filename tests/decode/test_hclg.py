from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from pykaldist.decode.decoder import DecoderOptions, LatticeDecoder
from pykaldist.decode.hclg import GraphOptions, make_graph
from pykaldist.decode.paths import best_path
from pykaldist.errors import UserError
from pykaldist.hmm.gmm.model_files import read_transition_model, read_tree
from pykaldist.hmm.tree.h_transducer import h_transducer
from pykaldist.io.fst import Fst
from pykaldist.io.tables import read_archive


@pytest.fixture(scope="module")
def an4(golden: Path) -> Path:
    return golden / "an4_kaldi"


def renumbered(fst: Fst) -> Fst:
    """The same graph with its states numbered in the order in which a breadth-first search along the arcs meets them."""
    number = {fst.start: 0}
    queue = [fst.start]
    for s in queue:
        for to in fst.nextstate[fst.offset[s] : fst.offset[s + 1]].tolist():
            if to not in number:
                number[to] = len(number)
                queue.append(to)
    assert len(queue) == fst.num_states
    new = np.array([number[s] for s in range(fst.num_states)])
    return Fst.from_arcs(0, fst.final[queue], new[fst.source], fst.ilabel, fst.olabel, fst.weight, new[fst.nextstate])


@pytest.mark.parametrize(("model", "graph"), [("mono", "graph_mono"), ("tri1", "graph_tri1"), ("tri3_ali", "graph_tri3")])
def test_our_graph_is_kaldis_arc_by_arc(an4: Path, tmp_path: Path, model: str, graph: str) -> None:
    ours = renumbered(make_graph(an4 / "lang", an4 / model, tmp_path, GraphOptions()))
    golden = renumbered(Fst.read(an4 / graph / "HCLG.fst"))
    assert (ours.num_states, ours.num_arcs) == (golden.num_states, golden.num_arcs)
    for name in ("offset", "ilabel", "olabel", "nextstate"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(golden, name))
    np.testing.assert_allclose(ours.weight, golden.weight, rtol=0, atol=1e-6)
    np.testing.assert_allclose(ours.final, golden.final, rtol=0, atol=1e-6)


def test_the_graph_directory_is_kaldis(an4: Path, tmp_path: Path) -> None:
    make_graph(an4 / "lang", an4 / "mono", tmp_path, GraphOptions())
    for name in ("words.txt", "phones.txt", "phones/silence.csl", "phones/disambig.int"):
        assert (tmp_path / name).read_bytes() == (an4 / "lang" / name).read_bytes()
    model = read_transition_model(an4 / "mono/final.mdl")
    assert (tmp_path / "num_pdfs").read_text() == f"{model.num_pdfs}\n"
    assert int((tmp_path / "disambig_tid.int").read_text().split()[0]) == model.num_transition_ids + 1


def test_what_it_is_made_of_stays_where_recipes_wait_for_it(an4: Path, tmp_path: Path) -> None:
    shutil.copytree(an4 / "lang", tmp_path / "lang")
    make_graph(tmp_path / "lang", an4 / "mono", tmp_path / "graph", GraphOptions())
    assert not (tmp_path / "lang/tmp").exists()
    make_graph(tmp_path / "lang", an4 / "mono", tmp_path / "graph", GraphOptions(), keep=True)
    lg, clg = Fst.read(tmp_path / "lang/tmp/LG.fst"), Fst.read(tmp_path / "lang/tmp/CLG_1_0.fst")
    assert lg.num_states > 1 and clg.num_states > 1 and set(np.unique(clg.olabel)) == set(np.unique(lg.olabel))


def test_decoding_on_our_graph_equals_decoding_on_kaldis(an4: Path, tmp_path: Path) -> None:
    graphs = make_graph(an4 / "lang", an4 / "tri3_ali", tmp_path, GraphOptions()), Fst.read(an4 / "graph_tri3/HCLG.fst")
    tid2pdf = read_transition_model(an4 / "tri3_ali/final.mdl").tid2pdf
    decoders = [LatticeDecoder(graph, tid2pdf, DecoderOptions(acwt=0.1)) for graph in graphs]
    for _, matrix in read_archive(an4 / "dnn/loglikes.ark"):
        ours, golden = (best_path(decoder.decode(matrix), 0.1) for decoder in decoders)
        assert ours.words == golden.words and np.array_equal(ours.transition_ids, golden.transition_ids)
        assert ours.graph == pytest.approx(golden.graph, abs=1e-6)


def test_scales_of_transitions_reach_the_graph(an4: Path, tmp_path: Path) -> None:
    model = read_transition_model(an4 / "mono/final.mdl")
    loops = {scale: make_graph(an4 / "lang", an4 / "mono", tmp_path, GraphOptions(self_loop_scale=scale)) for scale in (0.0, 1.0)}
    for scale, graph in loops.items():
        loop = np.flatnonzero(graph.source == graph.nextstate)
        np.testing.assert_allclose(graph.weight[loop], -scale * model.log_probs[graph.ilabel[loop]], atol=1e-6)
        assert model.tid_is_self_loop[graph.ilabel[loop]].all()
    h = {scale: h_transducer([[], [0], [11]], read_tree(an4 / "mono/tree"), model, scale)[0] for scale in (1.0, 0.5)}
    np.testing.assert_allclose(h[0.5].weight, 0.5 * h[1.0].weight, atol=1e-6)


def test_windows_of_one_hmm_share_its_states(an4: Path) -> None:
    tree, model = read_tree(an4 / "mono/tree"), read_transition_model(an4 / "mono/final.mdl")
    for phone in (1, 11):  # silence, which can be entered at several states, and another phone
        one, two = (h_transducer([[]] + [[phone]] * count, tree, model)[0] for count in (1, 2))
        assert (two.num_states, two.num_arcs) == (one.num_states, one.num_arcs + 1)
        assert sorted(two.olabel[two.olabel > 0]) == [1, 2]


def test_what_is_missing_is_named(an4: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"tree does not exist"):
        make_graph(an4 / "lang", tmp_path, tmp_path / "graph", GraphOptions())
    shutil.copyfile(an4 / "tri1/tree", tmp_path / "tree")
    shutil.copyfile(an4 / "mono/final.mdl", tmp_path / "final.mdl")
    with pytest.raises(UserError, match="which the tree asks for"):
        make_graph(an4 / "lang", tmp_path, tmp_path / "graph", GraphOptions())
    assert not (tmp_path / "graph").exists()


def test_a_lang_of_other_phones_is_refused(an4: Path, tmp_path: Path) -> None:
    """Disambiguation symbols may be others, as in Kaldi; so may all be where the model has no phones.txt."""
    model = tmp_path / "model"
    model.mkdir()
    for name in ("tree", "final.mdl"):
        shutil.copyfile(an4 / "mono" / name, model / name)
    phones = (an4 / "lang/phones.txt").read_text()
    (model / "phones.txt").write_text("".join(f"{line}\n" for line in phones.splitlines() if not line.startswith("#")) + "#other 999\n")
    make_graph(an4 / "lang", model, tmp_path / "graph", GraphOptions())
    (model / "phones.txt").write_text(phones.replace("SIL_B ", "HUSH_B "))
    with pytest.raises(UserError, match=r"model/phones\.txt and .*lang/phones\.txt disagree about HUSH_B, .* \d+ and none; use"):
        make_graph(an4 / "lang", model, tmp_path / "other", GraphOptions())
    assert not (tmp_path / "other").exists()
