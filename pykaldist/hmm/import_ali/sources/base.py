"""The types that every source of alignments gives: labels a frame, intervals of time, and the source itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

import numpy as np

from pykaldist.hmm.tree.transition_model import TransitionModel
from pykaldist.options import option


@dataclass
class SourceOptions:
    """The options for reading a source."""

    labels: str = option("auto", "what the labels are, where that cannot be told from them", ("auto", "pdf", "phone", "word"))
    frame_shift: float = option(0.01, "seconds from frame to frame, for sources that have times")
    phones_tier: str = option("phones", "name of a TextGrid's tier of phones")
    words_tier: str = option("words", "name of a TextGrid's tier of words")


@dataclass(frozen=True)
class Interval:
    """A label and its time in seconds; an empty label is silence."""

    start: float
    end: float
    label: str


@dataclass
class Frames:
    """An alignment with one label a frame: transition_ids, pdfs or phones as int32; or phones as strings.

    `kind` is transition_id, pdf, phone, or label: integers of which only the source as a whole says whether they are pdfs or phones.
    """

    kind: str
    values: np.ndarray


@dataclass
class Times:
    """An alignment as intervals in the order of time.

    They are `phones`, or `words` where there are no phones, or both; or `labels`, one of the two. `end` is where the recording ends, if
    the source says so.
    """

    phones: list[Interval] | None = None
    words: list[Interval] | None = None
    labels: list[Interval] | None = None
    end: float | None = None

    def joined(self, more: Times) -> Times:
        """These intervals and more of the same utterance, in the order of time."""
        tiers = {name: tier if other is None else sorted([*(tier or []), *other], key=lambda interval: interval.start)
                 for (name, tier), other in zip(self.tiers().items(), more.tiers().values(), strict=True)}
        return Times(**tiers, end=self.end if more.end is None else more.end)

    def tiers(self) -> dict[str, list[Interval] | None]:
        """The intervals of phones, of words and of labels, by the attribute's name; None where the source has none."""
        return {"phones": self.phones, "words": self.words, "labels": self.labels}


def write_item(stream: IO[bytes], item: Frames | Times) -> None:
    """Write an alignment for `parse_item`: a line of JSON, and behind it the labels of frames."""
    if isinstance(item, Frames):
        stream.write(json.dumps({"kind": item.kind, "dtype": item.values.dtype.str}).encode() + b"\n" + item.values.tobytes())
    else:
        tiers = {name: None if tier is None else [[i.start, i.end, i.label] for i in tier] for name, tier in item.tiers().items()}
        stream.write(json.dumps({"tiers": tiers, "end": item.end}).encode() + b"\n")


def parse_item(content: bytes) -> Frames | Times:
    """The alignment that `write_item` has written."""
    line, _, values = content.partition(b"\n")
    head = json.loads(line)
    if "kind" in head:
        return Frames(head["kind"], np.frombuffer(values, np.dtype(head["dtype"])))
    tiers = {name: None if tier is None else [Interval(*i) for i in tier] for name, tier in head["tiers"].items()}
    return Times(**tiers, end=head["end"])


class Source(Protocol):
    """An opened source; `format` in words, `model` of its transition_ids, `system_dir` with the files of the system that made it.

    `in_parts`: an utterance may come several times, each time with some of its intervals.
    """

    format: str
    model: TransitionModel | None
    system_dir: Path | None
    in_parts: bool

    def utterances(self) -> Iterator[tuple[str, Frames | Times]]:
        """Iterate over (utterance or recording, its alignment); raises UserError for a damaged file."""
        ...


@dataclass
class PlainSource:
    """A source that does not come with the system that made it."""

    format: str
    items: Iterator[tuple[str, Frames | Times]]
    model: TransitionModel | None = None
    system_dir: Path | None = None
    in_parts: bool = False

    def utterances(self) -> Iterator[tuple[str, Frames | Times]]:
        return self.items
