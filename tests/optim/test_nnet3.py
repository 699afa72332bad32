"""Updates of nnet3's components, batch normalisation and the orthonormal constraint beside Kaldi's, minibatch by minibatch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from nnet3_learners import Given, minibatch_of
from torch import Tensor

from pykaldist.errors import UserError
from pykaldist.io.tables import read_archive
from pykaldist.nnet.nnet3 import model as files
from pykaldist.nnet.nnet3.components import Nnet3Component
from pykaldist.nnet.nnet3.computing.batchnorm import BatchNorm
from pykaldist.nnet.nnet3.computing.orthonormal import constrain_orthonormal
from pykaldist.nnet.nnet3.config import parse_node
from pykaldist.nnet.nnet3.network import Nnet3Network
from pykaldist.optim.nnet3 import Nnet3, Nnet3Options

DEFAULTS = {"UseNaturalGradient": True, "NumSamplesHistory": 2000.0, "Alpha": 4.0, "AlphaInOut": [4.0, 4.0], "UpdatePeriod": 4}
COMPONENTS = {"affine": ("NaturalGradientAffineComponent", [0]), "linear": ("LinearComponent", [0]),
              "tdnn": ("TdnnComponent", [-3, 0, 3]), "tdnn_nobias": ("TdnnComponent", [-1, 0])}


@pytest.fixture(scope="module")
def kaldis(golden: Path) -> dict[str, Tensor]:
    return {key: torch.from_numpy(np.array(value)) for key, value in read_archive(golden / "chain/components.ark.gz")}


def component_at(kaldis: dict[str, Tensor], name: str, update: int) -> Nnet3Component:
    """A component with the parameters that it has after so many updates."""
    kind, offsets = COMPONENTS[name]
    linear, bias = kaldis[f"{name}.p{update}.linear"].numpy().copy(), np.zeros(0, np.float32)
    if f"{name}.p{update}.bias" in kaldis:
        bias = kaldis[f"{name}.p{update}.bias"].numpy().ravel().copy()
    ranks = [min(20, (linear.shape[1] + 1) // 2), min(80, (linear.shape[0] + 1) // 2)]
    parameters = {"Params": linear} if kind == "LinearComponent" else {"LinearParams": linear, "BiasParams": bias}
    of_ranks = {"RankIn": ranks[0], "RankOut": ranks[1]} if kind == "NaturalGradientAffineComponent" else {"RankInOut": ranks}
    return Nnet3Component(name, kind, {**DEFAULTS, **parameters, **of_ranks, "TimeOffsets": offsets})


@pytest.mark.parametrize("name", COMPONENTS)
def test_derivatives_of_inputs_are_kaldis(kaldis: dict[str, Tensor], name: str) -> None:
    """They are those of the outputs of a component below, which is the identity."""
    for i in range(1, 13):
        component, offsets = component_at(kaldis, name, i - 1), COMPONENTS[name][1]
        dim = component.linear.shape[1] // len(offsets)
        below = Nnet3Component("below", "LinearComponent", {**DEFAULTS, "Params": np.eye(dim, dtype=np.float32), "RankInOut": [2, 2]})
        nodes = [f"input-node name=input dim={dim}", "component-node name=below component=below input=input",
                 f"component-node name=above component={name} input=below", "output-node name=output input=above"]
        nnet = files.Nnet3({node.name: node for node in map(parse_node, nodes)}, {"below": below, name: component})
        network, seen = Nnet3Network(nnet, subsampling=1), list[Tensor]()

        def rule(map: object, x: Tensor, dy: Tensor, *others: object, seen: list[Tensor] = seen, **more: object) -> None:
            seen.append(dy.clone())

        dy = kaldis[f"{name}.{i}.dy"]
        network.forward_chunks(kaldis[f"{name}.{i}.x"], None, len(dy) // 4, 4, True)
        network.backward_chunks({"output": dy.clone()}, torch.zeros_like(network.params), rule=rule)
        torch.testing.assert_close(seen[-1], kaldis[f"{name}.{i}.dx"], atol=2e-3, rtol=1e-3)


@pytest.mark.parametrize("name", COMPONENTS)
def test_natural_gradient_updates_are_kaldis(kaldis: dict[str, Tensor], name: str) -> None:
    offsets = COMPONENTS[name][1]
    component = component_at(kaldis, name, 0)
    in_dim = component.linear.shape[1]
    nodes = [f"input-node name=input dim={in_dim // len(offsets)}", f"component-node name=only component={name} input=input",
             "output-node name=output input=only"]
    nnet = files.Nnet3({node.name: node for node in map(parse_node, nodes)}, {name: component})
    network = Nnet3Network(nnet, subsampling=1)
    learner = Given(network, [kaldis[f"{name}.{i}.x"].view(-1, 4, in_dim // len(offsets)) for i in range(1, 13)],
                    [kaldis[f"{name}.{i}.dy"] for i in range(1, 13)])
    optimizer = Nnet3(learner, Nnet3Options(max_param_change=0.0))
    for i in range(1, 13):
        optimizer.local_step(minibatch_of(i - 1), 0.05, torch.zeros(1, dtype=torch.float64))
        torch.testing.assert_close(learner.outputs[-1], kaldis[f"{name}.{i}.y"], atol=3e-3 if name == "tdnn_nobias" else 1e-4, rtol=1e-4)
        params = network.views(network.params)[0]
        torch.testing.assert_close(params[0], kaldis[f"{name}.p{i}.linear"], atol=5e-4 if name == "tdnn_nobias" else 1e-4, rtol=1e-4)
        if len(params) > 1:
            torch.testing.assert_close(params[1], kaldis[f"{name}.p{i}.bias"].ravel(), atol=1e-4, rtol=1e-4)
    moved = np.abs(network.to_nnet3().components[name].linear - kaldis[f"{name}.p0.linear"].numpy()).max()
    assert moved > 0.05  # by no trifle


def network_of(component: Nnet3Component) -> Nnet3Network:
    """A network that has this affine component alone."""
    nodes = [f"input-node name=input dim={component.linear.shape[1]}", "component-node name=only component=affine input=input",
             "output-node name=output input=only"]
    return Nnet3Network(files.Nnet3({node.name: node for node in map(parse_node, nodes)}, {"affine": component}), subsampling=1)


@pytest.mark.parametrize("minibatches", [1, 4])
def test_parameters_shrink_in_proportion_to_the_rate(kaldis: dict[str, Tensor], minibatches: int) -> None:
    """As Kaldi's do in an iteration, whatever minibatches its frames are in."""
    network = network_of(component_at(kaldis, "affine", 0))
    optimizer = Nnet3(Given(network, [], []), Nnet3Options(proportional_shrink=10.0, shrink_frames=100 * minibatches))
    before = network.params.clone()
    for _ in range(minibatches):
        optimizer.apply(torch.zeros_like(network.params), 0.03, 100)
    torch.testing.assert_close(network.params, 0.7 * before)
    with pytest.raises(UserError, match=r"give less than 8\.33\."):
        optimizer.apply(torch.zeros_like(network.params), 0.06, 100)


def test_a_small_factor_is_not_lost_in_single_precision(kaldis: dict[str, Tensor]) -> None:
    network = network_of(component_at(kaldis, "affine", 0))
    optimizer = Nnet3(Given(network, [], []), Nnet3Options(proportional_shrink=1.0, shrink_frames=400_000))
    before = network.params.clone()
    for _ in range(20_000):
        optimizer.set_rate(3e-5)
        optimizer._set_frames(256)
        optimizer._shrink([slice(0, len(before))])
    wanted = (1 - 3e-5) ** (20_000 * 256 / 400_000)
    torch.testing.assert_close(network.params / before, torch.full_like(before, wanted), rtol=0, atol=1.2e-4)
    assert 0 < (before - network.params).abs().max() / before.abs().max() < 1e-3


def test_batch_normalisation_is_kaldis(kaldis: dict[str, Tensor]) -> None:
    norm, statistics = BatchNorm(target_rms=0.7, epsilon=0.001), [torch.zeros(1), torch.zeros(6), torch.zeros(6)]
    for i in range(1, 5):
        one = norm.forward(kaldis[f"batchnorm.{i}.x"])
        torch.testing.assert_close(one.y, kaldis[f"batchnorm.{i}.y"], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(norm.backward(one, kaldis[f"batchnorm.{i}.dy"]), kaldis[f"batchnorm.{i}.dx"], atol=1e-5, rtol=1e-5)
        statistics = [(0.8 if i == 2 else 1.0) * (old + new) for old, new in zip(statistics, one.statistics(), strict=True)]
    scale, offset = norm.scale_and_offset(*statistics)
    torch.testing.assert_close(scale, kaldis["batchnorm.test.scale"].ravel(), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(offset, kaldis["batchnorm.test.offset"].ravel(), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(kaldis["batchnorm.test.x"] * scale + offset, kaldis["batchnorm.test.y"], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("name", "constraint"), [("float_random", -1.0), ("float_mid", -1.0), ("float_near", -1.0), ("one", 1.0),
                                                  ("tall_float", -1.0)])
def test_the_orthonormal_constraint_is_kaldis(kaldis: dict[str, Tensor], name: str, constraint: float) -> None:
    matrix = kaldis[f"ortho_{name}.0"].clone()
    for i in range(1, 7):
        constrain_orthonormal(matrix, constraint)
        torch.testing.assert_close(matrix, kaldis[f"ortho_{name}.{i}"], atol=1e-5, rtol=1e-5)


def test_a_matrix_that_has_no_constraint_or_no_length_stays() -> None:
    ones, zeros = torch.ones(2, 3), torch.zeros(2, 3)
    constrain_orthonormal(ones, 0.0)
    constrain_orthonormal(zeros, -1.0)
    assert (ones == 1).all() and (zeros == 0).all()
