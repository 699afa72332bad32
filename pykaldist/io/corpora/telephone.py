"""Recordings of telephone conversations as the Linguistic Data Consortium ships them: sphere files with a channel for each side.

The sides of `sw02001.sph` are the recordings sw02001-A (channel 1) and sw02001-B (channel 2), as in Kaldi's recipes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pykaldist.errors import UserError
from pykaldist.io import sphere
from pykaldist.io.datadir import write_datadir, write_table

SIDES = "AB"
RATE = 8000  # Hz


@dataclass(frozen=True)
class Segment:
    """What one side says from `start` to `end`, in seconds."""

    file: str
    side: str
    start: float
    end: float
    words: tuple[str, ...] = ()

    @property
    def recording(self) -> str:
        return f"{self.file}-{self.side}"

    @property
    def utterance(self) -> str:
        """The name as in Kaldi's recipes: file, side, and both times in hundredths of a second."""
        return f"{self.recording}_{round(100 * self.start):06d}-{round(100 * self.end):06d}"


def with_words(segments: Iterable[Segment], headers: Mapping[str, sphere.Header],
               words_of: Callable[[Sequence[str]], list[str]]) -> tuple[list[Segment], dict[str, str], list[str]]:
    """The segments of which `words_of` leaves words, their texts, and the names of those whose times cannot be."""
    chosen, texts, bad = [], {}, []
    for segment in segments:
        header = headers[segment.file]
        if segment.end <= segment.start or segment.start >= header.samples / header.rate:
            bad.append(segment.utterance)
        elif words := words_of(segment.words):
            chosen.append(segment)
            texts[segment.utterance] = " ".join(words)
    return chosen, texts, bad


def write_sides(path: str | os.PathLike[str], recordings: Mapping[str, Path], headers: Mapping[str, sphere.Header],
                segments: Iterable[Segment], texts: Mapping[str, str],
                times: Mapping[str, tuple[float, float]] | None = None) -> dict[str, float]:
    """Write a data directory of the sides that have utterances, each of them a speaker; returns the hours and the counts of what came out.

    `texts`: utterance -> words; `times`: utterance -> begin and end in place of the segment's own. `reco2file_and_channel` is for CTM
    files. Raises UserError for two utterances of one name.
    """
    own, other = sphere.own_program(), sphere.decompressor()
    wav: dict[str, str] = {}
    table: dict[str, str] = {}
    channels: dict[str, str] = {}
    speakers: dict[str, str] = {}
    seconds = 0.0
    for segment in segments:
        utt, side = segment.utterance, segment.recording
        if utt in table:
            raise UserError(f"two utterances are called {utt}: side {segment.side} of {segment.file} has two segments of the same times; "
                            "take one of them out of the transcripts.")
        program = other if headers[segment.file].shortened else own
        assert program is not None, "check_recordings refuses shortened files without a program"
        wav.setdefault(side, sphere.pipe(program, recordings[segment.file].resolve(), SIDES.index(segment.side) + 1))
        channels[side] = f"{segment.file} {segment.side}"
        begin, end = times[utt] if times is not None else (segment.start, segment.end)
        table[utt] = f"{side} {begin:.2f} {end:.2f}"
        speakers[utt] = side
        seconds += end - begin
    data = write_datadir(path, wav, {utt: texts[utt] for utt in table}, speakers, table)
    write_table(data.path / "reco2file_and_channel", channels)
    return {"utterances": len(table), "speakers": len(wav), "hours": seconds / 3600}
