"""Restricted attention beside loops over its definition, whole, in chunks and in pieces; gradients beside differences; what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from pykaldist.errors import UserError
from pykaldist.nnet.nnet3.components import Nnet3Component
from pykaldist.nnet.nnet3.initialise import initialised
from pykaldist.nnet.nnet3.model import Nnet3
from pykaldist.nnet.nnet3.network import Nnet3Network
from pykaldist.nnet.nnet3.run import Nnet3Forward
from pykaldist.nnet.nnet3.stream import Nnet3Stream
from pykaldist.nnet.nnet3.xconfig.convert import config_lines, read_layers

FIELDS = "key-dim=2 value-dim=3 num-left-inputs=2 num-right-inputs=1"
KINDS = ["", "num-heads=3", "time-stride=3 num-heads=2", "output-context=false", "key-scale=0.3", "num-left-inputs=0 time-stride=2"]


def alone(more: str = "") -> Nnet3:
    """A network of one component."""
    fields = dict(word.split("=") for word in f"{FIELDS} {more}".split())
    frames = int(fields["num-left-inputs"]) + 1 + int(fields["num-right-inputs"])
    dim = int(fields.get("num-heads", 1)) * (2 * 2 + 3 + frames)
    line = " ".join(f"{key}={value}" for key, value in fields.items())
    return initialised([f"input-node name=input dim={dim}", f"component name=one type=RestrictedAttentionComponent {line}",
                        "component-node name=one component=one input=input", "output-node name=output input=one"],
                       torch.Generator().manual_seed(1))


def slow(component: Nnet3Component, x: np.ndarray, t: int) -> list[float]:
    """The output at frame t of the inputs x (frames, dim), the first and the last of which are repeated, number by number."""
    heads, key, value = (component.integer(token) for token in ("NumHeads", "KeyDim", "ValueDim"))
    left, right, stride = (component.integer(token) for token in ("NumLeftInputs", "NumRightInputs", "TimeStride"))
    size, out = 2 * key + value + left + 1 + right, []
    for head in range(heads):
        def at(frame: int, head: int = head) -> list[float]:
            return [float(v) for v in x[min(max(frame, 0), len(x) - 1)][head * size:(head + 1) * size]]

        looked_at = [at(t + stride * n) for n in range(-left, right + 1)]
        query, scores = at(t)[key + value:2 * key + value], at(t)[2 * key + value:]
        b = [component.number("KeyScale") * sum(q * k for q, k in zip(query, other[:key], strict=True)) + score
             for other, score in zip(looked_at, scores, strict=True)]
        c = [math.exp(one) / sum(math.exp(other) for other in b) for one in b]
        out += [sum(weight * other[key + d] for weight, other in zip(c, looked_at, strict=True)) for d in range(value)]
        out += c if component.values["OutputContext"] else []
    return out


@pytest.mark.parametrize("more", KINDS)
def test_attention_computes_what_it_is_defined_as(more: str) -> None:
    nnet = alone(more)
    component = nnet.components["one"]
    x = np.random.default_rng(2).standard_normal((11, component.input_dim)).astype(np.float32)
    expected = np.array([slow(component, x, t) for t in range(11)])
    assert expected.shape[1] == component.output_dim
    np.testing.assert_allclose(Nnet3Forward(nnet)(x), expected, atol=1e-6)
    np.testing.assert_allclose(Nnet3Forward(nnet, subsampling=2)(x), expected[::2], atol=1e-6)
    stream = Nnet3Stream(Nnet3Forward(nnet))
    pieces = [*(stream.accept(x[t:t + 4]) for t in range(0, 11, 4)), stream.finish()]
    np.testing.assert_allclose(np.concatenate(pieces), expected, atol=1e-6)


@pytest.mark.parametrize("subsampling", [1, 3])
@pytest.mark.parametrize("more", KINDS)
def test_chunks_in_training_give_the_same(more: str, subsampling: int) -> None:
    nnet = alone(more)
    network = Nnet3Network(nnet, subsampling=subsampling)
    frames = network.left_context + 3 * subsampling + network.right_context
    x = np.random.default_rng(3).standard_normal((frames, 2, network.input_dim)).astype(np.float32)
    found = network.forward_chunks(torch.from_numpy(x).view(2 * frames, -1), None, 3, 2)["output"].view(3, 2, -1)
    for sequence in range(2):
        expected = [slow(nnet.components["one"], x[:, sequence], network.left_context + t * subsampling) for t in range(3)]
        np.testing.assert_allclose(found[:, sequence], expected, atol=1e-6)


@pytest.mark.parametrize(("layer", "subsampling"), [
    ("attention-relu-renorm-layer", 1), ("relu-renorm-attention-layer", 3), ("attention-renorm-layer", 2)])
def test_gradients_are_those_of_differences(layer: str, subsampling: int) -> None:
    """Of the map in front of the attention, through which the derivatives of its inputs go, and of one before that."""
    layers = read_layers(["input dim=4 name=input", "relu-layer name=a dim=5", f"{layer} name=b num-heads=2 time-stride=2 {FIELDS}",
                          "output-layer name=output dim=3 include-log-softmax=false"])
    nnet = initialised(config_lines(layers)["final"], torch.Generator().manual_seed(4))
    rng = torch.Generator().manual_seed(5)
    for component in nnet.components.values():
        for token, array in component.parameters.items():
            component.values[token] = torch.randn(array.shape, generator=rng).numpy() * 0.6
        component.values.pop("SelfRepairScale", None)
    network = Nnet3Network(nnet, dtype=torch.float64, subsampling=subsampling)
    frames = network.left_context + 3 * subsampling + network.right_context
    feats = torch.randn(frames * 2, 4, generator=rng, dtype=torch.float64)
    c = torch.randn(6, 3, generator=rng, dtype=torch.float64)

    def loss() -> float:
        return float((network.forward_chunks(feats, None, 3, 2, training=True)["output"] * c).sum())

    loss()
    grads = torch.zeros_like(network.params)
    network.backward_chunks({"output": c}, grads)
    checked = 0
    for part in network.map_slices():
        for n in range(part.start, part.stop, 3):
            kept, step = network.params[n].item(), 1e-6
            network.params[n] = kept + step
            above = loss()
            network.params[n] = kept - step
            assert float(grads[n]) == pytest.approx((above - loss()) / (2 * step), rel=1e-4, abs=1e-6)
            network.params[n] = kept
            checked += abs(float(grads[n])) > 1e-3
    assert checked > 40


@pytest.mark.parametrize("side", ["left", "right"])
def test_zeros_in_the_place_of_frames_are_refused(side: str) -> None:
    nnet = alone(f"num-{side}-inputs-required=0")
    with pytest.raises(UserError, match=f"component one has num-{side}-inputs-required other than num-{side}-inputs, which is not"):
        Nnet3Network(nnet)
    with pytest.raises(UserError, match=f"component one has num-{side}-inputs-required other than"):
        Nnet3Forward(nnet)(np.zeros((5, 11), np.float32))
