from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from chain_files import fsts

from pykaldist.errors import UserError
from pykaldist.hmm.chain.supervision import Normalizer, SupervisionOptions, frame_range, over_frames, phone_supervision, state_times
from pykaldist.hmm.gmm.model_files import read_transition_model, read_tree
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
