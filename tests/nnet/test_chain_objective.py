from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from chain_files import fsts, matrices, objectives
from hypothesis import given, settings
from hypothesis import strategies as st

from pykaldist.errors import UserError
from pykaldist.frames.lattices import Lattices
from pykaldist.hmm.chain.supervision import frame_range
from pykaldist.io.fst import Fst
from pykaldist.nnet.chain_denominator import Denominator, denominator_on
from pykaldist.nnet.chain_objective import ChainOptions, begin_numerators, chain_objective, flat_start_numerator, numerator

PDFS = 112


@pytest.fixture(scope="module")
def chain(golden: Path) -> Path:
    return golden / "chain"


@pytest.fixture(scope="module")
def numerators(chain: Path) -> dict[str, list[Lattices]]:
    """Of each minibatch the numerators of its six sequences, which Kaldi has one behind the other in one FST."""
    found = {}
    for key, (fst, frames) in fsts(chain / "merged.txt.gz").items():
        found[key] = [numerator(frame_range(fst, n * frames, frames), PDFS) for n in range(6)]
    return found


@pytest.mark.parametrize(("files", "options"), [
    ("leaky0.1", ChainOptions(0.1)), ("leaky0.1_l2", ChainOptions(0.1, 0.0005)), ("leaky1e-5", ChainOptions(1e-5))])
def test_objective_and_derivatives_are_kaldis(chain: Path, numerators: dict[str, list[Lattices]], tmp_path: Path, files: str,
                                              options: ChainOptions) -> None:
    names = ("outputs", f"deriv_{files}", "xent_deriv")
    outputs, derivatives, posteriors = (matrices(chain / f"{name}.ark.gz", tmp_path) for name in names)
    denominator = Denominator(Fst.read(chain / "den.fst"), PDFS, options.leaky_hmm_coefficient)
    for key, kaldis in objectives(chain / f"objf_{files}.txt").items():
        y = torch.from_numpy(outputs[key].copy())
        ours = chain_objective(y, numerators[key], denominator, options)
        for name in ("num", "den", "objf", "l2_term"):
            assert getattr(ours, name).item() == pytest.approx(kaldis[name], rel=1e-5), name
        assert ours.xent_objf(y).item() == pytest.approx(kaldis["xent_objf"], rel=1e-5)
        assert (ours.objf + ours.l2_term).item() / ours.weight == pytest.approx(kaldis["objf_per_frame"] + kaldis["l2_term"] / ours.weight,
                                                                                rel=1e-5)
        np.testing.assert_allclose(ours.posterior, posteriors[key], rtol=1e-5, atol=2e-6)
        np.testing.assert_allclose(ours.derivative, derivatives[key], rtol=1e-5, atol=3e-6)
        np.testing.assert_allclose(ours.posterior.sum(1), 1.0, atol=1e-5)


def test_outputs_out_of_range_are_kaldis(chain: Path, numerators: dict[str, list[Lattices]], tmp_path: Path) -> None:
    y = torch.from_numpy(matrices(chain / "outputs_wide.ark.gz", tmp_path)["merged-0-6"].copy())
    denominator = Denominator(Fst.read(chain / "den.fst"), PDFS, 0.1)
    kaldis = objectives(chain / "objf_wide.txt")["merged-0-6"]
    for penalize, file in ((True, "deriv_wide_a"), (False, "deriv_wide_b")):
        ours = chain_objective(y, numerators["merged-0-6"], denominator, ChainOptions(0.1), penalize)
        assert (ours.num.item(), ours.den.item()) == pytest.approx((kaldis["num"], kaldis["den"]), rel=1e-5)
        np.testing.assert_allclose(ours.derivative, matrices(chain / f"{file}.ark.gz", tmp_path)["merged-0-6"], rtol=1e-5, atol=5e-6)


def test_flat_start_is_kaldis(chain: Path, tmp_path: Path) -> None:
    e2e = chain / "e2e"
    outputs, derivatives, posteriors = (matrices(e2e / f"{name}.ark.gz", tmp_path) for name in ("outputs", "deriv", "xent_deriv"))
    kaldis, graphs = objectives(e2e / "objf.txt"), fsts(e2e / "merged_supervision.txt.gz")
    denominator = Denominator(Fst.read(chain / "den.fst"), PDFS, 0.1)
    assert len(graphs) == len(kaldis) == 6
    for key, (graph, frames) in graphs.items():
        y = torch.from_numpy(outputs[key].copy())
        one = flat_start_numerator(graph, frames, PDFS)
        assert one is not None
        ours = chain_objective(y, [one], denominator, ChainOptions(0.1))
        assert ours.num.item() == pytest.approx(kaldis[key]["num"], rel=1e-5, abs=2e-5)
        assert ours.den.item() == pytest.approx(kaldis[key]["den"], rel=1e-5)
        assert ours.xent_objf(y).item() == pytest.approx(kaldis[key]["xent_objf"], rel=1e-5)
        np.testing.assert_allclose(ours.posterior, posteriors[key], rtol=1e-5, atol=5e-6)
        np.testing.assert_allclose(ours.derivative, derivatives[key], rtol=1e-5, atol=5e-6)


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 3))
def test_a_numerator_is_the_sum_over_its_paths(seed: int, frames: int, sequences: int) -> None:
    rng = np.random.default_rng(seed)
    source, target = np.divmod(np.arange(4), 2)
    graphs = []
    for _ in range(sequences):
        label = rng.integers(1, 4, 4)
        graphs.append(Fst.from_arcs(0, rng.uniform(0, 1, 2), source, label, label, rng.uniform(0, 2, 4), target))
    found = [flat_start_numerator(graph, frames, 3) for graph in graphs]
    y = rng.standard_normal((frames, sequences, 3)).astype(np.float32)
    loglike, posterior = begin_numerators(Lattices.joined([one for one in found if one]), torch.from_numpy(y.reshape(-1, 3)))()
    expected = np.zeros_like(y, np.float64)
    for b, graph in enumerate(graphs):
        total = 0.0
        for arcs in itertools.product(range(4), repeat=frames):
            states = [0, *(int(graph.nextstate[a]) for a in arcs)]
            if all(graph.source[a] == s for a, s in zip(arcs, states, strict=False)):
                pdf = [int(graph.ilabel[a]) - 1 for a in arcs]
                p = np.exp(y[range(frames), b, pdf].sum() - graph.weight[list(arcs)].sum() - graph.final[states[-1]])
                expected[range(frames), b, pdf] += p
                total += p
        expected[:, b] /= total
        assert loglike[b].item() == pytest.approx(np.log(total), abs=1e-5)
    np.testing.assert_allclose(posterior.view(y.shape), expected, atol=1e-5)


def test_what_is_not_finite_counts_as_ten_a_frame() -> None:
    label = np.array([1, 1])
    loop = Fst.from_arcs(0, np.array([0.0]), np.array([0, 0]), label, label, np.array([0.7, 0.7]), np.array([0, 0]))
    one = flat_start_numerator(loop, 2, 2)
    assert one is not None
    found = chain_objective(torch.full((2, 2), torch.nan), [one], Denominator(loop, 2, 0.1), ChainOptions(0.1))
    assert found.objf.item() == -20.0
    assert not found.derivative.any()
    assert not found.posterior.any()


def test_numerators_of_other_lengths_are_refused() -> None:
    label = np.array([1])
    loop = Fst.from_arcs(0, np.array([0.0]), np.array([0]), label, label, np.array([0.7]), np.array([0]))
    parts = [flat_start_numerator(loop, frames, 2) for frames in (2, 3)]
    with pytest.raises(UserError, match="5 output frames has numerators of 2 3 frames"):
        begin_numerators(Lattices.joined([one for one in parts if one]), torch.zeros(5, 2))


def test_a_numerator_of_other_pdfs_is_refused() -> None:
    label = np.array([3])
    one = Fst.from_arcs(0, np.array([np.inf, 0.0]), np.array([0]), label, label, np.array([0.7]), np.array([1]))
    with pytest.raises(UserError, match="labels from 3 to 3, expected pdfs"):
        numerator(one, 2)


@pytest.mark.gpu
def test_a_gpu_gives_the_same_without_waiting_for_more_than_what_numerators_need(cuda) -> None:
    label = np.array([1, 2, 2, 1])
    graph = Fst.from_arcs(0, np.zeros(2), np.array([0, 0, 1, 1]), label, label, np.array([0.7, 0.9, 0.4, 1.1]), np.array([0, 1, 0, 1]))
    numerators = [one for one in (flat_start_numerator(graph, 3, 2) for _ in range(2)) if one]
    outputs = torch.randn(6, 2, generator=torch.Generator().manual_seed(3))
    expected = chain_objective(outputs, numerators, Denominator(graph, 2, 0.1), ChainOptions(0.1, 0.001))
    denominator, given = denominator_on(graph, 2, 0.1, torch.device("cuda")), outputs.to("cuda")
    torch.cuda.set_sync_debug_mode("error")
    found = chain_objective(given, numerators, denominator, ChainOptions(0.1, 0.001))
    torch.cuda.set_sync_debug_mode("default")
    for name in ("num", "den", "objf", "l2_term", "derivative", "posterior"):
        torch.testing.assert_close(getattr(found, name).cpu(), getattr(expected, name), rtol=1e-5, atol=1e-6)
