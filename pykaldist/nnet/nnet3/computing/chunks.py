"""Which frames of a chunk each node of an nnet3 network computes, and where the parts of its input come from: planned once a chunk shape.

A descriptor is a sum of *terms*: a number times some frames of a node, put at some columns of some frames of the input. Append moves
terms to other columns, Sum and Scale leave them there, Offset, Round and ReplaceIndex choose other frames, IfDefined leaves frames out. A
TdnnComponent is an affine map of its input at several time offsets, one behind the other, which are terms as well. Attention has the
frames that it looks at as rows of its input instead, each once.

As in Kaldi, a TdnnComponent's frames are evenly spaced: where it is needed at the frames 0, 1, 3, 4 it computes frame 2 as well. What is
computed there has no derivative, but its inputs count in the Fisher matrices of the natural gradient.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from pykaldist.errors import UserError
from pykaldist.nnet.nnet3.config import Descriptor
from pykaldist.nnet.nnet3.loops import Loop
from pykaldist.nnet.nnet3.model import Nnet3
from pykaldist.nnet.nnet3.plan import Plan, Span, shift

Frames = slice | np.ndarray


@dataclass(frozen=True)
class Term:
    """A part of a node's input: `scale` times the frames `frames` of `source`, at `dim` columns from `column` on of the frames `into`.

    Without a source it is `scale` itself. `add`: there is another term before it in the same place.
    """

    source: str
    scale: float
    column: int
    dim: int
    frames: Frames
    into: Frames
    add: bool = False


@dataclass(frozen=True)
class Step:
    """The input of a node: its frames, its dimension, and its terms.

    `partial`: some of its places have no term, or terms that do not cover each other; there zeros are put first. `same`: the node whose
    output it is as it is; none: empty.
    """

    times: np.ndarray
    dim: int
    terms: tuple[Term, ...]
    partial: bool
    same: str


class ChunkPlan:
    """The steps of a network for chunks with outputs at `times`, of inputs at the frames from `first` to `last`.

    `times[node]` are the frames that a node computes, in order; `steps[node]` is its input. An input of another name than `input` has one
    row a sequence.
    """

    def __init__(self, nnet: Nnet3, plan: Plan, times: np.ndarray, first: int, last: int) -> None:
        self._nnet, self._plan, self.last_output = nnet, plan, int(times[-1])
        self._spans = plan.spans(first, last) if plan.has_if_defined else {}
        needed = plan.needed(times, spans=self._spans if plan.has_if_defined else None)
        reached = needed.get("input", np.array([first]))
        if reached[0] < first or reached[-1] > last:
            raise ValueError(f"the outputs need input frames {reached[0]} to {reached[-1]}, given are {first} to {last}")
        self.order = [name for name in plan.order if name in needed and len(needed[name])]
        self.times = {name: self._computed(name, needed[name], first, last) for name in self.order}
        self.steps: dict[str, Step] = {}
        for name in self.order:
            if (descriptor := nnet.taken_by(name)) is not None:
                times, offsets = self.times[name], plan.time_offsets(name)
                if self._looks_around(name):
                    times, offsets = plan.input_times(name, times), [0]
                self.steps[name] = self._step(descriptor, times, offsets, len(offsets) > 1 or offsets != [0])
        self.loops = {name: loop for found in plan.loops for loop in [LoopPlan(found, self)] for name in loop.nodes}

    def _computed(self, name: str, needed: np.ndarray, first: int, last: int) -> np.ndarray:
        node = self._nnet.nodes[name]
        if node.kind == "input-node":
            if name != "input" and len(needed) > 1:
                raise UserError(f"the network takes its input {name} at several frames of a chunk; it is trained with one value a chunk "
                                f"alone, as by ReplaceIndex({name}, t, 0).")
            return np.arange(first, last + 1) if name == "input" else needed
        if node.kind == "component-node" and self._nnet.components[node.component].type == "TdnnComponent" and len(needed) > 1:
            return np.arange(needed[0], needed[-1] + 1, np.gcd.reduce(np.diff(needed)))
        return needed

    def _looks_around(self, name: str) -> bool:
        """True for a node whose component finds itself what it needs among the frames of its input, which have a row each."""
        node = self._nnet.nodes[name]
        return node.kind == "component-node" and self._nnet.components[node.component].type == "RestrictedAttentionComponent"

    def _step(self, descriptor: Descriptor, times: np.ndarray, offsets: list[int], gaps: bool) -> Step:
        dim = self._nnet.descriptor_dim(descriptor)
        everywhere = np.ones(len(times), bool)
        found = [term for number, offset in enumerate(offsets)
                 for term in self._terms(descriptor, times + offset, everywhere, number * dim, 1.0, gaps)]
        covered = np.zeros(dim * len(offsets), int)
        for column, width in {(term.column, term.dim) for term in found}:
            covered[column:column + width] += 1
        partial = bool((covered != 1).any())
        terms: list[Term] = []
        for term in found:
            before = any((other.column, other.dim) == (term.column, term.dim) for other in terms)
            terms.append(replace(term, add=before))
            partial |= not before and not (isinstance(term.into, slice) and term.into == slice(0, len(times)))
        same = terms[0].source if len(terms) == 1 and self._is_whole(terms[0], times, dim * len(offsets)) else ""
        return Step(times, dim * len(offsets), tuple(replace(term, add=term.add or partial) for term in terms), partial, same)

    def _is_whole(self, term: Term, times: np.ndarray, dim: int) -> bool:
        """True where a term is all that its source computes, as it is."""
        whole = slice(0, len(times))
        return (bool(term.source) and len(self.times[term.source]) == len(times) and term.scale == 1.0 and term.dim == dim
                and isinstance(term.frames, slice) and isinstance(term.into, slice) and term.frames == term.into == whole)

    def _terms(self, descriptor: Descriptor, at: np.ndarray, defined: np.ndarray, column: int, scale: float, gaps: bool) -> Iterator[Term]:
        """The terms of a descriptor at the frames `at`, where `defined`; with `gaps` frames that its nodes do not compute are left out."""
        match descriptor.function:
            case "":
                have, dim = self.times[descriptor.node], self._nnet.dim(descriptor.node)
                rows = np.searchsorted(have, at).clip(0, len(have) - 1)
                there = have[rows] == at
                assert gaps or there[defined].all(), f"{descriptor.node} is needed at frames that it does not compute"
                chosen = np.flatnonzero(there & defined)
                if len(chosen):
                    yield Term(descriptor.node, scale, column, dim, evenly(rows[chosen]), evenly(chosen))
            case "Append":
                for part in descriptor.parts:
                    yield from self._terms(part, at, defined, column, scale, gaps)
                    column += self._nnet.descriptor_dim(part)
            case "Sum":
                for part in descriptor.parts:
                    yield from self._terms(part, at, defined, column, scale, gaps)
            case "Scale":
                yield from self._terms(descriptor.parts[0], at, defined, column, scale * descriptor.numbers[0], gaps)
            case "Const":
                into = evenly(np.flatnonzero(defined))
                yield Term("", scale * descriptor.numbers[0], column, int(descriptor.numbers[1]), into, into)
            case "IfDefined":
                low, high = self._span(descriptor.parts[0])
                yield from self._terms(descriptor.parts[0], at, defined & (at >= low) & (at <= high), column, scale, gaps)
            case _:
                yield from self._terms(descriptor.parts[0], shift(descriptor, at), defined, column, scale, gaps)

    def _span(self, descriptor: Descriptor) -> Span:
        return self._plan.span(descriptor, self._spans)


@dataclass(frozen=True)
class Part:
    """What a node of a loop computes in a wave: its frames `rows`, of whose input `terms` are of nodes of the loop."""

    name: str
    rows: slice
    terms: tuple[Term, ...]


class LoopPlan:
    """The waves of a loop: the parts of each, in order. `outside` has the terms of other nodes, by the names of those that take them."""

    def __init__(self, loop: Loop, plan: ChunkPlan) -> None:
        self.nodes = [name for name in loop.nodes if name in plan.times]
        terms = {name: plan.steps[name].terms for name in self.nodes}
        self.outside = {name: tuple(replace(term, add=True) for term in own if term.source not in self.nodes)
                        for name, own in terms.items()}
        inside = {name: [term for term in own if term.source in self.nodes] for name, own in terms.items()}
        self.waves = [[Part(name, wave[name], tuple(part for term in inside[name] for part in _within(name, term, wave[name], plan.times)))
                       for name in self.nodes if name in wave] for wave in loop.waves(plan.times)]


def _within(name: str, term: Term, rows: slice, times: Mapping[str, np.ndarray]) -> Iterator[Term]:
    """What a term puts into some frames of a node's input, if anything; `into` is counted from the first of them."""
    into = np.arange(len(times[name]))[term.into] if isinstance(term.into, slice) else term.into
    source = np.arange(len(times[term.source]))[term.frames] if isinstance(term.frames, slice) else term.frames
    chosen = (into >= rows.start) & (into < rows.stop)
    if chosen.any():
        yield replace(term, frames=evenly(source[chosen]), into=evenly(into[chosen] - rows.start), add=True)


def evenly(frames: np.ndarray) -> Frames:
    """Frames as a slice, where they are evenly spaced and go up."""
    if len(frames) == 0:
        return slice(0, 0)
    if len(frames) == 1:
        return slice(int(frames[0]), int(frames[0]) + 1)
    step = int(frames[1] - frames[0])
    if step > 0 and (np.diff(frames) == step).all():
        stop = int(frames[-1]) + 1
        return slice(int(frames[0]), stop) if step == 1 else slice(int(frames[0]), stop, step)
    return frames
