"""Training graphs hold exactly the ways in which a transcript can be spoken, at the right costs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pykaldist.errors import UserError
from pykaldist.hmm.alignments.graphs import GraphCompiler, Lexicon, PhoneGraph, TrainingGraph
from pykaldist.hmm.gmm.model_files import read_tree
from pykaldist.hmm.lang.topology import read_topology
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.hmm.tree.tree import Constant, ContextDependency, monophone_tree, root_map
from pykaldist.io.lang import LangDir

from ..conftest import LEXICON, random_tree


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


def pdf_sequences(graph: TrainingGraph, model: TransitionModel) -> list[tuple[tuple[int, ...], float]]:
    """Of every path without self-loops and without skips of silence's inner states: its pdfs, and its cost; sorted."""
    found, stack = [], [((), int(state), float(cost)) for state, cost in zip(graph.start_states, graph.start_costs, strict=True)]
    while stack:
        pdfs, state, cost = stack.pop()
        if state == graph.num_states:
            found.append((pdfs, round(cost, 3)))
            continue
        for arc in range(graph.offsets[state], graph.offsets[state + 1]):
            tid = graph.tid[arc]
            if model.tid_is_final[tid] or model.tid2destination[tid] == model.tid2hmm_state[tid] + 1:
                stack.append(((*pdfs, int(model.tid2pdf[tid])), int(graph.destination[arc]), cost + float(graph.cost[arc])))
    return sorted(found)


@pytest.mark.parametrize(("width", "central"), [(2, 1), (3, 1), (2, 0), (4, 2), (5, 1)])
@pytest.mark.parametrize("transcript", [["a"], ["ba", "cab"], ["a", "ba", "a"]])
def test_every_phone_has_the_pdfs_of_its_context(toy_lang: LangDir, width: int, central: int, transcript: list[str]) -> None:
    """Against the plain way: all phone sequences, each phone's window, the tree's answer; across words, 0 beyond the edges."""
    topology = read_topology(toy_lang.path / "topo")
    tree = random_tree(toy_lang, width, central)
    model = TransitionModel.from_tree(tree, topology)
    graph = GraphCompiler(toy_lang, tree, model).compile(toy_lang.word_ids(transcript)[0])
    expected = []
    for phones, cost in spoken(toy_lang, transcript):
        padded = (0,) * central + phones + (0,) * (width - 1 - central)
        pdfs = tuple(tree.compute(padded[i:i + width], state.forward_pdf_class) for i, phone in enumerate(phones)
                     for state in topology.entry(phone)[:-1])
        expected.append((pdfs, round(cost, 3)))
    assert set(pdf_sequences(graph, model)) == set(expected)


def test_contexts_that_do_not_matter_make_no_states(toy_lang: LangDir) -> None:
    """A triphone tree that asks for no neighbours has the pdfs of a monophone tree; only what may follow still parts its nodes."""
    topology, words = read_topology(toy_lang.path / "topo"), toy_lang.word_ids(["ba", "cab"] * 10)[0]
    mono = monophone_tree(toy_lang.phone_sets, topology.num_pdf_classes)
    deaf = ContextDependency(2, 1, root_map(toy_lang.phone_sets, 1, [False] * len(toy_lang.phone_sets), topology.num_pdf_classes,
                                            (Constant(n) for n in range(mono.num_pdfs))))
    one, two = (GraphCompiler(toy_lang, tree, TransitionModel.from_tree(tree, topology)).compile(words) for tree in (mono, deaf))
    assert one.num_states == two.num_states and np.array_equal(one.tid, two.tid)


def test_errors(toy_lang: LangDir, golden: Path) -> None:
    with pytest.raises(UserError, match="no pronunciation of word 99"):
        compiler(toy_lang).compile([99])
    tree = read_tree(golden / "an4_kaldi/tri1/tree")
    with pytest.raises(UserError, match="in the tree but not in the transition model; they do not belong together"):
        GraphCompiler(toy_lang, tree, compiler(toy_lang).transition_model).compile(toy_lang.word_ids(["a"])[0])
