"""Weights of frames for i-vectors while audio comes: what the search takes for silence counts less.

A frame that the best path so far has in a silence phone has the weight `silence_weight`, and so has each frame of a run of one
transition-id that is at least `max_state_duration` output frames long. Frames that the search has not come to are weighed as the last one
that it has; at the beginning, where there is none, as silence. When the best path changes, earlier frames change with it, up to 100 output
frames back. Source: OnlineSilenceWeighting of Kaldi's online2/online-ivector-feature.cc.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from pykaldist.decode.endpoint import phone_numbers
from pykaldist.errors import UserError

BACK = 100  # output frames that still change, at most
OPTION = "ivector-silence-weighting"


@dataclass
class SilenceWeighting:
    """Which phones are silence, and what silence counts: nothing at 0, like speech at 1."""

    silence_phones: Collection[int]
    silence_weight: float = 1.0
    max_state_duration: float = -1.0  # below 1: runs may be of any length

    def __post_init__(self) -> None:
        if not 0.0 <= self.silence_weight <= 1.0:
            raise UserError(f"--{OPTION}.silence-weight {self.silence_weight:g}: expected a number from 0 to 1.")

    @property
    def active(self) -> bool:
        """Whether frames are weighed at all."""
        return bool(self.silence_phones) and self.silence_weight != 1.0


class FrameWeights:
    """The weights of an utterance's frames, which are numbered from the recording's start; the utterance begins at `begin`.

    `before`: those of an utterance that ended there, whose frames behind it are counted already.
    """

    def __init__(self, weighting: SilenceWeighting, tid2phone: np.ndarray, subsampling: int, begin: int = 0,
                 before: FrameWeights | None = None) -> None:
        self._weighting, self._subsampling, self._begin = weighting, subsampling, begin
        self._silent = np.isin(tid2phone, list(weighting.silence_phones))
        self._tids = np.zeros(0, np.int64)
        self._known = 0  # output frames that have had a weight
        self._counted: np.ndarray = np.zeros(0) if before is None else before._counted[begin - before._begin:]  # the weight of each frame

    def heard(self, transition_ids: np.ndarray) -> None:
        """Take the transition-ids of the best path so far."""
        self._tids = transition_ids

    def changes(self, ready: int) -> tuple[np.ndarray, np.ndarray]:
        """The frames before `ready` whose weights change, and by how much: new ones by all of it."""
        step, frames = self._subsampling, max(0, ready - self._begin)
        outputs, first = -(-frames // step), max(0, self._known - BACK)
        weight = self._weights(first, outputs)
        new = np.repeat(weight, step)[: max(0, frames - first * step)]
        counted = np.append(self._counted, np.zeros(max(0, frames - len(self._counted))))
        change = new - counted[first * step : frames]
        counted[first * step : frames] = new
        self._counted, self._known = counted, outputs
        at = np.flatnonzero(change)
        return self._begin + first * step + at, change[at]

    def _weights(self, first: int, outputs: int) -> np.ndarray:
        """The weights of output frames `first` to `outputs` - 1."""
        silence = self._weighting.silence_weight
        tids = self._tids[first:outputs]
        if not len(tids):
            return np.full(max(0, outputs - first), silence if first == 0 else self._counted[first * self._subsampling - 1])
        weight = np.where(self._silent[tids], silence, 1.0)
        edges = np.flatnonzero(np.diff(tids, prepend=-1, append=-1))
        if self._weighting.max_state_duration > 0:
            weight[np.repeat(np.diff(edges) >= self._weighting.max_state_duration, np.diff(edges))] = silence
        return np.append(weight, np.full(outputs - first - len(tids), weight[-1]))


def add_silence_weighting_options(parser: argparse.ArgumentParser) -> None:
    """Add Kaldi's options: --ivector-silence-weighting.silence-weight and its like."""
    group = parser.add_argument_group("silence in i-vectors")
    group.add_argument(f"--{OPTION}.silence-phones", metavar="N:N", help="silence phones (default: those of endpointing)")
    group.add_argument(f"--{OPTION}.silence-weight", type=float, default=1.0, metavar="N",
                       help="what a frame counts for i-vectors that the search takes for silence (default: 1)")
    group.add_argument(f"--{OPTION}.max-state-duration", type=float, default=-1.0, metavar="N",
                       help="output frames for which a transition-id may go on, before it counts as silence (default: -1, any number)")


def silence_weighting_from(args: argparse.Namespace, silence_csl: str) -> SilenceWeighting:
    """The weighting that the parsed options say; `silence_csl` are the silence phones where no option names them."""
    prefix = f"{OPTION.replace('-', '_')}."
    values = {name.removeprefix(prefix): value for name, value in vars(args).items() if name.startswith(prefix)}
    phones = phone_numbers(f"{OPTION}.silence-phones", values["silence_phones"] or silence_csl)
    return SilenceWeighting(phones, values["silence_weight"], values["max_state_duration"])
