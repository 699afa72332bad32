from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from chain_files import matrices
from hypothesis import given, settings
from hypothesis import strategies as st

from pykaldist.errors import UserError
from pykaldist.hmm.chain.den_graph import initial_probs
from pykaldist.io.fst import Fst
from pykaldist.nnet.chain_denominator import LIMIT, Denominator, TensorDenominator

CPU = torch.device("cpu")


def small_graph(seed: int, states: int = 4, pdfs: int = 3) -> Fst:
    """A graph of arcs between all states, with random labels and probabilities."""
    rng = np.random.default_rng(seed)
    source, target = np.divmod(np.arange(states * states), states)
    label = rng.integers(1, pdfs + 1, states * states)
    return Fst.from_arcs(0, np.zeros(states), source, label, label, rng.uniform(0.5, 3.0, states * states), target)


def reference(den: Fst, outputs: np.ndarray, leaky: float) -> float:
    """The log-probability of one sequence, by matrices in double precision: jumps, then arcs."""
    initial = initial_probs(den).astype(float)
    jump = np.eye(den.num_states) + leaky * initial  # [i, j] = [i = j] + leaky pi(j)
    alpha, total = initial.copy(), 0.0
    for y in outputs.astype(float):
        step = np.zeros((den.num_states, den.num_states))
        np.add.at(step, (den.source, den.nextstate), np.exp(np.clip(y, -LIMIT, LIMIT)[den.ilabel - 1] - den.weight))
        alpha = alpha @ jump @ step
        total += np.log(alpha.sum())
        alpha /= alpha.sum()
    return total + float(np.log((alpha @ jump).sum()))


@pytest.mark.parametrize("files", ["leaky0.1", "leaky1e-5"])
def test_it_is_kaldis(golden: Path, tmp_path: Path, files: str) -> None:
    chain = golden / "chain"
    names = ("outputs", f"deriv_{files}", "xent_deriv")
    outputs, derivative, numerators = (matrices(chain / f"{name}.ark.gz", tmp_path) for name in names)
    den, leaky = Fst.read(chain / "den.fst"), float(files.removeprefix("leaky"))
    engines = [Denominator(den, 112, leaky), TensorDenominator(den, 112, leaky, CPU)]
    for line in (chain / f"objf_{files}.txt").read_text().splitlines():
        key, words = line.split()[0], line.split()
        for engine in engines:
            loglike, posterior = engine.forward_backward(torch.from_numpy(outputs[key].copy()), 6)
            assert loglike.sum().item() == pytest.approx(float(words[words.index("den") + 1]), rel=1e-5)
            np.testing.assert_allclose(posterior, numerators[key] - derivative[key], rtol=1e-5, atol=3e-6)


def test_outputs_are_held_in_their_range_as_kaldis(golden: Path, tmp_path: Path) -> None:
    chain = golden / "chain"
    outputs = torch.from_numpy(matrices(chain / "outputs_wide.ark.gz", tmp_path)["merged-0-6"].copy())
    loglike, _ = Denominator(Fst.read(chain / "den.fst"), 112, 0.1).forward_backward(outputs, 6)
    assert loglike.sum().item() == pytest.approx(2908.90967, rel=1e-5)


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 3), st.sampled_from([0.0, 1e-5, 0.1]), st.floats(0.1, 12))
def test_it_is_the_sum_over_all_paths(seed: int, frames: int, sequences: int, leaky: float, spread: float) -> None:
    rng = np.random.default_rng(seed)
    den, outputs = small_graph(seed), (spread * rng.standard_normal((frames, sequences, 3))).astype(np.float32)
    found = [engine.forward_backward(torch.from_numpy(outputs.reshape(-1, 3)), sequences)
             for engine in (Denominator(den, 3, leaky), TensorDenominator(den, 3, leaky, CPU))]
    for loglike, posterior in found:
        np.testing.assert_allclose(posterior.sum(1), 1.0, atol=2e-5)
        for b in range(sequences):
            assert loglike[b].item() == pytest.approx(reference(den, outputs[:, b], leaky), rel=1e-5, abs=1e-5)
    t, k, step = int(rng.integers(frames)), int(rng.integers(3)), 1e-3
    moved = [outputs[:, 0].astype(float) for _ in range(2)]
    moved[0][t, k] += step
    moved[1][t, k] -= step
    slope = (reference(den, moved[0], leaky) - reference(den, moved[1], leaky)) / (2 * step)
    if abs(outputs[t, 0, k]) < LIMIT - 1:
        assert found[0][1][t * sequences, k].item() == pytest.approx(slope, abs=1e-4)


def test_a_graph_of_other_pdfs_is_refused() -> None:
    with pytest.raises(UserError, match="labels from 1 to 3, expected pdfs"):
        Denominator(small_graph(0), 2, 0.1)


def test_a_coefficient_that_is_no_share_is_refused() -> None:
    with pytest.raises(UserError, match="expected a share"):
        Denominator(small_graph(0), 3, -0.1)


@pytest.mark.gpu
def test_minibatches_of_a_shape_are_recorded_on_a_gpu(cuda) -> None:
    """And give what they gave before, with other outputs; what was returned is not written over by the next one."""
    den = small_graph(5)
    cpu, gpu = Denominator(den, 3, 0.1), TensorDenominator(den, 3, 0.1, torch.device("cuda"))
    generator, kept = torch.Generator().manual_seed(0), []
    for frames, sequences in [(6, 4)] * 5 + [(2, 1), (6, 4)]:
        outputs = torch.randn(frames * sequences, 3, generator=generator)
        kept.append((cpu.forward_backward(outputs, sequences), gpu.forward_backward(outputs.to("cuda"), sequences)))
    assert cuda is None or cuda.kernels["graph"] == 4  # of (6, 4), from the third time on
    for expected, found in kept:
        for one, other in zip(expected, found, strict=True):
            torch.testing.assert_close(other.cpu(), one, rtol=1e-5, atol=1e-6)


def test_a_graph_without_arcs_is_refused() -> None:
    nothing = np.zeros(0, np.int32)
    for states in (0, 1):
        graph = Fst.from_arcs(states - 1, np.zeros(states), nothing, nothing, nothing, np.zeros(0), nothing)
        with pytest.raises(UserError, match=r"the denominator graph is empty; make den\.fst again"):
            Denominator(graph, 3, 0.1)
