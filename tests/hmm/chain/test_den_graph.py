from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pykaldist.errors import UserError
from pykaldist.hmm.chain.den_graph import denominator_graph, initial_probs, normalization_fst
from pykaldist.hmm.gmm.model_files import read_transition_model, read_tree
from pykaldist.hmm.lang.topology import Topology, chain_topology_text
from pykaldist.io.fst import Fst
from pykaldist.io.kaldi import KaldiReader

SameGraph = Callable[[Fst, Fst, float], None]


def test_the_topology_is_kaldis(chain: Path) -> None:
    phones = Topology.read(KaldiReader.open(chain / "topo")).phones
    assert chain_topology_text(phones).split() == (chain / "topo").read_text().split()


def test_the_denominator_graph_is_kaldis_arc_by_arc(chain: Path, same_graph: SameGraph) -> None:
    tree, model = read_tree(chain / "tree"), read_transition_model(chain / "0.trans_mdl")
    ours = denominator_graph(tree, model, Fst.read(chain / "phone_lm.fst"))
    assert (ours.num_states, ours.num_arcs) == (745, 3414)
    same_graph(ours, Fst.read(chain / "den.fst"), 1e-6)


def test_initial_probabilities_are_kaldis(chain: Path) -> None:
    kaldis = np.array((chain / "den_initial_probs.txt").read_text().strip(" []\n").split(), np.float64)
    np.testing.assert_allclose(initial_probs(Fst.read(chain / "den.fst")), kaldis, rtol=1e-6)


def test_the_normalization_fst_is_kaldis(chain: Path, same_graph: SameGraph) -> None:
    ours = normalization_fst(Fst.read(chain / "den.fst"))
    same_graph(ours, Fst.read(chain / "normalization.fst"), 1e-6)
    np.testing.assert_array_equal(ours.ilabel, Fst.read(chain / "normalization.fst").ilabel)


def test_initial_probabilities_are_a_mean_over_100_frames() -> None:
    loop = Fst.from_arcs(0, np.array([np.inf, 0.0]), np.array([0, 0, 1]), *[np.array([1, 2, 2])] * 2, -np.log([0.5, 0.5, 0.5]),
                         np.array([0, 1, 1]))
    now, mean = np.array([1.0, 0.0]), np.zeros(2)
    for _ in range(100):
        mean += now / 100
        now = np.array([0.5 * now[0], 0.5 * now[0] + now[1] * 0.5 / 1.5])
        now /= now.sum()
    np.testing.assert_allclose(initial_probs(loop), mean, rtol=1e-6)


def test_phones_of_another_lang_are_refused(chain: Path) -> None:
    one = np.array([143])
    lm = Fst.from_arcs(0, np.array([np.inf, 0.0]), np.array([0]), one, one, np.array([0.0]), np.array([1]))
    with pytest.raises(UserError, match="phone 143 is not in the model's topology"):
        denominator_graph(read_tree(chain / "tree"), read_transition_model(chain / "0.trans_mdl"), lm)


@pytest.mark.parametrize("arcs", [0, 1, 2784])
def test_a_phone_language_model_without_a_way_to_the_end_is_refused(chain: Path, arcs: int) -> None:
    """One without states, one of a phone and Kaldi's, none of them with a final state; and one of the empty sequence alone."""
    lm = Fst.read(chain / "phone_lm.fst")
    if arcs < 2:
        one = np.ones(arcs, np.int32)
        lm = Fst.from_arcs(arcs - 1, np.zeros(2 * arcs), one - 1, one, one, np.zeros(arcs), one)
    endless = Fst(lm.start, np.full_like(lm.final, np.inf), lm.offset, lm.ilabel, lm.olabel, lm.weight, lm.nextstate)
    nothing = np.zeros(0, np.int32)
    silent = Fst.from_arcs(0, np.zeros(1), nothing, nothing, nothing, np.zeros(0), nothing)
    for empty in (endless, silent):
        with pytest.raises(UserError, match=r"no phone sequence of the phone language model ends; make phone_lm\.fst again"):
            denominator_graph(read_tree(chain / "tree"), read_transition_model(chain / "0.trans_mdl"), empty)


def test_a_state_that_leads_nowhere_is_refused() -> None:
    one = np.array([1])
    dead = Fst.from_arcs(0, np.array([np.inf, np.inf]), np.array([0]), one, one, np.array([0.0]), np.array([1]))
    with pytest.raises(UserError, match="leads nowhere"):
        initial_probs(dead)
