from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from pykaldist.decode.decoder import DecoderOptions, LatticeDecoder
from pykaldist.decode.hclg import GraphOptions, h_transducer, make_graph
from pykaldist.decode.paths import best_path
from pykaldist.errors import UserError
from pykaldist.hmm.model_files import read_transition_model, read_tree
from pykaldist.io.fst import Fst
from pykaldist.io.tables import read_archive


@pytest.fixture(scope="module")
def an4(golden: Path) -> Path:
    return golden / "an4_kaldi"


def random_path(fst: Fst, rng: np.random.Generator) -> tuple[list[int], list[int], float]:
    """(transition-ids, words, cost) of a random walk from start to a final state."""
    s, cost, tids, words = fst.start, 0.0, [], []
    while True:
        arcs = np.arange(fst.offset[s], fst.offset[s + 1])
        if fst.final[s] < np.inf and (len(arcs) == 0 or rng.random() < 0.3):
            return tids, words, cost + float(fst.final[s])
        a = rng.choice(arcs)
        tids += [int(fst.ilabel[a])] * int(fst.ilabel[a] > 0)
        words += [int(fst.olabel[a])] * int(fst.olabel[a] > 0)
        cost += float(fst.weight[a])
        s = int(fst.nextstate[a])


def cost_of(fst: Fst, tids: list[int], words: list[int]) -> float:
    """The lowest cost at which the transducer takes `tids` to `words`."""
    best: dict[tuple[int, int, int], float] = {(fst.start, 0, 0): 0.0}
    queue = list(best)
    while queue:
        s, i, j = queue.pop()
        for a in range(fst.offset[s], fst.offset[s + 1]):
            takes, gives = fst.ilabel[a] > 0, fst.olabel[a] > 0
            if (takes and tids[i : i + 1] != [fst.ilabel[a]]) or (gives and words[j : j + 1] != [fst.olabel[a]]):
                continue
            key = (int(fst.nextstate[a]), i + int(takes), j + int(gives))
            cost = best[s, i, j] + float(fst.weight[a])
            if cost < best.get(key, np.inf) - 1e-6:
                best[key] = cost
                queue.append(key)
    return min((cost + float(fst.final[s]) for (s, i, j), cost in best.items() if (i, j) == (len(tids), len(words))), default=np.inf)


def rounding(words: list[int]) -> float:
    """By how much two graphs may differ on a path: minimisation, Kaldi's too, rounds weights to 1/1024, and each word has one."""
    return (len(words) + 1) / 1024 + 1e-4


@pytest.mark.parametrize(("model", "graph"), [("mono", "graph_mono"), ("tri1", "graph_tri1"), ("tri3_ali", "graph_tri3")])
def test_our_graph_is_kaldis(an4: Path, tmp_path: Path, model: str, graph: str) -> None:
    ours = make_graph(an4 / "lang", an4 / model, tmp_path, GraphOptions())
    golden = Fst.read(an4 / graph / "HCLG.fst")
    assert ours.num_states == pytest.approx(golden.num_states, rel=0.05)
    rng = np.random.default_rng(0)
    for one, other in ((ours, golden), (golden, ours)):
        for _ in range(40):
            tids, words, cost = random_path(one, rng)
            assert cost_of(one, tids, words) <= cost + 1e-4
            assert cost_of(other, tids, words) == pytest.approx(cost_of(one, tids, words), abs=rounding(words))


def test_the_graph_directory_is_kaldis(an4: Path, tmp_path: Path) -> None:
    make_graph(an4 / "lang", an4 / "mono", tmp_path, GraphOptions())
    for name in ("words.txt", "phones.txt", "phones/silence.csl", "phones/disambig.int"):
        assert (tmp_path / name).read_bytes() == (an4 / "lang" / name).read_bytes()
    model = read_transition_model(an4 / "mono/final.mdl")
    assert (tmp_path / "num_pdfs").read_text() == f"{model.num_pdfs}\n"
    assert int((tmp_path / "disambig_tid.int").read_text().split()[0]) == model.num_transition_ids + 1


def test_decoding_on_our_graph_equals_decoding_on_kaldis(an4: Path, tmp_path: Path) -> None:
    graphs = make_graph(an4 / "lang", an4 / "tri3_ali", tmp_path, GraphOptions()), Fst.read(an4 / "graph_tri3/HCLG.fst")
    tid2pdf = read_transition_model(an4 / "tri3_ali/final.mdl").tid2pdf
    decoders = [LatticeDecoder(graph, tid2pdf, DecoderOptions(acwt=0.1)) for graph in graphs]
    for _, matrix in read_archive(an4 / "dnn/loglikes.ark"):
        ours, golden = (best_path(decoder.decode(matrix), 0.1) for decoder in decoders)
        assert ours.words == golden.words and np.array_equal(ours.transition_ids, golden.transition_ids)
        assert ours.graph == pytest.approx(golden.graph, abs=rounding(ours.words))


def test_scales_of_transitions_reach_the_graph(an4: Path, tmp_path: Path) -> None:
    model = read_transition_model(an4 / "mono/final.mdl")
    loops = {scale: make_graph(an4 / "lang", an4 / "mono", tmp_path, GraphOptions(self_loop_scale=scale)) for scale in (0.0, 1.0)}
    for scale, graph in loops.items():
        loop = np.flatnonzero(graph.source == graph.nextstate)
        np.testing.assert_allclose(graph.weight[loop], -scale * model.log_probs[graph.ilabel[loop]], atol=1e-6)
        assert model.tid_is_self_loop[graph.ilabel[loop]].all()
    h = {scale: h_transducer([[], [0], [11]], read_tree(an4 / "mono/tree"), model, scale)[0] for scale in (1.0, 0.5)}
    np.testing.assert_allclose(h[0.5].weight, 0.5 * h[1.0].weight, atol=1e-6)


def test_what_is_missing_is_named(an4: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"tree does not exist"):
        make_graph(an4 / "lang", tmp_path, tmp_path / "graph", GraphOptions())
    shutil.copyfile(an4 / "tri1/tree", tmp_path / "tree")
    shutil.copyfile(an4 / "mono/final.mdl", tmp_path / "final.mdl")
    with pytest.raises(UserError, match="which the tree asks for"):
        make_graph(an4 / "lang", tmp_path, tmp_path / "graph", GraphOptions())
    assert not (tmp_path / "graph").exists()
