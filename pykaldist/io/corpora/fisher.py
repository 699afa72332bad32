"""Fisher English, parts 1 and 2 (speech LDC2004S13, LDC2005S13; transcripts LDC2004T19, LDC2005T19); 8 kHz, two sides a conversation.

The audio is any number of folders with fe_03_*.sph, as the discs have them; a transcript is fe_03_<number>.txt with begin, end, side and
words on each line, which lhotse's recipe reads. What it lacks is here: it wants every call in both places, and the folders as in one of the
releases; and it leaves the words as they are written. Each side is a speaker here, as in Kaldi's recipe.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from pykaldist.errors import UserError
from pykaldist.io.corpora.dictionary import Lexicon
from pykaldist.io.corpora.packages import check_complete, check_recordings, find_files, left_out, package
from pykaldist.io.corpora.rules import Rules
from pykaldist.io.corpora.telephone import RATE, SIDES, Segment, with_words, write_sides

PARTS = (("LDC2004S13", "LDC2004T19", "Fisher English Training Part 1"), ("LDC2005S13", "LDC2005T19", "Fisher English Training Part 2"))
BEGIN = "fe_03_"


def read_call(path: Path) -> list[Segment]:
    """The segments of a call, by lhotse. Raises UserError for a line that is not two times, a side and words."""
    from lhotse.recipes.fisher_english import create_supervision  # takes a second

    file = path.stem.lower()
    sessions = {path.stem.split("_")[2]: {side: side for side in SIDES}}
    try:
        found = create_supervision((sessions, path))
    except (IndexError, KeyError, ValueError, AssertionError) as error:
        raise UserError(f"{path}: expected a head of three lines, then begin, end, A: or B: and words on each line ({error}); unpack the "
                        "transcripts again.") from error
    return [Segment(file, one.speaker, one.start, one.end, tuple(one.text.split())) for one in found]


def prepare(corpus: str, folders: dict[str, str], data: str | os.PathLike[str], words: str | os.PathLike[str],
            name: str = "train_fisher") -> Iterable[str]:
    """Write <data>/<name>; yields lines that say what came out.

    `folders`: the folders of packages that are not below `corpus`, by their numbers; `words`: the table of rules for transcripts. What was
    left out is listed in <data>/local/<name>. Raises UserError for files that are not there, damaged, of one name, or too few.
    """
    rules, data = Rules(words), Path(data)
    recordings: dict[str, Path] = {}
    calls: dict[str, Path] = {}
    unheard: list[str] = []
    for speech, transcripts, title in PARTS:
        audio, text = (package(Path(folders.get(number.lower()) or corpus), number, f"{title}, {kind}", number.lower(), [pattern])[0]
                       for number, kind, pattern in ((speech, "Speech", f"{BEGIN}*.sph"), (transcripts, "Transcripts", f"{BEGIN}*.txt")))
        heard, said = find_files(audio, ".sph", "recordings", begin=BEGIN), find_files(text, ".txt", "transcripts", begin=BEGIN)
        unheard += check_complete(audio, speech, heard, said, "conversations")
        for found, more in ((recordings, heard), (calls, said)):
            double = next((one for one in more if one in found and found[one] != more[one]), None)
            if double is not None:
                raise UserError(f"two files are called {double}: {found[double]} and {more[double]}; take one away.")
            found.update(more)
    headers = check_recordings({file: path for file, path in recordings.items() if file in calls}, RATE)
    segments = [segment for file in sorted(headers) for segment in read_call(calls[file])]
    mono = sorted({one.recording for one in segments if SIDES.index(one.side) >= headers[one.file].channels})
    segments = [one for one in segments if one.recording not in mono]
    chosen, texts, bad = with_words(segments, headers, lambda spoken: rules(" ".join(spoken)).lower().split())
    made = write_sides(data / name, recordings, headers, chosen, texts)
    yield from left_out(data / "local" / name, (
        ("audio_without_transcripts", "recordings without transcripts", sorted(set(recordings) - set(calls))),
        ("transcripts_without_audio", "conversations with transcripts and no audio", sorted(set(unheard))),
        ("sides_without_audio", "sides without a channel", mono),
        ("bad_utterances", "segments that have no length or lie behind the end of the recording", bad)))
    yield (f"{made['utterances']:,} utterances of {made['speakers']:,} speakers (sides) of {len(headers):,} conversations, "
           f"{made['hours']:.1f} h, in {data / name}; {len(segments) - len(bad) - len(chosen):,} segments without sure words left out")


def spelled(words: Iterable[str], letters: Lexicon) -> Lexicon:
    """The pronunciations of acronyms, such as i._b._m. or p._c.s, by those of their letters (W -> its own); others are left out."""
    found: Lexicon = {}
    for word in words:
        match = re.fullmatch(r"([a-z]\.(?:_[a-z]\.)*)('?s)?", word)
        if match and all(letter.upper() in letters for letter in match[1][::3]):
            phones = tuple(phone for letter in match[1][::3] for phone in letters[letter.upper()][0])
            found[word] = [(*phones, "z")] if match[2] else [phones]
    return found


def new_words(texts: Iterable[str], lexicon: Lexicon, least: int) -> list[str]:
    """The words that a lexicon lacks and that are said `least` times; words that broke off (an-) are left out."""
    counts = Counter(word for text in texts for word in text.split())
    return sorted(word for word, count in counts.items()
                  if count >= least and word not in lexicon and not word.startswith(("-", "[", "<")) and not word.endswith("-"))
