"""The optimiser nnet3 on convolutions, scales and offsets beside their updates written out; a CNN-TDNN and a delta network learn."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from nnet3_learners import Given, Untested, minibatch_of
from nnet3_lines import LINES, network_of
from torch import Tensor

from pykaldist.frames.sampler import Minibatch
from pykaldist.nnet.components import GradientRule, outer_product
from pykaldist.nnet.nnet3.initialise import initialised
from pykaldist.nnet.nnet3.network import Nnet3Network
from pykaldist.nnet.nnet3.presets import PresetOptions, Sides, preset
from pykaldist.nnet.nnet3.xconfig.convert import config_lines, read_layers
from pykaldist.optim.natural_gradient import OnlineNaturalGradient
from pykaldist.optim.nnet3 import Nnet3, Nnet3Options

RATE, SEQUENCES, FRAMES = 0.01, 3, 4


def learner_of(kind: str, minibatches: int) -> Given:
    network = Nnet3Network(network_of(kind), dtype=torch.float64, subsampling=1)
    rng = torch.Generator().manual_seed(1)
    frames = FRAMES + network.left_context + network.right_context
    inputs = [torch.randn(frames, SEQUENCES, LINES[kind][1], generator=rng, dtype=torch.float64) for _ in range(minibatches)]
    derivatives = [torch.randn(FRAMES * SEQUENCES, network.output_dim, generator=rng, dtype=torch.float64) for _ in range(minibatches)]
    return Given(network, inputs, derivatives)


def preconditioned(side: OnlineNaturalGradient, x: Tensor) -> tuple[Tensor, float]:
    """A minibatch of rows preconditioned, and the factor of their norm."""
    x = x.clone()
    if side.calls == 0:
        side.start(x)
    _, gamma = side.precondition(x)
    if side.collecting:
        side.finish(side.update())
    side.advance()
    return x, float(gamma)


def plain_gradient(learner: Given, index: int) -> Tensor:
    grads = torch.zeros_like(learner.model.params)
    learner.gradient(minibatch_of(index), grads, 0.0, torch.zeros(1, dtype=torch.float64), outer_product)
    return grads


def test_a_convolutions_gradient_is_preconditioned_as_a_whole() -> None:
    steps = 16  # the Fisher models are updated in each of the first eleven, then in every fourth
    learner = learner_of("convolution", steps)
    optimizer = Nnet3(learner, Nnet3Options(max_param_change=0.0))
    sides = [OnlineNaturalGradient(19, 10, 4, 3 / (-4 * math.log(0.75)), dtype=torch.float64),  # of rows; 4 minibatches of history
             OnlineNaturalGradient(3, 2, 4, 19 / (-4 * math.log(0.75)), dtype=torch.float64)]
    for step in range(steps):
        before = learner.model.params.clone()
        gradient = plain_gradient(learner, step)
        weight, bias = gradient[:54].view(3, 18), gradient[54:57]
        rows, by_rows = preconditioned(sides[0], torch.cat([weight, bias[:, None]], 1))
        columns, by_columns = preconditioned(sides[1], rows.t().contiguous())
        columns *= by_rows * by_columns
        optimizer.local_step(minibatch_of(step), RATE, torch.zeros(1, dtype=torch.float64))
        moved = before - learner.model.params
        torch.testing.assert_close(moved[:54].view(3, 18), RATE * columns[:18].t(), rtol=1e-3, atol=1e-6)
        torch.testing.assert_close(moved[54:57], RATE * columns[18], rtol=1e-3, atol=1e-6)
        assert float(moved.norm()) == pytest.approx(RATE * float(gradient.norm()), rel=1e-6)  # the scale keeps the norm
    assert float((moved - RATE * gradient).norm()) > 0.1 * float(moved.norm())


@pytest.mark.parametrize(("kind", "scaled", "shifted"), [("scale-offset", 1, 1), ("natural-scale", 1, 0), ("scale", 1, 0),
                                                         ("offset", 0, 1)])
def test_scales_and_offsets_have_the_natural_gradient_of_their_rows(kind: str, scaled: int, shifted: int) -> None:
    learner = learner_of(kind, 14)
    optimizer = Nnet3(learner, Nnet3Options(max_param_change=0.0))
    block = learner.model.maps[0].input_dim
    rank = {"scale": 0, "natural-scale": 8, "offset": 20, "scale-offset": 20}[kind]
    sides = [OnlineNaturalGradient(block, rank, 4, 2000.0, dtype=torch.float64) for _ in range(2)]
    for step in range(14):
        before = learner.model.params.clone()
        x, dy = (tensor[step].reshape(-1, block) for tensor in (learner.inputs, learner.derivatives))
        optimizer.local_step(minibatch_of(step), RATE, torch.zeros(1, dtype=torch.float64))
        chosen = [one for one, there in zip(zip(sides, (dy * x, dy), strict=True), (scaled, shifted), strict=True) if there]
        expected = [rows.sum(0) * scale for rows, scale in (preconditioned(side, rows) for side, rows in chosen)]
        for moved, gradient in zip((learner.model.params - before)[:block * len(expected)].split(block), expected, strict=True):
            torch.testing.assert_close(moved, RATE * gradient, rtol=1e-3, atol=1e-6)


class Labels(Untested):
    """A learner of a label for each output frame, which depends on the features; by the branch output-xent."""

    num_totals = 2

    def __init__(self, network: Nnet3Network, labels: int) -> None:
        self.model: Nnet3Network = network
        self.labels, self.teacher = labels, torch.randn(network.input_dim, labels, generator=torch.Generator().manual_seed(7))

    def gradient(self, minibatch: Minibatch, grads: Tensor, beta: float, totals: Tensor, rule: GradientRule = outer_product) -> None:
        model, rng = self.model, torch.Generator().manual_seed(minibatch.index % 4)  # of 4 minibatches
        frames = 3 * 4 + model.left_context + model.right_context
        feats = torch.randn(frames, 1, model.input_dim, generator=rng) + 2 * torch.randn(1, 8, model.input_dim, generator=rng)
        ivectors = torch.randn(8, 10, generator=rng)
        outputs = model.forward_chunks(feats.flatten(0, 1), ivectors, 4, 8, True, self.training_generator(minibatch))
        answer = (feats[model.left_context::3][:4] @ self.teacher).argmax(2).flatten()
        log_likelihood = outputs["output-xent"].gather(1, answer[:, None]).mean()
        totals += torch.tensor([float(log_likelihood), 1.0])
        wanted = torch.nn.functional.one_hot(answer, self.labels).float()
        model.backward_chunks({"output": -0.01 * wanted, "output-xent": -wanted}, grads, beta, rule)


@pytest.mark.parametrize(("name", "steps"), [("cnn-tdnn", 20), ("tdnnf-1k", 60)])
def test_presets_of_convolutions_and_deltas_learn(name: str, steps: int, tmp_path: Path) -> None:
    sides = Sides(16, 10, 5, str(tmp_path / "idct.mat"))
    layers = read_layers(preset(name, sides, PresetOptions(hid_layers=3, hid_dim=32, bottleneck_dim=8, l2_regularize=0.001)).splitlines())
    (tmp_path / "idct.mat").write_text("[ " + "\n".join(" ".join("1" if i == j else "0" for j in range(17)) for i in range(16)) + " ]")
    nnet = initialised(config_lines(layers)["final"], torch.Generator().manual_seed(1), tmp_path)
    learner = Labels(Nnet3Network(nnet), 5)
    optimizer = Nnet3(learner, Nnet3Options())
    found = []
    for step in range(steps):
        totals = torch.zeros(2, dtype=torch.float64)
        optimizer.local_step(minibatch_of(step), 0.0015, totals)
        found.append(float(totals[0]))
    assert found[0] == pytest.approx(-math.log(5), abs=0.01)  # output layers start at zero
    assert sum(found[-4:]) > sum(found[:4]) + 0.4
    again = learner.model.to_nnet3()
    assert again.components["prefinal-l"].values["Params"].shape == nnet.components["prefinal-l"].values["Params"].shape
