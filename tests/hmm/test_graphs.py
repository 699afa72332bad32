"""Training graphs hold exactly the ways in which a transcript can be spoken, at the right costs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pykaldist.errors import UserError
from pykaldist.hmm.graphs import GraphCompiler, Lexicon, PhoneGraph
from pykaldist.hmm.model_files import read_tree
from pykaldist.hmm.topology import read_topology
from pykaldist.hmm.transition_model import TransitionModel
from pykaldist.hmm.tree import monophone_tree
from pykaldist.io.lang import LangDir

from .conftest import LEXICON


def paths(graph: PhoneGraph) -> Iterator[tuple[tuple[int, ...], float]]:
    """All phone sequences with their costs."""
    stack = [((), node, cost) for node, cost in graph.start]
    while stack:
        phones, node, cost = stack.pop()
        if node < 0:
            yield phones, cost
        else:
            stack += [((*phones, graph.phones[node]), to, cost + more) for to, more in graph.following[node]]


def spoken(lang: LangDir, transcript: list[str]) -> Iterator[tuple[tuple[int, ...], float]]:
    """The same from the lexicon's text: each variant of each word, silence or none before, between and behind (p = 1/2)."""
    entries = [line.split() for line in LEXICON.splitlines()]
    variants = [[e[1:] for e in entries if e[0] == word] for word in transcript]
    for choice in itertools.product(*variants):
        words = [[f"{p[0]}_S"] if len(p) == 1 else [f"{p[0]}_B", *(f"{x}_I" for x in p[1:-1]), f"{p[-1]}_E"] for p in choice]
        for silences in itertools.product((False, True), repeat=len(words) + 1):
            phones = ["SIL"] * silences[0]
            for word, silence in zip(words, silences[1:], strict=True):
                phones += word + ["SIL"] * silence
            yield tuple(lang.phones[p] for p in phones), len(silences) * math.log(2)


def compiler(lang: LangDir) -> GraphCompiler:
    topology = read_topology(lang.path / "topo")
    tree = monophone_tree(lang.phone_sets, topology.num_pdf_classes)
    return GraphCompiler(lang, tree, TransitionModel.from_tree(tree, topology))


@pytest.mark.parametrize("transcript", [["a"], ["ba"], ["a", "a"], ["ba", "cab", "ba"]])
def test_phone_sequences_and_costs(toy_lang: LangDir, transcript: list[str]) -> None:
    found = sorted(paths(Lexicon(toy_lang.path / "L.fst").phone_graph(toy_lang.word_ids(transcript)[0])))
    expected = sorted(spoken(toy_lang, transcript))
    assert [phones for phones, _ in found] == [phones for phones, _ in expected]
    np.testing.assert_allclose([cost for _, cost in found], [cost for _, cost in expected], atol=1e-5)


def test_hmm_states_of_a_graph(toy_lang: LangDir) -> None:
    """Every path of arcs is a path of transition-ids that the topology allows, and the shortest has `min_frames`."""
    made = compiler(toy_lang)
    graph, model = made.compile(toy_lang.word_ids(["ab", "ba"])[0]), made.transition_model
    assert graph.num_states == len(graph.offsets) - 1 and graph.offsets[-1] == len(graph.tid)
    np.testing.assert_array_equal(graph.pdfs[graph.column], model.tid2pdf[graph.tid])
    np.testing.assert_array_equal(graph.source, np.repeat(np.arange(graph.num_states), np.diff(graph.offsets)))
    for state in range(graph.num_states):
        arcs = range(graph.offsets[state], graph.offsets[state + 1])
        assert len({(model.tid2phone[graph.tid[a]], model.tid2hmm_state[graph.tid[a]]) for a in arcs}) == 1
        for arc in arcs:
            tid, to = graph.tid[arc], graph.destination[arc]
            assert (to == state) == model.tid_is_self_loop[tid]
            if to == graph.num_states:
                assert model.tid_is_final[tid]
            else:
                entered = graph.tid[graph.offsets[to]]
                assert model.tid2hmm_state[entered] == (0 if model.tid_is_final[tid] else model.tid2destination[tid])
    frames = np.full(graph.num_states + 1, np.inf)
    frames[graph.start_states] = 0
    for _ in range(graph.num_states):
        np.minimum.at(frames, graph.destination, frames[graph.source] + 1)
    assert frames[-1] == graph.min_frames == 12


def test_long_transcripts_stay_linear(toy_lang: LangDir) -> None:
    """Optional silences double the paths with every word, but not the graph or the time to make it."""
    made = compiler(toy_lang)
    short, long = (made.compile(toy_lang.word_ids(["ba"] * n)[0]) for n in (20, 200))
    assert long.num_states < 11 * short.num_states and long.min_frames == 10 * short.min_frames


def test_errors(toy_lang: LangDir, golden: Path) -> None:
    with pytest.raises(UserError, match="no pronunciation of word 99"):
        compiler(toy_lang).compile([99])
    tree = read_tree(golden / "an4_kaldi/tri1/tree")
    with pytest.raises(UserError, match="context of 3 phones"):
        GraphCompiler(toy_lang, tree, compiler(toy_lang).transition_model)
