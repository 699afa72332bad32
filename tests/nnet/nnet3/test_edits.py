"""Edits of networks, averages beside numpy's, and contexts of recurrent networks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from pykaldist.errors import UserError
from pykaldist.nnet.nnet3.edits import edit, scaled, weighted_sum, without_recurrence
from pykaldist.nnet.nnet3.initialise import initialised
from pykaldist.nnet.nnet3.model import Nnet3
from pykaldist.nnet.nnet3.plan import Plan


@pytest.fixture
def kaldis(golden: Path) -> Nnet3:
    return Nnet3.read(golden / "chain/net/final.raw")


def test_an_output_takes_the_place_of_another(kaldis: Nnet3) -> None:
    made = edit(kaldis, "remove-output-nodes name=output; rename-node old-name=output-xent new-name=output\nremove-orphans  # rest")
    assert made.nodes["output"].input == kaldis.nodes["output-xent"].input and "output-xent" not in made.nodes
    assert "prefinal-chain.affine" not in made.components and "output.affine" not in made.nodes
    assert {"tdnn1.affine", "prefinal-xent.affine", "output-xent.affine"} <= set(made.components)
    assert "output-xent" in kaldis.nodes  # as it was


def test_a_node_that_others_take_from_is_renamed_there_too(kaldis: Nnet3) -> None:
    made = edit(kaldis, "rename-node old-name=tdnnf2.noop new-name=two")
    assert str(made.nodes["tdnnf3.noop"].input) == "Sum(Scale(0.66, two), tdnnf3.dropout)"
    assert list(made.nodes).index("two") == list(kaldis.nodes).index("tdnnf2.noop")


def test_rates_factors_and_dropout_are_set_where_names_match(kaldis: Nnet3) -> None:
    made = edit(kaldis, "set-learning-rate-factor name=tdnnf* learning-rate-factor=0.25; set-learning-rate learning-rate=0.1;"
                        "set-dropout-proportion name=*4.dropout proportion=0.3; set-learning-rate-factor name=output-xent.* "
                        "learning-rate-factor=1.0")
    rates = {name: component.values["LearningRate"] for name, component in made.components.items() if "LearningRate" in component.values}
    assert rates["tdnnf2.linear"] == pytest.approx(0.025) and rates["prefinal-l"] == 0.1 and rates["output-xent.affine"] == 0.5
    assert "LearningRateFactor" not in made.components["output-xent.affine"].values
    assert [made.components[f"tdnnf{n}.dropout"].values["DropoutProportion"] for n in (2, 4)] == [0.0, 0.3]
    assert kaldis.components["tdnnf4.dropout"].values["DropoutProportion"] == 0.0


def test_affine_components_become_fixed(kaldis: Nnet3) -> None:
    made = edit(kaldis, "convert-to-fixed-affine name=tdnn1*")
    assert made.components["tdnn1.affine"].type == "FixedAffineComponent"
    assert made.num_params == kaldis.num_params - 120 * 32 - 32
    assert kaldis.components["tdnn1.affine"].type == "NaturalGradientAffineComponent"


def test_orphaned_inputs_stay_unless_they_are_to_go() -> None:
    nnet = initialised(["input-node name=input dim=2", "input-node name=ivector dim=3", "component name=a type=NoOpComponent dim=2",
                        "component-node name=a component=a input=input", "component-node name=b component=a input=a",
                        "output-node name=output input=a"], torch.Generator())
    assert list(edit(nnet, "remove-orphan-nodes").nodes) == ["input", "ivector", "a", "output"]
    assert list(edit(nnet, "remove-orphans remove-orphan-inputs=true").nodes) == ["input", "a", "output"]


@pytest.mark.parametrize(("directive", "problem"), [
    ("remove-output-node name=output", "there is no edit remove-output-node; the nearest .*remove-output-nodes"),
    ("rename-node old-name=ouput new-name=a", "there is no node ouput; the nearest are output"),
    ("rename-node old-name=output new-name=idct", "there is a node idct already"),
    ("rename-node old-name=output", "has no new-name="),
    ("remove-output-nodes name=output*", "no output would be left"),
    ("set-learning-rate name=tdnn9* learning-rate=1", r"no component matches tdnn9\*"),
    ("set-learning-rate learning-rate=fast", "expected a number of at least 0 in learning-rate=, found 'fast'"),
    ("remove-orphans name=a", "no field name="),
    ("reduce-rank name=a rank=2", "there is no edit reduce-rank"),
])
def test_what_is_wrong_with_an_edit_is_said(kaldis: Nnet3, directive: str, problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        edit(kaldis, directive)


def test_an_average_is_that_of_parameters_and_of_sums_of_statistics(golden: Path) -> None:
    nnets, weights = [Nnet3.read(golden / f"chain/net/{name}") for name in ("final.raw", "train.8.raw.txt.gz")], [0.3, 0.7]
    made = weighted_sum(nnets, weights)
    for token, name in (("LinearParams", "tdnnf2.linear"), ("BiasParams", "output.affine"), ("Params", "prefinal-l")):
        expected = sum(w * nnet.components[name].array(token) for w, nnet in zip(weights, nnets, strict=True))
        np.testing.assert_allclose(made.components[name].array(token), expected, rtol=1e-5, atol=1e-7)
    ours, norms = made.components["tdnn1.batchnorm"], [nnet.components["tdnn1.batchnorm"] for nnet in nnets]
    counts = [w * norm.number("Count") for w, norm in zip(weights, norms, strict=True)]
    means = sum(n * norm.array("StatsMean") for n, norm in zip(counts, norms, strict=True)) / sum(counts)
    squares = sum(n * (norm.array("StatsVar") + norm.array("StatsMean")**2) for n, norm in zip(counts, norms, strict=True)) / sum(counts)
    assert ours.values["Count"] == pytest.approx(sum(counts))
    np.testing.assert_allclose(ours.array("StatsMean"), means, rtol=1e-5)
    np.testing.assert_allclose(ours.array("StatsVar"), squares - means**2, rtol=1e-4, atol=1e-6)
    relus = [nnet.components["tdnn1.relu"] for nnet in nnets]
    counts = [w * relu.number("Count") for w, relu in zip(weights, relus, strict=True)]
    expected = sum(n * relu.array("ValueAvg") for n, relu in zip(counts, relus, strict=True)) / sum(counts)
    np.testing.assert_allclose(made.components["tdnn1.relu"].array("ValueAvg"), expected, rtol=1e-5, atol=1e-7)


def test_a_network_is_the_average_of_itself(kaldis: Nnet3) -> None:
    for made in (weighted_sum([kaldis] * 3, [0.2, 0.3, 0.5]), scaled(scaled(kaldis, 2.0), 0.5)):
        for name, component in kaldis.components.items():
            for token, value in component.values.items():
                np.testing.assert_allclose(made.components[name].values[token], value, rtol=1e-5, atol=1e-7)
    with pytest.raises(UserError, match=r"differ in the component tdnn1.affine"):
        weighted_sum([kaldis, edit(kaldis, "convert-to-fixed-affine name=tdnn1.affine")], [0.5, 0.5])


def test_a_context_is_counted_without_what_may_be_missing() -> None:
    nnet = initialised(["input-node name=input dim=2", "component name=a type=NoOpComponent dim=2",
                        "component-node name=a component=a input=Sum(Offset(input, -2), IfDefined(Offset(a, -1)))",
                        "output-node name=output input=Append(a, Offset(a, 3))"], torch.Generator())
    plan = Plan(without_recurrence(nnet))
    assert (plan.left_context, plan.right_context) == (2, 1)
    assert "IfDefined" in str(nnet.nodes["a"].input)
