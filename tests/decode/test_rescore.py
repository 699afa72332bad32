"""Rescored lattices, path by path."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykaldist.decode.decoder import DecoderOptions, LatticeDecoder
from pykaldist.decode.determinize import determinize
from pykaldist.decode.rescore import check_lattice, check_utterance, rescored
from pykaldist.errors import UserError

from .test_decoder import random_problem
from .test_lattice import enumerate_paths
from .test_posteriors import layered_lattice


@settings(max_examples=50)
@given(st.integers(0, 10**6))
def test_every_path_has_the_costs_of_its_frames(seed: int) -> None:
    """And its words, its transition-ids, and what the graph costs, as before."""
    lattice, rng = layered_lattice(seed), np.random.default_rng(seed)
    loglikes, tid2column = rng.normal(size=(5, 2)).astype(np.float32), np.array([0, 1, 0, 1])
    before, after = enumerate_paths(lattice), enumerate_paths(rescored(lattice, loglikes, tid2column))
    assert [(words, graph, ids) for words, graph, _, ids in before] == [(words, graph, ids) for words, graph, _, ids in after]
    for _, _, acoustic, ids in after:
        assert acoustic == pytest.approx(-sum(float(loglikes[t, tid2column[tid]]) for t, tid in enumerate(ids)), abs=1e-4)


def test_what_the_decoder_saw_changes_nothing() -> None:
    """A lattice of states and a determinised one have the decoder's costs already."""
    found = 0
    for seed in range(20):
        fst, loglikes = random_problem(seed)
        tid2pdf = np.arange(-1, loglikes.shape[1]).astype(np.int32)
        lattice = LatticeDecoder(fst, tid2pdf, DecoderOptions(beam=1e3, lattice_beam=20.0, acwt=0.5)).decode(loglikes)
        if lattice is None:  # no path is as long as the utterance
            continue
        found += 1
        for one in (lattice, determinize(lattice, 0.5, 20.0)):
            again = rescored(one, loglikes, tid2pdf)
            np.testing.assert_allclose(again.acoustic, one.acoustic, atol=1e-4)
            np.testing.assert_allclose(again.final_acoustic, one.final_acoustic, atol=1e-4)
    assert found > 5


def test_lattices_of_something_else() -> None:
    lattice = layered_lattice(3)
    check_lattice(lattice, 5, 3, "lat")
    with pytest.raises(UserError, match="lat: the lattice has 5 frames and transition-ids up to 3, the features 6 and the model 3"):
        check_lattice(lattice, 6, 3, "lat")
    with pytest.raises(UserError, match="transition-ids up to 3, the features 5 and the model 2"):
        check_lattice(lattice, 5, 2, "lat")
    with pytest.raises(UserError, match=r"lat\.2\.gz has a lattice of c, which is not of this job"):
        check_utterance("c", ["a", "b"], "lat.2.gz")
