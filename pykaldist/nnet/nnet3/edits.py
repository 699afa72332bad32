"""Networks changed as a whole: the edits of nnet3-copy, a weighted average, a copy of which only the context can be asked.

An edit is a directive with fields, `rename-node old-name=output-xent new-name=output`; several stand on lines of their own, or with
semicolons between them. Names of components are patterns, in which `*` is any text. Source: ReadEditConfig in src/nnet3 of Kaldi 5.5.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from pykaldist.errors import UserError
from pykaldist.nnet.nnet3.components import Nnet3Component, Value
from pykaldist.nnet.nnet3.config import ConfigLine, Descriptor, Node, nearest
from pykaldist.nnet.nnet3.model import Nnet3


def edit(nnet: Nnet3, directives: str, source: str = "--edits") -> Nnet3:
    """Make the network that comes of edits; `nnet` stays as it is. Raises UserError for a directive that is not known or has no effect."""
    result = Nnet3(dict(nnet.nodes), dict(nnet.components))
    for text in re.split(r"[;\n]", directives):
        content = text.partition("#")[0].strip()
        if not content:
            continue
        try:
            line = ConfigLine(content)
            if line.kind not in EDITS:
                raise ValueError(f"there is no edit {line.kind}; {nearest(line.kind, EDITS)}")
            EDITS[line.kind](result, line)
            line.refuse_rest()
        except ValueError as error:
            raise UserError(f"{source}, '{content[:80]}': {error}.") from error
    try:
        result.check()
    except ValueError as error:
        raise UserError(f"{source}: after the edits {error}.") from error
    return result


def _matching(nnet: Nnet3, line: ConfigLine) -> list[Nnet3Component]:
    """The components whose names match the field `name` (all, where there is none), each as a copy that stands in the network now."""
    pattern = line.text("name", "*")
    names = [name for name in nnet.components if _matches(name, pattern)]
    if not names:
        raise ValueError(f"no component matches {pattern}; {nearest(pattern, nnet.components)}")
    for name in names:
        nnet.components[name] = replace(nnet.components[name], values=dict(nnet.components[name].values))
    return [nnet.components[name] for name in names]


def _matches(name: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(name, pattern.replace("[", "[[]").replace("?", "[?]"))


def learning_rate_factor(component: Nnet3Component) -> float:
    """The factor of a component's learning rate, which files leave out where it is 1."""
    return component.number("LearningRateFactor") if "LearningRateFactor" in component.values else 1.0


def set_learning_rate(components: Iterable[Nnet3Component], rate: float) -> None:
    """Set the learning rate, times each component's factor."""
    for component in components:
        if "LearningRate" in component.values:
            component.values["LearningRate"] = rate * learning_rate_factor(component)


def _set_learning_rate(nnet: Nnet3, line: ConfigLine) -> None:
    set_learning_rate(_matching(nnet, line), line.number("learning-rate", least=0.0))


def _set_learning_rate_factor(nnet: Nnet3, line: ConfigLine) -> None:
    factor = line.number("learning-rate-factor", least=0.0)
    for component in _matching(nnet, line):
        if "LearningRate" in component.values:
            component.values["LearningRateFactor"] = factor
            if factor == 1:
                del component.values["LearningRateFactor"]


def _set_dropout_proportion(nnet: Nnet3, line: ConfigLine) -> None:
    proportion = line.number("proportion", least=0.0)
    for component in _matching(nnet, line):
        if "DropoutProportion" in component.values:
            component.values["DropoutProportion"] = proportion


def _fix_affine(nnet: Nnet3, line: ConfigLine) -> None:
    for component in _matching(nnet, line):
        if component.type in ("AffineComponent", "NaturalGradientAffineComponent"):
            component.type = "FixedAffineComponent"
            component.values = {token: component.values[token] for token in ("LinearParams", "BiasParams")}


def _rename_node(nnet: Nnet3, line: ConfigLine) -> None:
    old, new = line.text("old-name"), line.text("new-name")
    if old not in nnet.nodes:
        raise ValueError(f"there is no node {old}; {nearest(old, nnet.nodes)}")
    if new in nnet.nodes:
        raise ValueError(f"there is a node {new} already")
    nodes = [replace(node, name=new if node.name == old else node.name, input=node.input and _renamed(node.input, old, new))
             for node in nnet.nodes.values()]
    for node in nodes:
        if node.values.get("input-node") == old:
            node.values = {**node.values, "input-node": new}
    nnet.nodes = {node.name: node for node in nodes}


def _renamed(descriptor: Descriptor, old: str, new: str) -> Descriptor:
    if not descriptor.function:
        return Descriptor(new) if descriptor.node == old else descriptor
    return replace(descriptor, parts=tuple(_renamed(part, old, new) for part in descriptor.parts))


def _remove_outputs(nnet: Nnet3, line: ConfigLine) -> None:
    pattern = line.text("name")
    outputs = [node.name for node in nnet.nodes.values() if node.kind == "output-node"]
    kept = [name for name in outputs if not _matches(name, pattern)]
    if not kept:
        raise ValueError(f"no output would be left of {', '.join(outputs)}")
    nnet.nodes = {name: node for name, node in nnet.nodes.items() if name not in outputs or name in kept}


def _remove_orphan_nodes(nnet: Nnet3, line: ConfigLine) -> None:
    inputs_too = line.boolean("remove-orphan-inputs", False)
    needed: set[str] = set()
    waiting = [node.name for node in nnet.nodes.values() if node.kind == "output-node"]
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            descriptor = nnet.nodes[name].input
            waiting += descriptor.nodes() if descriptor else []
    nnet.nodes = {name: node for name, node in nnet.nodes.items()
                  if name in needed or (node.kind == "input-node" and not inputs_too)}


def _remove_orphan_components(nnet: Nnet3, line: ConfigLine) -> None:
    used = {node.component for node in nnet.nodes.values() if node.kind == "component-node"}
    nnet.components = {name: component for name, component in nnet.components.items() if name in used}


def _remove_orphans(nnet: Nnet3, line: ConfigLine) -> None:
    _remove_orphan_nodes(nnet, line)
    _remove_orphan_components(nnet, line)


EDITS: dict[str, Callable[[Nnet3, ConfigLine], None]] = {
    "convert-to-fixed-affine": _fix_affine, "remove-orphan-nodes": _remove_orphan_nodes,
    "remove-orphan-components": _remove_orphan_components, "remove-orphans": _remove_orphans, "set-learning-rate": _set_learning_rate,
    "set-learning-rate-factor": _set_learning_rate_factor, "rename-node": _rename_node, "remove-output-nodes": _remove_outputs,
    "set-dropout-proportion": _set_dropout_proportion,
}


def scaled(nnet: Nnet3, scale: float) -> Nnet3:
    """Make a network with all parameters, and the counts of all statistics, times `scale`."""
    return weighted_sum([nnet], [scale])


def weighted_sum(nnets: Sequence[Nnet3], weights: Sequence[float]) -> Nnet3:
    """Add networks of the same components up, each times its weight: parameters, and the counts and sums of statistics.

    All else is the first one's. Raises UserError where components differ.
    """
    first = nnets[0]
    for other in nnets[1:]:
        for name in [*first.components, *other.components]:
            component, found = first.components.get(name), other.components.get(name)
            if component is None or found is None or (found.type, _shapes(found)) != (component.type, _shapes(component)):
                raise UserError(f"the networks differ in the component {name}; give networks of one config.")
    components = {name: _summed([nnet.components[name] for nnet in nnets], weights) for name in first.components}
    return Nnet3(dict(first.nodes), components)


def _shapes(component: Nnet3Component) -> list[tuple[int, ...]]:
    return [array.shape for array in component.parameters.values()]


def _summed(components: Sequence[Nnet3Component], weights: Sequence[float]) -> Nnet3Component:
    values = dict(components[0].values)
    for token in components[0].parameters:
        values[token] = _total([w * c.array(token).astype(np.float64) for w, c in zip(weights, components, strict=True)])
    for count, means, squares in (("Count", ("ValueAvg", "DerivAvg"), ()), ("OderivCount", (), ("OderivRms",))):
        if count in values:
            values |= _mean_statistics(components, weights, count, means, squares)
    for token in ("NumDimsSelfRepaired", "NumDimsProcessed"):
        if token in values:
            values[token] = sum(w * cast(float, c.values.get(token, 0.0)) for w, c in zip(weights, components, strict=True))
    if components[0].type == "BatchNormComponent":
        values |= _batchnorm_statistics(components, weights)
    return replace(components[0], values=values)


def _mean_statistics(components: Sequence[Nnet3Component], weights: Sequence[float], count: str, means: Sequence[str],
                     squares: Sequence[str]) -> dict[str, Value]:
    """Statistics that stand in files as means (or roots of mean squares) over a count."""
    counts = [w * cast(float, c.values.get(count, 0.0)) for w, c in zip(weights, components, strict=True)]
    total = sum(counts)
    values: dict[str, Value] = {count: total}
    for token in (*means, *squares):
        power = 2 if token in squares else 1
        parts = [n * c.array(token).astype(np.float64)**power for n, c in zip(counts, components, strict=True)
                 if token in c.values and c.array(token).size]
        if parts:
            values[token] = (_total(parts) / (total or 1))**(1 / power)
    return values


def _batchnorm_statistics(components: Sequence[Nnet3Component], weights: Sequence[float]) -> dict[str, Value]:
    used = [(w * c.number("Count"), c) for w, c in zip(weights, components, strict=True) if c.number("Count") > 0]
    total = sum(n for n, _ in used)
    if not total:
        return {"Count": 0.0}
    means, variances = ([(n / total, c.array(token).astype(np.float64)) for n, c in used] for token in ("StatsMean", "StatsVar"))
    mean = sum((w * m for w, m in means), np.zeros(1))
    variance = sum((w * (v + (m - mean)**2) for (w, v), (_, m) in zip(variances, means, strict=True)), np.zeros(1))
    return {"Count": total, "StatsMean": mean.astype(np.float32), "StatsVar": variance.astype(np.float32)}


def _total(arrays: Sequence[np.ndarray]) -> np.ndarray:
    return np.sum(arrays, axis=0).astype(np.float32)


def without_recurrence(nnet: Nnet3) -> Nnet3:
    """Make the network without what IfDefined takes, which a context is not counted for; a recurrent network is none any more then."""
    nodes: dict[str, Node] = {}
    for name, node in nnet.nodes.items():
        masks = node.kind == "component-node" and nnet.components[node.component].type == "DropoutMaskComponent"
        given = node.input
        if given is not None and node.kind != "dim-range-node":
            given = _constant(nnet, given) if masks else _without_if_defined(nnet, given)
        nodes[name] = replace(node, input=given)
    return Nnet3(nodes, nnet.components)


def _without_if_defined(nnet: Nnet3, descriptor: Descriptor) -> Descriptor:
    if descriptor.function == "IfDefined":
        return _constant(nnet, descriptor)
    return replace(descriptor, parts=tuple(_without_if_defined(nnet, part) for part in descriptor.parts))


def _constant(nnet: Nnet3, descriptor: Descriptor) -> Descriptor:
    return Descriptor("", "Const", (), (0.0, float(nnet.descriptor_dim(descriptor))))
