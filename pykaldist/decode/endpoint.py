"""Endpointing: when an utterance that still comes has ended, by Kaldi's five rules with their defaults (src/online2/online-endpoint.h).

A rule holds where (something other than silence was said, or need not be) and the silence behind it is at least `min_trailing_silence`
seconds long, the best path with a final state is worse than the best one by at most `max_relative_cost`, and the utterance is at least
`min_utterance_length` seconds long. The utterance has ended where one of the rules holds.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np

from pykaldist.decode.decoder import BestPath
from pykaldist.errors import UserError
from pykaldist.options import boolean


@dataclass(frozen=True)
class EndpointRule:
    """A rule by which an utterance ends."""

    must_contain_nonsilence: bool
    min_trailing_silence: float
    max_relative_cost: float = math.inf
    min_utterance_length: float = 0.0

    def holds(self, trailing_silence: float, relative_cost: float, length: float) -> bool:
        """Whether it holds for an utterance of `length` seconds, the last `trailing_silence` of them silence."""
        return ((length > trailing_silence or not self.must_contain_nonsilence) and trailing_silence >= self.min_trailing_silence
                and relative_cost <= self.max_relative_cost and length >= self.min_utterance_length)


HELP = {"must_contain_nonsilence": "whether anything must have been said",
        "min_trailing_silence": "least seconds of silence at the end",
        "max_relative_cost": "by how much the best complete path may be worse than the best",
        "min_utterance_length": "least seconds of the utterance"}
#: Long silence; short silence behind a likely end; silence behind a possible end; silence behind anything; a long utterance.
RULES = (EndpointRule(False, 5.0), EndpointRule(True, 0.5, 2.0), EndpointRule(True, 1.0, 8.0), EndpointRule(True, 2.0),
         EndpointRule(False, 0.0, math.inf, 20.0))


@dataclass
class Endpointing:
    """The rules, and which phones are silence."""

    silence_phones: Collection[int]
    rules: tuple[EndpointRule, ...] = field(default=RULES)

    def trailing_silence(self, path: BestPath, tid2phone: np.ndarray) -> int:
        """The number of frames of silence at the end of a path."""
        spoken = np.flatnonzero(~np.isin(tid2phone[path.transition_ids], list(self.silence_phones)))
        return len(path.transition_ids) - (int(spoken[-1]) + 1 if len(spoken) else 0)

    def detected(self, path: BestPath, tid2phone: np.ndarray, frame_shift: float) -> bool:
        """Whether an utterance whose best path so far is `path`, a transition-id for each `frame_shift` seconds, has ended."""
        silence = self.trailing_silence(path, tid2phone) * frame_shift
        return any(rule.holds(silence, path.final_relative_cost, len(path.transition_ids) * frame_shift) for rule in self.rules)


def add_endpoint_options(parser: argparse.ArgumentParser) -> None:
    """Add Kaldi's options: --endpoint.silence-phones, and --endpoint.rule1.min-trailing-silence and its like."""
    group = parser.add_argument_group("endpointing")
    group.add_argument("--endpoint.silence-phones", metavar="N:N", help="silence phones (default: the graph's phones/silence.csl)")
    for number, rule in enumerate(RULES, 1):
        for name, value in dataclasses.asdict(rule).items():
            truth = isinstance(value, bool)
            group.add_argument(f"--endpoint.rule{number}.{name.replace('_', '-')}", type=boolean if truth else float, default=value,
                               metavar="true|false" if truth else "N", help=f"{HELP[name]} (default: {str(value).lower()})")


def given_endpoint_options(args: argparse.Namespace) -> list[str]:
    """Those of these options that have another value than without them."""
    defaults = {f"endpoint.rule{number}.{name}": value for number, rule in enumerate(RULES, 1)
                for name, value in dataclasses.asdict(rule).items()}
    return [f"--{name.replace('_', '-')}" for name, value in vars(args).items()
            if name.startswith("endpoint.") and value != defaults.get(name)]


def phone_numbers(option: str, text: str) -> set[int]:
    """The phones that an option lists as 1:2:3; raises UserError where it does not."""
    try:
        return {int(phone) for phone in text.split(":")}
    except ValueError as error:
        raise UserError(f"--{option} {text}: expected phone numbers, such as 1:2:3.") from error


def endpointing_from(args: argparse.Namespace, silence_csl: str) -> Endpointing:
    """The endpointing that the parsed options say; `silence_csl` are the silence phones where no option names them."""
    values = vars(args)
    phones = phone_numbers("endpoint.silence-phones", values["endpoint.silence_phones"] or silence_csl)
    names = [one.name for one in dataclasses.fields(EndpointRule)]
    return Endpointing(phones, tuple(EndpointRule(**{name: values[f"endpoint.rule{number}.{name}"] for name in names})
                                     for number in range(1, len(RULES) + 1)))
