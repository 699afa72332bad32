from __future__ import annotations

import io
import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from chain_files import fsts

from pykaldist.errors import UserError
from pykaldist.hmm.chain.supervision import (
    Normalizer,
    PhoneLattice,
    SupervisionOptions,
    frame_range,
    over_frames,
    phone_supervision,
    state_times,
    supervision_of_lattice,
)
from pykaldist.hmm.gmm.model_files import read_transition_model, read_tree
from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.hmm.tree.tree import ContextDependency
from pykaldist.io.fst import Fst

SameGraph = Callable[[Fst, Fst, float], None]


@pytest.fixture(scope="module")
def supervisions(chain: Path) -> dict[str, Fst]:
    tree, model = read_tree(chain / "tree"), read_transition_model(chain / "0.trans_mdl")
    found = {}
    for line in (chain / "phone_lengths.txt").read_text().splitlines():
        utt, rest = line.split(maxsplit=1)
        pairs = np.array(rest.replace(";", " ").split(), int).reshape(-1, 2)
        one = phone_supervision(pairs[:, 0].tolist(), pairs[:, 1].tolist(), tree, model, SupervisionOptions())
        assert one is not None
        found[utt] = one
    return found


def test_numerators_of_alignments_are_kaldis(chain: Path, supervisions: dict[str, Fst], same_graph: SameGraph) -> None:
    kaldis = fsts(chain / "supervision.txt.gz")
    assert kaldis.keys() == supervisions.keys()
    for utt, ours in supervisions.items():
        assert state_times(ours)[-1] == kaldis[utt][1]
        same_graph(ours, kaldis[utt][0], 0.0)


def test_chunks_with_the_denominators_costs_are_kaldis(chain: Path, supervisions: dict[str, Fst], same_graph: SameGraph) -> None:
    kaldis = fsts(chain / "egs.txt.gz")
    assert len(kaldis) == 12
    normalizer = Normalizer(Fst.read(chain / "normalization.fst"))
    for key, (fst, frames) in kaldis.items():
        utt, begin = key.rsplit("-", 1)
        ours = normalizer.chunk(frame_range(supervisions[utt], int(begin) // 3, frames))
        assert ours is not None
        same_graph(ours, fst, 1e-5)


def test_flat_start_numerators_are_kaldis(chain: Path, same_graph: SameGraph) -> None:
    model = read_transition_model(chain / "0.trans_mdl")
    normalizer, kaldis = Normalizer(Fst.read(chain / "normalization.fst")), fsts(chain / "e2e/num_fsts.txt.gz")
    for utt, (graph, _) in fsts(chain / "e2e/graphs_tids.txt.gz").items():
        ours = normalizer.flat_start(graph, model)
        assert ours is not None
        same_graph(ours, kaldis[utt][0], 1e-5)


def test_phones_that_do_not_fit_give_none(chain: Path) -> None:
    tree, model = read_tree(chain / "tree"), read_transition_model(chain / "0.trans_mdl")
    assert phone_supervision([1, 135, 49, 112, 1], [1] * 5, tree, model, SupervisionOptions()) is None


def test_paths_over_frames_are_those_of_the_graph() -> None:
    label = np.array([1, 2, 3])
    loop = Fst.from_arcs(0, np.array([np.inf, 0.5]), np.array([0, 0, 1]), label, label, np.array([1.0, 2.0, 4.0]), np.array([0, 1, 1]))
    three = over_frames(loop, 3)
    assert three is not None
    paths = [((), three.start)]
    for _ in range(3):
        paths = [((*labels, int(three.ilabel[a])), int(three.nextstate[a])) for labels, state in paths
                 for a in range(three.offset[state], three.offset[state + 1])]
    assert sorted(labels for labels, _ in paths) == [(1, 1, 2), (1, 2, 3), (2, 3, 3)]
    np.testing.assert_array_equal(state_times(three), [0, 1, 1, 2, 2, 3])
    assert three.final[-1] == 0.5
    assert over_frames(loop, 3, np.zeros((3, 3), bool)) is None


def test_options_that_leave_phones_without_frames_are_refused() -> None:
    with pytest.raises(UserError, match="raise the tolerances"):
        SupervisionOptions(0, 1, 3)


def test_frames_that_do_not_exist_are_refused(supervisions: dict[str, Fst]) -> None:
    with pytest.raises(UserError, match="frames 30 to 40 of a numerator of 33 frames"):
        frame_range(supervisions["fash-an251-fash-b"], 30, 10)


def a_lattice(arcs: list[tuple[int, int, int, float]], times: list[int]) -> PhoneLattice:
    """A lattice of (from, to, phone, cost), whose last state is final."""
    source, target, phone, cost = (np.array(column) for column in zip(*arcs, strict=True))
    final = np.where(np.arange(len(times)) == len(times) - 1, 0.0, np.inf)
    return PhoneLattice(Fst.from_arcs(0, final, source, phone, phone, cost, target), np.array(times))


def test_a_phone_lattice_is_read_as_it_was_written(same_graph: SameGraph) -> None:
    lattice, stream = a_lattice([(0, 1, 3, 0.5), (0, 1, 4, 0.0), (1, 2, 5, 1.5)], [0, 7, 12]), io.BytesIO()
    lattice.write(stream)
    again = PhoneLattice.parse(stream.getvalue())
    same_graph(again.acceptor, lattice.acceptor, 0.0)
    assert np.array_equal(again.times, lattice.times) and again.acceptor.start == 0


def test_a_lattice_with_one_path_is_its_alignment(chain: Path, supervisions: dict[str, Fst], same_graph: SameGraph) -> None:
    tree, model = read_tree(chain / "tree"), read_transition_model(chain / "0.trans_mdl")
    for line in (chain / "phone_lengths.txt").read_text().splitlines():
        utt, rest = line.split(maxsplit=1)
        phones, lengths = np.array(rest.replace(";", " ").split(), int).reshape(-1, 2).T.tolist()
        lattice = a_lattice([(n, n + 1, phone, 1.5) for n, phone in enumerate(phones)], np.cumsum([0, *lengths]).tolist())
        for lm_scale in (0.0, 0.5):  # of one path nothing is left after pushing
            ours = supervision_of_lattice(lattice, tree, model, SupervisionOptions(lm_scale=lm_scale))
            assert ours is not None
            same_graph(ours, supervisions[utt], 0.0)


def paths(fst: Fst) -> dict[tuple[int, ...], float]:
    """The cheapest cost of each label sequence of a graph without loops."""
    found: dict[tuple[int, ...], float] = {}
    stack: list[tuple[int, tuple[int, ...], float]] = [(fst.start, (), 0.0)]
    while stack:
        state, labels, cost = stack.pop()
        if fst.final[state] < np.inf:
            found[labels] = min(found.get(labels, np.inf), cost + float(fst.final[state]))
        stack += [(int(fst.nextstate[a]), (*labels, int(fst.ilabel[a])), cost + float(fst.weight[a]))
                  for a in range(fst.offset[state], fst.offset[state + 1])]
    return found


def by_hand(lattice: PhoneLattice, frames: int, model: TransitionModel, tree: ContextDependency, options: SupervisionOptions,
            ) -> dict[tuple[int, ...], float]:
    """All transition-id sequences of a lattice in output frames, and their costs above the best: every sequence of phones, every length."""
    fst, outputs = lattice.acceptor, -(-frames // options.frame_subsampling_factor)
    arcs = list(zip(fst.ilabel.tolist(), lattice.times[fst.source].tolist(), lattice.times[fst.nextstate].tolist(), strict=True))

    def allowed(phone: int, t: int) -> bool:
        now = t * options.frame_subsampling_factor
        return any(p == phone and begin - options.left_tolerance <= now < end + options.right_tolerance for p, begin, end in arcs)

    found = {}
    sequences = paths(fst)
    best = min(sequences.values())
    for phones, cost in sequences.items():
        for inner in itertools.combinations(range(1, outputs), len(phones) - 1):
            bounds = [0, *inner, outputs]
            spans = list(zip(phones, bounds[:-1], bounds[1:], strict=True))
            if all(allowed(phone, t) for phone, begin, end in spans for t in range(begin, end)):
                tids: list[int] = []
                for left, (phone, begin, end) in zip((0, *phones), spans, strict=False):
                    forward, loop = (tree.compute((left, phone), c) for c in (0, 1))
                    state = model.tuple2state(phone, 0, forward, loop)
                    tids += [int(model.state2first[state]) + 1, *[int(model.state2self_loop[state])] * (end - begin - 1)]
                found[tuple(tids)] = options.lm_scale * (cost - best)
    return found


@pytest.mark.parametrize("lm_scale", [0.0, 0.5])
@pytest.mark.parametrize("tolerance", [1, 4])
def test_lattices_against_all_paths(chain: Path, lm_scale: float, tolerance: int) -> None:
    """With and without a silence (1) before a phone (135), then one of two (49, 112), the second of which also in other times."""
    tree, model = read_tree(chain / "tree"), read_transition_model(chain / "0.trans_mdl")
    lattice = a_lattice([(0, 1, 1, 0.7), (0, 2, 135, 0.2), (1, 2, 135, 0.1), (2, 4, 49, 2.0), (2, 3, 112, 1.0), (3, 4, 1, 0.3),
                         (2, 4, 112, 3.0)], [0, 6, 12, 17, 22])
    options = SupervisionOptions(tolerance, tolerance, 3, lm_scale)
    found = supervision_of_lattice(lattice, tree, model, options, convert_to_pdfs=False)
    assert found is not None and state_times(found)[-1] == 8
    ours, expected = paths(found), by_hand(lattice, 22, model, tree, options)
    assert ours.keys() == expected.keys() and len(ours) > 20
    for labels, cost in ours.items():
        assert cost == pytest.approx(expected[labels], abs=1e-5)


def test_a_scaled_normaliser_costs_its_share(chain: Path, supervisions: dict[str, Fst]) -> None:
    chunk = frame_range(supervisions["fash-an251-fash-b"], 0, 4)
    whole, half = (Normalizer(Fst.read(chain / "normalization.fst"), scale).chunk(chunk) for scale in (1.0, 0.5))
    assert whole is not None and half is not None
    costs, scaled = paths(whole), paths(half)
    assert costs.keys() == scaled.keys()
    assert all(scaled[labels] == pytest.approx(cost / 2, abs=2e-3) for labels, cost in costs.items())


def test_lattices_that_are_refused(chain: Path) -> None:
    tree, model = read_tree(chain / "tree"), read_transition_model(chain / "0.trans_mdl")
    two_ends = a_lattice([(0, 1, 1, 0.0), (1, 2, 135, 0.0)], [0, 3, 9])
    two_ends.acceptor.final[1] = 0.0
    with pytest.raises(UserError, match="paths of 3 to 9 frames"):
        supervision_of_lattice(two_ends, tree, model, SupervisionOptions())
    with pytest.raises(UserError, match="arcs without a phone"):
        supervision_of_lattice(a_lattice([(0, 1, 0, 0.0)], [0, 3]), tree, model, SupervisionOptions())
    assert supervision_of_lattice(a_lattice([(0, 1, 1, 0.0), (1, 2, 135, 0.0)], [0, 1, 2]), tree, model, SupervisionOptions()) is None
    with pytest.raises(UserError, match=r"--lm-scale 1\.0: expected a share"):
        SupervisionOptions(lm_scale=1.0)
