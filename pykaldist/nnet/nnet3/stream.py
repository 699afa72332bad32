"""An nnet3 network's outputs while its input still comes: each node's frames are computed once, as soon as what they need is there.

A node keeps the frames that later outputs still need, and no more: for an output at frame t it is needed at t + o, and the least such o
(found once; to shift all frames by a multiple of the network's period changes nothing) says from which frame on it is kept. So memory
depends on the network's context, not on the length of the input. An output is computed when the last frame of input that it needs has
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

from pykaldist.errors import UserError
from pykaldist.nnet.nnet3.run import Nnet3Forward, rows_of


class Nnet3Stream:
    """One input on its way through a network: `accept` takes its next frames, `finish` ends it; both give the outputs that can be computed.

    The forward pass may serve several streams.
    """

    def __init__(self, forward: Nnet3Forward) -> None:
        self._forward, self._plan, self._step = forward, forward.plan, forward.subsampling
        if self._plan.loops:
            raise UserError("the network is recurrent; such networks go through recordings as a whole here: use steps/nnet3/decode.sh.")
        period = math.lcm(self._plan.modulus, self._step)
        needed = [{name: times - t for name, times in self._plan.needed(np.array([t])).items()} for t in range(0, period, self._step)]
        if any("input" not in one for one in needed):
            raise UserError("the network's output does not depend on the node input; there is nothing to stream.")
        self._reach = {name: min(int(one[name].min()) for one in needed if name in one) for name in self._plan.order}
        self._lookahead = max(int(one["input"].max()) for one in needed)
        self._passing = _without_input(forward)
        self._times: dict[str, np.ndarray] = {}
        self._values: dict[str, Tensor] = {}
        self._others: Mapping[str, np.ndarray] = {}
        self._feats = np.zeros((0, forward.inputs["input"]), np.float32)
        self._begin = 0  # the frame of the first of them
        self._next = 0  # the next output's frame
        self.ended = False

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
        return self._outputs(self._begin + len(self._feats) - self._lookahead)

    def finish(self) -> np.ndarray:
        """End the input; returns the rest of the outputs."""
        self.ended = True
        return self._outputs(self._begin + len(self._feats))

    def _outputs(self, end: int) -> np.ndarray:
        """The outputs of the frames up to `end`."""
        times = np.arange(self._next, end, self._step)
        if not len(times):
            return np.zeros((0, self._forward.output_dim), np.float32)
        with torch.no_grad():
            outputs = self._compute(times).cpu().numpy()
        self._next = int(times[-1]) + self._step
        self._forget()
        return outputs

    def _compute(self, times: np.ndarray) -> Tensor:
        needed, frames = self._plan.needed(times), self._begin + len(self._feats)
        spans = self._plan.spans(-self._plan.left_context, frames - 1 + self._plan.right_context) if self._plan.has_if_defined else {}
        inputs = {**self._others, "input": self._feats}

        def taken(name: str, at: np.ndarray) -> Tensor:
            return rows_of(self._values[name], self._times[name], at)

        for name in self._plan.order:
            if name not in needed:
                continue
            known = self._times.get(name, needed[name][:0])
            new = needed[name][~np.isin(needed[name], known)]
            if not len(new):
                continue
            value = self._forward.node(name, new - self._begin if name == "input" else new, inputs, taken, spans)
            self._add(name, known, new, value)
        return taken(self._forward.output, times)

    def _add(self, name: str, known: np.ndarray, new: np.ndarray, value: Tensor) -> None:
        """Keep the rows of a node at `new` frames beside those that are known."""
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
