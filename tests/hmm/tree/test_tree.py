"""Trees: Kaldi's monophone tree, the numbering of its pdfs, and the answers of a triphone tree on real alignments."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykaldist.errors import UserError
from pykaldist.hmm.gmm.model_files import read_transition_model, read_tree
from pykaldist.hmm.tree.tree import Constant, ContextDependency, EventMap, Split, Table, leaves, monophone_tree
from pykaldist.io.lang import LangDir


def test_golden_monophone_tree(golden: Path) -> None:
    lang = LangDir(golden / "an4_kaldi/lang")
    topology = read_transition_model(golden / "an4_kaldi/mono/final.mdl").topology
    assert monophone_tree(lang.phone_sets, topology.num_pdf_classes) == read_tree(golden / "an4_kaldi/mono/tree")


@given(st.data())
def test_pdfs_are_numbered_set_by_set(data: st.DataObject) -> None:
    phones = data.draw(st.lists(st.integers(1, 60), min_size=1, max_size=20, unique=True))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(phones)), max_size=8)) | {len(phones)})
    sets = [phones[a:b] for a, b in zip([0, *cuts], cuts, strict=False) if a < b]
    classes = {phone: number % 3 + 1 for number, group in enumerate(sets) for phone in group}
    tree = monophone_tree(sets, classes.__getitem__)
    expected = 0
    for group in sets:
        for pdf_class in range(classes[group[0]]):
            for phone in group:
                assert tree.compute((phone,), pdf_class) == expected
                assert tree.possible_pdfs(phone, pdf_class) == [expected]
            expected += 1
    assert tree.num_pdfs == expected == len(list(leaves(tree.to_pdf)))


def phone_states(tids: np.ndarray, model: object) -> list[tuple[int, list[int]]]:
    """(phone, its transition-states in order of time), from an alignment with self-loops behind the way out."""
    result: list[tuple[int, list[int]]] = []
    ended = True
    for tid in tids:
        if not model.tid_is_self_loop[tid]:
            if ended:
                result.append((int(model.tid2phone[tid]), []))
            result[-1][1].append(int(model.tid2state[tid]))
            ended = bool(model.tid_is_final[tid])
    return result


def test_triphone_tree_explains_golden_alignments(golden: Path) -> None:
    model, tree = (read(golden / "an4_kaldi/tri1" / name) for read, name in
                   ((read_transition_model, "final.mdl"), (read_tree, "tree")))
    assert (tree.width, tree.central, tree.num_pdfs) == (3, 1, model.num_pdfs)
    for line in (golden / "an4_kaldi/tri1/ali20.txt").read_text().splitlines():
        segments = phone_states(np.array(line.split()[1:], dtype=int), model)
        phones = [0, *(phone for phone, _ in segments), 0]
        for place, (phone, states) in enumerate(segments):
            for state in states:
                _, hmm_state, pdf, _ = model.tuples[state - 1].tolist()
                pdf_class = model.topology.entry(phone)[hmm_state].forward_pdf_class
                assert tree.compute(phones[place:place + 3], pdf_class) == pdf
                assert pdf in tree.possible_pdfs(phone, pdf_class)


@st.composite
def trees(draw: st.DrawFn, depth: int = 3) -> EventMap | None:
    """Event maps over windows of three phones below 5 and three pdf-classes, some with places where they have no answer."""
    kind = draw(st.sampled_from(["leaf", "split", "table"] if depth else ["leaf"]))
    below = trees(depth - 1)
    if kind == "leaf":
        return draw(st.none() if draw(st.integers(0, 9)) == 0 else st.builds(Constant, st.integers(0, 9)))
    key = draw(st.integers(-1, 2))
    if kind == "split":
        return Split(key, draw(st.frozensets(st.integers(0, 4))), draw(below) or Constant(0), draw(below) or Constant(1))
    return Table(key, tuple(draw(st.lists(below, max_size=5))))


@given(trees(), st.lists(st.tuples(*3 * [st.integers(0, 4)]), max_size=20), st.integers(0, 2), st.sampled_from([1, 40]))
def test_answers_for_many_windows_are_those_for_each(to_pdf: EventMap | None, windows: list[tuple[int, ...]], pdf_class: int,
                                                     times: int) -> None:
    tree, windows = ContextDependency(3, 1, to_pdf or Constant(0)), windows * times
    rows = np.array(windows, np.int64).reshape(-1, 3)
    try:
        expected = [tree.compute(window, pdf_class) for window in windows]
    except UserError:
        with pytest.raises(UserError, match="has no pdf for phones"):
            tree.pdfs(rows, pdf_class)
    else:
        assert tree.pdfs(rows, pdf_class).tolist() == expected


def test_no_answer() -> None:
    tree = ContextDependency(1, 0, Table(0, (None, Split(-1, frozenset({0}), Constant(0), Constant(1)))))
    assert [tree.compute((1,), c) for c in (0, 1)] == [0, 1]
    for phone in (0, 2):
        with pytest.raises(UserError, match="has no pdf for phones"):
            tree.compute((phone,), 0)
    with pytest.raises(UserError, match="at least one phone in each set"):
        monophone_tree([[1], []], lambda phone: 1)
