"""Transition-ids are numbered as Kaldi numbers them; probabilities are estimated and scaled as Kaldi does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykaldist.hmm.gmm.model_files import read_transition_model, read_tree
from pykaldist.hmm.lang.topology import HmmState, Topology
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.hmm.tree.tree import monophone_tree


@st.composite
def models(draw: st.DrawFn) -> TransitionModel:
    """A model with a few phones, each of one of two random topologies."""
    entries = []
    for _ in range(2):
        size = draw(st.integers(1, 4))
        states = []
        for s in range(size):
            to = sorted(draw(st.sets(st.integers(0, size), max_size=3)) | {s + 1})
            states.append(HmmState(s, s, tuple((t, 1 / len(to)) for t in to)))
        entries.append((*states, HmmState(-1, -1, ())))
    phones = draw(st.lists(st.integers(1, 30), min_size=1, max_size=6, unique=True))
    topology = Topology(entries, {phone: draw(st.integers(0, 1)) for phone in phones})
    return TransitionModel.from_tree(monophone_tree([[p] for p in phones], topology.num_pdf_classes), topology)


@given(models())
def test_numbering(model: TransitionModel) -> None:
    """Kaldi's definition, spelled out: sorted tuples, and for each its transitions in the topology's order."""
    tid = 0
    assert model.tuples.tolist() == sorted(model.tuples.tolist())
    for number, (phone, hmm_state, forward, self_loop) in enumerate(model.tuples.tolist(), 1):
        entry = model.topology.entry(phone)
        assert model.tuple2state(phone, hmm_state, forward) == number and model.state2first[number] == tid + 1
        for to, probability in entry[hmm_state].transitions:
            tid += 1
            assert (model.tid2state[tid], model.tid2phone[tid], model.tid2hmm_state[tid]) == (number, phone, hmm_state)
            assert model.tid2pdf[tid] == (self_loop if to == hmm_state else forward)
            assert model.tid_is_self_loop[tid] == (to == hmm_state) and model.tid_is_final[tid] == (to == len(entry) - 1)
            assert model.log_probs[tid] == pytest.approx(np.log(probability), abs=1e-6)
            assert to != hmm_state or model.state2self_loop[number] == tid
    assert tid == model.num_transition_ids == len(model.log_probs) - 1


@given(models(), st.floats(0, 2), st.floats(0, 2))
def test_scaled_log_probs(model: TransitionModel, transition_scale: float, self_loop_scale: float) -> None:
    scaled = model.scaled_log_probs(transition_scale, self_loop_scale)
    np.testing.assert_allclose(model.scaled_log_probs(), model.log_probs, atol=1e-5)
    for tid in range(1, model.num_transition_ids + 1):
        p = {t: np.exp(float(model.log_probs[t])) for t in range(1, model.num_transition_ids + 1)
             if model.tid2state[t] == model.tid2state[tid]}
        loop = sum(value for t, value in p.items() if model.tid_is_self_loop[t])
        expected = self_loop_scale * np.log(loop) if model.tid_is_self_loop[tid] else \
            self_loop_scale * np.log(1 - loop) + transition_scale * np.log(p[tid] / (1 - loop))
        assert scaled[tid] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("system", ["mono", "tri1", "tri3_ali"])
def test_golden_tuples_from_the_tree(golden: Path, system: str) -> None:
    model = read_transition_model(golden / "an4_kaldi" / system / "final.mdl")
    built = TransitionModel.from_tree(read_tree(golden / "an4_kaldi" / system / "tree"), model.topology)
    np.testing.assert_array_equal(built.tuples, model.tuples)


def test_golden_alignments(golden: Path) -> None:
    source = golden / "an4_kaldi/tri1"
    model = read_transition_model(source / "final.mdl")
    for line, pdfs, phones in zip(*((source / f"{name}20.txt").read_text().splitlines() for name in ("ali", "pdf", "phones")),
                                  strict=True):
        tids = np.array(line.split()[1:], dtype=int)
        assert model.tid2pdf[tids].tolist() == [int(x) for x in pdfs.split()[1:]]
        assert model.tid2phone[tids].tolist() == [int(x) for x in phones.split()[1:]]


def test_update() -> None:
    """By hand: two states of two and three transitions; counts below the least leave a state as it is."""
    topology = Topology([(HmmState(0, 0, ((0, 0.5), (1, 0.5))), HmmState(1, 1, ((0, 0.2), (1, 0.3), (2, 0.5))),
                          HmmState(-1, -1, ()))], {1: 0})
    model = TransitionModel.from_tree(monophone_tree([[1]], topology.num_pdf_classes), topology)
    model.update(np.array([0, 3, 1.9, 0, 30, 70], dtype=np.float64))
    np.testing.assert_allclose(np.exp(model.log_probs[1:3]), [0.5, 0.5], rtol=1e-6)
    np.testing.assert_allclose(np.exp(model.log_probs[3:]), [0.01, 0.30, 0.70] / np.array([1, 1.0101, 1.0101]), rtol=1e-3)
    model.update(np.array([0, 3, 2, 0, 0, 0], dtype=np.float64))
    np.testing.assert_allclose(np.exp(model.log_probs[1:3]), [0.6, 0.4], rtol=1e-6)
