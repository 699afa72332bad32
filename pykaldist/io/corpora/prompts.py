"""Asterisk's voice prompts: telephone speech (8 kHz) in five languages, two hours by five voices, with transcripts.

Each language has a folder of audio and a list, `core-sounds-<language>.txt`, of what is said (see prompts_text.py). Pronunciations are
those of the recipe's lexicon. A prompt with a word that it lacks is lost, and named.
"""

from __future__ import annotations

import gzip
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pykaldist.errors import UserError
from pykaldist.io.audio import find_audio
from pykaldist.io.corpora.dictionary import Pronunciations, read_lexicon, write_dict
from pykaldist.io.corpora.fetch import Archive, Unreachable, fetch_archives
from pykaldist.io.corpora.prompts_text import LANGUAGES, read_list
from pykaldist.io.datadir import write_datadir

SPEAKERS = {"en": "en-allison", "es": "es-allison", "fr": "fr-june", "it": "it-carlo", "ru": "ru-maxim"}
INSTALLED = "/usr/share/asterisk/sounds"
PARTS = {2: "dev", 5: "test", 8: "test"}
"""Of every ten texts in their order, which are for development and for testing; the others are for training."""
CYCLE = 10

_VERSION = "1.6.1"
_PACKAGE = "asterisk-core-sounds"
_UPSTREAM = "https://downloads.asterisk.org/pub/telephony/sounds/releases/asterisk-core-sounds"
_DEBS = {  # package -> size, SHA-256, as Debian's own lists have them
    "en-wav": (18272864, "2be3ea287d83299d143815fa804f11179a75b7affd4a758b98b55f5afc18a35d"),
    "es-wav": (23767256, "9283a09a6d56fccdcc2bcfe86c48f0f844289cfbd46a3184d8785a6f7f569903"),
    "fr-wav": (18516060, "8d4e1bc32ed5ba7fbda40841ca1825ed20cc6232724a473c90f8bb0e53e6073e"),
    "it-wav": (18262124, "5a26638089e134b8ac39363fe249c5c93c50cd8bfdc9b2499ae61ec4a35e2fcb"),
    "ru-wav": (18788860, "ccbfaebfa450b7a9ddf644ae0f3d1e9017d5df7c0aebe816e946345589d38201"),
    "en": (22844, "973e797d28e37fa6ca3c0a9d6fa717e77cf1268ae916bf09fd3503113cdffa50"),
    "es": (22012, "9afdab7f559f036649fb406e625899306ca1004df8ebe39c30bfbd5912d66f74"),
    "fr": (23152, "04c82c78c570c43a7136cbc5e2488d0c470b775468dff9fbce4a131b18cf1056"),
    "it": (23972, "3884d9457e12f21caa018c18f0d587df5d53ebea14b673d8453a134c5941ab3b"),
    "ru": (25592, "28a61616bb0cd3345a7ea532dec4df9f071e5d0fa9f8c1a563ea9669002f39ab"),
}
_TARBALLS = {  # of Asterisk, which Debian's packages were made of: sums as Debian's source package has them
    "en": (20176188, "07ad543764567ea235d3a96dcd15ecce4521855efc295de6f5443299c331ec0b"),
    "es": (25834855, "4486234639392254da452f03d835e89c37416367b11cc8c76bc8492151ac4ebe"),
    "fr": (20726064, "43a5d591dc3e70c2e2c0b4c41b21980efb4de4c949172ffddb03a7ae5819f8ed"),
    "it": (19756185, "5dd007716a64f9599e47a9ce51ec6decb93221846d2d5b694120ae85f891ed13"),
    "ru": (20347533, "db52d0a1828f6ee0c211f5c30fa5b8e35753e3bcff3d9ec6fa3e1cdc833954bf"),
}


def sources(languages: Sequence[str]) -> list[list[Archive]]:
    """The sources to fetch the prompts from, in order: Debian's packages, else Asterisk's tarballs."""
    debs = [name for language in languages for name in (f"{language}-wav", language)]
    return [[Archive((f"apt:{_PACKAGE}-{name}",), *_DEBS[name]) for name in debs],
            [Archive((f"{_UPSTREAM}-{language}-wav-{_VERSION}.tar.gz",), *_TARBALLS[language], into=language) for language in languages]]


@dataclass
class Language:
    """The list of a language's prompts, and the audio of each by its name."""

    listing: Path
    audio: dict[str, Path]


def locate(folder: str | os.PathLike[str], language: str) -> Language | str:
    """A language's list and audio below `folder`, or what is missing. An installed package has its list below share/doc."""
    root = Path(folder)
    name = f"core-sounds-{language}.txt"
    if not root.is_dir():
        return f"{folder} is no directory"
    lists = sorted(root.rglob(f"{name}*")) + sorted(root.parent.parent.glob(f"doc/asterisk-core-sounds-{language}*/{name}*"))
    if not lists:
        return f"{folder} has no {name}, the text of the prompts"
    audio = find_audio(root)
    homes = sorted({str(Path(stem).parent.parent) for stem in audio if stem.endswith("digits/1")})
    named = [home for home in homes if Path(home).name.startswith(language)] or (homes if len(homes) == 1 else [])
    if not named:
        return f"{folder} has no prompt of language {language!r} as wav, flac or sph (such as {language}/digits/1.wav)"
    prefix = "" if named[0] == "." else f"{named[0]}/"
    return Language(lists[0], {stem[len(prefix) :]: path for stem, path in audio.items() if stem.startswith(prefix)})


def find_corpus(corpus: str | None, fetch_dir: str | os.PathLike[str], languages: Sequence[str], installed: str = INSTALLED,
                offered: Sequence[Sequence[Archive]] | None = None) -> dict[str, Language]:
    """The lists and the audio: of `corpus`, else installed, else fetched before, else fetched from the first of `offered` that works.

    Raises UserError where they are nowhere.
    """
    if corpus:
        found = _locate_all(corpus, languages)
        if isinstance(found, str):
            raise UserError(f"{found}; give --corpus the folder of Asterisk's core sounds in these languages, or leave it out to have them "
                            "fetched.")
        return found
    for place in (installed, fetch_dir):
        found = _locate_all(place, languages)
        if not isinstance(found, str):
            return found
    refusals = []
    for archives in sources(languages) if offered is None else offered:
        try:
            fetch_archives(archives, fetch_dir)
        except Unreachable as refusal:
            refusals.append(str(refusal))
            continue
        found = _locate_all(fetch_dir, languages)
        if not isinstance(found, str):
            return found
        refusals.append(found)
    raise UserError(f"the prompts could not be fetched ({'; '.join(refusals)}); fetch the packages asterisk-core-sounds-<language> and "
                    "-<language>-wav elsewhere, unpack them, and give their folder with --corpus.")


def _locate_all(folder: str | os.PathLike[str], languages: Sequence[str]) -> dict[str, Language] | str:
    found = {}
    for language in languages:
        one = locate(folder, language)
        if isinstance(one, str):
            return one
        found[language] = one
    return found


def read_lines(path: Path) -> list[str]:
    """The lines of a list, gzipped or not."""
    opener: Callable[..., object] = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8") as stream:  # type: ignore[attr-defined]  # both give text streams
            return stream.read().splitlines()
    except (UnicodeDecodeError, gzip.BadGzipFile, EOFError) as error:
        raise UserError(f"{path} is no readable list of prompts ({error}); fetch the corpus again: move it away, and run ./run.sh without "
                        "--corpus.") from error


def split(prompts: dict[str, list[str]]) -> dict[str, str]:
    """Divide prompts among train, dev and test: prompt -> part. Prompts that say the same go to the same part."""
    parts: dict[str, str] = {}
    found = {}
    for name, words in sorted(prompts.items()):
        text = " ".join(words)
        parts.setdefault(text, PARTS.get(len(parts) % CYCLE, "train"))
        found[name] = parts[text]
    return found


def _of_language(word: str, variants: Pronunciations) -> Pronunciations:
    """Phones with the word's language before them: the r of `it:premere` is it_r, another than es_r."""
    return [tuple(f"{word.split(':')[0]}_{phone}" for phone in variant) for variant in variants]


def prepare(corpus: str | None, data: str | os.PathLike[str], fetch_dir: str | os.PathLike[str], lexicon: str,
            languages: Sequence[str] = LANGUAGES) -> Iterable[str]:
    """Write <data>/{train,dev,test} and <data>/local/dict; yields lines that say what came out and what was lost.

    The dictionary has the words of all prompts, for a telephone system knows what it says; the language model's text is the training
    prompts' only. Each language has phones of its own.
    """
    if unheard_of := [language for language in languages if language not in LANGUAGES]:
        raise UserError(f"there are no prompts of language {unheard_of[0]!r}; expected some of {' '.join(LANGUAGES)}.")
    corpora = find_corpus(corpus, fetch_dir, languages)
    pronunciations = read_lexicon(lexicon)
    sets: dict[str, dict[str, tuple[str, str, str]]] = {"train": {}, "dev": {}, "test": {}}  # utterance -> audio, text, speaker
    lost: Counter[str] = Counter()
    unknown: dict[str, list[str]] = {}
    total = 0
    for language, found in corpora.items():
        prompts = read_list(language, read_lines(found.listing))
        total += len(prompts)
        kept: dict[str, list[str]] = {}
        for name, said in prompts.items():
            if isinstance(said, str):
                lost[said] += 1
            elif name not in found.audio:
                lost["no audio"] += 1
            elif missing := [word for word in said if word not in pronunciations]:
                unknown[f"{language} {name}"] = missing
            else:
                kept[name] = said
        if not kept:
            raise UserError(f"{found.listing} and the audio beside it have no prompt in common; fetch the corpus again: move it away, and "
                            "run ./run.sh without --corpus.")
        speaker = SPEAKERS[language]
        for name, part in split(kept).items():
            sets[part][f"{speaker}-{name.replace('/', '-')}"] = (str(found.audio[name].resolve()), " ".join(kept[name]), speaker)
    words_used = set()
    for part, utts in sets.items():
        write_datadir(Path(data) / part, *({utt: row[i] for utt, row in utts.items()} for i in range(3)))
        words_used |= {word for _, text, _ in utts.values() for word in text.split()}
        yield f"{len(utts)} prompts, {sum(len(text.split()) for _, text, _ in utts.values())} words in {data}/{part}"
    write_dict(Path(data) / "local/dict", {word: _of_language(word, pronunciations[word]) for word in words_used})
    yield f"left out of {total}: " + ", ".join([f"{n} {reason}" for reason, n in lost.most_common()] + [f"{len(unknown)} unknown"])
    for name, missing in unknown.items():
        yield f"left out: {name}, for {', '.join(missing)}; add it to the lexicon"
    yield f"{len(words_used)} words in {data}/local/dict/lexicon.txt"
