"""What components compute beside loops over Kaldi's definitions, in the test and in training; gradients beside differences."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from nnet3_lines import CONVOLUTION, LINES, OTHER_LINES, network_of

from pykaldist.errors import UserError
from pykaldist.nnet.components import outer_product
from pykaldist.nnet.nnet3.components import Nnet3Component
from pykaldist.nnet.nnet3.computing.kinds import layer_of
from pykaldist.nnet.nnet3.computing.masks import frequency_mask, time_mask
from pykaldist.nnet.nnet3.initialise import initialised_component
from pykaldist.nnet.nnet3.network import Nnet3Network
from pykaldist.nnet.nnet3.run import Nnet3Forward

RANDOM = {"dropout", "general-dropout", "frequency-mask", "time-mask"}
BY_FRAME = sorted(set(LINES) - RANDOM - {"tdnn", "convolution", "attention", "batchnorm"})
SEQUENCES, FRAMES = 2, 3


def slow_convolution(component: Nnet3Component, frames: list[np.ndarray]) -> np.ndarray:
    """A convolution's output at one frame, of the input's frames at its time offsets, by its definition."""
    heights, filters, step = component.integer("HeightIn"), component.integer("NumFiltersIn"), component.integer("HeightSubsampleOut")
    images = [frame.reshape(heights, filters) for frame in frames]
    out = []
    for height in range(component.integer("HeightOut")):
        for row, bias in zip(component.linear, component.array("BiasParams"), strict=True):
            total = float(bias)
            for number, (time, offset) in enumerate(component.offsets):
                source = step * height + offset
                if 0 <= source < heights:
                    weights = row[number * filters:(number + 1) * filters]
                    total += float(weights @ images[component.time_offsets.index(time)][source])
            out.append(total)
    return np.array(out)


def slow_frame(kind: str, component: Nnet3Component, x: np.ndarray) -> list[float]:
    """A component's output for one frame, by its definition."""
    values, dim = component.values, len(x)
    match kind:
        case "affine" | "natural" | "linear" | "tdnn-linear" | "fixed":
            bias = values.get("BiasParams")
            return [sum(w * v for w, v in zip(row, x, strict=True)) + (bias[i] if bias is not None and len(bias) else 0)
                    for i, row in enumerate(component.linear)]
        case "fixed-scale" | "scale" | "natural-scale":
            return [s * v for s, v in zip(values["Scales" if kind == "fixed-scale" else "Params"], x, strict=True)]
        case "scale-offset":
            return [values["Scales"][i % 3] * x[i] + values["Offsets"][i % 3] for i in range(dim)]
        case "offset":
            return [x[i] + values["Offsets"][i % 3] for i in range(dim)]
        case "relu" | "relu-blocks":
            return [max(v, 0) for v in x]
        case "sigmoid":
            return [1 / (1 + math.exp(-v)) for v in x]
        case "tanh":
            return [math.tanh(v) for v in x]
        case "softmax" | "log-softmax":
            shares = [math.exp(v) / sum(math.exp(w) for w in x) for v in x]
            return shares if kind == "softmax" else [math.log(share) for share in shares]
        case "normalize" | "normalize-blocks":
            block, target, out = (dim, 0.5, []) if kind == "normalize" else (3, 1.0, [])
            for start in range(0, dim, block):
                part = x[start:start + block]
                rms = math.sqrt(sum(v * v for v in part) / block)
                out += [v * target / rms for v in part] + ([math.log(rms)] if kind != "normalize" else [])
            return out
        case "pnorm":
            return [math.sqrt(sum(v * v for v in x[3 * i:3 * i + 3])) for i in range(2)]
        case "gru" | "projected-gru":
            n = 3 if kind == "gru" else 2
            u = [x[3 + i] * x[-n:][i] for i in range(n)]
            h = [math.tanh(x[3 + n + i] + sum(w * v for w, v in zip(values["w_h"][i], u, strict=True))) for i in range(3)]
            return h + [(1 - x[i]) * h[i] + x[i] * x[6 + n + i] for i in range(3)]
        case "output-gru":
            h = [math.tanh(x[3 + i] + values["w_h"][i] * x[6 + i]) for i in range(3)]
            return h + [(1 - x[i]) * h[i] + x[i] * x[6 + i] for i in range(3)]
        case "permute":
            return [x[2], x[0], x[3], x[1]]
        case "sum-block":
            return [0.3 * (x[i] + x[i + 2] + x[i + 4]) for i in range(2)]
        case "product":
            return [x[i] * x[i + 2] * x[i + 4] for i in range(2)]
        case _:  # no-op
            return list(x)


@pytest.mark.parametrize("kind", BY_FRAME)
def test_a_component_computes_what_it_is_defined_as(kind: str) -> None:
    nnet = network_of(kind)
    x = np.random.default_rng(1).standard_normal((6, LINES[kind][1])).astype(np.float32)
    expected = np.array([slow_frame(kind, nnet.components["one"], frame) for frame in x.astype(np.float64)])
    np.testing.assert_allclose(Nnet3Forward(nnet)(x), expected, atol=2e-6)
    network = Nnet3Network(nnet, subsampling=1)
    outputs = network.forward_chunks(torch.from_numpy(x), None, 3, 2)["output"]
    np.testing.assert_allclose(outputs.numpy(), expected, atol=2e-6)


@pytest.mark.parametrize("more", ["", "height-subsample-out=1 height-out=5", "height-offsets=0,2", "height-offsets=-7,0 height-out=2",
                                  "offsets=-2,1;0,-1;1,0"])
def test_a_convolution_computes_what_it_is_defined_as(more: str) -> None:
    fields = dict(word.split("=", 1) for word in f"{CONVOLUTION} {more}".split())
    nnet = network_of("convolution")
    one = initialised_component("component name=one " + " ".join(f"{k}={v}" for k, v in fields.items() if k not in ("time-offsets",
                                "height-offsets") or "offsets" not in fields), torch.Generator().manual_seed(1))
    nnet.components["one"] = one
    x = np.random.default_rng(2).standard_normal((9, 10)).astype(np.float32)
    expected = np.array([slow_convolution(one, [x[min(max(t + offset, 0), 8)] for offset in one.time_offsets]) for t in range(9)])
    np.testing.assert_allclose(Nnet3Forward(nnet)(x), expected, atol=1e-5)
    network = Nnet3Network(nnet, subsampling=1)
    assert (network.left_context, network.right_context) == (2, 1)
    outputs = network.forward_chunks(torch.from_numpy(np.repeat(x, 2, 0)), None, 6, 2)["output"].view(6, 2, -1)
    np.testing.assert_allclose(outputs[:, 1].numpy(), expected[2:8], atol=1e-5)


@pytest.mark.parametrize("kind", sorted(set(LINES) - RANDOM))
def test_gradients_are_those_of_differences(kind: str) -> None:
    """The gradient of sum(c y), c fixed numbers, with respect to parameters and inputs, double precision."""
    nnet = network_of(kind)
    network = Nnet3Network(nnet, dtype=torch.float64, subsampling=1)
    rng = torch.Generator().manual_seed(3)
    frames = FRAMES + network.left_context + network.right_context
    feats = torch.randn(frames * SEQUENCES, LINES[kind][1], generator=rng, dtype=torch.float64)
    c = torch.randn(FRAMES * SEQUENCES, nnet.dim("output"), generator=rng, dtype=torch.float64)

    def loss(x: torch.Tensor) -> float:
        return float((network.forward_chunks(x, None, FRAMES, SEQUENCES, training=True)["output"] * c).sum())

    loss(feats)
    grads = torch.zeros_like(network.params)
    network.backward_chunks({"output": c}, grads)
    for part in network.map_slices():
        for n in range(part.start, part.stop):
            kept, step = network.params[n].item(), 1e-6
            network.params[n] = kept + step
            above = loss(feats)
            network.params[n] = kept - step
            expected = (above - loss(feats)) / (2 * step) * network.maps[0].learn_rate_coef
            assert float(grads[n]) == pytest.approx(expected, rel=1e-4, abs=1e-6)
            network.params[n] = kept
    offsets = nnet.components["one"].time_offsets
    if offsets == [0]:  # the layer's own derivatives of inputs; what chunks do with those of other frames is tested beside network.py
        loss(feats)
        layer, y, run = network.layers["one"], network._values["one"], network._runs["one"]
        dx = layer.backward(network._inputs["one"].clone(), y, c.clone(), run, True, [torch.zeros_like(v) for v in
                            network.views(network.params)[0]], 0.0, outer_product)
        assert dx is not None
        for n in range(feats.shape[1]):
            moved = feats.clone()
            moved[1, n] += 1e-6
            below = feats.clone()
            below[1, n] -= 1e-6
            assert float(dx[1, n]) == pytest.approx((loss(moved) - loss(below)) / 2e-6, rel=1e-4, abs=1e-6)


def test_patches_go_back_where_they_come_from() -> None:
    """<patches(x), p> = <x, back(p)> for any x and p."""
    layer = layer_of(network_of("convolution").components["one"])
    rng = torch.Generator().manual_seed(4)
    x = torch.randn(4, 30, generator=rng, dtype=torch.float64)
    patches = layer.patches.of(x)  # type: ignore[attr-defined]
    p = torch.randn(patches.shape, generator=rng, dtype=torch.float64)
    assert float((patches * p).sum()) == pytest.approx(float((x * layer.patches.back(p)).sum()))  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", sorted(RANDOM))
def test_masks_are_drawn_in_training_alone(kind: str) -> None:
    network = Nnet3Network(network_of(kind), subsampling=1)
    x = torch.ones(40 * 50, 4)
    kept = 0.8 if kind == "dropout" else 1.0  # what stays is not scaled up in training, so that all is scaled down in the test
    np.testing.assert_array_equal(network.forward_chunks(x, None, 40, 50)["output"], x * kept)
    masked = network.forward_chunks(x, None, 40, 50, True, torch.Generator().manual_seed(1))["output"].view(40, 50, 4)
    dy = torch.ones(2000, 4)
    layer, run = network.layers["one"], network._runs["one"]
    back = layer.backward(x, masked.view(2000, 4), dy, run, True, [], 0.0, outer_product)
    assert back is not None
    np.testing.assert_array_equal(back, masked.view(2000, 4))
    share = float((masked == 0).float().mean())
    match kind:
        case "dropout":
            assert set(masked.unique().tolist()) == {0.0, 1.0} and share == pytest.approx(0.2, abs=0.03)
        case "frequency-mask":  # 0 to 2 of 4 dimensions, the same in all frames of a sequence
            assert bool((masked == masked[:1]).all()) and share == pytest.approx(0.25, abs=0.08)
            assert len(masked[0].sum(1).unique()) == 3
        case "time-mask":
            assert bool((masked == masked[:, :, :1]).all()) and share == pytest.approx(0.2, abs=0.06)
            assert len(masked[:, :, 0].t().unique(dim=0)) > 45


def test_time_masks_are_stretches_within_their_bounds() -> None:
    mask = time_mask(200, 300, 0.25, 8, torch.Generator().manual_seed(2), torch.device("cpu")).numpy()
    assert 1 - mask.mean() == pytest.approx(0.25, abs=0.02) and (1 - mask[0]).mean() == pytest.approx(0.75, abs=0.08)
    for sequence in mask.T[:50]:
        ends = np.flatnonzero(np.diff(sequence)) + 1
        for part in np.split(sequence, ends)[1:-1]:
            assert len(part) <= (24 if part[0] else 8)  # 8 x 0.75 / 0.25


def test_frequency_masks_are_bands_that_may_go_around_the_end() -> None:
    mask = frequency_mask(2000, 10, 0.45, torch.Generator().manual_seed(2), torch.device("cpu"))
    widths = (mask == 0).sum(1)
    assert sorted(widths.unique().tolist()) == [0, 1, 2, 3, 4, 5]
    assert bool(((mask.roll(1, 1) != mask).sum(1) == torch.where(widths > 0, 2, 0)).all())
    assert float((1 - mask).mean(0).std()) < 0.02


@pytest.mark.parametrize("kind", ["sigmoid", "tanh"])
def test_flat_units_are_repaired(kind: str) -> None:
    """Units that are always at their ends are pushed back in half of the minibatches, those with slopes are left alone."""
    nnet = network_of(kind)
    nnet.components["one"].values["SelfRepairScale"] = 0.01
    network = Nnet3Network(nnet, subsampling=1)
    x = torch.tensor([[9.0, -9.0, 0.0, 0.1]]).repeat(8, 1)
    pushed = []
    for seed in range(40):
        network.forward_chunks(x, None, 4, 2, True, torch.Generator().manual_seed(seed))
        run, y = network._runs["one"], network._values["one"]
        grads = torch.zeros_like(network.params)
        network.layers["one"].gather(y, run, network.views(grads)[0], 0.0)
        dx = network.layers["one"].backward(x, y, torch.zeros(8, 4), run, True, network.views(grads)[0], 0.0, outer_product)
        assert dx is not None
        pushed.append(dx[0].numpy())
        network.params += grads
    assert not np.array(pushed)[:, 2:].any()
    hit = np.array([push for push in pushed if push.any()])
    assert 10 <= len(hit) <= 30
    np.testing.assert_allclose(hit[:, :2], np.tile([0.02, -0.02], (len(hit), 1)), rtol=1e-3)


@pytest.mark.parametrize("kind", sorted(OTHER_LINES))
def test_what_is_not_computed_is_refused(kind: str) -> None:
    nnet = network_of(kind)
    type_ = nnet.components["one"].type
    with pytest.raises(UserError, match=f"one is of the type {type_}, which is not computed here"):
        Nnet3Forward(nnet)
    with pytest.raises(UserError, match=f"component one is of the type {type_}, which is not trained here; trained are "):
        Nnet3Network(nnet)


def test_a_convolution_with_zeros_beyond_its_frames_is_refused() -> None:
    nnet = network_of("convolution")
    nnet.components["one"].values["RequiredTimeOffsets"] = [0]
    for use in (lambda: Nnet3Network(nnet), lambda: Nnet3Forward(nnet)(np.zeros((5, 10), np.float32))):
        with pytest.raises(UserError, match="component one has required-time-offsets other than its time-offsets"):
            use()
