"""Which frames of which node of an nnet3 network are needed for its output, and which can be computed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

import numpy as np

from pykaldist.errors import UserError
from pykaldist.nnet.nnet3.config import Descriptor
from pykaldist.nnet.nnet3.model import Nnet3

Span = tuple[float, float]  # first and last frame at which something can be computed
EVERYWHERE = (-math.inf, math.inf)


def order_of(nnet: Nnet3, *outputs: str) -> list[str]:
    """The nodes that `outputs` need, each behind those that it takes input from; raises UserError for what cannot be run here."""
    for output in outputs:
        if output not in nnet.nodes:
            raise UserError(f"the network has no node {output}; it has {', '.join(nnet.nodes)}.")
    graph: dict[str, set[str]] = {}
    waiting = [*outputs]
    while waiting:
        name = waiting.pop()
        if name not in graph:
            descriptor = nnet.nodes[name].input
            graph[name] = set(descriptor.nodes()) if descriptor else set()
            waiting += graph[name]
    try:
        return list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        raise UserError(f"the network is recurrent (its node {error.args[1][0]} needs itself); such networks are not run here.") from error


def shift(descriptor: Descriptor, times: np.ndarray) -> np.ndarray:
    """The frames at which the part of an Offset, a Round or a ReplaceIndex is needed for `times`."""
    number = int(descriptor.numbers[0])
    if descriptor.function == "Offset" and len(descriptor.numbers) == 1:
        return times + number
    if descriptor.function == "Round" and number > 0:
        return times // number * number
    if descriptor.function == "ReplaceIndex" and descriptor.variable == "t":
        return np.full_like(times, number)
    raise UserError(f"the network's descriptor {descriptor} is not computed here.")


def functions(descriptor: Descriptor | None) -> Iterator[Descriptor]:
    """The functions in a descriptor, from the outermost inwards."""
    if descriptor is not None and descriptor.function:
        yield descriptor
        for part in descriptor.parts:
            yield from functions(part)


class Plan:
    """The nodes that a network's node `output`, or several such, need, in order, and their frames.

    `subsampling` is the number of input frames for each output frame; to shift all frames by a multiple of `modulus` changes nothing.
    `left_context` and `right_context` are the frames before and behind an output frame that the node `input` is needed at, those of
    IfDefined left out. Raises UserError for what cannot be run here.
    """

    def __init__(self, nnet: Nnet3, output: str | Sequence[str] = "output", subsampling: int = 1) -> None:
        self._nnet, self._outputs = nnet, [output] if isinstance(output, str) else [*output]
        self.order = order_of(nnet, *self._outputs)
        self.has_if_defined = any("IfDefined" in str(nnet.nodes[name].input) for name in self.order)
        self.modulus = math.lcm(*(int(part.numbers[0]) for name in self.order for part in functions(nnet.nodes[name].input)
                                  if part.function == "Round" and part.numbers[0] > 0))
        self.left_context, self.right_context = self._context(math.lcm(self.modulus, subsampling))

    def _context(self, period: int) -> tuple[int, int]:
        needed = [self.needed(np.array([t]), required=True).get("input", np.array([t])) - t for t in range(period)]
        return max(0, -int(min(times.min() for times in needed))), max(0, int(max(times.max() for times in needed)))

    def needed(self, times: np.ndarray, required: bool = False, spans: dict[str, Span] | None = None) -> dict[str, np.ndarray]:
        """The frames, in order, at which each node is needed for the output at `times`.

        `required`: without what IfDefined takes; with `spans` it takes only what can be computed.
        """
        wanted: dict[str, list[np.ndarray]] = {output: [times] for output in self._outputs}
        found: dict[str, np.ndarray] = {}

        def ask(descriptor: Descriptor, at: np.ndarray) -> None:
            if not descriptor.function:
                wanted.setdefault(descriptor.node, []).append(at)
            elif descriptor.function in ("Offset", "Round", "ReplaceIndex"):
                ask(descriptor.parts[0], shift(descriptor, at))
            elif descriptor.function in ("Append", "Sum", "Scale") or (descriptor.function == "IfDefined" and not required):
                if descriptor.function == "IfDefined" and spans is not None:
                    low, high = self.span(descriptor.parts[0], spans)
                    at = at[(at >= low) & (at <= high)]
                for part in descriptor.parts:
                    ask(part, at)
            elif descriptor.function not in ("Const", "IfDefined"):
                raise UserError(f"the network's descriptor {descriptor} is not computed here.")

        for name in reversed(self.order):
            if name in wanted:
                found[name] = np.unique(np.concatenate(wanted.pop(name)))
                if (descriptor := self._nnet.nodes[name].input) is not None:
                    ask(descriptor, self.input_times(name, found[name]))
        return found

    def input_times(self, name: str, times: np.ndarray) -> np.ndarray:
        """The frames at which a node needs its descriptor for its own `times`."""
        node = self._nnet.nodes[name]
        offsets = self._nnet.components[node.component].time_offsets if node.kind == "component-node" else [0]
        return times if offsets == [0] else np.unique(np.add.outer(np.array(offsets), times))

    def spans(self, frames: int) -> dict[str, Span]:
        """The first and last frame at which each node can be computed from the input and its context."""
        spans: dict[str, Span] = {}
        for name in self.order:
            descriptor = self._nnet.nodes[name].input
            if descriptor is None:
                spans[name] = (-self.left_context, frames - 1 + self.right_context) if name == "input" else EVERYWHERE
                continue
            low, high = self.span(descriptor, spans)
            node = self._nnet.nodes[name]
            offsets = self._nnet.components[node.component].time_offsets if node.kind == "component-node" else [0]
            spans[name] = (low - min(offsets), high - max(offsets))
        return spans

    def span(self, descriptor: Descriptor, spans: Mapping[str, Span]) -> Span:
        if not descriptor.function:
            return spans[descriptor.node]
        parts = [self.span(part, spans) for part in descriptor.parts]
        if descriptor.function in ("IfDefined", "Const", "ReplaceIndex"):
            return EVERYWHERE
        low, high = max(low for low, _ in parts), min(high for _, high in parts)
        if descriptor.function == "Offset":
            return low - descriptor.numbers[0], high - descriptor.numbers[0]
        return low, high  # of Round too: what it rounds down to was there before
