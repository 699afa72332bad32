"""Recordings with their transcripts beside them, as the Montreal Forced Aligner wants a corpus.

    corpus/<speaker>/<name>.wav (or .flac, .sph, .mp3, .ogg, .opus)      corpus/<speaker>/<name>.lab (or .txt): what is said in it
    corpus/<name>.wav (likewise)                                         corpus/<name>.TextGrid: a tier a speaker, an interval an utterance

The speaker is the name of the folder in which a recording lies, or of the tier; or the first so many characters of the recording's own
name. Of a stereo recording with a TextGrid, the first half of the tiers is heard on the first channel, the second on the second.
Intervals of less than 0.1 seconds are left out. What is said is plain text. Its words are looked up in the lexicon as they stand; else
without punctuation around them; else in capitals or small letters. What is still not there is the lexicon's word for unknown words.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from pykaldist.errors import UserError, to_utf8
from pykaldist.hmm.import_ali.sources.textgrid import parse
from pykaldist.io.audio import find_audio

AUDIO = (".wav", ".flac", ".sph", ".mp3", ".ogg", ".opus")
TEXTS = (".lab", ".txt", ".TextGrid")  # the first of them that is there
LEAST_SECONDS = 0.1  # of an interval
SOME = 5  # names in a message


@dataclass
class SpokenFile:
    """What a speaker says in a recording, or in a part of it.

    `name` is the recording's path below the corpus without suffix, `written` the words of its transcript as they stand there, `begin` and
    `end` are in seconds (None: its end). `place` is that of the speaker among a TextGrid's tiers, from 0 to below 1, None without one.
    """

    name: str
    audio: Path
    speaker: str
    written: list[str]
    begin: float = 0.0
    end: float | None = None
    place: float | None = None

    @property
    def title(self) -> str:
        """What a message calls it: the recording, and where in it something is said."""
        return self.name if self.place is None else f"{self.name} at {self.begin:g} s ({self.speaker})"


@dataclass
class SpokenFiles:
    """The recordings of a corpus that have transcripts, and the names of those without, and of transcripts without recordings."""

    files: list[SpokenFile]
    without_text: list[str] = field(default_factory=list)
    without_audio: list[str] = field(default_factory=list)

    @property
    def what(self) -> str:
        """What `files` are."""
        return "recordings" if all(file.place is None for file in self.files) else "utterances"

    def left_out(self) -> list[str]:
        """Sentences that say what is left out."""
        found = ((self.without_text, "recordings have no transcript (.lab, .txt or .TextGrid) beside them"),
                 (self.without_audio, "transcripts have no recording beside them"))
        return [f"{len(names)} {what}: {named(names)}" for names, what in found if names]


def named(names: Collection[str]) -> str:
    """The first names, and a word that there are more."""
    first = sorted(names)[:SOME]
    return ", ".join(first) + ", ..." * (len(names) > SOME)


def read_corpus(corpus: Path, speaker_characters: int = 0) -> SpokenFiles:
    """Find the recordings of a corpus and read their transcripts; `speaker_characters`: of a name, that say who speaks.

    Raises UserError where there are none, or a transcript is empty or no UTF-8 text.
    """
    if not corpus.is_dir():
        raise UserError(f"{corpus} is no folder; give one with recordings and, beside each, a .lab or .txt file of what is said in it.")
    audio = find_audio(corpus, AUDIO)
    texts = {path.relative_to(corpus).with_suffix("").as_posix(): path for suffix in reversed(TEXTS) for path in corpus.rglob(f"*{suffix}")}
    both = sorted(audio.keys() & texts.keys())
    if not both:
        raise UserError(f"{corpus} has {len(audio)} recordings ({', '.join(AUDIO)}) and {len(texts)} transcripts ({', '.join(TEXTS)}), "
                        "and no two of one name; put a transcript beside each recording.")
    files = [file for name in both for file in _spoken(name, audio[name], texts[name], speaker_characters)]
    return SpokenFiles(files, sorted(audio.keys() - texts.keys()), sorted(texts.keys() - audio.keys()))


def _spoken(name: str, audio: Path, text: Path, speaker_characters: int) -> list[SpokenFile]:
    if text.suffix != ".TextGrid":
        return [SpokenFile(name, audio, _speaker(name, speaker_characters), _words(text))]
    tiers, _ = parse(text)
    return [SpokenFile(name, audio, _speaker(name, speaker_characters) if speaker_characters else "_".join(tier.split()) or "speaker",
                       one.label.split(), one.start, one.end, number / len(tiers))
            for number, (tier, intervals) in enumerate(tiers.items()) for one in intervals
            if one.label and one.end - one.start >= LEAST_SECONDS]


def _speaker(name: str, characters: int) -> str:
    path = Path(name)
    speaker = path.name[:characters] if characters else path.parent.name or "speaker"
    return "_".join(speaker.split())


def _words(path: Path) -> list[str]:
    try:
        words = path.read_text(encoding="utf-8-sig").split()
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is no UTF-8 text; {to_utf8(path)}.") from error
    if not words:
        raise UserError(f"{path} is empty; write what is said in the recording, or remove both.")
    return words


def without_punctuation(word: str) -> str:
    """A word without punctuation around it."""
    while word and _is_punctuation(word[0]):
        word = word[1:]
    while word and _is_punctuation(word[-1]):
        word = word[:-1]
    return word


def in_lexicon(word: str, lexicon: Collection[str]) -> str | None:
    """The form of a written word that the lexicon has; None where it has none, empty where the word is punctuation alone."""
    bare = without_punctuation(word)
    forms = (word, bare, bare.upper(), bare.lower(), bare.capitalize())
    return next((form for form in forms if form in lexicon and form), None if bare else "")


def _is_punctuation(character: str) -> bool:
    return unicodedata.category(character).startswith("P")


def spelled(file: SpokenFile, lexicon: Collection[str], unknown_word: str, unknown: Counter[str]) -> list[tuple[str, str]]:
    """(word of the lexicon, word as it is written, without punctuation where the lexicon has it so) of what is said.

    Counts words that the lexicon lacks in `unknown`.
    """
    found = []
    for word in file.written:
        form = in_lexicon(word, lexicon)
        bare = word if form == word else without_punctuation(word)
        if form is None:
            unknown[bare] += 1
            form = unknown_word
        if form:
            found.append((form, bare))
    return found
