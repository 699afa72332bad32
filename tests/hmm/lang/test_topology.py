"""Topologies: Kaldi's text, and the ones that no HMM can have."""

from __future__ import annotations

from pathlib import Path

import pytest

from pykaldist.errors import UserError
from pykaldist.hmm.lang.topology import HmmState, Topology, bakis_topology_text, read_topology

END = HmmState(-1, -1, ())


def test_bakis_text_is_kaldis(golden: Path) -> None:
    assert bakis_topology_text(range(11, 143), range(1, 11)) == (golden / "an4_kaldi/lang/topo").read_text()


@pytest.mark.parametrize(("states", "silence_states", "shortest"), [(3, 5, 3), (1, 1, 1), (4, 2, 2), (3, 3, 3)])
def test_shortest_paths(tmp_path: Path, states: int, silence_states: int, shortest: int) -> None:
    (tmp_path / "topo").write_text(bakis_topology_text([2, 3], [1], states, silence_states))
    topology = read_topology(tmp_path / "topo")
    assert topology.phones == [1, 2, 3] and topology.is_hmm
    assert (topology.num_pdf_classes(1), topology.num_pdf_classes(2)) == (silence_states, states)
    assert (topology.min_length(1), topology.min_length(2)) == (shortest, states)
    for entry in topology.entries:
        assert all(sum(p for _, p in state.transitions) == pytest.approx(1) for state in entry[:-1])


@pytest.mark.parametrize(("entry", "message"), [
    ((END,), "at least one emitting state"),
    ((HmmState(0, 0, ((0, 0.5), (1, 0.5))), HmmState(1, 1, ((1, 1.0),))), "the last state, and no other"),
    ((END, END), "the last state, and no other"),
    ((HmmState(0, 0, ((0, 0.5), (5, 0.5))), END), "expected different states below 2"),
    ((HmmState(0, 0, ((1, 0.5), (1, 0.5))), END), "expected different states"),
    ((HmmState(0, 0, ((0, 1.5), (1, 0.5))), END), "not in"),
])
def test_impossible_topologies(entry: tuple[HmmState, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Topology([entry], {1: 0})


@pytest.mark.parametrize(("text", "message"), [
    ("<Topology> <TopologyEntry> <ForPhones> 1 1 </ForPhones>", "phone 1 is in two"),
    ("<Topology> <TopologyEntry> <ForPhones> 1 </ForPhones> <State> 1", "expected state 0"),
    ("<Topology> <TopologyEntry> <ForPhones> 1 </ForPhones> <State> 0 <Pdf> 0", "expected <PdfClass>"),
    ("<Topo>", "expected <Topology>"),
])
def test_text_with_errors(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "topo").write_text(text)
    with pytest.raises(UserError, match=message):
        read_topology(tmp_path / "topo")


def test_unknown_phone() -> None:
    with pytest.raises(UserError, match="phone 7 has no topology"):
        Topology([(HmmState(0, 0, ((1, 1.0),)), END)], {1: 0}).entry(7)
