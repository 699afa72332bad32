"""Which frames of which node of an nnet3 network are needed for its output, and which can be computed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

import numpy as np

from pykaldist.errors import UserError
from pykaldist.nnet.nnet3.config import Descriptor
from pykaldist.nnet.nnet3.loops import ordered
from pykaldist.nnet.nnet3.model import Nnet3

Span = tuple[float, float]  # first and last frame at which something can be computed
Known = Callable[[str, np.ndarray], np.ndarray]  # of a node, by its name, and frames: which of these are there
EVERYWHERE = (-math.inf, math.inf)


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
    IfDefined left out. `loops` are those of a recurrent network. Raises UserError for what cannot be run here.
    """

    def __init__(self, nnet: Nnet3, output: str | Sequence[str] = "output", subsampling: int = 1) -> None:
        self._nnet, self._outputs = nnet, [output] if isinstance(output, str) else [*output]
        for name in self._outputs:
            if name not in nnet.nodes:
                raise UserError(f"the network has no node {name}; it has {', '.join(nnet.nodes)}.")
        self.order, self.loops = ordered(nnet, self._outputs)
        self.loop_of = {name: loop for loop in self.loops for name in loop.nodes}
        self.has_if_defined = any("IfDefined" in str(nnet.taken_by(name)) for name in self.order)
        self.modulus = math.lcm(*(int(part.numbers[0]) for name in self.order for part in functions(nnet.taken_by(name))
                                  if part.function == "Round" and part.numbers[0] > 0))
        self._check_beginnings()
        self.left_context, self.right_context = self._context(math.lcm(self.modulus, subsampling))

    def _check_beginnings(self) -> None:
        """Raise UserError for a loop without a first frame, for nothing in it needs the input."""
        if self.loops:
            spans = self.spans(0, 0)
            endless = {name: {other for other in descriptor.nodes() if other in self.loop_of and spans[other] == EVERYWHERE}
                       for name in self.loop_of if spans[name] == EVERYWHERE and (descriptor := self._nnet.taken_by(name)) is not None}
            try:
                TopologicalSorter(endless).prepare()
            except CycleError as error:
                raise UserError(f"the network's node {error.args[1][0]} goes back to itself, and never to the node input; such a loop has "
                                "no beginning.") from error

    def _context(self, period: int) -> tuple[int, int]:
        needed = [self.needed(np.array([t]), required=True).get("input", np.array([t])) - t for t in range(period)]
        return max(0, -int(min(times.min() for times in needed))), max(0, int(max(times.max() for times in needed)))

    def needed(self, times: np.ndarray, required: bool = False, spans: dict[str, Span] | None = None,
               known: Known | None = None) -> dict[str, np.ndarray]:
        """The frames, in order, at which each node is needed for the output at `times`.

        `required`: without what IfDefined takes; with `spans` it takes only what can be computed. `known` says which frames are there, for
        which nothing else is needed. A recurrent network needs one of the two, for it would need all frames before.
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

        def find(name: str) -> None:
            before = found.get(name, times[:0])
            more = np.setdiff1d(np.concatenate(wanted.pop(name)), before)
            if len(more):
                found[name] = np.union1d(before, more)
                if known is not None:
                    more = more[~known(name, more)]
                if (descriptor := self._nnet.taken_by(name)) is not None:
                    ask(descriptor, self.input_times(name, more))

        for name in reversed(self.order):
            around = self.loop_of[name].nodes[::-1] if name in self.loop_of else (name,)
            while any(other in wanted for other in around):
                for other in around:
                    if other in wanted:
                        find(other)
        return found

    def input_times(self, name: str, times: np.ndarray) -> np.ndarray:
        """The frames at which a node needs its descriptor for its own `times`."""
        offsets = self.time_offsets(name)
        return times if offsets == [0] else np.unique(np.add.outer(np.array(offsets), times))

    def time_offsets(self, name: str) -> list[int]:
        """The frames of its descriptor that a node takes, counted from its own."""
        node = self._nnet.nodes[name]
        return self._nnet.components[node.component].time_offsets if node.kind == "component-node" else [0]

    def spans(self, first: int, last: int) -> dict[str, Span]:
        """The first and last frame at which each node can be computed from the input's frames from `first` to `last`."""
        spans: dict[str, Span] = {}
        for name in self.order:
            descriptor = self._nnet.taken_by(name)
            if descriptor is None:
                spans[name] = (first, last) if name == "input" else EVERYWHERE
                continue
            low, high = self.span(descriptor, spans)
            offsets = self.time_offsets(name)
            spans[name] = (low - min(offsets), high - max(offsets))
        return spans

    def span(self, descriptor: Descriptor, spans: Mapping[str, Span]) -> Span:
        if not descriptor.function:
            return spans[descriptor.node]
        if descriptor.function in ("IfDefined", "Const", "ReplaceIndex"):
            return EVERYWHERE
        parts = [self.span(part, spans) for part in descriptor.parts]
        low, high = max(low for low, _ in parts), min(high for _, high in parts)
        if descriptor.function == "Offset":
            return low - descriptor.numbers[0], high - descriptor.numbers[0]
        return low, high  # of Round too: what it rounds down to was there before
