"""The optimiser nnet3 beside Kaldi's nnet3-chain-train: parameters and objectives after a few minibatches of a small TDNN-F."""

from __future__ import annotations

import copy
import gzip
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from chain_egs import MergedEgs, merged_egs
from nnet3_learners import Chain, minibatch_of
from torch import Tensor

from pykaldist.errors import UserError
from pykaldist.io.fst import Fst
from pykaldist.io.kaldi import KaldiReader
from pykaldist.nnet.arithmetic import cpu
from pykaldist.nnet.chain_denominator import Denominator
from pykaldist.nnet.chain_objective import ChainOptions, chain_objective
from pykaldist.nnet.nnet3 import model as files
from pykaldist.nnet.nnet3.network import Nnet3Network
from pykaldist.optim.nnet3 import Nnet3, Nnet3Options

PDFS, SEQUENCES = 112, 6
Make = Callable[..., tuple[Nnet3, Tensor]]


@pytest.fixture(scope="module")
def chain(golden: Path) -> Path:
    return golden / "chain"


@pytest.fixture(scope="module")
def egs(chain: Path) -> list[MergedEgs]:
    return [*merged_egs(chain, PDFS, SEQUENCES).values()]


@pytest.fixture(scope="module")
def make(chain: Path, egs: list[MergedEgs]) -> Make:
    """Makes an optimiser of the golden network, and totals."""
    start = files.Nnet3.read(chain / "net/train.0.raw")
    denominator = Denominator(Fst.read(chain / "den.fst"), PDFS, 0.1)

    def optimizer(options: Nnet3Options | None = None, l2: float = 0.0001, deriv_weights: bool = False, nnet: files.Nnet3 = start,
                  ) -> tuple[Nnet3, Tensor]:
        learner = Chain(Nnet3Network(nnet), egs, denominator, ChainOptions(0.1, l2), deriv_weights)
        return Nnet3(learner, options or Nnet3Options()), torch.zeros(4, dtype=torch.float64)

    return optimizer


def trained(made: tuple[Nnet3, Tensor], steps: int, rate: float, first: int = 0) -> Nnet3:
    optimizer, totals = made
    for index in range(first, first + steps):
        optimizer.local_step(minibatch_of(index), rate, totals)
    return optimizer


def kaldis(chain: Path, name: str) -> files.Nnet3:
    path = chain / f"net/{name}.raw.txt.gz"
    return files.Nnet3.parse(KaldiReader(gzip.decompress(path.read_bytes()), str(path)))


# After 4 and 8 minibatches the bounds are those of rounding in Kaldi itself (`test_where_rounding_grows`): the same program is 5e-4 to 7e-4
# and 4e-3 to 2e-2 away from these numbers when its BLAS computes by other kernels (tests/bench/kaldi_rounding.py). Ours is 6e-4 and 3e-2
# from them on an Intel CPU with AMX, within 5e-4 and 5e-3 on AMD's.
@pytest.mark.parametrize(("name", "steps", "rate", "options", "tolerance"), [
    ("train_small_rate.1", 1, 0.0001, Nnet3Options(max_param_change=0.0), 1e-6), ("train.1", 1, 0.01, Nnet3Options(), 5e-6),
    ("train.2", 2, 0.01, Nnet3Options(), 1e-4), ("train.4", 4, 0.01, Nnet3Options(), 5e-4), ("train.8", 8, 0.01, Nnet3Options(), 5e-3),
    ("train_maxchange.2", 2, 0.3, Nnet3Options(max_param_change=0.5, l2_regularize_factor=0.5), 1e-4)])
def test_parameters_are_kaldis(chain: Path, make: Make, name: str, steps: int, rate: float, options: Nnet3Options,
                               tolerance: float) -> None:
    close = steps < 4 or "amx_tile" not in cpu().flags
    if not close:
        tolerance = {4: 1e-3, 8: 4e-2}[steps]
    small = name == "train_small_rate.1"
    made = make(options, 0.0 if small else 0.0001, small)
    ours = trained(made, steps, rate).model.to_nnet3(rate)
    moved = 0.0
    for component in kaldis(chain, name).components.values():
        mine, before = ours.components[component.name], make()[0].model.nnet.components[component.name]
        for token in ("LinearParams", "Params", "BiasParams", "StatsMean", "StatsVar"):
            if token in component.values:
                np.testing.assert_allclose(mine.array(token), component.array(token), atol=tolerance, rtol=5 * tolerance,
                                           err_msg=f"{component.name} {token}")
        if component.num_params:
            moved = max(moved, float(np.abs(component.linear - before.linear).max()))
            assert mine.number("LearningRate") == pytest.approx(component.number("LearningRate"))
        if component.type == "BatchNormComponent":
            assert mine.number("Count") == pytest.approx(component.number("Count"), rel=1e-6)
        if component.type == "RectifiedLinearComponent" and steps == 1:  # of later minibatches Kaldi leaves out a random half
            assert mine.number("Count") == pytest.approx(0.98 * component.number("Count"), rel=1e-6)
            for token in ("ValueAvg", "DerivAvg"):
                np.testing.assert_allclose(mine.array(token), component.array(token), atol=1e-5)
    assert moved > 500 * tolerance or steps == 8 or not close
    objf, _, xent, frames = made[1].tolist()
    log = re.findall(r"Overall average objective function for 'output(-xent)?' is (\S+)", (chain / f"net/log.{name}").read_text())
    found = {"": objf / frames, "-xent": xent / frames}
    assert {kind: float(value) for kind, value in log} == pytest.approx(found, rel=1e-4 if close else 1e-3)


def largest_difference(one: files.Nnet3, other: files.Nnet3) -> float:
    """The largest difference of a parameter that is trained."""
    return max(float(np.abs(one.components[name].array(token) - other.components[name].array(token)).max())
               for name, component in one.components.items() if component.num_params
               for token in ("LinearParams", "Params", "BiasParams") if len(component.values.get(token, [])))


def test_where_rounding_grows(make: Make) -> None:
    """Derivatives that differ in their last bit: the natural gradient of the last layer makes of it what parts us from Kaldi.

    At the start the outputs are 0, and their derivatives have fewer dimensions than the Fisher model's rank of 56: the directions that are
    left over are made of rounding. With a rank of 20 there are none.
    """
    start = make()[0].model.nnet
    learner = make()[0].learner
    outputs = learner.model.forward_chunks(learner.egs[0].feats[1:].flatten(0, 1), None, 20, SEQUENCES, True)["output"]
    found = chain_objective(outputs, learner.egs[0].numerators, learner.denominator, learner.options)
    singular = np.linalg.svd(found.derivative.double().numpy(), compute_uv=False)
    assert not outputs.any() and 20 < (singular > 1e-7 * singular[0]).sum() < 56

    def apart(nnet: files.Nnet3, steps: int) -> float:
        """How far a run with rounded derivatives ends from one without."""
        runs = [make(nnet=nnet) for _ in range(2)]
        runs[1][0].learner.rounding = torch.Generator().manual_seed(0)
        return largest_difference(*(trained(run, steps, 0.01).model.to_nnet3() for run in runs))

    assert apart(start, 1) < 1e-6 and apart(start, 4) > 5e-5
    low_rank = copy.deepcopy(start)
    for name in ("output.affine", "output-xent.affine"):
        low_rank.components[name].values["RankOut"] = 20
    assert apart(low_rank, 8) < 2e-5


def test_a_run_resumed_goes_on_bit_for_bit(make: Make) -> None:
    options = Nnet3Options(momentum=0.5)
    through, stopped, resumed = make(options), make(options), make(options)
    trained(through, 7, 0.01)
    trained(stopped, 4, 0.01)
    resumed[0].load_state_dict(copy.deepcopy(stopped[0].state_dict()))
    resumed[0].model.params.copy_(stopped[0].model.params)
    trained(resumed, 3, 0.01, first=4)
    assert torch.equal(resumed[0].model.params, through[0].model.params)
    assert torch.equal(resumed[0].velocity, through[0].velocity)


def test_an_average_of_parameters_has_the_statistics_of_both(make: Make) -> None:
    one, other = trained(make(), 1, 0.01).model, trained(make(), 2, 0.01).model
    counts, means = zip(*((file["tdnn1.batchnorm"].number("Count"), file["tdnn1.batchnorm"].array("StatsMean"))
                          for file in (one.to_nnet3().components, other.to_nnet3().components)), strict=True)
    one.params.lerp_(other.params, 0.5)
    averaged = one.to_nnet3().components["tdnn1.batchnorm"]
    assert averaged.number("Count") == pytest.approx(sum(counts) / 2)
    np.testing.assert_allclose(averaged.array("StatsMean"), np.average(means, axis=0, weights=counts), rtol=1e-5, atol=1e-6)


def test_a_gradient_that_is_sent_makes_the_step_of_a_worker_alone(make: Make) -> None:
    (alone, _), (sends, totals), (applies, _) = make(), make(), make()
    gradient = torch.zeros_like(alone.model.params)
    for index in range(2):
        trained((alone, totals), 1, 0.01, first=index)
        sends.gradient(minibatch_of(index), gradient, totals)
        applies.apply(gradient, 0.01, 120)
        sends.model.params.copy_(applies.model.params)
    torch.testing.assert_close(applies.model.params, alone.model.params, rtol=1e-5, atol=1e-6)


def test_steps_are_bounded_and_momentum_keeps_their_total_effect(make: Make) -> None:
    optimizer = trained(make(Nnet3Options(max_param_change=0.25)), 1, 10.0)
    start = make()[0].model.params
    change = torch.cat([(optimizer.model.params - start)[part] for part in optimizer.model.map_slices()])
    assert float(change.norm()) == pytest.approx(0.25, rel=1e-4)
    optimizer = trained(make(Nnet3Options(max_param_change=0.0)), 1, 10.0)
    norms = [float((optimizer.model.params - start)[part].norm()) for part in optimizer.model.map_slices()]
    assert norms == pytest.approx([0.75] * 10 + [1.5] + [0.75] * 2 + [1.5], rel=1e-4)
    plain, heavy = (trained(make(Nnet3Options(momentum=m, max_param_change=0.0)), 1, 1e-5).model.params - start for m in (0.0, 0.75))
    for part in optimizer.model.map_slices():
        torch.testing.assert_close(4 * heavy[part], plain[part], rtol=0.1, atol=2e-6)


def test_a_step_that_is_not_finite_is_not_made(make: Make) -> None:
    optimizer, _ = make()
    before = optimizer.model.params.clone()
    optimizer.set_rate(1.0)
    optimizer.velocity[optimizer.model.map_slices()[0].start] = float("inf")
    optimizer._update(optimizer.velocity, 1.0)
    assert torch.equal(optimizer.model.params, before) and not optimizer.velocity.any()


def test_constrained_maps_become_semi_orthogonal_in_every_fourth_step(make: Make) -> None:
    nnet = copy.deepcopy(make()[0].model.nnet)
    nnet.components["tdnnf2.linear"].values["OrthonormalConstraint"] = -1.0
    optimizer, _ = make(nnet=nnet)
    own = next(m for m in optimizer.model.maps if m.orthonormal)
    matrix, changed = optimizer._own[own], 0

    def error() -> float:
        p = matrix @ matrix.t()
        return float(torch.linalg.vector_norm(p / p.trace() * len(p) - torch.eye(len(p))))

    first = error()
    for optimizer.steps in range(200):
        before = matrix.clone()
        optimizer._constrain_orthonormal()
        changed += not torch.equal(matrix, before)
    assert 30 <= changed <= 70 and error() < 1e-3 < 1e-1 < first


def test_networks_and_options_that_do_not_fit_are_refused(make: Make) -> None:
    for option in ({"momentum": 1.0}, {"max_param_change": -1.0}, {"batchnorm_stats_scale": 1.5}):
        with pytest.raises(UserError, match=f"--{next(iter(option)).replace('_', '-')} .* is outside"):
            Nnet3Options(**option)
    nnet = copy.deepcopy(make()[0].model.nnet)
    nnet.components["tdnn1.affine"].values["UpdatePeriod"] = 1
    with pytest.raises(UserError, match="different update-periods"):
        make(nnet=nnet)
