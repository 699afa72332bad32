"""An nnet3 network as it is used: in test mode, and with affine maps that follow each other made one (Kaldi's CollapseModel)."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np

from pykaldist.nnet.nnet3.components import Nnet3Component
from pykaldist.nnet.nnet3.config import Descriptor, Node
from pykaldist.nnet.nnet3.model import Nnet3

SECOND = ("AffineComponent", "NaturalGradientAffineComponent")
FIRST = ("FixedAffineComponent", *SECOND)
LEARNING_RATE = 0.001  # Kaldi's of a component that is made without one


def prepare_for_test(nnet: Nnet3) -> Nnet3:
    """Make the network that recognition uses, as `nnet3-copy --prepare-for-test=true` does; `nnet` stays as it is.

    Batch normalisation and dropout are in test mode. Affine components that take all of their input from one other, itself affine, become
    one component with it, an AffineComponent at the end of the list, named after both.
    """
    nodes, components = copy.deepcopy(nnet.nodes), dict(nnet.components)
    for name, component in nnet.components.items():
        if component.type in ("BatchNormComponent", "GeneralDropoutComponent"):
            components[name] = replace(component, values={**component.values, "TestMode": True})
    result = Nnet3(nodes, components)
    while _collapse(result):
        pass
    used = {node.component for node in nodes.values() if node.kind == "component-node"}
    result.components = {name: component for name, component in components.items() if name in used}
    return result


def _collapse(nnet: Nnet3) -> bool:
    """Make one component of a pair of affine ones; False where there is none."""
    for node in nnet.nodes.values():
        if node.kind != "component-node" or node.input is None or nnet.components[node.component].type not in SECOND:
            continue
        names = set(node.input.nodes())
        first = nnet.nodes[names.pop()]
        if names or first.kind != "component-node" or nnet.components[first.component].type not in FIRST or not _only_appends(node.input):
            continue
        merged = _product(nnet.components[first.component], nnet.components[node.component])
        nnet.components[merged.name] = merged
        assert first.input is not None  # a component's node has one
        node.input = _replaced(node.input, first.input)
        node.values["component"] = merged.name
        _drop_unused(nnet, first)
        return True
    return False


def _only_appends(descriptor: Descriptor) -> bool:
    return descriptor.function in ("", "Append", "Offset") and all(_only_appends(part) for part in descriptor.parts)


def _product(first: Nnet3Component, second: Nnet3Component) -> Nnet3Component:
    """The component that does what `first`, at each of the frames that `second` appends, and then `second` do."""
    blocks = np.split(second.linear.astype(np.float64), second.input_dim // first.output_dim, axis=1)
    linear = np.concatenate([block @ first.linear for block in blocks], axis=1)
    bias = second.array("BiasParams") + sum(block @ first.array("BiasParams") for block in blocks)
    return Nnet3Component(f"{first.name}.{second.name}", "AffineComponent",
                          {"LearningRate": LEARNING_RATE, "LinearParams": linear.astype(np.float32), "BiasParams": bias.astype(np.float32)})


def _replaced(descriptor: Descriptor, by: Descriptor) -> Descriptor:
    """A descriptor of Append and Offset with `by` in place of its node; offsets stand inside, at nodes, and an Append of Appends is one."""
    if not descriptor.function:
        return by
    if descriptor.function == "Offset":
        return _offset(_replaced(descriptor.parts[0], by), descriptor.numbers[0])
    parts: list[Descriptor] = []
    for part in (_replaced(part, by) for part in descriptor.parts):
        parts += part.parts if part.function == "Append" else [part]
    return Descriptor("", "Append", tuple(parts))


def _offset(descriptor: Descriptor, frames: float) -> Descriptor:
    if descriptor.function in ("Append", "Sum", "Scale"):
        return replace(descriptor, parts=tuple(_offset(part, frames) for part in descriptor.parts))
    if descriptor.function == "Offset" and len(descriptor.numbers) == 1:
        frames, descriptor = frames + descriptor.numbers[0], descriptor.parts[0]
    return Descriptor("", "Offset", (descriptor,), (frames,)) if frames else descriptor


def _drop_unused(nnet: Nnet3, node: Node) -> None:
    """Leave out a node that no other takes input from any more."""
    if not any(node.name in other.input.nodes() for other in nnet.nodes.values() if other.input is not None):
        del nnet.nodes[node.name]
