"""speechocean762: English sentences read by 250 speakers of Mandarin, half of them children; 2500 utterances for training, 2500 for tests.

Audio is at 16 kHz. The public layout is {train,test}/{text,utt2spk,spk2age}, WAVE/SPEAKER<number>/<utterance>.WAV, and resource/lexicon.txt
with ARPAbet phones, whose marks of stress are taken off. A copy may have other formats of audio, such as Ogg Opus. Where it has no test/,
the test set is test_children/; where it has neither, every tenth of the training speakers is held out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from pykaldist.errors import UserError
from pykaldist.io.audio import find_audio
from pykaldist.io.corpora.dictionary import Lexicon, read_lexicon, write_dict
from pykaldist.io.corpora.fetch import Archive, Unreachable, fetch_archives
from pykaldist.io.datadir import write_datadir
from pykaldist.io.tables import read_map

TARBALL = Archive(("https://www.openslr.org/resources/101/speechocean762.tar.gz",))  # whose publishers give no checksum
ADULT = 18  # years
HELD_OUT = 10  # one speaker of so many
TESTS = ("test", "test_children")  # the first that is there
AUDIO = (".WAV", ".wav", ".flac", ".sph", ".opus")

Table = dict[str, str]


def find_corpus(corpus: str | None, fetch_dir: str | os.PathLike[str], tarball: Archive = TARBALL) -> Path:
    """The corpus's folder: `corpus`, else what was fetched before, else a new copy. Raises UserError where it is no speechocean762."""
    folder = Path(corpus or fetch_dir)
    if not corpus and not folder.is_dir():
        try:
            fetch_archives([tarball], folder)
        except Unreachable as error:
            raise UserError(f"speechocean762 could not be fetched ({error}); download {TARBALL.urls[0]} elsewhere, unpack it, and give "
                            "its folder with --corpus.") from error
    inner = folder / "speechocean762"
    folder = inner if (inner / "train").is_dir() else folder
    for needed in ("train/text", "train/utt2spk", "train/spk2age", "resource/lexicon.txt"):
        if not (folder / needed).is_file():
            raise UserError(f"{folder} has no {needed}, so it is not speechocean762 in its public layout; give --corpus the folder "
                            "that has train/ and resource/.")
    return folder


def prepare(corpus: str | None, data: str | os.PathLike[str], fetch_dir: str | os.PathLike[str], speakers: str = "adults") -> Iterable[str]:
    """Write <data>/train, <data>/test and <data>/local/dict; yields lines that say what came out.

    `speakers` is adults (18 years or older) or all. Raises UserError for an utterance without audio, speaker, age or words.
    """
    folder, data = find_corpus(corpus, fetch_dir), Path(data)
    audio = find_audio(folder / "WAVE", AUDIO)
    by_name = {stem.rsplit("/", 1)[-1]: path for stem, path in audio.items()}
    train = _read_set(folder, "train", speakers)
    tested = next((part for part in TESTS if (folder / part / "utt2spk").is_file()), None)
    if tested:
        test = _read_set(folder, tested, speakers)
    else:
        held_out = set(sorted(set(train.values()))[HELD_OUT - 1::HELD_OUT])
        if not held_out:
            raise UserError(f"{folder} has no test/, and {len(set(train.values()))} training speakers, too few to hold some out.")
        test = {utt: speaker for utt, speaker in train.items() if speaker in held_out}
        train = {utt: speaker for utt, speaker in train.items() if speaker not in held_out}
        yield f"{folder} has no test/: {len(held_out)} of its speakers are held out for testing"
    text = {utt: words for part in ("train", tested) if part and (folder / part / "text").is_file()
            for utt, words in read_map(folder / part / "text").items()}
    for part, chosen in (("train", train), ("test", test)):
        silent = next((utt for utt in chosen if utt not in by_name or not text.get(utt)), None)
        if silent is not None:
            raise UserError(f"{folder}: {silent} of {part}/utt2spk has no audio below WAVE/, or no words in text; fetch the corpus again: "
                            "move it away, and run ./run.sh without --corpus.")
        write_datadir(data / part, {utt: str(by_name[utt].resolve()) for utt in chosen}, {utt: text[utt] for utt in chosen}, chosen)
        yield f"{len(chosen)} utterances of {len(set(chosen.values()))} speakers in {data / part}"
    lexicon: Lexicon = {word: list(dict.fromkeys(tuple(re.sub(r"\d$", "", phone) for phone in phones) for phones in variants))
                        for word, variants in read_lexicon(folder / "resource/lexicon.txt").items()}
    write_dict(data / "local/dict", {word: variants for word, variants in lexicon.items() if not word.startswith("<")})
    yield f"{len(lexicon)} words in {data}/local/dict/lexicon.txt"


def _read_set(folder: Path, part: str, speakers: str) -> Table:
    """Utterance -> speaker, of those speakers that are asked for."""
    utt2spk, age = read_map(folder / part / "utt2spk"), read_map(folder / part / "spk2age")
    unknown = next((s for s in utt2spk.values() if not age.get(s, "").isdecimal()), None)
    if unknown is not None:
        raise UserError(f"{folder}/{part}/spk2age has no age of speaker {unknown}; fetch the corpus again: move it away, and run ./run.sh "
                        "without --corpus.")
    chosen = {utt: s for utt, s in utt2spk.items() if speakers == "all" or int(age[s]) >= ADULT}
    if not chosen:
        raise UserError(f"{folder}/{part} has no utterances of speakers of {ADULT} years or older; use --speakers all.")
    return chosen
