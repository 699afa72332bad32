"""Switchboard-1 release 2 (LDC97S62) with Mississippi State's transcripts of 1998 and their lexicon; 8 kHz, two sides a conversation.

The audio is any number of folders with sw0*.sph, as the discs have them. The transcripts are a tree of sw<number><side>-ms98-a-trans.text,
which lhotse's recipe reads; beside them stands sw-ms98-dict.text. What lhotse's recipe lacks is here: it stops at a conversation without
transcripts, gives both sides one speaker, and leaves the words as they are written. Each side is a speaker here, as in Kaldi's recipe.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

from pykaldist.errors import UserError
from pykaldist.io.corpora.fetch import Archive, Unreachable, fetch_archives
from pykaldist.io.corpora.packages import check_complete, check_recordings, find_files, left_out, package
from pykaldist.io.corpora.rules import Rules
from pykaldist.io.corpora.swbd_lexicon import write_lexicon, written_words
from pykaldist.io.corpora.telephone import RATE, SIDES, Segment, with_words, write_sides

NUMBER, TITLE = "LDC97S62", "Switchboard-1 release 2"
TRANSCRIPTS = Archive(("https://www.openslr.org/resources/5/switchboard_word_alignments.tar.gz",
                       "http://www.isip.piconepress.com/projects/switchboard/releases/switchboard_word_alignments.tar.gz"))
TREE, DICTIONARY = "swb_ms98_transcriptions", "sw-ms98-dict.text"

Transcripts = dict[tuple[str, str], Path]
"""(Conversation, side) -> its file."""


def find_transcripts(corpus: Path, given: str | None, fetch_dir: str | os.PathLike[str]) -> tuple[Path, Transcripts]:
    """The dictionary, and the transcript of each side: of the folder `given`, else below `corpus`, else fetched before, else fetched now.

    Raises UserError where they are not there, or two transcripts are of one side.
    """
    folder = Path(given) if given else next((path for path in sorted(corpus.rglob(TREE)) if path.is_dir()), Path(fetch_dir))
    if not given and folder == Path(fetch_dir) and not folder.is_dir():
        try:
            fetch_archives([TRANSCRIPTS], folder)
        except Unreachable as error:
            raise UserError(f"{corpus} has no folder {TREE}, and it could not be fetched ({error}); download {TRANSCRIPTS.urls[0]} "
                            "elsewhere, unpack it, and give its folder with --transcripts.") from error
    dictionary = next(iter(sorted(folder.rglob(DICTIONARY))), None)
    if dictionary is None:
        raise UserError(f"{folder} has no {DICTIONARY}, in it or below, so it has not Mississippi State's transcripts of Switchboard; give "
                        f"the folder {TREE} of {TRANSCRIPTS.name} with --transcripts.")
    found: Transcripts = {}
    for path in sorted(folder.rglob("*-trans.text")):
        name = path.name.split("-")[0]  # sw2001A
        key = (name[:-1].replace("sw", "sw0", 1), name[-1])
        if key[1] not in SIDES or key in found:
            why = f"another of this side in {found[key]}" if key in found else "another name"
            raise UserError(f"{path}: expected the transcript of one side, such as sw2001A-ms98-a-trans.text, found {why}; take it away.")
        found[key] = path
    if not found:
        raise UserError(f"{folder} has no *-trans.text, in it or below; unpack {TRANSCRIPTS.name} again.")
    return dictionary, found


def read_side(path: Path, file: str, side: str) -> list[Segment]:
    """The segments of one side, silence and all, by lhotse. Raises UserError for a line that is not a name, two times and words."""
    from lhotse.recipes.switchboard import make_segments  # takes a second

    try:
        found = make_segments(path, SimpleNamespace(id=file), SIDES.index(side), omit_silence=False)
    except (IndexError, ValueError) as error:
        raise UserError(f"{path}: expected a name, two times in seconds and words on each line ({error}); unpack the transcripts "
                        "again.") from error
    return [Segment(file, side, one.start, one.end, tuple(one.text.split())) for one in found]


def prepare(corpus: str, data: str | os.PathLike[str], fetch_dir: str | os.PathLike[str], words: str | os.PathLike[str],
            letters: str | os.PathLike[str], transcripts: str | None = None, name: str = "train") -> Iterable[str]:
    """Write <data>/<name> and <data>/local/dict; yields lines that say what came out.

    `words`: the table of rules for words; `letters`: the pronunciations of letters. What was left out is listed in <data>/local/<name>.
    Raises UserError for audio or transcripts that are not there, damaged, of one name, or too few.
    """
    folder, _ = package(Path(corpus), NUMBER, TITLE, "swbd", ["sw0*.sph"])
    recordings = find_files(folder, ".sph", "recordings", begin="sw0")
    dictionary, sides = find_transcripts(folder, transcripts, fetch_dir)
    data, rules = Path(data), Rules(words)
    said = {file for file, _ in sides}
    silent, unheard = sorted(set(recordings) - said), check_complete(folder, NUMBER, recordings, said, "conversations")
    headers = check_recordings({file: path for file, path in recordings.items() if file in said}, RATE)
    half = sorted({f"{file}-{side}" for file in said & set(recordings) for side in SIDES} - {f"{file}-{side}" for file, side in sides})
    mono = sorted(f"{file}-{side}" for file, side in sides if file in headers and SIDES.index(side) >= headers[file].channels)
    lexicon, acronyms = write_lexicon(dictionary, letters, rules, data / "local/dict")
    segments = [segment for (file, side), path in sorted(sides.items()) if file in headers and f"{file}-{side}" not in mono
                for segment in read_side(path, file, side)]
    chosen, texts, bad = with_words(segments, headers, lambda words: written_words([word for word in map(rules, words) if word], acronyms))
    made = write_sides(data / name, recordings, headers, chosen, texts)
    yield from left_out(data / "local" / name, (
        ("audio_without_transcripts", "recordings without transcripts", silent),
        ("transcripts_without_audio", "conversations with transcripts and no audio", unheard),
        ("sides_without_transcripts", "sides without a transcript", half), ("sides_without_audio", "sides without a channel", mono),
        ("bad_utterances", "segments that have no length or lie behind the end of the recording", bad)))
    tokens = [word for text in texts.values() for word in text.split()]
    outside = sum(word not in lexicon for word in tokens)
    yield (f"{made['utterances']:,} utterances of {made['speakers']:,} speakers (sides) of {len(headers):,} conversations, "
           f"{made['hours']:.1f} h, in {data / name}; {len(segments) - len(bad) - len(chosen):,} segments of silence left out")
    yield (f"{len(lexicon):,} words in {data}/local/dict/lexicon.txt; of {len(tokens):,} words in the transcripts {outside:,} are not "
           "among them")
