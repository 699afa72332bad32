"""Conversion of imported alignments to one label a frame: transition_ids, or pdfs where the source has these."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from pykaldist.errors import UserError
from pykaldist.hmm.import_ali.phone_labels import PhoneLabels, Pronunciations, find_word, places
from pykaldist.hmm.import_ali.phone_states import PhoneStates
from pykaldist.hmm.import_ali.sources.base import Frames, Interval, SourceOptions, Times
from pykaldist.io.datadir import DataDir
from pykaldist.io.lang import LangDir

OVERLAP = 0.5  # frames by which intervals may overlap
MAX_TRIM = 5  # frames by which alignment and features may differ, as in nnet1


class Unusable(Exception):
    """The error of one utterance of a source that cannot be used; it says why."""


class WrongLength(Unusable):
    """The error of an utterance whose alignment is longer or shorter than its features by more than MAX_TRIM frames."""


class LabelConverter:
    """Converts the items of a source to int32 labels, one a frame.

    `kind` is what the source has: transition_id, pdf, phone or word; `reason` how that was told, where it had to be guessed. `states`
    gives the transition_ids of phones, None for the other kinds. `unlabelled` counts the frames that no interval covers.
    """

    def __init__(self, lang: LangDir, items: Iterable[Frames | Times], options: SourceOptions) -> None:
        self.lang, self.frame_shift = lang, options.frame_shift
        if not options.frame_shift > 0:
            raise UserError(f"--frame-shift: expected seconds above 0, found {options.frame_shift:g}.")
        self.phones = PhoneLabels(lang)
        self.unlabelled = 0
        self.states: PhoneStates | None = None
        self.words: Pronunciations | None = None
        self.kind, self.reason = self._decide(items)
        if self.kind in ("phone", "word"):
            self.states = PhoneStates(lang)
        if self.kind == "word" and self.states:
            self.words = Pronunciations(lang, self.states.model.topology)

    def _decide(self, items: Iterable[Frames | Times]) -> tuple[str, str]:
        kinds, numbers, labels, with_phones, with_labels = set[str](), set[int](), Counter[str](), False, False
        for item in items:
            if isinstance(item, Frames):
                kinds.add(item.kind)
                if item.kind == "label":
                    numbers.update(np.unique(item.values).tolist())
            else:
                with_phones, with_labels = with_phones or item.phones is not None, with_labels or item.labels is not None
                labels.update(interval.label for interval in item.labels or [])
        if kinds:
            if "phone" in kinds:
                return "phone", ""
            if "label" not in kinds:
                return kinds.pop(), ""
            seen = np.array(sorted(numbers), np.int64)
            if len(seen) and not self.phones.is_phone_number(seen):
                return "pdf", f"{next(v for v in seen if not self.phones.is_phone_number(v))} is no phone; --labels phone says otherwise"
            return "phone", "all are numbers of phones; --labels pdf says otherwise"
        if with_phones:
            return "phone", ""
        if not with_labels:
            return "word", ""
        as_phones = sum(count for label, count in labels.items() if self.phones.find(label) is not None)
        as_words = sum(count for label, count in labels.items() if find_word(self.lang, label) is not None)
        return ("phone" if as_phones >= as_words else "word",
                f"{max(as_phones, as_words)} of {labels.total()} labels are such; --labels phone or word says otherwise")

    def convert(self, item: Frames | Times, num_frames: int) -> np.ndarray:
        """Convert one utterance whose features have `num_frames` frames, which may differ by MAX_TRIM; raises Unusable."""
        if self.states is None and isinstance(item, Frames):
            _check_length(len(item.values), num_frames)
            return item.values
        spans = self._runs(item.values) if isinstance(item, Frames) else self._spans(item, num_frames)
        _check_length(sum(frames for _, frames in spans), num_frames)
        if any(phone == 0 for phone, _ in spans):
            raise Unusable("it has phones unknown to the language directory")
        assert self.states is not None  # times are phones or words
        return self.states.transition_ids([phone for phone, _ in spans], [frames for _, frames in spans])

    def _runs(self, values: np.ndarray) -> list[tuple[int, int]]:
        """The (phone, frames) of labels, one a frame; neighbours of one label are one phone."""
        if len(values) == 0:
            return []
        starts = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]]))
        counts = np.diff(np.concatenate([starts, [len(values)]]))
        return [(self.phones.phone(str(label)), count) for label, count in zip(values[starts].tolist(), counts.tolist(), strict=True)]

    def _spans(self, times: Times, num_frames: int) -> list[tuple[int, int]]:
        """The (phone, frames) from the utterance's start to its end, which is the features' unless the source says otherwise."""
        phones = times.phones if self.kind == "phone" and times.labels is None else None
        intervals = (times.labels or times.words or []) if phones is None else phones
        end = num_frames if times.end is None else round(times.end / self.frame_shift)
        cuts = self._cuts(intervals)
        place = places(intervals, times.words) if self.kind == "phone" else []
        spans: list[tuple[int, int]] = []
        at = 0
        for number, (interval, (start, stop)) in enumerate(zip(intervals, cuts, strict=True)):
            if start > at:
                spans.append((self.lang.optional_silence, start - at))
                self.unlabelled += start - at
            if stop > start:
                if self.words is not None:
                    spans += [(phone, frames) for phone, frames in self.words.spread(interval.label, stop - start) if frames]
                else:
                    spans.append((self.phones.phone(interval.label, place[number]), stop - start))
            at = max(at, stop)
        if at < end:
            spans.append((self.lang.optional_silence, end - at))
            self.unlabelled += end - at
        return spans

    def _cuts(self, intervals: Sequence[Interval]) -> list[tuple[int, int]]:
        """The first frame of each interval, and the one behind its last."""
        for before, after in itertools.pairwise(intervals):
            if after.start < before.end - OVERLAP * self.frame_shift:
                raise Unusable(f"{before.label} ({before.start:g} to {before.end:g} s) and {after.label} (from {after.start:g} s) overlap")
        cuts, at = [], 0
        for interval in intervals:
            start = max(at, round(interval.start / self.frame_shift))
            at = max(start, round(interval.end / self.frame_shift))
            cuts.append((start, at))
        return cuts


def _check_length(found: int, num_frames: int) -> None:
    if abs(found - num_frames) > MAX_TRIM:
        raise WrongLength(f"{found} frames of alignment, {num_frames} of features")


def of_segments(items: Mapping[str, Frames | Times], data: DataDir) -> Iterator[tuple[str, Frames | Times]]:
    """Cut the items of whole recordings into the segments of `data`; items of utterances stay as they are."""
    yield from ((name, item) for name, item in items.items() if name in data.segments)
    last, item = "", None
    for utt, (recording, start, end) in data.segments.items():
        if recording != last:
            last, item = recording, items.get(recording)
        if utt not in items and isinstance(item, Times):
            stop = end if end >= 0 else item.end
            phones, words, labels = (None if tier is None else _cut(tier, start, float("inf") if stop is None else stop)
                                     for tier in (item.phones, item.words, item.labels))
            yield utt, Times(phones, words, labels, None if stop is None else stop - start)


def _cut(intervals: list[Interval], start: float, end: float) -> list[Interval]:
    return [Interval(max(i.start, start) - start, min(i.end, end) - start, i.label) for i in intervals if i.end > start and i.start < end]
