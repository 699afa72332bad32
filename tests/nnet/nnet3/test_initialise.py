"""Networks made from config lines: the components of Kaldi's own, field by field; parameters of the distributions that are asked for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from pykaldist.errors import UserError
from pykaldist.nnet.nnet3.initialise import initialised, initialised_component
from pykaldist.nnet.nnet3.model import Nnet3


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_kaldis_config_makes_kaldis_network(golden: Path) -> None:
    net = golden / "chain/net"
    kaldis = Nnet3.read(net / "train.0.raw")
    ours = initialised((net / "train.config").read_text().splitlines(), generator(), net)
    assert [str(node) for node in ours.nodes.values()] == [str(node) for node in kaldis.nodes.values()]
    assert list(ours.components) == list(kaldis.components)
    for name, component in kaldis.components.items():
        made = ours.components[name]
        assert (made.type, list(made.values)) == (component.type, list(component.values))
        for token, value in component.values.items():
            found = made.values[token]
            if isinstance(value, np.ndarray) and component.type != "FixedAffineComponent":
                assert isinstance(found, np.ndarray) and (found.shape, found.dtype) == (value.shape, value.dtype)
                if value.size:  # drawn from the same distribution
                    assert found.std() == pytest.approx(value.std(), rel=0.6, abs=1e-6)
            else:
                np.testing.assert_allclose(found, value, rtol=1e-6)


@pytest.mark.parametrize(("line", "stddev", "bias_mean", "bias_stddev"), [
    ("type=NaturalGradientAffineComponent input-dim=400 output-dim=300", 0.05, 0, 1),
    ("type=AffineComponent input-dim=400 output-dim=300 bias-mean=2 bias-stddev=0.5", 0.05, 2, 0.5),
    ("type=NaturalGradientAffineComponent input-dim=400 output-dim=300 param-stddev=0.3 bias-stddev=0", 0.3, 0, 0),
    ("type=TdnnComponent input-dim=200 output-dim=300 time-offsets=-3,0", 0.05, 0, 1),
])
def test_parameters_have_the_distribution_that_is_asked_for(line: str, stddev: float, bias_mean: float, bias_stddev: float) -> None:
    made = initialised_component(f"component name=a {line}", generator())
    weights, bias = made.linear, made.array("BiasParams")
    assert weights.std() == pytest.approx(stddev, rel=0.02) and abs(weights.mean()) < 4 * stddev / weights.size**0.5
    assert bias.std() == pytest.approx(bias_stddev, rel=0.15, abs=1e-9)
    assert bias.mean() == pytest.approx(bias_mean, abs=5 * bias_stddev / len(bias)**0.5)
    again = initialised_component(f"component name=a {line}", generator())
    np.testing.assert_array_equal(again.linear, weights)


def test_defaults_are_kaldis() -> None:
    made = initialised_component("component name=a type=NaturalGradientAffineComponent input-dim=13 output-dim=500", generator())
    assert {token: value for token, value in made.values.items() if not isinstance(value, np.ndarray)} == {
        "LearningRate": 0.001, "RankIn": 7, "RankOut": 80, "UpdatePeriod": 4, "NumSamplesHistory": 2000.0, "Alpha": 4.0}
    made = initialised_component("component name=a type=LinearComponent input-dim=40 output-dim=3 orthonormal-constraint=-1 "
                                 "max-change=0.75 learning-rate-factor=5 l2-regularize=0.01 learning-rate=0.02", generator())
    assert {token: value for token, value in made.values.items() if not isinstance(value, np.ndarray)} == {
        "LearningRateFactor": 5.0, "MaxChange": 0.75, "L2Regularize": 0.01, "LearningRate": 0.02, "OrthonormalConstraint": -1.0,
        "UseNaturalGradient": True, "RankInOut": [20, 2], "Alpha": 4.0, "NumSamplesHistory": 2000.0, "UpdatePeriod": 4}


def test_an_existing_network_is_added_to() -> None:
    old = initialised(["input-node name=input dim=3", "component name=a type=AffineComponent input-dim=3 output-dim=4",
                       "component-node name=a component=a input=input", "output-node name=output input=a"], generator())
    new = initialised(["component name=b type=AffineComponent input-dim=4 output-dim=2", "component-node name=b component=b input=a",
                       "output-node name=output input=b objective=quadratic"], generator(), existing=old)
    assert [str(node) for node in new.nodes.values()] == [
        "input-node name=input dim=3", "component-node name=a component=a input=input", "component-node name=b component=b input=a",
        "output-node name=output input=b objective=quadratic"]
    assert new.components["a"] is old.components["a"] and new.dim("output") == 2 and old.dim("output") == 4


@pytest.mark.parametrize(("lines", "problem"), [
    (["component name=a type=LinearComponent input-dim=3 output-dim=4 bias-sttdev=1"], r"line 1 .*no field bias-sttdev="),
    (["", "# c", "component name=a type=LinearComponent input-dim=3 output-dim=4 max-chang=1"], r"line 3 .*the nearest is max-change"),
    (["component name=a type=LinerComponent input-dim=3 output-dim=4"], "LinerComponent are not made here; the nearest .*LinearComponent"),
    (["component name=a type=LinearComponent input-dim=3"], "it has no output-dim="),
    (["component name=a type=LinearComponent input-dim=3.5 output-dim=4"], "expected an integer of at least 1 in input-dim=, found '3.5'"),
    (["component name=a type=LinearComponent input-dim=3 output-dim=4 max-change=-1"], "at least 0 in max-change=, found '-1'"),
    (["component name=a type=LinearComponent input-dim=3 output-dim=4 max-change=nan"], "expected a number"),
    (["component name=a type=TdnnComponent input-dim=3 output-dim=4 time-offsets=-1,0,0"], "different integers .* found '-1,0,0'"),
    (["component name=a type=BatchNormComponent dim=6 block-dim=4"], "block-dim=4 does not divide dim=6"),
    (["component name=a type=FixedAffineComponent matrix=lda.mat"], "lda.mat, which the config names, is not there"),
    (["component name=a type=NoOpComponent dim=6 backprop-scale"], "expected fields as key=value, found 'backprop-scale'"),
    (["component name=a type=NoOpComponent dim=6"] * 2, "line 2 .*component a is there twice"),
    (["input-node name=input dim=3"] * 2, "line 2 .*node input is there twice"),
    (["layer name=a"], "expected component or input-node"),
    (["input-node name=input dim=3", "output-node name=output input=b"], "no node b"),
    (["# nothing"], "has no nodes"),
])
def test_what_is_wrong_with_a_line_is_said(lines: list[str], problem: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=problem):
        initialised(lines, generator(), tmp_path)
