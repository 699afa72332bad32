"""What was said in a recording, and the forms in which it is written: text, CTM, subtitles (SRT, WebVTT) and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from pykaldist.errors import UserError

CUE_WORDS, CUE_SECONDS, CUE_PAUSE = 12, 6.0, 0.8  # of a subtitle: most words and seconds, and the pause that ends one
LINE = 42  # characters of a subtitle's line


@dataclass
class Word:
    """A word with its begin and end in seconds of the recording and its probability; None of them where the model has no times."""

    word: str
    begin: float | None = None
    end: float | None = None
    confidence: float | None = None


@dataclass
class Alternative:
    """What may have been said, and the logarithm of how likely it is beside others of its utterance."""

    words: list[Word]
    score: float


@dataclass
class Utterance:
    """A part of a recording that was recognised at once; `words` is None where no path survived the beam.

    `alternatives`, where they were asked for, are what may have been said, the best first.
    """

    begin: float
    end: float
    words: list[Word] | None
    alternatives: list[Alternative] = field(default_factory=list)

    def later(self, seconds: float) -> Utterance:
        """The same so many seconds later."""
        words = None if self.words is None else _later(self.words, seconds)
        alternatives = [replace(one, words=_later(one.words, seconds)) for one in self.alternatives]
        return Utterance(self.begin + seconds, self.end + seconds, words, alternatives)

    @property
    def text(self) -> str:
        return " ".join(word.word for word in self.words or ())


def _later(words: list[Word], seconds: float) -> list[Word]:
    return [replace(word, begin=word.begin + seconds, end=word.end + seconds) if word.begin is not None and word.end is not None else word
            for word in words]


@dataclass
class Transcript:
    """A recording, how long it is, and its utterances in time."""

    file: str
    seconds: float
    utterances: list[Utterance]

    def later(self, seconds: float) -> Transcript:
        """The same so many seconds later, as a part of a longer recording."""
        return replace(self, utterances=[one.later(seconds) for one in self.utterances])

    @property
    def text(self) -> str:
        return " ".join(one.text for one in self.utterances if one.words)

    @property
    def words(self) -> list[Word]:
        return [word for one in self.utterances for word in one.words or ()]


def as_text(transcript: Transcript) -> str:
    """A line: the file and its words."""
    lost = sum(one.words is None for one in transcript.utterances)
    warning = " WARNING: no path survived the beam (--beam)" if lost else ""
    return f"{transcript.file} {transcript.text}".rstrip() + f"{warning}\n"


def as_ctm(transcript: Transcript) -> str:
    """NIST's form, a line a word: `name channel begin seconds word confidence`."""
    name = "_".join(Path(transcript.file).stem.split())
    return "".join(f"{name} 1 {begin:.2f} {end - begin:.2f} {word.word} {word.confidence:.2f}\n"
                   for word, begin, end in _timed(transcript))


def as_json(transcript: Transcript) -> str:
    """A line of JSON: the file, its text, and its utterances with words, times and confidences."""
    def of_word(word: Word) -> dict[str, object]:
        return {name: value if isinstance(value, str) else round(value, 3) for name, value in vars(word).items() if value is not None}

    utterances = [{"begin": round(one.begin, 3), "end": round(one.end, 3), "text": one.text,
                   "words": [of_word(word) for word in one.words or ()]} for one in transcript.utterances]
    return json.dumps({"file": transcript.file, "seconds": round(transcript.seconds, 3), "text": transcript.text,
                       "utterances": utterances}, ensure_ascii=False) + "\n"


def as_srt(transcript: Transcript) -> str:
    """Subtitles as SubRip has them."""
    return "".join(f"{number}\n{_clock(begin, ',')} --> {_clock(end, ',')}\n{text}\n\n" for number, (begin, end, text) in
                   enumerate(_cues(transcript), 1))


def as_vtt(transcript: Transcript) -> str:
    """Subtitles as WebVTT has them."""
    return "WEBVTT\n\n" + "".join(f"{_clock(begin, '.')} --> {_clock(end, '.')}\n{_escaped(text)}\n\n" for begin, end, text in
                                  _cues(transcript))


FORMATS = {"text": as_text, "ctm": as_ctm, "json": as_json, "srt": as_srt, "vtt": as_vtt}
SUFFIXES = {"text": ".txt"}  # of files; others are named as their formats


def _timed(transcript: Transcript) -> Iterator[tuple[Word, float, float]]:
    for word in transcript.words:
        if word.begin is None or word.end is None:
            raise UserError("the model's graph has no phones/align_lexicon.int, without which words have no times; make it again with "
                            "utils/mkgraph.sh, or ask for --format text or json.")
        yield word, word.begin, word.end


def _cues(transcript: Transcript) -> Iterator[tuple[float, float, str]]:
    """(begin, end, text) of each subtitle; one ends with its utterance, at a pause, or where it is full."""
    for one in transcript.utterances:
        cue: list[tuple[Word, float, float]] = []
        for word, begin, end in _timed(Transcript(transcript.file, transcript.seconds, [one])):
            if cue and (len(cue) == CUE_WORDS or end - cue[0][1] > CUE_SECONDS or begin - cue[-1][2] > CUE_PAUSE):
                yield _cue(cue)
                cue = []
            cue.append((word, begin, end))
        if cue:
            yield _cue(cue)


def _cue(words: list[tuple[Word, float, float]]) -> tuple[float, float, str]:
    lines = [""]
    for word, _, _ in words:
        if lines[-1] and len(lines[-1]) + 1 + len(word.word) > LINE:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word.word}".strip()
    return words[0][1], words[-1][2], "\n".join(lines)


def _clock(seconds: float, point: str) -> str:
    whole, thousandths = divmod(round(1000 * seconds), 1000)
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}{point}{thousandths:03d}"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
