"""An nnet3 network's outputs while its input still comes: each node's frames are computed once, as soon as what they need is there.

A node keeps the frames that later outputs still need, and no more: for an output at frame t, what is there from earlier ones aside, it is
needed at t + o, and the least such o (found once, as to shift all frames by a multiple of the network's period changes nothing) says from
which frame on it is kept. So memory depends on the network's context, not on the length of the input; of a recurrent network the last
frames of its loops are kept, which are the state that is carried on. An output is computed when the last frame of input that it needs has
come, or the input has ended, behind which its last frame is repeated as in `run.py`. Then the outputs are those of the whole input at once.

Inputs other than features, as i-vectors, are what the last call gave. Nodes that depend on these alone are computed anew in every call,
others keep what they were, as in Kaldi's looped computation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from pykaldist.devices import computing_on
from pykaldist.errors import UserError
from pykaldist.nnet.nnet3.plan import Plan
from pykaldist.nnet.nnet3.run import Nnet3Forward, rows_of


def runs_backwards(plan: Plan) -> str:
    """The first node of a loop that begins at the end of an input, so that no output is there before; empty where none is."""
    return next((loop.nodes[0] for loop in plan.loops if loop.delay < 0), "")


class Nnet3Stream:
    """One input on its way through a network: `accept` takes its next frames, `finish` ends it; both give the outputs that can be computed.

    The forward pass may serve several streams. Outputs come for `frames_per_chunk` frames at once, but for the last ones.
    """

    def __init__(self, forward: Nnet3Forward, frames_per_chunk: int = 1) -> None:
        self._forward, self._plan, self._step, self._chunk = forward, forward.plan, forward.subsampling, frames_per_chunk
        if name := runs_backwards(self._plan):
            raise UserError(f"the network runs backwards, from a recording's end (its node {name}), so that it has no output before; use "
                            "steps/nnet3/decode.sh.")
        self._reach, self._lookahead = self._context()
        self._passing = _without_input(forward)
        self._times: dict[str, np.ndarray] = {}
        self._values: dict[str, Tensor] = {}
        self._others: Mapping[str, np.ndarray] = {}
        self._feats = np.zeros((0, forward.inputs["input"]), np.float32)
        self._begin = 0  # the frame of the first of them
        self._next = 0  # the next output's frame
        self.ended = False

    def _context(self) -> tuple[dict[str, int], int]:
        """From which frame on later outputs need each node, and up to which frame they need the input, counted from the next output.

        A loop's frames that an output needs were there for the output a period before it, but for those that are less than a period
        behind the first frame that others than the loop need.
        """
        plan, step = self._plan, self._step
        period = math.lcm(plan.modulus, step, *(loop.delay for loop in plan.loops))
        there = {name: math.inf for loop in plan.loops for name in loop.nodes}  # the first frame that is not, counted from the output
        reach, lookahead = dict.fromkeys(plan.order, 0), 0

        def needed(t: int) -> dict[str, np.ndarray]:
            found = plan.needed(np.array([t]), known=lambda name, at: at - t < there.get(name, -math.inf))
            return {name: at - t for name, at in found.items()}

        for name in reversed(plan.order):
            if there.get(name) == math.inf:
                loop = plan.loop_of[name].nodes
                first = min(int(at[0]) for t in range(0, period, step) for one, at in needed(t).items() if one in loop)
                there.update(dict.fromkeys(loop, first - period))
        for t in range(0, period, step):
            found = needed(t)
            if "input" not in found:
                raise UserError("the network's output does not depend on the node input; there is nothing to stream.")
            lookahead = max(lookahead, int(found["input"][-1]))
            reach.update({name: min(reach[name], int(at[0])) for name, at in found.items()})
        return reach, lookahead

    @property
    def latency(self) -> int:
        """The frames of input behind its own that an output waits for."""
        return self._lookahead

    def accept(self, feats: np.ndarray, **others: np.ndarray) -> np.ndarray:
        """Take the next frames of features (frames, dimension), and the other inputs as they are now; returns the next outputs, if any.

        Raises ValueError for inputs of another dimension, or that are missing.
        """
        if self.ended:
            raise ValueError("the input has ended")
        if not len(feats):
            return self._outputs(0)
        self._forward.check_inputs({"input": feats, **others})
        self._others = others
        self._feats = np.concatenate([self._feats, feats])
        known = self._begin + len(self._feats) - self._lookahead - self._next
        return self._outputs(self._next + known // self._chunk * self._chunk)

    def finish(self, **others: np.ndarray) -> np.ndarray:
        """End the input; returns the rest of the outputs, with the other inputs as they are now, or as they were last."""
        self.ended, self._others = True, others or self._others
        return self._outputs(self._begin + len(self._feats))

    def _outputs(self, end: int) -> np.ndarray:
        """The outputs of the frames up to `end`."""
        times = np.arange(self._next, end, self._step)
        if not len(times):
            return np.zeros((0, self._forward.output_dim), np.float32)
        with torch.no_grad(), computing_on(self._forward.device):
            outputs = self._compute(times).cpu().numpy()
            self._next = int(times[-1]) + self._step
            self._forget()
        return outputs

    def _compute(self, times: np.ndarray) -> Tensor:
        spans = self._plan.spans(*self._forward.ends(self._begin + len(self._feats))) if self._plan.has_if_defined else {}
        needed = self._plan.needed(times, spans=spans if self._plan.loops else None, known=self._known)
        inputs = {**self._others, "input": self._feats}
        new = {name: at[~self._known(name, at)] for name, at in needed.items()}

        def taken(name: str, at: np.ndarray) -> Tensor:
            return rows_of(self._values[name], self._times[name], at)

        for name in self._plan.order:
            if name not in new or not len(new[name]):
                continue
            if name in self._plan.loop_of:
                loop = self._plan.loop_of[name]
                own = {one: new.pop(one) for one in loop.nodes if one in new}
                for one, at in own.items():
                    self._add(one, at, self._forward.empty(one, len(at)))
                self._forward.loop(loop, own, self._times, self._values, inputs, taken, spans)
            else:
                at = new[name] - self._begin if name == "input" else new[name]
                self._add(name, new[name], self._forward.node(name, at, inputs, taken, spans))
        return taken(self._forward.output, times)

    def _known(self, name: str, at: np.ndarray) -> np.ndarray:
        """Which of some frames of a node are there."""
        times = self._times.get(name, at[:0])
        if not len(times):
            return np.zeros(len(at), bool)
        return times[np.searchsorted(times, at).clip(max=len(times) - 1)] == at

    def _add(self, name: str, new: np.ndarray, value: Tensor) -> None:
        """Keep the rows of a node at `new` frames beside those that are there."""
        known = self._times.get(name, new[:0])
        if not len(known):
            self._times[name], self._values[name] = new, value
            return
        times, values = np.concatenate([known, new]), torch.cat([self._values[name], value])
        if known[-1] > new[0]:
            order = np.argsort(times)
            times, values = times[order], values[torch.from_numpy(order).to(values.device)]
        self._times[name], self._values[name] = times, values

    def _forget(self) -> None:
        """Drop what no later output needs; of the input, its last frame stays, which is repeated at the end."""
        for name in list(self._times):
            first = len(self._times[name]) if name in self._passing else int(
                np.searchsorted(self._times[name], self._next + self._reach[name]))
            if first:
                self._times[name], self._values[name] = self._times[name][first:], self._values[name][first:].clone()
        drop = min(self._next + self._reach["input"] - self._begin, len(self._feats) - 1)
        if drop > 0:
            self._feats, self._begin = self._feats[drop:], self._begin + drop


def _without_input(forward: Nnet3Forward) -> set[str]:
    """The nodes that depend on other inputs than features alone."""
    depends = {"input"}
    for name in forward.plan.order:
        if depends & set(forward.sources(name)):
            depends.add(name)
    return set(forward.plan.order) - depends
