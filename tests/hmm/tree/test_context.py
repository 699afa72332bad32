"""Phones in context: windows against a plain loop, and alignments carried from tree to tree and back."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from pykaldist.errors import UserError
from pykaldist.hmm.alignments.align import equal_alignments
from pykaldist.hmm.alignments.corpus import Corpus
from pykaldist.hmm.alignments.graphs import GraphCompiler
from pykaldist.hmm.lang.topology import HmmState, Topology, read_topology
from pykaldist.hmm.tree.context import ContextFrames, convert_alignments
from pykaldist.hmm.tree.phone_segments import phone_segments
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.hmm.tree.tree import monophone_tree
from pykaldist.io.lang import LangDir

from ..conftest import random_tree


@pytest.fixture(scope="module")
def monophones(toy_lang: LangDir, toy_corpus: Corpus) -> tuple[TransitionModel, np.ndarray]:
    """A model, and an alignment of the toy corpus whose third utterance failed."""
    topology = read_topology(toy_lang.path / "topo")
    tree = monophone_tree(toy_lang.phone_sets, topology.num_pdf_classes)
    model = TransitionModel.from_tree(tree, topology)
    compiler = GraphCompiler(toy_lang, tree, model)
    tids = equal_alignments(toy_corpus, [compiler.compile(w) for w in toy_corpus.words], model, np.random.default_rng(0)).tids
    tids[toy_corpus.offsets[2]:toy_corpus.offsets[3]] = 0
    return model, tids


@pytest.mark.parametrize(("width", "central"), [(1, 0), (3, 1), (2, 0), (5, 3)])
def test_windows(monophones: tuple[TransitionModel, np.ndarray], toy_corpus: Corpus, width: int, central: int) -> None:
    model, tids = monophones
    found = ContextFrames.of_alignments(tids, toy_corpus.offsets, model, width, central)
    assert len({(*w, s) for w, s in zip(found.windows.tolist(), found.hmm_state.tolist(), strict=True)}) == len(found.windows)
    for first, end in itertools.pairwise(toy_corpus.offsets.tolist()):
        if not tids[first]:
            assert (found.state[first:end] == -1).all()
            continue
        phones, _, lengths = phone_segments(tids[first:end], model)
        padded = [0] * central + phones.tolist() + [0] * (width - 1 - central)
        windows = [padded[i:i + width] for i, length in enumerate(lengths) for _ in range(length)]
        assert found.windows[found.state[first:end]].tolist() == windows
        np.testing.assert_array_equal(found.hmm_state[found.state[first:end]], model.tid2hmm_state[tids[first:end]])


@pytest.mark.parametrize(("width", "central"), [(3, 1), (4, 2)])
def test_there_and_back(monophones: tuple[TransitionModel, np.ndarray], toy_corpus: Corpus, toy_lang: LangDir, width: int,
                        central: int) -> None:
    """Phones, HMM states and ways out stay; pdfs are those of the new tree; what was not aligned still is not."""
    model, tids = monophones
    tree = random_tree(toy_lang, width, central)
    new = TransitionModel.from_tree(tree, model.topology)
    converted = convert_alignments(tids, toy_corpus.offsets, model, tree, new)
    for table in ("tid2phone", "tid2hmm_state", "tid2destination"):
        np.testing.assert_array_equal(getattr(new, table)[converted], getattr(model, table)[tids])
    frames = ContextFrames.of_alignments(tids, toy_corpus.offsets, model, width, central)
    for state, tid in zip(frames.state.tolist(), converted.tolist(), strict=True):
        assert (tid == 0) == (state < 0)
        if tid:
            window = frames.windows[state].tolist()
            pdf_class = model.topology.entry(window[central])[frames.hmm_state[state]].forward_pdf_class
            assert new.tid2pdf[tid] == tree.compute(window, pdf_class)
    mono = monophone_tree(toy_lang.phone_sets, model.topology.num_pdf_classes)
    np.testing.assert_array_equal(convert_alignments(converted, toy_corpus.offsets, new, mono, model), tids)


def test_other_hmms_are_refused(monophones: tuple[TransitionModel, np.ndarray], toy_corpus: Corpus, toy_lang: LangDir) -> None:
    model, tids = monophones
    short = (HmmState(0, 0, ((0, 0.5), (1, 0.5))), HmmState(-1, -1, ()))
    topology = Topology([short], {phone: 0 for phone in model.topology.phones})
    tree = monophone_tree(toy_lang.phone_sets, topology.num_pdf_classes)
    with pytest.raises(UserError, match="has another HMM in the alignment's model"):
        convert_alignments(tids, toy_corpus.offsets, model, tree, TransitionModel.from_tree(tree, topology))
