"""The loops of a recurrent nnet3 network: its nodes in an order in which they can be computed, and the waves of frames of each loop.

Nodes that need each other make a *loop*. Each of them takes the others at its own frame, or, inside IfDefined, at least `delay` frames
before it (behind it, where the loop runs backwards). So `delay` neighbouring frames can be computed at once, a *wave*, after those before
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

import numpy as np

from pykaldist.errors import UserError
from pykaldist.nnet.nnet3.config import Descriptor
from pykaldist.nnet.nnet3.model import Nnet3

Graph = dict[str, set[str]]  # of each node, those that it needs


@dataclass(frozen=True)
class Loop:
    """Nodes of a loop, each behind those that it takes at its own frame; `delay` is below 0 where the loop runs backwards."""

    nodes: tuple[str, ...]
    delay: int

    def waves(self, times: Mapping[str, np.ndarray]) -> list[dict[str, slice]]:
        """The waves in their order: of each node that has some, which of its frames, which are in order."""
        lengths = [len(times[name]) for name in self.nodes if name in times]
        if not sum(lengths):
            return []
        every = np.concatenate([times[name] for name in self.nodes if name in times])
        bounds = np.arange(every.min(), every.max() + 1 + abs(self.delay), abs(self.delay))
        ends = {name: np.searchsorted(times[name], bounds) for name in self.nodes if name in times}
        waves = [{name: slice(int(end[k]), int(end[k + 1])) for name, end in ends.items() if end[k] < end[k + 1]}
                 for k in range(len(bounds) - 1)]
        return waves if self.delay > 0 else waves[::-1]


def ordered(nnet: Nnet3, outputs: Sequence[str]) -> tuple[list[str], list[Loop]]:
    """The nodes that `outputs` need, each behind those that it takes input from, and the loops, whose nodes stand together.

    Raises UserError for a loop that cannot be computed here.
    """
    graph = _needs(nnet, outputs)
    together = _strongly_connected(graph)
    loops = {nodes: _loop(nnet, nodes) for nodes in set(together.values())}
    coarse = {nodes: {together.get(other, frozenset([other])) for name in nodes for other in graph[name]} - {nodes}
              for nodes in (together.get(name, frozenset([name])) for name in graph)}
    order: list[str] = []
    for nodes in TopologicalSorter(coarse).static_order():
        order += loops[nodes].nodes if nodes in loops else nodes
    return order, [*loops.values()]


def _needs(nnet: Nnet3, outputs: Sequence[str]) -> Graph:
    graph: Graph = {}
    waiting = [*outputs]
    while waiting:
        name = waiting.pop()
        if name not in graph:
            descriptor = nnet.taken_by(name)
            graph[name] = set(descriptor.nodes()) if descriptor else set()
            waiting += sorted(graph[name])
    return graph


def _strongly_connected(graph: Graph) -> dict[str, frozenset[str]]:
    """Of each node that needs itself, the nodes of its loop."""
    try:
        TopologicalSorter(graph).prepare()
        return {}
    except CycleError:
        pass
    reached: dict[str, set[str]] = {}
    for name in graph:
        found, waiting = set[str](), [*graph[name]]
        while waiting:
            if (other := waiting.pop()) not in found:
                found.add(other)
                waiting += graph[other]
        reached[name] = found
    return {name: frozenset(other for other in reached[name] if name in reached[other]) for name in graph if name in reached[name]}


def _loop(nnet: Nnet3, nodes: frozenset[str]) -> Loop:
    graph: Graph = {name: set() for name in nodes}
    delays = []
    for name in sorted(nodes):
        component = nnet.components[nnet.nodes[name].component] if nnet.nodes[name].kind == "component-node" else None
        if component is not None and component.time_offsets != [0]:
            raise UserError(f"the network's component {component.name} takes several frames inside a loop of a recurrent network, which is "
                            "not computed here.")
        descriptor = nnet.taken_by(name)
        assert descriptor is not None
        for other, offset, optional in _references(descriptor):
            if other in nodes and optional:
                delays.append(-offset)
            elif other in nodes and offset == 0:
                graph[name].add(other)
            elif other in nodes:
                raise UserError(f"the network's node {name} takes {other} at another frame without IfDefined, though {other} needs "
                                f"{name}; such networks are not computed here.")
    try:
        order = tuple(TopologicalSorter({name: sorted(graph[name]) for name in sorted(graph)}).static_order())
    except CycleError as error:
        raise UserError(f"the network's node {error.args[1][0]} needs itself at its own frame.") from error
    if min(delays) * max(delays) <= 0:
        raise UserError(f"the network's node {order[0]} is in a loop that goes to {min(-d for d in delays)} and {max(-d for d in delays)} "
                        "frames; a loop that runs one way alone is computed here.")
    return Loop(order, min(delays, key=abs))


def _references(descriptor: Descriptor, offset: int = 0, optional: bool = False) -> Iterator[tuple[str, int, bool]]:
    """The nodes in a descriptor, each with its frame counted from the descriptor's, and whether it stands inside IfDefined."""
    if not descriptor.function:
        yield descriptor.node, offset, optional
        return
    if descriptor.function == "Offset":
        offset += int(descriptor.numbers[0])
    for part in descriptor.parts:
        yield from _references(part, offset, optional or descriptor.function == "IfDefined")
