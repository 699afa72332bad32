"""Outputs of nnet3 networks while the input still comes: those of the whole input at once, from memory that does not grow."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from recurrent_lines import INPUTS, XCONFIGS, recurrent

from pykaldist.errors import UserError
from pykaldist.nnet.nnet3.components import Nnet3Component
from pykaldist.nnet.nnet3.config import parse_node
from pykaldist.nnet.nnet3.initialise import initialised
from pykaldist.nnet.nnet3.model import Nnet3, Nnet3Model
from pykaldist.nnet.nnet3.run import Nnet3Forward
from pykaldist.nnet.nnet3.stream import Nnet3Stream
from pykaldist.nnet.nnet3.xconfig.convert import config_lines, read_layers


def affine(name: str, rows: int, columns: int) -> Nnet3Component:
    rng = np.random.default_rng(rows * 31 + columns)
    return Nnet3Component(name, "AffineComponent", {
        "LearningRate": 0.001, "LinearParams": rng.normal(size=(rows, columns)).astype(np.float32) / columns**0.5,
        "BiasParams": rng.normal(size=rows).astype(np.float32)})


def network(lines: str, **components: tuple[int, int]) -> Nnet3:
    return Nnet3({node.name: node for node in map(parse_node, lines.strip().split("\n"))},
                 {name: affine(name, *shape) for name, shape in components.items()})


#: Layers of different strides, one beside another, and one that takes what is defined only.
PLAIN = network("""
input-node name=input dim=4
component-node name=a component=a input=Append(Offset(input, -2), input, Offset(input, 1))
component-node name=b component=b input=Append(Offset(a, -3), Scale(0.5, a), Offset(a, 3))
component-node name=c component=c input=Sum(b, Offset(b, 6))
output-node name=output input=Sum(c, Offset(a, -7))
""", a=(5, 12), b=(5, 15), c=(5, 5))
IF_DEFINED = network("""
input-node name=input dim=4
component-node name=a component=a input=Append(Offset(input, -1), input, Offset(input, 1))
component-node name=b component=b input=Append(IfDefined(Offset(a, -4)), a, IfDefined(Offset(a, 4)))
output-node name=output input=b
""", a=(5, 12), b=(6, 15))
IVECTOR = network("""
input-node name=input dim=4
input-node name=ivector dim=3
component-node name=v component=v input=ReplaceIndex(ivector, t, 0)
component-node name=a component=a input=Append(Offset(input, -2), input, Offset(input, 2), ReplaceIndex(v, t, 0))
component-node name=b component=b input=Append(Offset(a, -3), a)
output-node name=output input=b
""", v=(2, 3), a=(5, 14), b=(6, 10))


def streamed(stream: Nnet3Stream, feats: np.ndarray, ends: list[int], **others: np.ndarray) -> np.ndarray:
    """The outputs of a stream that is fed up to each of `ends`, and then the rest."""
    parts = [stream.accept(feats[begin:end], **others) for begin, end in zip([0, *ends], [*ends, len(feats)], strict=True)]
    return np.concatenate([*parts, stream.finish()])


@settings(max_examples=60)
@given(st.sampled_from([(PLAIN, 1), (PLAIN, 3), (IF_DEFINED, 1), (IF_DEFINED, 2), (IVECTOR, 1), (IVECTOR, 3)]), st.integers(1, 40),
       st.lists(st.integers(0, 40)))
def test_outputs_are_those_of_the_whole_input(network: tuple[Nnet3, int], frames: int, ends: list[int]) -> None:
    forward = Nnet3Forward(network[0], subsampling=network[1])
    feats = np.random.default_rng(frames).normal(size=(frames, 4)).astype(np.float32)
    others = {"ivector": np.array([[1.0, -2.0, 0.5]], np.float32)} if "ivector" in forward.inputs else {}
    found = streamed(Nnet3Stream(forward), feats, sorted(min(end, frames) for end in ends), **others)
    np.testing.assert_allclose(found, forward(feats, **others), atol=1e-5)


FORWARD = [name for name in XCONFIGS if name not in ("backwards", "both ways")]


@pytest.mark.parametrize("subsampling", [1, 2, 3])
@pytest.mark.parametrize("name", FORWARD)
def test_a_recurrent_network_carries_its_state(name: str, subsampling: int) -> None:
    """From chunk to chunk, however they are cut, and with frames before the first one; what is kept does not grow."""
    forward, rng = Nnet3Forward(recurrent(name), subsampling=subsampling, around=(4, 0)), np.random.default_rng(1)
    for frames in (1, 2, 7, 40):
        feats = rng.normal(size=(frames, INPUTS)).astype(np.float32)
        expected = forward(feats)
        for ends in ([], [*range(1, frames)], sorted(rng.integers(0, frames + 1, 5).tolist())):
            np.testing.assert_allclose(streamed(Nnet3Stream(forward), feats, ends), expected, atol=1e-5)
    stream, kept = Nnet3Stream(forward), []
    for _ in range(12):
        stream.accept(rng.normal(size=(30, INPUTS)).astype(np.float32))
        kept.append(sum(value.numel() for value in stream._values.values()) + stream._feats.size)
    assert max(kept[2:]) == min(kept[2:]) < 60 * sum(forward._nnet.dim(one) for one in forward.plan.order)


@settings(max_examples=30)
@given(st.sampled_from(FORWARD), st.integers(1, 3), st.integers(1, 40), st.lists(st.integers(0, 40)))
def test_a_recurrent_networks_outputs_are_those_of_the_whole_input(name: str, subsampling: int, frames: int, ends: list[int]) -> None:
    forward = Nnet3Forward(recurrent(name), subsampling=subsampling)
    feats = np.random.default_rng(frames).normal(size=(frames, INPUTS)).astype(np.float32)
    found = streamed(Nnet3Stream(forward), feats, sorted(min(end, frames) for end in ends))
    np.testing.assert_allclose(found, forward(feats), atol=1e-5)


def test_a_recurrent_network_takes_an_i_vector() -> None:
    lines = ["input dim=3 name=ivector", f"input dim={INPUTS} name=input",
             "relu-renorm-layer name=v input=ReplaceIndex(ivector, t, 0) dim=4",
             "fast-lstm-layer name=l input=Append(Offset(input, -1), input, v) cell-dim=6 delay=-3", "output-layer name=output dim=4"]
    nnet = initialised(config_lines(read_layers(lines))["final"], torch.Generator().manual_seed(1))
    output = nnet.components["output.affine"]
    output.values["LinearParams"] = np.random.default_rng(1).normal(size=output.linear.shape).astype(np.float32)
    feats, ivector = np.random.default_rng(2).normal(size=(50, INPUTS)).astype(np.float32), np.array([[1.0, -2.0, 0.5]], np.float32)
    forward = Nnet3Forward(nnet, subsampling=3)
    expected, stream = forward(feats, ivector=ivector), Nnet3Stream(forward)
    np.testing.assert_allclose(streamed(stream, feats, [7, 8, 30], ivector=ivector), expected, atol=1e-5)
    stream = Nnet3Stream(forward)
    found = np.concatenate([stream.accept(feats[:30], ivector=ivector), stream.accept(feats[30:], ivector=-ivector), stream.finish()])
    np.testing.assert_allclose(found[:10], expected[:10], atol=1e-5)
    assert np.abs(found[10:] - expected[10:]).max() > 1e-3


@pytest.mark.parametrize("name", ["backwards", "both ways"])
def test_a_network_that_runs_backwards_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=r"the network runs backwards, from a recording's end \(its node [lb]\."):
        Nnet3Stream(Nnet3Forward(recurrent(name)))


def test_an_i_vector_is_for_the_frames_that_come_with_it() -> None:
    forward = Nnet3Forward(IVECTOR)
    feats, vectors = np.random.default_rng(1).normal(size=(30, 4)).astype(np.float32), np.eye(3, dtype=np.float32)[:2, None]
    stream = Nnet3Stream(forward)
    found = np.concatenate([stream.accept(feats[:15], ivector=vectors[0]), stream.accept(feats[15:], ivector=vectors[1]), stream.finish()])
    ahead = stream.latency
    np.testing.assert_allclose(found[:15 - ahead], forward(feats, ivector=vectors[0])[:15 - ahead], atol=1e-5)
    np.testing.assert_allclose(found[15 - ahead + 3:], forward(feats, ivector=vectors[1])[15 - ahead + 3:], atol=1e-5)


def test_an_output_comes_as_soon_as_its_context_and_memory_does_not_grow(golden: Path) -> None:
    model = Nnet3Model.read(golden / "chain_an4/final.mdl")
    forward = Nnet3Forward(model.nnet, subsampling=3)
    stream = Nnet3Stream(forward)
    assert stream.latency == model.right_context == 12
    feats = np.random.default_rng(1).normal(size=(210, 40)).astype(np.float32)
    parts, kept = [], []
    for begin in range(0, len(feats), 21):
        parts.append(stream.accept(feats[begin:begin + 21]))
        kept.append(sum(value.numel() for value in stream._values.values()) + stream._feats.size)
        assert sum(map(len, parts)) == (begin + 21 - 12 + 2) // 3
    assert max(kept[2:]) == min(kept[2:])
    np.testing.assert_allclose(np.concatenate([*parts, stream.finish()]), forward(feats), atol=1e-5)


def test_what_cannot_be_streamed_is_named() -> None:
    stream = Nnet3Stream(Nnet3Forward(PLAIN))
    assert stream.accept(np.zeros((0, 4), np.float32)).shape == stream.finish().shape == (0, 5)
    with pytest.raises(ValueError, match="the input has ended"):
        stream.accept(np.zeros((1, 4), np.float32))
    with pytest.raises(ValueError, match="expected input of dimension 4"):
        Nnet3Stream(Nnet3Forward(PLAIN)).accept(np.zeros((1, 3), np.float32))
    constant = network("input-node name=input dim=4\noutput-node name=output input=Const(1.0, 3)")
    with pytest.raises(UserError, match="does not depend on the node input"):
        Nnet3Stream(Nnet3Forward(constant))
